"""Decoding in child processes: what a bad picture costs, and what is left afterwards."""

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import psutil
import pytest
from PIL import Image

from tests.pictures import bomb, chunk, drawing, encoded
from tests.support import eventually
from vision_worker.decoder import GRACE_SECONDS, MEMORY_BYTES, Request
from vision_worker.decoders import DecoderPool
from vision_worker.errors import DecoderUnavailable, VisionError
from vision_worker.images import decode, frame
from vision_worker.types import ImageRecord
from vision_worker.views import FULL_SIDE, MAX_BYTES, THUMBNAIL_SIDE, ImageViews

DEADLINE = 60
PIXELS = 178_000_000
DATA = encoded(drawing(300, 200), "PNG")


@pytest.fixture
async def pool() -> AsyncIterator[DecoderPool]:
    pool = DecoderPool(workers=2, seconds=DEADLINE)
    yield pool
    await pool.close()
    assert children() == []


@pytest.fixture
def picture(tmp_path: Path) -> Request:
    return request_for(tmp_path / "picture.png", DATA)


def request_for(path: Path, data: bytes) -> Request:
    path.write_bytes(data)
    return Request(str(path), sha256(data).hexdigest(), "letterbox", 64, PIXELS)


def children() -> list[psutil.Process]:
    """Decoders of this process that run, or that nobody has waited for."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() == psutil.STATUS_ZOMBIE or "vision_worker.decoder" in child.cmdline()
    ]


async def code_of(pool: DecoderPool, request: Request) -> str:
    with pytest.raises(VisionError) as caught:
        await pool.decode(request)
    return caught.value.code


async def decodes(pool: DecoderPool, request: Request) -> None:
    """The pool is in order: it makes of the picture what this process would."""
    rasters = await pool.decode(request)
    image = decode(BytesIO(DATA), request.path, max_pixels=PIXELS)
    squares = frame(image, request.framing, request.size)  # type: ignore[arg-type]
    assert [(raster.width, raster.height) for raster in rasters] == [(64, 64)] * len(squares)
    assert [raster.rgb for raster in rasters] == [square.tobytes() for square in squares]


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["letterbox", "centre-crop", "tiles"])
async def test_a_child_makes_the_same_squares_as_this_process(
    pool: DecoderPool, picture: Request, framing: str
) -> None:
    await decodes(pool, replace(picture, framing=framing))  # type: ignore[arg-type]


async def test_many_at_once_share_the_children_and_keep_their_answers_apart(
    pool: DecoderPool, tmp_path: Path
) -> None:
    shades = range(0, 256, 8)
    requests = [
        replace(
            request_for(tmp_path / f"{shade}.png", encoded(Image.new("L", (9, 9), shade), "PNG")),
            size=9,
        )
        for shade in shades
    ]
    answers = await asyncio.gather(*(pool.decode(request) for request in requests))
    assert [raster.rgb for (raster,) in answers] == [bytes([shade]) * 243 for shade in shades]
    assert len(children()) == 2


async def test_what_is_wrong_with_a_file_is_told_and_the_child_goes_on(
    pool: DecoderPool, picture: Request, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    cut = request_for(tmp_path / "cut.png", DATA[: len(DATA) // 2])
    text = request_for(tmp_path / "text.png", b"only text")
    outcomes = {
        "blob_missing": replace(picture, path=str(tmp_path / "absent.png")),
        "file_not_found": replace(picture, path=str(tmp_path / "absent.png"), sha256=None),
        "blob_corrupt": replace(picture, sha256="0" * 64),
        "blob_unreadable": replace(picture, path=str(tmp_path / ("o" * 256))),
        "file_unreadable": replace(picture, path=str(tmp_path / ("o" * 256)), sha256=None),
        "not_a_file": replace(picture, path=str(tmp_path / "fifo")),
        "too_big": replace(picture, max_file_size=len(DATA) - 1),
        "too_many_pixels": replace(picture, max_pixels=300 * 200 - 1),
        "outside_allowed_roots": replace(picture, roots=(str(tmp_path / "other"),)),
        "undecodable": cut,
        "not_an_image": text,
    }
    assert {code: await code_of(pool, request) for code, request in outcomes.items()} == {
        code: code for code in outcomes
    }
    assert len(children()) == 1
    await decodes(pool, replace(picture, roots=(str(tmp_path),)))


async def test_any_name_of_a_file_reaches_the_child(pool: DecoderPool, tmp_path: Path) -> None:
    for name in (b"line\nbreak.png", b"\xff\xfe.png", b"o" * 255):
        request = request_for(tmp_path / os.fsdecode(name), DATA)
        await decodes(pool, request)
        with pytest.raises(VisionError) as caught:
            await pool.decode(replace(request, sha256="0" * 64))
        assert str(caught.value).isprintable()


# --- children that die, hang or cannot start ----------------------------------------------------


async def test_a_killed_child_costs_one_picture(pool: DecoderPool, picture: Request) -> None:
    await decodes(pool, picture)
    (child,) = children()
    child.suspend()
    task = asyncio.create_task(pool.decode(picture))
    await asyncio.sleep(0)
    child.kill()
    with pytest.raises(VisionError) as caught:
        await task
    assert (caught.value.code, str(caught.value)) == (
        "decoder_crashed",
        f"Decoding {picture.path} crashed the decoder (signal 9). The file is damaged or hostile.",
    )
    await decodes(pool, picture)
    assert [other.pid != child.pid for other in children()] == [True]


async def test_a_child_that_died_idle_costs_nothing(pool: DecoderPool, picture: Request) -> None:
    await decodes(pool, picture)
    (child,) = pool._idle
    child.kill()
    await child.wait()
    await decodes(pool, picture)


async def test_a_hanging_child_costs_one_picture(picture: Request) -> None:
    pool = DecoderPool(workers=1, seconds=1)
    try:
        await decodes(pool, picture)
        (child,) = children()
        child.suspend()
        assert await code_of(pool, picture) == "decoder_timeout"
        assert children() == []
        await decodes(pool, picture)
    finally:
        await pool.close()
    assert children() == []


async def test_a_cancelled_wait_takes_its_child_along(pool: DecoderPool, picture: Request) -> None:
    await decodes(pool, picture)
    (child,) = children()
    child.suspend()
    task = asyncio.create_task(pool.decode(picture))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == []
    await decodes(pool, picture)


async def test_closing_ends_what_is_under_way_and_what_waits(picture: Request) -> None:
    pool = DecoderPool(workers=1, seconds=DEADLINE)
    await decodes(pool, picture)
    (child,) = children()
    child.suspend()
    tasks = [asyncio.create_task(pool.decode(picture)) for _ in range(3)]
    await asyncio.sleep(0)
    await pool.close()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [DecoderUnavailable] * 3
    assert children() == []


async def test_closing_while_a_child_starts_leaves_none(picture: Request) -> None:
    pool = DecoderPool(workers=1, seconds=DEADLINE)
    task = asyncio.create_task(pool.decode(picture))
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(DecoderUnavailable):
        await task
    assert children() == []


@pytest.mark.parametrize(
    ("program", "reason"),
    [("/bin/false", "exit status 1"), ("/nonexistent/python", "No such file or directory")],
)
async def test_a_decoder_that_cannot_start_is_no_fault_of_the_picture(
    pool: DecoderPool,
    picture: Request,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    reason: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", program)
        with pytest.raises(DecoderUnavailable) as caught:
            await pool.decode(picture)
    assert (caught.value.details, caught.value.transient) == ({"reason": reason}, True)
    assert children() == []
    await decodes(pool, picture)


async def test_nothing_is_imported_from_the_folder_it_is_started_in(
    pool: DecoderPool, picture: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "hashlib", "vision_worker", "PIL"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    await decodes(pool, picture)


async def test_what_a_library_prints_does_not_disturb_the_answers(
    pool: DecoderPool, picture: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "from PIL import PngImagePlugin\n"
        "class Noisy(PngImagePlugin.PngImageFile):\n"
        "    def load(self):\n"
        "        print('x' * 500_000, flush=True)\n"
        "        print('x' * 500_000, file=sys.stderr, flush=True)\n"
        "        os.write(1, b'x' * 100_000)\n"
        "        return super().load()\n"
        "PngImagePlugin.PngImageFile = Noisy\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    await decodes(pool, picture)
    await decodes(pool, picture)


def test_a_pool_works_on_a_loop_of_another_thread(picture: Request) -> None:
    async def use() -> None:
        pool = DecoderPool(workers=1, seconds=DEADLINE)
        try:
            await decodes(pool, picture)
        finally:
            await pool.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, use()).result(DEADLINE)
    assert children() == []


# --- memory and time ----------------------------------------------------------------------------


async def test_a_picture_near_the_pixel_bound_fits_the_memory_of_a_child(
    pool: DecoderPool, tmp_path: Path
) -> None:
    (raster,) = await pool.decode(request_for(tmp_path / "bomb.png", bomb()))
    assert raster.rgb == bytes((255, 127, 127)) * 64 * 64


async def test_a_picture_beyond_the_memory_of_a_child_costs_itself_only(
    pool: DecoderPool, picture: Request, tmp_path: Path
) -> None:
    header = struct.pack(">IIBBBBB", 12_000, 12_000, 8, 6, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64))
    huge = request_for(tmp_path / "huge.png", data)
    await decodes(pool, picture)
    (child,) = before = children()
    assert child.rlimit(psutil.RLIMIT_AS) == (MEMORY_BYTES, MEMORY_BYTES)
    # A smaller limit, so that reaching it costs the machine less.
    child.rlimit(psutil.RLIMIT_AS, (400 << 20, MEMORY_BYTES))
    with pytest.raises(VisionError) as caught:
        await pool.decode(huge)
    assert caught.value.code == "undecodable"
    assert "it needs more memory than decoding may use" in str(caught.value)
    await decodes(pool, picture)
    assert children() == before


OWNER = """
import asyncio, json, os, sys
from vision_worker.decoder import Request
from vision_worker.decoders import DecoderPool

async def main():
    pool = DecoderPool(workers=1, seconds=60)
    await pool.decode(Request(sys.argv[1], None, "letterbox", 64, 10 ** 9))
    print(next(iter(pool._children)).pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_child_ends_with_its_killed_parent(picture: Request) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, picture.path, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    child = psutil.Process(int(await owner.stdout.readline()))
    owner.kill()
    await owner.wait()

    async def gone() -> bool:
        return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

    await eventually(gone, "the decoder ends after its parent")


def test_a_decoder_gives_up_by_itself_where_nobody_stops_it(tmp_path: Path) -> None:
    request = request_for(tmp_path / "bomb.png", bomb())
    seconds = 0.05 - GRACE_SECONDS
    child = subprocess.run(
        [sys.executable, "-P", "-m", "vision_worker.decoder", str(seconds)],
        input=json.dumps(vars(request)).encode() + b"\n",
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (child.returncode, child.stdout) == (-signal.SIGALRM, b"ready\n")


def test_a_decoder_is_light() -> None:
    program = "import json, sys, vision_worker.decoder; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, timeout=DEADLINE, check=True
    )
    heavy = {"asyncio", "asyncpg", "celery", "numpy", "pydantic", "torch", "transformers"}
    assert heavy & set(json.loads(done.stdout)) == set()


# --- views --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "side", "expected"),
    [
        ((1920, 1080), THUMBNAIL_SIDE, (512, 288)),
        ((1920, 1080), FULL_SIDE, (1568, 882)),
        ((40, 24), FULL_SIDE, (40, 24)),
        ((1, 60_000), THUMBNAIL_SIDE, (1, 512)),
    ],
)
async def test_a_view_is_a_jpeg_of_bounded_sides(
    pool: DecoderPool,
    tmp_path: Path,
    size: tuple[int, int],
    side: int,
    expected: tuple[int, int],
) -> None:
    image = record(tmp_path / "a.png", encoded(Image.new("RGB", size, (200, 30, 30)), "PNG"))
    view = await ImageViews(pool, max_pixels=PIXELS).render(image, side)
    with Image.open(BytesIO(view)) as picture:
        assert (picture.format, picture.size) == ("JPEG", expected)
        assert picture.convert("RGB").getpixel((0, 0)) in [(r, 30, 30) for r in range(198, 203)]


async def test_a_view_of_pure_noise_is_bounded_in_bytes(pool: DecoderPool, tmp_path: Path) -> None:
    noise = Image.frombytes("RGB", (1600, 1600), os.urandom(1600 * 1600 * 3))
    image = record(tmp_path / "noise.bmp", encoded(noise, "BMP"))
    view = await ImageViews(pool, max_pixels=PIXELS).render(image, FULL_SIDE)
    assert len(view) <= MAX_BYTES


async def test_a_view_of_a_lost_or_changed_blob_says_so(pool: DecoderPool, tmp_path: Path) -> None:
    views = ImageViews(pool, max_pixels=PIXELS)
    image = record(tmp_path / "a.png", DATA)
    codes = []
    for damage in (lambda path: path.write_bytes(DATA[:-1]), Path.unlink):
        damage(tmp_path / "a.png")
        with pytest.raises(VisionError) as caught:
            await views.render(image, THUMBNAIL_SIDE)
        codes.append(caught.value.code)
    assert codes == ["blob_corrupt", "blob_missing"]


def record(path: Path, data: bytes) -> ImageRecord:
    path.write_bytes(data)
    return ImageRecord(
        id="",
        memory_id="",
        file_path=str(path),
        sha256=sha256(data).hexdigest(),
        mime_type="image/png",
    )
