"""Who may come in: a token on every route, wrong ones throttled, none of them in a log."""

import hmac
import ipaddress
import time
from collections import OrderedDict
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from mcp_adapters.problems import problem
from mcp_adapters.tokens import Signer

WRONG_TOKENS = 10
"""Wrong tokens that a client may give within the window before it is told to wait."""
WINDOW_SECONDS = 60.0
CLIENTS = 4096
TOKENS = "vision_worker.tokens"


class Redaction:
    """Takes ``?token=`` out of the query before anybody can log it; the gate finds it apart.

    The scope is changed in place: it is the server's own, from which its access log is written.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            pairs = parse_qsl(scope.get("query_string", b"").decode("latin-1"), True)
            scope[TOKENS] = [value for name, value in pairs if name == "token"]
            if any("token" in name.lower() for name, _ in pairs):
                redacted = [
                    (name, "redacted" if "token" in name.lower() else value)
                    for name, value in pairs
                ]
                scope["query_string"] = urlencode(redacted, encoding="latin-1").encode()
        await self._app(scope, receive, send)


class Gate:
    """Lets a request in that shows the Bearer token, or a signed one for just its path.

    Without a token to compare with it lets in only what this machine asks of itself, by a name of
    its own: a page elsewhere that makes its name point here is refused.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, signer: Signer | None) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._signer = signer
        self._throttle = Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await WebSocketClose()(scope, receive, send)
        response = problem(401, "unauthorized", "A right token is needed.")
        response.headers["WWW-Authenticate"] = "Bearer"
        match self._verdict(scope):
            case "right":
                return await self._app(scope, receive, send)
            case "wrong":
                seconds = self._throttle.wrong(_client(scope))
                if seconds:
                    response = problem(429, "too_many_wrong_tokens", "Wait, then try again.")
                    response.headers["Retry-After"] = str(seconds)
        return await response(scope, receive, send)

    def _verdict(self, scope: Scope) -> str:
        if self._token is None or self._signer is None:
            return "right" if _is_local(scope) else "missing"
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        verdicts = {self._signer.verify(path, token) for token in scope.get(TOKENS, ())}
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            same = hmac.compare_digest(given.strip().encode("latin-1"), self._token)
            verdicts.add("right" if same else "wrong")
        for verdict in ("right", "wrong", "expired"):
            if verdict in verdicts:
                return verdict
        return "missing"


class Throttle:
    """Counts wrong tokens by client, for as many clients as fit; the longest known goes first."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wrong(self, client: str) -> int:
        """Count one more; the seconds that this client has to wait, 0 for none."""
        now = time.monotonic()
        begun, count = self._clients.get(client, (now, 0))
        if now - begun > WINDOW_SECONDS:
            begun, count = now, 0
        self._clients[client] = begun, count + 1
        if len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        return 0 if count < WRONG_TOKENS else max(1, round(begun + WINDOW_SECONDS - now))


def is_loopback(host: str) -> bool:
    """Whether an address, or the name localhost, can only be reached from this machine."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _is_local(scope: Scope) -> bool:
    host = Headers(scope=scope).get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    client = scope.get("client")
    return is_loopback(name) and client is not None and is_loopback(client[0])


def _client(scope: Scope) -> str:
    """The address; of IPv6 the network, since a client has all of it."""
    host = scope["client"][0] if scope.get("client") else ""
    address = _address(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address.packed, 64), strict=False))
    return str(address or host)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
