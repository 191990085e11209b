"""What a fetch gets and what it refuses, against servers on this machine behind a fake resolver."""

import asyncio
import gzip
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.pictures import drawing, encoded
from vision_worker.addresses import is_public, literal
from vision_worker.errors import BlockedAddress, FetchFailed, TooBig, UrlNotAllowed, VisionError
from vision_worker.fetch import Fetcher

PUBLIC = "93.184.215.14"
SMALL = encoded(drawing(20, 10), "PNG")
LARGE = encoded(drawing(200, 100), "PNG")

Writer = asyncio.StreamWriter
Answer = Callable[[str, Writer], Awaitable[None]]


def plain(body: bytes, *fields: str, status: str = "200 OK", length: bool = True) -> Answer:
    """A server that answers every request so."""

    async def answer(_: str, writer: Writer) -> None:
        head = [f"HTTP/1.1 {status}", *fields, "Connection: close"]
        if length:
            head.append(f"Content-Length: {len(body)}")
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    return answer


def redirect(target: str, status: str = "302 Found") -> Answer:
    return plain(b"", f"Location: {target}", status=status)


@dataclass
class Internet:
    """A server for each public name, and what they were asked."""

    sites: dict[str, Answer] = field(default_factory=dict)
    names: dict[str, list[list[str]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    dialled: list[str] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            answer = self.sites.get(fields["Host"], plain(b"", status="404 Not Found"))
            await answer(head.split()[1], writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def resolve(self, host: str, port: int) -> list[str]:
        answers = self.names.get(host, [[PUBLIC]])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def dial(self, address: str, port: int) -> tuple[str, int]:
        self.dialled.append(f"{address}:{port}")
        return "127.0.0.1", self.port


@pytest.fixture
async def internet() -> AsyncIterator[Internet]:
    internet = Internet()
    async with await asyncio.start_server(internet.serve, "127.0.0.1", 0) as server:
        internet.port = server.sockets[0].getsockname()[1]
        yield internet


def fetcher(internet: Internet, **options: float) -> Fetcher:
    return Fetcher(resolver=internet.resolve, dial=internet.dial, **options)  # type: ignore[arg-type]


async def refused(internet: Internet, url: str, **options: float) -> VisionError:
    with pytest.raises(VisionError) as caught:
        await fetcher(internet, **options).fetch(url)
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://127.0.0.1/a.png", id="F01"),
        pytest.param("http://2130706433/a.png", id="F02"),
        pytest.param("http://0177.0.0.1/a.png", id="F03"),
        pytest.param("http://0x7f.1/a.png", id="F04"),
        pytest.param("http://[::1]/a.png", id="F05"),
        pytest.param("http://[::ffff:127.0.0.1]/a.png", id="F06"),
        pytest.param("http://169.254.169.254/latest/meta-data", id="F07"),
        pytest.param("http://[::ffff:100.64.0.1]/a.png", id="F09"),
        pytest.param("http://[fec0::1]/a.png", id="F10"),
        pytest.param("http://[2002:7f00:1::]/a.png", id="F12"),
        pytest.param("http://0.0.0.0/a.png", id="F14"),
        "http://100.64.0.1/",
        "http://192.0.0.8/",
        "http://198.18.0.1/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://10.0.0.1/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b:1::1]/",
        "http://[::7f00:1]/",
        "http://[fe80::1%25eth0]/",
        "http://[ff02::1]/",
        "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
        "http://127.1/",
        "http://\uff10x7f.1/",
        "http://\uff11\uff12\uff17.0.0.1/",
        "http://public@127.0.0.1/",
        "http://public\\@127.0.0.1/",
        "http://public.example:80@127.0.0.1/",
        "HTTP://127.0.0.1./",
    ],
)
async def test_an_address_that_is_not_public_is_blocked(internet: Internet, url: str) -> None:
    assert isinstance(await refused(internet, url), BlockedAddress)
    assert (internet.dialled, internet.requests) == ([], [])


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("file:///etc/hostname", id="F15"),
        "ftp://public.example/a.png",
        "gopher://public.example/",
        "public.example/a.png",
        "//public.example/a.png",
        "http:///a.png",
        "http://",
        "http://public.example:22/",
        "http://public.example:99999/",
        "http://%31%32%37.0.0.1/",
        "http://pub lic.example/",
        "http://[::1/",
        "",
    ],
)
async def test_what_is_no_web_address_is_not_opened(internet: Internet, url: str) -> None:
    assert isinstance(await refused(internet, url), UrlNotAllowed)
    assert (internet.dialled, internet.requests) == ([], [])


async def test_F16_a_second_look_up_changes_nothing(internet: Internet) -> None:
    internet.names["rebinding.example"] = [[PUBLIC], ["127.0.0.1"]]
    internet.sites["rebinding.example"] = plain(SMALL)
    assert (await fetcher(internet).fetch("http://rebinding.example/a.png")).data == SMALL
    assert internet.dialled == [f"{PUBLIC}:80"]


async def test_a_name_with_one_private_address_among_its_addresses_is_blocked(
    internet: Internet,
) -> None:
    internet.names["mixed.example"] = [[PUBLIC, "10.0.0.1"]]
    assert isinstance(await refused(internet, "http://mixed.example/"), BlockedAddress)
    assert internet.dialled == []


@pytest.mark.parametrize(
    ("target", "error"),
    [
        pytest.param("http://127.0.0.1/", BlockedAddress, id="F17"),
        ("http://private.example/", BlockedAddress),
        ("//[::1]/", BlockedAddress),
        ("file:///etc/passwd", UrlNotAllowed),
        ("http://public.example:8080/", UrlNotAllowed),
        ("", FetchFailed),
    ],
)
async def test_a_redirect_is_vetted_like_the_first_address(
    internet: Internet, target: str, error: type[VisionError]
) -> None:
    internet.names["private.example"] = [["192.168.0.1"]]
    internet.sites["public.example"] = redirect(target)
    assert isinstance(await refused(internet, "http://public.example/"), error)
    assert set(internet.dialled) == {f"{PUBLIC}:80"}


def hops(count: int) -> Answer:
    async def answer(path: str, writer: Writer) -> None:
        number = int(path.strip("/") or 0)
        step = redirect(f"/{number + 1}") if number < count else plain(SMALL)
        await step(path, writer)

    return answer


async def test_F18_five_redirects_lead_to_the_picture(internet: Internet) -> None:
    internet.sites["public.example"] = hops(5)
    fetched = await fetcher(internet).fetch("http://public.example/")
    assert (fetched.data, fetched.url) == (SMALL, "http://public.example/5")


async def test_F19_six_redirects_are_too_many(internet: Internet) -> None:
    internet.sites["public.example"] = hops(6)
    assert "more than 5 times" in str(await refused(internet, "http://public.example/"))
    assert len(internet.requests) == 6


@pytest.mark.parametrize("told", [True, False])
async def test_F20_a_body_past_the_limit_is_cut_off(internet: Internet, told: bool) -> None:
    sent = 0

    async def endless(_: str, writer: Writer) -> None:
        nonlocal sent
        length = b"Content-Length: 200000000\r\n" if told else b""
        writer.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n")
        while sent < 200_000_000:
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    internet.sites["public.example"] = endless
    assert isinstance(await refused(internet, "http://public.example/"), TooBig)
    assert sent < 30_000_000


async def test_a_body_of_exactly_the_limit_is_taken(internet: Internet) -> None:
    internet.sites["public.example"] = plain(b"x" * 5000)
    url = "http://public.example/"
    assert len((await fetcher(internet, max_bytes=5000).fetch(url)).data) == 5000
    assert isinstance(await refused(internet, url, max_bytes=4999), TooBig)


async def test_a_bomb_is_cut_off_where_it_unpacks_to_too_much(internet: Internet) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    internet.sites["public.example"] = plain(bomb, "Content-Encoding: gzip")
    assert isinstance(await refused(internet, "http://public.example/"), TooBig)
    internet.sites["public.example"] = plain(gzip.compress(SMALL), "Content-Encoding: gzip")
    assert (await fetcher(internet).fetch("http://public.example/")).data == SMALL
    internet.sites["public.example"] = plain(b"xx", "Content-Encoding: br")
    assert isinstance(await refused(internet, "http://public.example/"), FetchFailed)


async def test_F22_a_slow_drip_ends_at_the_deadline_and_holds_up_nobody(
    internet: Internet,
) -> None:
    ended = asyncio.Event()

    async def drip(_: str, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n")
        try:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)
        finally:
            ended.set()

    internet.sites["slow.example"] = drip
    internet.sites["public.example"] = plain(SMALL)
    slow = asyncio.create_task(refused(internet, "http://slow.example/", seconds=0.3, max_bytes=99))
    assert (await fetcher(internet).fetch("http://public.example/")).data == SMALL
    assert not slow.done()
    error = await slow
    assert (error.code, "longer than 0.3 seconds" in str(error)) == ("fetch_failed", True)
    await ended.wait()


async def test_a_server_that_says_nothing_ends_at_the_time_for_a_read(internet: Internet) -> None:
    async def silent(_: str, writer: Writer) -> None:
        await asyncio.sleep(2)

    internet.sites["public.example"] = silent
    error = await refused(internet, "http://public.example/", read_seconds=0.2)
    assert "said nothing" in str(error)


async def test_F23_a_slow_resolver_holds_up_nobody(internet: Internet) -> None:
    answered = asyncio.Event()

    async def slow(host: str, port: int) -> list[str]:
        if host == "slow.example":
            await answered.wait()
        return [PUBLIC]

    internet.sites["slow.example"] = internet.sites["public.example"] = plain(SMALL)
    both = Fetcher(resolver=slow, dial=internet.dial)
    waiting = asyncio.create_task(both.fetch("http://slow.example/"))
    assert (await both.fetch("http://public.example/")).data == SMALL
    assert not waiting.done()
    answered.set()
    assert (await waiting).data == SMALL


async def test_a_resolver_that_never_answers_ends_in_time(internet: Internet) -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(FetchFailed, match="could not be looked up in time"):
        await Fetcher(resolver=never, dial=internet.dial, read_seconds=0.1).fetch(
            "http://a.example"
        )


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        pytest.param(["Content-Type: image/jpeg"], b"<html>log in</html>", id="F24"),
        pytest.param(["Content-Type: text/plain"], SMALL, id="F25"),
    ],
)
async def test_the_body_comes_as_it_is_whatever_it_is_called(
    internet: Internet, fields: list[str], body: bytes
) -> None:
    internet.sites["public.example"] = plain(body, *fields)
    assert (await fetcher(internet).fetch("http://public.example/photo.jpg")).data == body


def resizing(whole: Answer, small: Answer) -> Answer:
    async def answer(path: str, writer: Writer) -> None:
        await (small if "stp=" in path else whole)(path, writer)

    return answer


async def dropping(_: str, writer: Writer) -> None:
    writer.transport.abort()


@pytest.mark.parametrize(
    ("whole", "small", "kept"),
    [
        pytest.param(plain(LARGE), plain(SMALL), LARGE, id="F26"),
        pytest.param(dropping, plain(SMALL), SMALL, id="F28"),
        (plain(LARGE), dropping, LARGE),
        (plain(b"<html>" + b"x" * 9999), plain(SMALL), SMALL),
        (plain(SMALL), plain(LARGE), LARGE),
    ],
)
async def test_of_a_resized_picture_the_larger_one_is_taken(
    internet: Internet, whole: Answer, small: Answer, kept: bytes
) -> None:
    internet.sites["cdn.example"] = resizing(whole, small)
    fetched = await fetcher(internet).fetch("http://cdn.example/a.png?stp=dst-jpg_p40x40&x=1")
    assert fetched.data == kept


async def test_F29_a_secret_is_told_to_its_host_and_to_nobody_else(
    internet: Internet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    internet.sites["private.example"] = redirect("http://public.example/a.png?size=2")
    internet.sites["public.example"] = plain(SMALL)
    fetched = await fetcher(internet).fetch("http://user:hunter2@private.example/a?token=hunter3")
    assert fetched.url == "http://public.example/a.png?size=2"
    assert "Authorization: Basic" in internet.requests[0]
    assert "Authorization" not in internet.requests[1]
    internet.sites["private.example"] = plain(SMALL)
    fetched = await fetcher(internet).fetch(
        "http://user:hunter2@private.example/a?x=1&access_token=hunter3"
    )
    assert fetched.url == "http://private.example/a?x=1&access_token=***"
    internet.sites["private.example"] = dropping
    error = await refused(internet, "http://user:hunter2@private.example/a?token=hunter3")
    told = f"{error} {error.details} {error.__cause__} {caplog.text}"
    assert "hunter" not in told.replace("hunter3'", "")


async def test_F30_a_proxy_of_the_environment_gets_no_connection(
    internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    internet.sites["public.example"] = plain(SMALL)
    assert (await fetcher(internet).fetch("http://public.example/a.png")).data == SMALL
    assert internet.requests[0].startswith("GET /a.png ")
    assert internet.dialled == [f"{PUBLIC}:80"]


@pytest.mark.parametrize(
    "answer",
    [
        plain(SMALL, status="204 No Content"),
        plain(SMALL, status="206 Partial Content"),
        plain(SMALL, status="404 Not Found"),
        plain(SMALL, status="500 Oops"),
        plain(b"", status="302 Found"),
        plain(SMALL, "Content-Length: 9999", length=False),
        plain(b"zz\r\n", "Transfer-Encoding: chunked", length=False),
        dropping,
    ],
)
async def test_anything_but_a_whole_answer_is_a_failure(internet: Internet, answer: Answer) -> None:
    internet.sites["public.example"] = answer
    error = await refused(internet, "http://public.example/", read_seconds=0.5)
    assert type(error) is FetchFailed
    assert str(error).startswith("Nothing was saved: ")


async def test_a_name_in_any_script_is_asked_for_in_ascii(internet: Internet) -> None:
    internet.sites["xn--strae-oqa.example"] = plain(SMALL)
    fetched = await fetcher(internet).fetch("http://Straße.example./ä?q=ü")
    assert fetched.data == SMALL
    assert internet.requests[0].startswith("GET /%C3%A4?q=%C3%BC ")


async def test_over_tls_the_certificate_of_the_name_is_asked_for() -> None:
    seen: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _, name, __: seen.append(name)

    async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
        writer.close()

    async with listening(serve, context) as port:
        fetching = Fetcher(resolver=public, dial=lambda *_: ("127.0.0.1", port))
        with pytest.raises(FetchFailed):
            await fetching.fetch("https://public.example/a.png")
    assert seen == ["public.example"]


async def public(host: str, port: int) -> list[str]:
    return [PUBLIC]


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, Writer], Awaitable[None]], context: ssl.SSLContext
) -> AsyncIterator[int]:
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


def test_public_addresses_are_public() -> None:
    for text in (PUBLIC, "1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "2002:101:101::"):
        address = literal(text)
        assert address is not None
        assert is_public(address), text
    assert literal("public.example") is None
    assert literal("beef") is None
