"""Pictures over HTTP: who may have them, what is sent, and what nobody can make it send."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.routing import Mount

from mcp_adapters.gate import CLIENTS, WRONG_TOKENS, Throttle
from mcp_adapters.http import create_app
from mcp_adapters.tokens import Signer
from tests.http_client import Answer, fetch, request, serving
from tests.pictures import encoded
from tests.rows import Rows
from tests.support import DEADLINE, Process, eventually
from vision_worker.config import VisionConfig
from vision_worker.errors import InvalidArgument
from vision_worker.front import Front
from vision_worker.types import Keepsake

TOKEN = "a-long-random-text-of-the-test"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def config(config: VisionConfig) -> VisionConfig:
    config.http_token = TOKEN
    return config


@pytest.fixture
async def port(config: VisionConfig, front: Front) -> AsyncIterator[int]:
    async with serving(create_app(config, front=front)) as port:
        yield port


@pytest.fixture
def signer(config: VisionConfig) -> Signer:
    return Signer(TOKEN, namespace=config.namespace)


@pytest.fixture
def picture() -> bytes:
    """A PNG of several chunks."""
    return noise(384, 384)


@pytest.fixture
async def kept(front: Front, picture: bytes) -> Keepsake:
    return (await front.keepsakes.remember("Alex Doe", picture, source="camera roll")).keepsake


@pytest.fixture
def serve(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts ``vision-worker serve`` at a free port; kills it at the end."""
    started: list[Process] = []

    def start(*arguments: str, **variables: str) -> Process:
        log = tmp_path / f"serve-{len(started)}.log"
        variables = {"MEMINI_IMAGE_HTTP_PORT": "0", "MEMINI_IMAGE_HTTP_TOKEN": TOKEN} | variables
        started.append(Process(["serve", *arguments], environment | variables, log))
        return started[-1]

    yield start
    for process in started:
        process.end()


async def port_of(process: Process) -> int:
    """The port that a server of its own says it listens at."""
    told: list[str] = []

    async def listening() -> bool:
        told[:] = re.findall(r"running on http://[^ ]*:(\d+)", process.log.read_text())
        assert process.popen.poll() is None, process.log.read_text()
        return bool(told)

    await eventually(listening, "a server that listens")
    return int(told[0])


def noise(width: int, height: int) -> bytes:
    return encoded(Image.effect_noise((width, height), 64), "PNG")


def at(keepsake: Keepsake | str) -> str:
    return f"/api/visual-memory/{keepsake if isinstance(keepsake, str) else keepsake.id}"


def stable(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    """All of an answer except the time of day."""
    return (
        answer.status,
        {name: value for name, value in answer.headers.items() if name != "date"},
        answer.body,
    )


async def test_H01_a_kept_png_is_sent_whole(port: int, kept: Keepsake, picture: bytes) -> None:
    assert stable(await fetch(port, at(kept), headers=BEARER)) == (
        200,
        {
            "accept-ranges": "bytes",
            "cache-control": "private",
            "content-length": str(len(picture)),
            "content-type": "image/png",
            "cross-origin-resource-policy": "same-origin",
            "etag": f'"{kept.sha256}"',
            "server": "uvicorn",
            "x-content-type-options": "nosniff",
        },
        picture,
    )


@pytest.mark.parametrize("given", ['"{0}"', 'W/"{0}"', '"a", "{0}"', "*", '"a,b",W/"{0}" ,"c"'])
async def test_H01_what_the_client_has_is_not_sent_again(
    port: int, kept: Keepsake, given: str
) -> None:
    tag = given.format(kept.sha256)
    answer = await fetch(port, at(kept), headers=BEARER | {"If-None-Match": tag})
    assert stable(answer) == (
        304,
        {
            "cache-control": "private",
            "cross-origin-resource-policy": "same-origin",
            "etag": f'"{kept.sha256}"',
            "server": "uvicorn",
            "x-content-type-options": "nosniff",
        },
        b"",
    )


@pytest.mark.parametrize("given", ['"another"', "", "no tag", '"{0}', "{0}"])
async def test_H01_another_tag_gets_the_picture(port: int, kept: Keepsake, given: str) -> None:
    tag = given.format(kept.sha256)
    answer = await fetch(port, at(kept), headers=BEARER | {"If-None-Match": tag})
    assert (answer.status, len(answer.body)) == (200, kept.file_size_bytes)


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("bytes=0-0", slice(0, 1)),
        ("bytes=10-19", slice(10, 20)),
        ("bytes=100000-", slice(100_000, None)),
        ("bytes=-7", slice(-7, None)),
        ("bytes=-99999999", slice(0, None)),
        ("bytes=5-99999999999999999999", slice(5, None)),
        ("bytes= 1-2", slice(1, 3)),
    ],
)
async def test_H01_a_range_is_sent_alone(
    port: int, kept: Keepsake, picture: bytes, asked: str, part: slice
) -> None:
    answer = await fetch(port, at(kept), headers=BEARER | {"Range": asked})
    start, stop, _ = part.indices(len(picture))
    assert answer.status == 206
    assert answer.body == picture[part]
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(picture)}"
    assert answer.headers["content-length"] == str(stop - start)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["etag"] == f'"{kept.sha256}"'


@pytest.mark.parametrize("asked", ["bytes=99999999-", "bytes=99999999-100000000", "bytes=-0"])
async def test_a_range_past_the_end_is_refused(port: int, kept: Keepsake, asked: str) -> None:
    answer = await fetch(port, at(kept), headers=BEARER | {"Range": asked})
    assert answer.status == 416
    assert answer.headers["content-range"] == f"bytes */{kept.file_size_bytes}"


@pytest.mark.parametrize(
    "asked",
    ["bytes=1-0", "bytes=", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,5-6", "bytes=--1", "1"],
)
async def test_what_is_no_single_range_gets_the_whole(
    port: int, kept: Keepsake, picture: bytes, asked: str
) -> None:
    answer = await fetch(port, at(kept), headers=BEARER | {"Range": asked})
    assert (answer.status, answer.body) == (200, picture)


async def test_a_range_of_another_version_gets_the_whole(
    port: int, kept: Keepsake, picture: bytes
) -> None:
    asked = BEARER | {"Range": "bytes=0-3"}
    same = await fetch(port, at(kept), headers=asked | {"If-Range": f'"{kept.sha256}"'})
    assert (same.status, same.body) == (206, picture[:4])
    for other in ('"another"', f'W/"{kept.sha256}"', "Wed, 01 Jul 2026 12:00:00 GMT"):
        answer = await fetch(port, at(kept), headers=asked | {"If-Range": other})
        assert (answer.status, answer.body) == (200, picture)


async def test_H03_a_right_token_is_needed(port: int, kept: Keepsake, signer: Signer) -> None:
    signed, expired = signer.sign(kept.id), signer.sign(kept.id, ttl=-1)
    statuses = [
        (await fetch(port, at(kept) + query, headers=headers)).status
        for query, headers in [
            ("", {}),
            ("", {"Authorization": "Bearer wrong"}),
            ("", BEARER),
            (f"?token={signed}", {}),
            (f"?token={expired}", {}),
        ]
    ]
    assert statuses == [401, 401, 200, 200, 401]


async def test_a_signed_token_opens_one_picture_in_one_namespace(
    port: int, front: Front, kept: Keepsake, signer: Signer
) -> None:
    other = (await front.keepsakes.remember("Alex", noise(9, 9), source="x")).keepsake
    wrong = {
        "of another picture": signer.sign(other.id),
        "of a conversation": signer.sign_events(kept.id),
        "of another namespace": Signer(TOKEN, namespace="other").sign(kept.id),
        "of another secret": Signer("other", namespace="default").sign(kept.id),
        "prolonged": "9" + signer.sign(kept.id),
        "cut": signer.sign(kept.id)[:-1],
        "the secret itself": TOKEN,
        "none": "",
    }
    for reason, token in wrong.items():
        answer = await fetch(port, f"{at(kept)}?token={token}", source="127.0.0.2")
        assert answer.status == 401, reason
    signed = signer.sign(kept.id)
    assert (
        await fetch(port, at(kept), headers={"Authorization": f"Bearer {signed}"})
    ).status == 401
    assert (await fetch(port, f"{at(kept)}?token=wrong&token={signed}")).status == 200
    assert (await fetch(port, f"{at(kept)}?token=wrong", headers=BEARER)).status == 200


@pytest.mark.parametrize(
    "value",
    [
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN} {TOKEN}",
        "Bearer \xff",
    ],
)
async def test_only_the_whole_token_counts(port: int, kept: Keepsake, value: str) -> None:
    answer = await fetch(port, at(kept), headers={"Authorization": value})
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["cache-control"] == "no-store"


async def test_the_scheme_is_read_in_any_case(port: int, kept: Keepsake) -> None:
    headers = {"authorization": f"bearer {TOKEN}"}
    assert (await fetch(port, at(kept), headers=headers)).status == 200


@pytest.mark.parametrize("path", ["/", "/api/", "/api/nothing", "/api/events/talk", "/api/x/../y"])
async def test_every_route_has_the_same_gate(port: int, path: str) -> None:
    expected = 404 if path == "/" else 401
    assert (await fetch(port, path)).status == expected
    for method in ("POST", "DELETE", "OPTIONS"):
        assert (await fetch(port, path, method=method)).status == expected


async def test_wrong_tokens_are_throttled_and_a_right_one_still_works(
    port: int, kept: Keepsake, signer: Signer
) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    answers = [await fetch(port, at(kept), headers=wrong) for _ in range(WRONG_TOKENS)]
    assert {answer.status for answer in answers} == {401}
    for query, headers in [("", wrong), ("?token=wrong", {})]:
        answer = await fetch(port, at(kept) + query, headers=headers)
        assert answer.status == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert (await fetch(port, at(kept), headers=BEARER)).status == 200
    assert (await fetch(port, f"{at(kept)}?token={signer.sign(kept.id)}")).status == 200
    # Nobody else is held up, and who gives none is not guessing.
    assert (await fetch(port, at(kept), headers=wrong, source="127.0.0.2")).status == 401
    assert (await fetch(port, at(kept))).status == 401


async def test_an_expired_link_is_no_guess(port: int, kept: Keepsake, signer: Signer) -> None:
    stale = f"{at(kept)}?token={signer.sign(kept.id, ttl=-1)}"
    for _ in range(WRONG_TOKENS + 2):
        assert (await fetch(port, stale)).status == 401
    assert (await fetch(port, f"{at(kept)}?token=wrong")).status == 401


def test_the_throttle_forgets_the_first_of_too_many_clients() -> None:
    throttle = Throttle()
    for _ in range(WRONG_TOKENS):
        assert throttle.wrong("first") == 0
    assert throttle.wrong("first") > 0
    for number in range(CLIENTS):
        assert throttle.wrong(str(number)) == 0
    assert throttle.wrong("first") == 0


async def test_whoever_cannot_have_it_gets_the_same_answer(
    port: int, front: Front, rows: Rows, kept: Keepsake
) -> None:
    foreign = (await front.keepsakes.remember("foreign", noise(8, 9), source="x")).keepsake
    await front.database.fetch(
        "UPDATE keepsakes SET namespace = 'other' WHERE id = $1::text::uuid", foreign.id
    )
    vanished = (await front.keepsakes.remember("vanished", noise(9, 8), source="x")).keepsake
    Path(vanished.file_path).unlink()
    emptied = (await front.keepsakes.remember("emptied", noise(9, 7), source="x")).keepsake
    Path(emptied.file_path).write_bytes(b"")
    forgotten = (await front.keepsakes.remember("forgotten", noise(9, 6), source="x")).keepsake
    await front.keepsakes.forget(forgotten.id)
    trashed = (await front.keepsakes.remember("trashed", noise(9, 5), source="x")).keepsake
    await front.database.fetch(
        "UPDATE keepsakes SET trashed_at = now() WHERE id = $1::text::uuid", trashed.id
    )
    plain_image = await rows.image(file_path=kept.file_path)
    unknown = await fetch(port, at(str(uuid4())), headers=BEARER)
    assert unknown.status == 404
    assert json.loads(unknown.body)["code"] == "not_found"
    for identifier in [
        foreign.id,
        vanished.id,
        emptied.id,
        forgotten.id,
        trashed.id,
        plain_image,
        kept.image_id,
        kept.memory_id,
    ]:
        answer = await fetch(port, at(identifier), headers=BEARER)
        assert stable(answer) == stable(unknown), identifier


@pytest.mark.parametrize(
    "malformed",
    [
        "",
        "x",
        "{0}/",
        "{0}.png",
        "{0}%00",
        "{0}%0a",
        "{0}%20",
        "%7B{0}%7D",
        "urn:uuid:{0}",
        "../visual-memory/{0}",
        "..%2f..%2f..%2fetc%2fpasswd",
        "../../../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        "..%5c..%5cetc%5cpasswd",
        "%252e%252e%252fetc%252fpasswd",
        "/etc/passwd",
        "{path}",
        "%ff%fe",
        "%ED%A0%80",
        "{0}" * 40,
        "*",
        "'; DROP TABLE keepsakes; --".replace(" ", "%20"),
    ],
)
async def test_what_is_no_id_gets_the_same_answer(
    port: int, kept: Keepsake, malformed: str
) -> None:
    unknown = await fetch(port, at(str(uuid4())), headers=BEARER)
    target = at(malformed.format(kept.id, path=kept.file_path))
    assert stable(await fetch(port, target, headers=BEARER)) == stable(unknown)
    hyphenless = await fetch(port, at(kept.id.replace("-", "")), headers=BEARER)
    assert stable(hyphenless) == stable(unknown)


@pytest.mark.parametrize("kind", ["outside", "link", "folder", "pipe"])
async def test_a_row_cannot_point_at_what_is_no_stored_picture(
    port: int, front: Front, kept: Keepsake, tmp_path: Path, kind: str
) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(noise(5, 5))
    odd = front.config.resolved_image_dir / "odd.png"
    match kind:
        case "outside":
            odd = secret
        case "link":
            odd.symlink_to(secret)
        case "folder":
            odd.mkdir()
        case "pipe":
            os.mkfifo(odd)
    await front.database.fetch(
        "UPDATE memories_image SET file_path = $2 WHERE id = $1::text::uuid",
        kept.image_id,
        str(odd),
    )
    unknown = await fetch(port, at(str(uuid4())), headers=BEARER)
    assert stable(await fetch(port, at(kept), headers=BEARER)) == stable(unknown)


@pytest.mark.parametrize(
    "mime_type",
    ["image/jpeg", "image/gif", "image/webp", "image/bmp", "image/avif"],
)
async def test_a_raster_goes_out_under_its_stored_type(
    port: int, front: Front, kept: Keepsake, mime_type: str
) -> None:
    await front.database.fetch(
        "UPDATE memories_image SET mime_type = $2 WHERE id = $1::text::uuid",
        kept.image_id,
        mime_type,
    )
    answer = await fetch(port, at(kept), headers=BEARER)
    assert answer.headers["content-type"] == mime_type
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "mime_type",
    [
        "image/svg+xml",
        "text/html",
        "image/tiff",
        "image/x-icon",
        "application/xhtml+xml",
        "image/png, text/html",
        "image/png\r\nX-Injected: yes",
        "",
    ],
)
async def test_anything_else_goes_out_as_bytes_in_a_sandbox(
    port: int, front: Front, kept: Keepsake, picture: bytes, mime_type: str
) -> None:
    await front.database.fetch(
        "UPDATE memories_image SET mime_type = $2 WHERE id = $1::text::uuid",
        kept.image_id,
        mime_type,
    )
    answer = await fetch(port, at(kept), headers=BEARER)
    assert (answer.status, answer.body) == (200, picture)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "x-injected" not in answer.headers


async def test_H06_head_tells_what_get_would_and_nothing_can_be_changed(
    port: int, kept: Keepsake
) -> None:
    got = await fetch(port, at(kept), headers=BEARER)
    asked = await fetch(port, at(kept), method="HEAD", headers=BEARER)
    assert stable(asked) == (*stable(got)[:2], b"")
    ranged = BEARER | {"Range": "bytes=0-3"}
    assert stable(await fetch(port, at(kept), method="HEAD", headers=ranged)) == stable(asked)
    missing = await fetch(port, at(str(uuid4())), method="HEAD", headers=BEARER)
    assert (missing.status, missing.body) == (404, b"")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = await fetch(port, at(kept), method=method, headers=BEARER)
        assert answer.status == 405
        assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_files_are_let_go_when_a_client_leaves_in_the_middle(
    port: int, front: Front, kept: Keepsake
) -> None:
    # A sparse file, far larger than what the sockets between hold.
    os.truncate(kept.file_path, 1 << 30)

    async def is_open() -> bool:
        links = Path("/proc/self/fd").iterdir()
        return kept.file_path in {str(link.readlink()) for link in links if link.is_symlink()}

    async with request(port, at(kept), headers=BEARER) as reply:
        assert await anext(reply.parts())
        assert await is_open()

    async def closed() -> bool:
        return not await is_open()

    await eventually(closed, "the file closed")


async def test_a_picture_that_is_replaced_while_it_is_sent_comes_whole(
    port: int, front: Front, kept: Keepsake, picture: bytes
) -> None:
    async with request(port, at(kept), headers=BEARER) as reply:
        parts = reply.parts()
        body = await anext(parts)
        await front.keepsakes.forget(kept.id)
        async for part in parts:
            body += part
    assert body == picture


async def test_a_database_that_is_away_is_a_sentence_and_no_secret(
    config: VisionConfig, front: Front, kept: Keepsake
) -> None:
    config.db_url = "postgresql://vision:secret@127.0.0.1:1/none"
    async with serving(create_app(config)) as port:
        answer = await fetch(port, at(kept), headers=BEARER)
    assert answer.status == 503
    problem = json.loads(answer.body)
    assert problem["code"] == "database_unavailable"
    assert b"secret" not in answer.body
    assert b"127.0.0.1" not in answer.body


async def test_events_are_streamed_and_replayed(port: int, front: Front) -> None:
    first = await front.events.emit("talk 1", {"kind": "recalled_image", "id": "a", "about": "Zoë"})
    target = "/api/events/talk%201"
    async with request(port, target, headers=BEARER) as reply:
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert reply.headers["cache-control"] == "no-store"
        frames = reply.frames()
        assert await anext(frames) == {"retry": " 2000"}
        frame = await anext(frames)
        assert frame["id"] == f" {first}"
        assert json.loads(frame["data"]) == {"kind": "recalled_image", "id": "a", "about": "Zoë"}
        second = await front.events.emit("talk 1", {"number": 2})
        assert await anext(frames) == {"id": f" {second}", "data": ' {"number": 2}'}
    third = await front.events.emit("talk 1", {"number": 3})
    for last_id, expected in [(second, third), (first, second), (0, first), ("nonsense", first)]:
        headers = BEARER | {"Last-Event-ID": str(last_id)}
        async with request(port, target, headers=headers) as reply:
            frames = reply.frames()
            await anext(frames)
            assert (await anext(frames))["id"] == f" {expected}"


async def test_a_stream_opens_with_a_token_for_its_conversation(
    port: int, front: Front, signer: Signer
) -> None:
    token = signer.sign_events("talk")
    async with request(port, f"/api/events/talk?token={token}") as reply:
        assert reply.status == 200
    async with request(port, f"/api/events/other?token={token}") as reply:
        assert reply.status == 401
    head = await fetch(port, "/api/events/talk", method="HEAD", headers=BEARER)
    assert (head.status, head.body) == (200, b"")
    assert (await fetch(port, "/api/events/talk", method="POST", headers=BEARER)).status == 405
    assert (await fetch(port, "/api/events/", headers=BEARER)).status == 404
    assert (await fetch(port, f"/api/events/{'x' * 201}", headers=BEARER)).status == 404


async def test_a_quiet_stream_has_a_heartbeat(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_adapters.event_stream.HEARTBEAT_SECONDS", 0.05)
    async with request(port, "/api/events/talk", headers=BEARER) as reply:
        frames = reply.frames()
        assert [await anext(frames) for _ in range(3)] == [{"retry": " 2000"}, {"": ""}, {"": ""}]


async def test_every_viewer_gets_an_event_and_one_that_reads_nothing_holds_nobody_up(
    port: int, front: Front
) -> None:
    async with AsyncExitStack() as stack:
        replies = [
            await stack.enter_async_context(request(port, "/api/events/talk", headers=BEARER))
            for _ in range(21)
        ]
        readers = [reply.frames() for reply in replies[:20]]
        for frames in readers:
            await anext(frames)
        sent = []
        for number in range(60):
            event = {"number": number, "padding": "x" * 15_000}
            sent.append(await front.events.emit("talk", event))
        for frames in readers:
            assert [int((await anext(frames))["id"]) for _ in sent] == sent


async def test_a_client_that_goes_ends_its_stream(port: int, front: Front) -> None:
    async with request(port, "/api/events/talk", headers=BEARER) as reply:
        await anext(reply.frames())

    async def forgotten() -> bool:
        return not any("EventStream" in repr(task.get_coro()) for task in asyncio.all_tasks())

    await eventually(forgotten, "no stream is being sent")


async def test_mounted_into_another_app_it_works_below_its_path(
    config: VisionConfig, front: Front, kept: Keepsake, signer: Signer, picture: bytes
) -> None:
    ours = create_app(config, front=front)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with ours.router.lifespan_context(ours):
            yield

    outer = Starlette(routes=[Mount("/pictures", ours)], lifespan=lifespan)
    async with serving(outer) as port:
        target = f"/pictures{at(kept)}"
        assert (await fetch(port, target)).status == 401
        assert (await fetch(port, target, headers=BEARER)).body == picture
        assert (await fetch(port, f"{target}?token={signer.sign(kept.id)}")).body == picture
        assert (await fetch(port, f"{target}?token={signer.sign('x')}")).status == 401
        assert (await fetch(port, at(kept), headers=BEARER)).status == 404


async def test_without_a_token_only_this_machine_is_served_by_a_name_of_its_own(
    config: VisionConfig, front: Front, kept: Keepsake
) -> None:
    config.http_token = None
    async with serving(create_app(config, front=front)) as port:
        for host in ("127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:80", "[::ffff:127.0.0.1]"):
            assert (await fetch(port, at(kept), headers={"Host": host})).status == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "[::2]", "1"):
            assert (await fetch(port, at(kept), headers={"Host": host})).status == 401, host
        assert (await fetch(port, f"{at(kept)}?token=anything")).status == 200


async def test_H05_no_token_reaches_the_log(
    serve: Callable[..., Process], kept: Keepsake, signer: Signer, picture: bytes
) -> None:
    process = serve()
    port = await port_of(process)
    signed, expired = signer.sign(kept.id), signer.sign(kept.id, ttl=-1)
    tokens = [signed, expired, "wr0ngtoken", "0therparameter", "wr0ngbearer", "s3condtoken"]
    answers = [
        await fetch(port, target, headers=headers)
        for target, headers in [
            (f"{at(kept)}?token={signed}", {}),
            (f"{at(kept)}?token={expired}", {}),
            (f"{at(kept)}?token=wr0ngtoken", {}),
            (f"{at(kept)}?access_token=0therparameter", {}),
            (f"{at(kept)}?size=1&token=s3condtoken", {"Authorization": "Bearer wr0ngbearer"}),
            (f"{at(kept)}/?token={signed}", {}),
            (f"/nothing?%74oken={signed}", {}),
            (f"/api/events/talk?token={expired}", {}),
            (at(kept), BEARER),
        ]
    ]
    assert [answer.status for answer in answers] == [200, 401, 401, 401, 401, 401, 404, 401, 200]
    assert answers[0].body == answers[-1].body == picture

    async def told() -> bool:
        return process.log.read_text().count(' HTTP/1.1" ') == len(answers)

    await eventually(told, "a line for every request")
    log = process.log.read_text()
    assert f'"GET {at(kept)}?token=redacted HTTP/1.1" 200' in log
    assert "?size=1&token=redacted" in log
    for token in [*tokens, TOKEN, *(token.partition(".")[2] for token in (signed, expired))]:
        assert token not in log


async def test_sigterm_ends_the_server_with_a_stream_open(
    serve: Callable[..., Process], front: Front
) -> None:
    process = serve()
    port = await port_of(process)
    event = await front.events.emit("talk", {"number": 1})
    async with request(port, "/api/events/talk", headers=BEARER) as reply:
        frames = reply.frames()
        await anext(frames)
        assert (await anext(frames))["id"] == f" {event}"
        process.kill(signal.SIGTERM)
        assert [frame async for frame in frames] == []
    assert await asyncio.to_thread(process.wait) == 0
    assert "Traceback" not in process.log.read_text()


async def test_a_server_of_another_process_tells_what_this_one_emits(
    serve: Callable[..., Process], front: Front
) -> None:
    ports = [await port_of(process) for process in (serve(), serve())]
    async with AsyncExitStack() as stack:
        readers = [
            (
                await stack.enter_async_context(request(port, "/api/events/talk", headers=BEARER))
            ).frames()
            for port in ports
        ]
        for frames in readers:
            await anext(frames)
        sent = [await front.events.emit("talk", {"number": number}) for number in range(5)]
        for frames in readers:
            assert [int((await anext(frames))["id"]) for _ in sent] == sent


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "some.example"])
def test_another_address_needs_a_token(serve: Callable[..., Process], host: str) -> None:
    process = serve("--host", host, MEMINI_IMAGE_HTTP_TOKEN="")
    assert process.popen.wait(DEADLINE) == 1
    (line,) = process.log.read_text().splitlines()
    assert line.startswith("config_invalid: MEMINI_IMAGE_HTTP_TOKEN is not usable: it is not set")
    assert host in line


def test_a_token_that_no_header_can_carry_is_refused(serve: Callable[..., Process]) -> None:
    process = serve(MEMINI_IMAGE_HTTP_TOKEN="two words")
    assert process.popen.wait(DEADLINE) == 1
    assert "MEMINI_IMAGE_HTTP_TOKEN" in process.log.read_text()
    assert "two words" not in process.log.read_text()


def test_links_are_short_lived() -> None:
    with pytest.raises(InvalidArgument, match="ttl"):
        Signer(TOKEN).sign("x", ttl=90_000)
    with pytest.raises(InvalidArgument, match="ttl"):
        Signer(TOKEN).sign("x", ttl=float("nan"))
