"""Which network addresses are on the public internet; everything else is not to be fetched from."""

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address

# What `is_global` calls global on one supported Python or another, and what leads elsewhere.
REFUSED = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "100.64.0.0/10",
            "192.0.0.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "224.0.0.0/3",
            "64:ff9b:1::/48",
            "100::/64",
            "2001::/23",
            "3fff::/20",
            "5f00::/16",
            "fc00::/7",
            "fe80::/10",
            "fec0::/10",
            "ff00::/8",
        ),
    )
)
NAT64 = ip_network("64:ff9b::/96")
COMPATIBLE = ip_network("::/96")
NUMBERS = re.compile(r"[0-9a-fx.]+", re.IGNORECASE)


def literal(host: str) -> Address | None:
    """The address that a host is when it is no name, in any spelling that a resolver takes."""
    try:
        return ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        pass
    if NUMBERS.fullmatch(host) and any(character.isdigit() for character in host):
        try:
            # 2130706433, 0177.0.0.1 and 0x7f.1 are all 127.0.0.1.
            return IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return None


def is_public(address: Address) -> bool:
    """Whether the address, and every address that it carries inside, is globally routable."""
    if any(address.version == network.version and address in network for network in REFUSED):
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        carried = _carried(address)
        if carried is not None:
            return is_public(carried)
    return address.is_global and not address.is_multicast


def _carried(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in NAT64 or address in COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
