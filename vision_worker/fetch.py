"""The only code that opens a URL: pictures from the public internet, and from nowhere else."""

import asyncio
import base64
import re
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urljoin, urlsplit

import httpcore2 as httpcore
import idna

from vision_worker.addresses import Address, is_public, literal
from vision_worker.errors import (
    BlockedAddress,
    FetchFailed,
    ImageError,
    TooBig,
    UrlNotAllowed,
    VisionError,
)
from vision_worker.images import MAX_PIXELS, describe, sniff

MAX_BYTES = 12_000_000
TOTAL_SECONDS = 15.0
READ_SECONDS = 5.0
REDIRECTS = 5
PORTS = (80, 443)
RESOLVERS = 8
DEFAULT_PORTS = {"http": 80, "https": 443}
SECRET = re.compile(
    r"token|secret|passw|pwd|auth|sig(nature)?$|key|credential|session|jwt|^hmac$|^policy$|^oh$|^oe$",
    re.IGNORECASE,
)
"""Names of query parameters whose values are not to be kept."""
SMALLER = frozenset({"stp"})
"""Query parameters by which a CDN (Facebook's) resizes or blurs the picture."""

BEHIND = "What is behind the address"

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]


class Dial(Protocol):
    """Where a vetted address is really connected to; tests lead it to servers of their own."""

    def __call__(self, address: str, port: int) -> tuple[str, int]: ...


@dataclass(frozen=True)
class Fetched:
    """A body, and the address it came from without user, password and secrets."""

    data: bytes
    url: str


class Fetcher:
    """Gets pictures by http and https.

    A name is resolved once, off the event loop; each of its addresses has to be public, and the
    connection goes to one of those. Redirects are vetted the same way. Proxies of the environment
    are not used, nothing is written to disk, and a body is cut off past ``max_bytes``, also of what
    it unpacks to. ``seconds`` bound the whole, ``read_seconds`` each wait.
    """

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        seconds: float = TOTAL_SECONDS,
        read_seconds: float = READ_SECONDS,
        ports: Iterable[int] = PORTS,
        resolver: Resolver | None = None,
        dial: Dial | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._read_seconds = read_seconds
        self._ports = frozenset(ports)
        self._backend = VettedBackend(resolver or SystemResolver(), dial or _straight)
        self._ssl_context = ssl_context or ssl.create_default_context()

    async def fetch(self, url: str) -> Fetched:
        """The body behind a URL, whatever it is.

        Of a picture that the URL asks to be made smaller the original is tried, too, and the larger
        of the two is taken. Raises UrlNotAllowed, BlockedAddress, FetchFailed or TooBig.
        """
        asked = self._parse(url)
        tries = [asked]
        if (whole := _without(asked, SMALLER)) != asked:
            tries = [whole, asked]
        try:
            async with asyncio.timeout(self._seconds):
                outcomes = await asyncio.gather(
                    *(self._follow(one) for one in tries), return_exceptions=True
                )
        except TimeoutError:
            raise FetchFailed(reason=f"it took longer than {self._seconds:g} seconds") from None
        bodies = [outcome for outcome in outcomes if isinstance(outcome, Fetched)]
        if bodies:
            return max(bodies, key=_size)
        for outcome in reversed(outcomes):
            if isinstance(outcome, BaseException):
                raise outcome
        raise AssertionError

    async def _follow(self, url: SplitResult) -> Fetched:
        secret = _credentials(url)
        origin = url.hostname, _port(url)
        # A connection for each fetch: none is left over that was vetted for somebody else.
        async with httpcore.AsyncConnectionPool(
            ssl_context=self._ssl_context,
            network_backend=self._backend,
            max_connections=1,
            max_keepalive_connections=0,
        ) as pool:
            for _ in range(REDIRECTS + 1):
                same = (url.hostname, _port(url)) == origin
                answer = await self._get(pool, url, secret if same else None)
                if isinstance(answer, bytes):
                    return Fetched(answer, without_secrets(url))
                url = self._parse(urljoin(url.geturl(), answer))
        raise FetchFailed(reason=f"it was redirected more than {REDIRECTS} times")

    async def _get(
        self, pool: httpcore.AsyncConnectionPool, url: SplitResult, secret: bytes | None
    ) -> bytes | str:
        """The body, or where else to look."""
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), self._read_seconds)
        headers = [
            (b"Host", _host_header(url)),
            (b"User-Agent", b"vision-worker"),
            (b"Accept", b"image/*,*/*;q=0.1"),
            (b"Accept-Encoding", b"identity"),
        ]
        if secret is not None:
            headers.append((b"Authorization", b"Basic " + secret))
        target = httpcore.URL(
            scheme=url.scheme.encode(),
            host=str(url.hostname).encode(),
            port=_port(url),
            target=_target(url),
        )
        try:
            async with pool.stream(
                b"GET", target, headers=headers, extensions={"timeout": timeouts}
            ) as response:
                fields = {name.lower(): value for name, value in response.headers}
                if response.status in (301, 302, 303, 307, 308) and b"location" in fields:
                    return fields[b"location"].decode("latin-1")
                if response.status != 200:
                    raise FetchFailed(reason=f"the server answered {response.status}")
                return await self._body(response, fields)
        except httpcore.TimeoutException:
            reason = f"the server said nothing for {self._read_seconds:g} seconds"
            raise FetchFailed(reason=reason) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError, ValueError) as error:
            # Their texts may quote the request.
            raise FetchFailed(reason=f"the connection failed ({type(error).__name__})") from None

    async def _body(self, response: Any, fields: dict[bytes, bytes]) -> bytes:
        length = fields.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._max_bytes:
            raise TooBig(path=BEHIND, limit=self._max_bytes)
        body = bytearray()
        unpack = _unpacker(fields.get(b"content-encoding", b"").strip().lower())
        async for chunk in response.aiter_stream():
            for part in unpack(chunk, self._max_bytes + 1 - len(body)):
                body += part
                if len(body) > self._max_bytes:
                    raise TooBig(path=BEHIND, limit=self._max_bytes)
        return bytes(body)

    def _parse(self, url: str) -> SplitResult:
        """The URL with its host in ASCII. Raises UrlNotAllowed."""
        try:
            parts = urlsplit(url.strip())
            port, host = parts.port, parts.hostname
        except ValueError:
            raise UrlNotAllowed(reason="it cannot be understood") from None
        scheme = parts.scheme.lower()
        if scheme not in DEFAULT_PORTS:
            raise UrlNotAllowed(reason="only http and https are fetched")
        if not host or any(character in host for character in "\\ \t\r\n\0"):
            raise UrlNotAllowed(reason="it names no host")
        if (port if port is not None else DEFAULT_PORTS[scheme]) not in self._ports:
            raise UrlNotAllowed(reason="its port is not one that pictures are fetched from")
        address = literal(host)
        if address is None:
            try:
                host = idna.encode(host.rstrip("."), uts46=True).decode()
            except (idna.IDNAError, UnicodeError):
                raise UrlNotAllowed(reason="its host is no name of a host") from None
            address = literal(host)
        if address is not None and ("%" in host or not is_public(address)):
            raise BlockedAddress()
        user = parts.netloc.rpartition("@")[0]
        netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
        return parts._replace(
            scheme=scheme, netloc=f"{user}@{netloc}" if user else netloc, fragment=""
        )


class SystemResolver:
    """The resolver of the machine, in threads of its own: a slow one holds up nothing else."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolver")

    async def __call__(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(address[0]) for *_, address in found]


class VettedBackend(httpcore.AsyncNetworkBackend):
    """Connects to public addresses only, to the very ones that were looked at."""

    def __init__(self, resolver: Resolver, dial: Dial) -> None:
        self._resolver = resolver
        self._dial = dial
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> Any:
        addresses = await self._addresses(host, port, timeout)
        failure: Exception = httpcore.ConnectError()
        for address in addresses:
            try:
                return await self._network.connect_tcp(
                    *self._dial(str(address), port), timeout=timeout
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(self, path: str, *_: Any, **__: Any) -> Any:
        raise BlockedAddress()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _addresses(self, host: str, port: int, timeout: float | None) -> list[Address]:
        known = literal(host)
        if known is None:
            try:
                found = await asyncio.wait_for(self._resolver(host, port), timeout)
            except TimeoutError:
                raise FetchFailed(reason="its host could not be looked up in time") from None
            except (OSError, UnicodeError):
                raise FetchFailed(reason="its host is not known") from None
        addresses = [known] if known is not None else [ip_address(one) for one in found]
        if not addresses:
            raise FetchFailed(reason="its host has no address")
        if not all(map(is_public, addresses)):
            raise BlockedAddress()
        return addresses


def without_secrets(url: SplitResult) -> str:
    """The URL as it may be kept: no user, no password, no value that may be a secret."""
    query = [
        (name, "***" if SECRET.search(name) else value)
        for name, value in parse_qsl(url.query, keep_blank_values=True)
    ]
    bare = url._replace(netloc=url.netloc.rpartition("@")[2], query=urlencode(query, safe="*"))
    return bare.geturl()


def _straight(address: str, port: int) -> tuple[str, int]:
    return address, port


def _without(url: SplitResult, names: frozenset[str]) -> SplitResult:
    kept = [part for part in url.query.split("&") if part.partition("=")[0].lower() not in names]
    return url._replace(query="&".join(kept))


def _size(fetched: Fetched) -> tuple[int, int]:
    """How much picture there is, in pixels, then bytes; (-1, …) for what is none."""
    try:
        if sniff(fetched.data[:32]) is None:
            return -1, 0
        info = describe(BytesIO(fetched.data), "the picture", max_pixels=MAX_PIXELS)
    except (ImageError, VisionError):
        return -1, 0
    return info.width * info.height, len(fetched.data)


def _port(url: SplitResult) -> int:
    return url.port if url.port is not None else DEFAULT_PORTS[url.scheme]


def _host_header(url: SplitResult) -> bytes:
    return url.netloc.rpartition("@")[2].encode()


def _target(url: SplitResult) -> bytes:
    path = quote(url.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(url.query, safe="/%:@!$&'()*+,;=~-._?")
    return f"{path}?{query}".encode() if query else path.encode()


def _credentials(url: SplitResult) -> bytes | None:
    if url.username is None:
        return None
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return base64.b64encode(pair.encode())


def _unpacker(encoding: bytes) -> Callable[[bytes, int], Iterable[bytes]]:
    """Turns chunks into what they unpack to, never much more at once than is still wanted."""
    if encoding in (b"", b"identity"):
        return lambda chunk, wanted: (chunk,)
    if encoding not in (b"gzip", b"x-gzip", b"deflate"):
        raise FetchFailed(reason="the server packs its answer in a way that was not asked for")
    stream = zlib.decompressobj(zlib.MAX_WBITS | (32 if encoding != b"deflate" else 0))

    def unpack(chunk: bytes, wanted: int) -> Iterable[bytes]:
        try:
            yield stream.decompress(chunk, max(wanted, 1))
        except zlib.error:
            raise FetchFailed(reason="the answer is damaged") from None

    return unpack
