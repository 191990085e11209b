"""Keepsakes: pictures under a name, one for each name and picture, within bounds."""

import asyncio
import json
import random
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tests.pictures import bomb, chunk, drawing, encoded, files_below
from tests.support import DEADLINE, drained, eventually
from vision_worker import intake
from vision_worker import keepsakes as module
from vision_worker.config import VisionConfig
from vision_worker.decoders import DecoderPool
from vision_worker.errors import (
    AboutEmpty,
    BackendError,
    Busy,
    DatabaseUnavailable,
    ImageNotFound,
    InvalidArgument,
    KeepsakeNotFound,
    NameTaken,
    Quota,
    StorageUnavailable,
    VisionError,
)
from vision_worker.front import Front
from vision_worker.images import FORMATS
from vision_worker.intake import MAX_BYTES
from vision_worker.keepsakes import Keepsakes
from vision_worker.local import urls
from vision_worker.memory import Picture
from vision_worker.store import ImageStore, PlacedBlob
from vision_worker.types import Entity, Keepsake, Kept

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


def picture(number: int = 0) -> bytes:
    """A small PNG, another one for each number."""
    drawn = drawing(16, 12)
    drawn.putpixel((0, 0), (number % 256, number // 256 % 256, 77))
    return encoded(drawn, "PNG")


def padded(size: int) -> bytes:
    """A PNG of exactly so many bytes, with noise in a chunk that nobody reads."""
    data = picture()
    noise = chunk(b"nOiS", random.Random(0).randbytes(size - len(data) - 12))
    return data[:33] + noise + data[33:]


@pytest.fixture
def keepsakes(front: Front) -> Keepsakes:
    return front.keepsakes


@pytest.fixture
async def small(front: Front) -> AsyncIterator[Callable[..., Keepsakes]]:
    """Makes keepsakes on the same tables with other bounds."""
    pool = DecoderPool(workers=1, seconds=30)

    def make(**bounds: int) -> Keepsakes:
        store = ImageStore(front.keepsakes.store.root, max_file_size=MAX_BYTES)
        return Keepsakes(store, front.index, front._doorbell, pool, **bounds)

    yield make
    await pool.close()


@pytest.fixture
async def other(front: Front, config: VisionConfig) -> AsyncIterator[Keepsakes]:
    """The same database and folder in another namespace."""
    async with await Front.open(config.model_copy(update={"namespace": "other"})) as other:
        yield other.keepsakes


async def keep(keepsakes: Keepsakes, about: str, data: bytes | None = None) -> Kept:
    return await keepsakes.remember(about, picture() if data is None else data, source="test")


async def written(front: Front) -> tuple[list[str], dict[str, int]]:
    """The files of the store and the rows of the tables."""
    tables = ("keepsakes", "memories_image", "memories")
    counts = {
        table: int(await front.database.fetchval(f"SELECT count(*) FROM {table}"))
        for table in tables
    }
    root = front.keepsakes.store.root
    return files_below(root) if root.exists() else [], counts


async def live(keepsakes: Keepsakes) -> list[str]:
    return [kept.about for kept in (await keepsakes.page(limit=1000)).keepsakes]


async def trash(keepsakes: Keepsakes) -> list[str]:
    return [kept.about for kept in (await keepsakes.page(limit=1000, trashed=True)).keepsakes]


NOTHING: tuple[list[str], dict[str, int]] = (
    [],
    {"keepsakes": 0, "memories_image": 0, "memories": 0},
)


async def embed(front: Front) -> None:
    """Give every image a vector of the active model, as a worker does."""
    await front.database.fetch(
        "INSERT INTO vision_models (key, name, source, framing, native_dim, input_size, active)"
        " VALUES ('m@1+tiles', 'm', 'm', 'tiles', 512, 64, true) ON CONFLICT DO NOTHING"
    )
    await front.database.fetch(
        "UPDATE memories_image SET embedding = array_fill(0.5, ARRAY[768])::vector,"
        " embedding_model = 'm@1+tiles', embedded_at = now()"
    )


# --- a keepsake ---------------------------------------------------------------------------------


async def test_a_keepsake_is_a_memory_an_image_and_a_name(
    front: Front, keepsakes: Keepsakes
) -> None:
    data = picture()
    kept = await keepsakes.remember(
        " Alex\nDoe ", data, source="attachment:a.png", note="at  the beach", kind=" Person"
    )
    found = await keepsakes.get(kept.keepsake.id)
    assert kept == Kept("kept", found, [])
    image = await front.memory.get(found.image_id)
    assert found == Keepsake(
        id=found.id,
        namespace="default",
        about="Alex Doe",
        note="at the beach",
        kind="person",
        source="attachment:a.png",
        created_at=found.created_at,
        image_id=image.id,
        memory_id=image.memory_id,
        file_path=image.file_path,
        sha256=image.sha256,
        mime_type="image/png",
        width=16,
        height=12,
        file_size_bytes=len(data),
        status="pending",
        pinned=False,
        recalled_at=None,
        trashed_at=None,
    )
    assert Path(found.file_path).read_bytes() == data
    assert (image.text, image.source_type) == ("Alex Doe: at the beach", "session")
    metadata = await front.database.fetchval("SELECT metadata::text FROM memories")
    assert json.loads(metadata) == {
        "image_id": found.image_id,
        "image_path": found.file_path,
        "image_sha256": found.sha256,
        "keepsake_id": found.id,
    }
    words = await front.database.fetchval("SELECT words FROM keepsakes")
    assert words == "alex doe at the beach person"


async def test_keeping_a_picture_rings_once_the_rows_are_there(
    front: Front, keepsakes: Keepsakes
) -> None:
    await keep(keepsakes, "Alex")
    assert await asyncio.to_thread(front._doorbell.flush, 10)
    client = front.broker._client()
    try:
        assert await client.llen("vision-worker:embed") == 1
    finally:
        await client.aclose()


async def test_a_kept_picture_is_embedded_by_a_worker(
    front: Front, keepsakes: Keepsakes, start_worker: Callable[..., object]
) -> None:
    start_worker()
    kept = await keep(keepsakes, "Alex")
    await drained(front)
    assert (await keepsakes.get(kept.keepsake.id)).status == "embedded"
    again = await keep(keepsakes, "the beach")
    assert (again.code, again.keepsake.status) == ("kept", "embedded")


async def test_a_file_is_kept_like_its_bytes(keepsakes: Keepsakes, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(picture())
    first = await keepsakes.remember("Alex", path, source="a.png")
    assert await keep(keepsakes, "Alex") == replace(first, code="already_kept")


# --- identity -----------------------------------------------------------------------------------


async def test_K01_the_same_saved_twice_is_one(front: Front, keepsakes: Keepsakes) -> None:
    first = await keepsakes.remember("Alex", picture(), source="a", note="n", kind="person")
    before = await written(front)
    again = await keepsakes.remember("Alex", picture(), source="b", note="n", kind="person")
    assert again == Kept("already_kept", first.keepsake, [])
    assert await written(front) == before
    assert before[1] == {"keepsakes": 1, "memories_image": 1, "memories": 1}
    assert len(before[0]) == 1


async def test_K02_another_spelling_is_the_same_name(keepsakes: Keepsakes) -> None:
    first = await keep(keepsakes, "Alex Doe")
    again = await keep(keepsakes, "ALEX  d\u00f3e")
    assert again == Kept("already_kept", first.keepsake, [])


async def test_K03_another_picture_under_the_same_name_is_another_keepsake(
    keepsakes: Keepsakes,
) -> None:
    first = await keep(keepsakes, "Alex", picture(1))
    second = await keep(keepsakes, "Alex", picture(2))
    assert (first.code, second.code) == ("kept", "kept")
    assert first.keepsake.id != second.keepsake.id
    assert await live(keepsakes) == ["Alex", "Alex"]


async def test_K04_the_same_picture_under_another_name_is_another_keepsake_on_one_blob(
    front: Front, keepsakes: Keepsakes
) -> None:
    first = await keep(keepsakes, "Alex")
    second = await keep(keepsakes, "the beach")
    assert (first.code, second.code) == ("kept", "kept")
    assert first.keepsake.file_path == second.keepsake.file_path
    files, rows = await written(front)
    assert len(files) == 1
    assert rows == {"keepsakes": 2, "memories_image": 2, "memories": 2}


async def test_a_picture_that_is_an_image_memory_too_shares_its_file_and_its_vector(
    front: Front, keepsakes: Keepsakes
) -> None:
    saved = await front.memory.save(Picture(picture(), "a screenshot"))
    await embed(front)
    kept = await keep(keepsakes, "Alex")
    assert (kept.code, kept.keepsake.status) == ("kept", "embedded")
    assert kept.keepsake.file_path == saved.file_path
    assert kept.keepsake.image_id != saved.image_id
    await keepsakes.forget(kept.keepsake.id)
    assert (await front.memory.get(saved.image_id)).text == "a screenshot"
    assert Path(saved.file_path).exists()


async def test_fifty_at_once_under_one_name_are_one_and_one_is_told_so(
    front: Front, keepsakes: Keepsakes
) -> None:
    answers = await asyncio.gather(*(keep(keepsakes, "Alex") for _ in range(50)))
    codes = [answer.code for answer in answers]
    assert (codes.count("kept"), codes.count("already_kept")) == (1, 49)
    assert len({answer.keepsake.id for answer in answers}) == 1
    assert (await written(front))[1] == {"keepsakes": 1, "memories_image": 1, "memories": 1}


async def test_the_database_itself_refuses_a_second_of_the_same(
    front: Front, keepsakes: Keepsakes
) -> None:
    await keep(keepsakes, "Alex", picture(1))
    kept = await keep(keepsakes, "Alex", picture(2))
    with pytest.raises(BackendError, match="keepsakes_identity"):
        await front.database.fetch(
            "UPDATE keepsakes SET sha256 = (SELECT sha256 FROM keepsakes WHERE id <> $1)"
            " WHERE id = $1",
            kept.keepsake.id,
        )


async def test_a_repeat_takes_over_a_note_or_a_kind_that_is_given(
    front: Front, keepsakes: Keepsakes
) -> None:
    first = await keepsakes.remember("Alex", picture(), source="a", note="old", kind="person")
    await front.database.fetch("UPDATE memories SET embedding = array_fill(1, ARRAY[384])::vector")
    await front.database.fetch("UPDATE memories_image SET text_model = 'minilm@1'")

    async def repeat(**given: str) -> Keepsake:
        again = await keepsakes.remember("ALEX", picture(), source="b", **given)  # type: ignore[arg-type]
        assert again.code == "already_kept"
        return again.keepsake

    async def side() -> list[tuple[object, ...]]:
        rows = await front.database.fetch(
            "SELECT memories.text, memories.embedding IS NULL AS bare, text_model, words"
            " FROM memories JOIN memories_image ON memory_id = memories.id"
            " JOIN keepsakes ON image_id = memories_image.id"
        )
        return [tuple(row) for row in rows]

    assert await repeat() == first.keepsake
    assert await repeat(note="", kind="") == first.keepsake
    assert await side() == [("Alex: old", False, "minilm@1", "alex old person")]
    assert await repeat(kind="place") == replace(first.keepsake, kind="place")
    assert await side() == [("Alex: old", False, "minilm@1", "alex old place")]
    changed = await repeat(note="n\u00e9w")
    assert changed == replace(first.keepsake, kind="place", note="n\u00e9w")
    assert await side() == [("Alex: n\u00e9w", True, None, "alex new place")]


# --- bounds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "note", "kept_about", "kept_note"),
    [
        pytest.param("a" * 500, "n" * 2000, "a" * 120, "n" * 300, id="K07"),
        pytest.param("a\nb\rc\u2028d\x85e", "f\r\n\ng", "a b c d e", "f g", id="K08"),
        pytest.param("A\x1bl\u202ee\u200bx\0!", "\0\u2066n", "Alex!", "n", id="K09"),
        pytest.param("'); DROP TABLE keepsakes; --", '\\ " % $1 {0} \ud800', None, None),
    ],
)
async def test_names_and_notes_are_one_bounded_line(
    keepsakes: Keepsakes, about: str, note: str, kept_about: str | None, kept_note: str | None
) -> None:
    kept = await keepsakes.remember(about, picture(), source="s\n\0", note=note)
    found = await keepsakes.get(kept.keepsake.id)
    expected_note = note.replace("\ud800", "").strip() if kept_note is None else kept_note
    assert (found.about, found.note, found.source) == (kept_about or about, expected_note, "s")


@pytest.mark.parametrize("about", ["", "   ", "\u200b", "\u200b \u202e\0", "\u3164"])
async def test_K10_a_name_that_shows_nothing_is_refused(
    front: Front, keepsakes: Keepsakes, about: str
) -> None:
    with pytest.raises(AboutEmpty):
        await keep(keepsakes, about)
    assert await written(front) == NOTHING


@pytest.mark.parametrize(
    ("given", "kept"),
    [("  PERSON ", "person"), ("banana", "other"), ("", "other"), (7, "other"), (None, "other")],
)
async def test_K11_a_kind_is_one_of_seven(keepsakes: Keepsakes, given: object, kept: str) -> None:
    answer = await keepsakes.remember("Alex", picture(), source="a", kind=given)
    assert (await keepsakes.get(answer.keepsake.id)).kind == kept


@pytest.mark.parametrize("limit", [1024, 100 << 20], ids=["screens smaller", "screens larger"])
async def test_K12_twelve_million_bytes_are_kept_and_one_more_is_not(
    config: VisionConfig, limit: int, tmp_path: Path
) -> None:
    """Whatever the bound for pictures that have no name is."""
    async with await Front.open(config.model_copy(update={"max_file_size": limit})) as front:
        data = padded(12_000_000)
        kept = await keep(front.keepsakes, "large", data)
        assert (kept.code, kept.keepsake.file_size_bytes) == ("kept", 12_000_000)
        before = await written(front)
        larger = padded(12_000_001)
        (tmp_path / "larger.png").write_bytes(larger)
        for source in (larger, tmp_path / "larger.png"):
            with pytest.raises(VisionError) as caught:
                await front.keepsakes.remember("larger", source, source="a")
            assert caught.value.code == "too_big"
        assert await written(front) == before


# --- what is not a picture ----------------------------------------------------------------------


def half(kind: str) -> bytes:
    data = encoded(drawing(400, 300), kind)
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"", "not_an_image", id="K13"),
        pytest.param(b"hello", "not_an_image", id="K14"),
        pytest.param(b"<!doctype html><img src=x>", "not_an_image", id="K15"),
        *(
            pytest.param(half(known.name), "undecodable", id=f"K16 {known.name}")
            for known in FORMATS
        ),
        pytest.param(picture()[:20], "undecodable", id="K16 header only"),
        pytest.param(SVG, "not_an_image", id="K18"),
        pytest.param(bomb(14_000), "too_many_pixels", id="too many pixels"),
    ],
)
@pytest.mark.parametrize("as_file", [False, True], ids=["bytes", "file"])
async def test_what_is_not_a_whole_picture_is_refused_and_nothing_written(
    front: Front, keepsakes: Keepsakes, tmp_path: Path, data: bytes, code: str, as_file: bool
) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(data)
    with pytest.raises(VisionError) as caught:
        await keepsakes.remember("Alex", path if as_file else data, source="a")
    assert caught.value.code == code
    assert str(keepsakes.store.root) not in str(caught.value)
    assert await written(front) == NOTHING


async def test_half_a_picture_that_another_memory_has_stays_there(
    front: Front, keepsakes: Keepsakes
) -> None:
    saved = await front.memory.save(Picture(half("PNG"), "half"))
    with pytest.raises(VisionError, match="cannot be decoded"):
        await keep(keepsakes, "Alex", half("PNG"))
    assert Path(saved.file_path).exists()


async def test_K19_the_content_says_what_type_a_file_has(
    keepsakes: Keepsakes, tmp_path: Path
) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(encoded(drawing(), "WEBP"))
    kept = await keepsakes.remember("Alex", path, source="photo.jpg")
    assert (kept.code, kept.keepsake.mime_type) == ("kept", "image/webp")
    assert kept.keepsake.file_path.endswith(".webp")


async def test_what_takes_too_long_to_decode_is_undecodable(
    front: Front, keepsakes: Keepsakes
) -> None:
    pool = DecoderPool(workers=1, seconds=0.001)
    hasty = Keepsakes(keepsakes.store, front.index, front._doorbell, pool)
    with pytest.raises(VisionError, match="decoder_timeout") as caught:
        await keep(hasty, "Alex", encoded(drawing(3000, 2000), "PNG"))
    await pool.close()
    assert caught.value.code == "undecodable"
    assert await written(front) == NOTHING


# --- files that vanish --------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["gone", "other bytes", "empty"])
async def test_K20_a_picture_whose_file_was_lost_is_healed_by_the_next_save(
    front: Front, keepsakes: Keepsakes, damage: str
) -> None:
    first = await keep(keepsakes, "Alex")
    await embed(front)
    path = Path(first.keepsake.file_path)
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else b"other bytes")
    healed = await keepsakes.remember("ALEX", picture(), source="b", note="new")
    expected = replace(first.keepsake, status="embedded", note="new")
    assert healed == Kept("healed", expected, [])
    assert path.read_bytes() == picture()
    assert await keep(keepsakes, "Alex") == Kept("already_kept", expected, [])


async def test_a_row_that_failed_because_its_file_was_gone_is_pending_again(
    front: Front, keepsakes: Keepsakes
) -> None:
    first = await keep(keepsakes, "Alex")
    second = await keep(keepsakes, "the beach")
    Path(first.keepsake.file_path).unlink()
    await front.database.fetch(
        "UPDATE memories_image SET embedding_error = 'gone', attempts = 5,"
        " embedding_error_code = 'blob_missing', next_attempt_at = NULL"
    )
    assert (await keepsakes.get(first.keepsake.id)).status == "failed"
    assert await keep(keepsakes, "Alex") == Kept("healed", first.keepsake, [])
    assert await keepsakes.get(second.keepsake.id) == second.keepsake
    assert (await front.memory.get(first.keepsake.image_id)).attempts == 0


async def test_a_folder_that_was_moved_is_healed_into_the_new_one(
    config: VisionConfig, keepsakes: Keepsakes, tmp_path: Path
) -> None:
    first = await keep(keepsakes, "Alex")
    Path(first.keepsake.file_path).unlink()
    moved = config.model_copy(update={"image_dir": str(tmp_path / "moved")})
    async with await Front.open(moved) as front:
        healed = await keep(front.keepsakes, "Alex")
        assert healed.code == "healed"
        assert Path(healed.keepsake.file_path).is_relative_to(tmp_path / "moved")
        assert Path(healed.keepsake.file_path).read_bytes() == picture()


async def test_a_lost_file_comes_back_with_another_name_too(keepsakes: Keepsakes) -> None:
    first = await keep(keepsakes, "Alex")
    Path(first.keepsake.file_path).unlink()
    second = await keep(keepsakes, "the beach")
    assert second.code == "kept"
    assert (await keep(keepsakes, "Alex")).code == "already_kept"


# --- writing ------------------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


async def test_K22_a_full_disk_leaves_no_row_no_blob_and_no_temporary_file(
    front: Front, tiny_disk: Path
) -> None:
    pool = DecoderPool(workers=1, seconds=30)
    store = ImageStore(tiny_disk / "images", max_file_size=MAX_BYTES)
    keepsakes = Keepsakes(store, front.index, front._doorbell, pool)
    with pytest.raises(StorageUnavailable):
        await keep(keepsakes, "Alex", padded(400_000))
    assert files_below(tiny_disk) == []
    assert await written(front) == NOTHING
    assert (await keep(keepsakes, "Alex")).code == "kept"
    await pool.close()


async def test_without_a_database_nothing_is_kept(config: VisionConfig, tmp_path: Path) -> None:
    gone = config.model_copy(update={"db_url": f"postgresql:///none?host={tmp_path}"})
    front = Front(gone, urls(gone))
    with pytest.raises(DatabaseUnavailable):
        await keep(front.keepsakes, "Alex")
    assert not list(Path(str(config.image_dir)).rglob("*.png"))
    await front.close()


async def test_a_connection_that_breaks_is_replaced_and_the_answer_is_still_true(
    front: Front, keepsakes: Keepsakes
) -> None:
    await keep(keepsakes, "Alex")
    await front.database.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    answers = await asyncio.gather(*(keep(keepsakes, str(n), picture(n)) for n in range(8)))
    assert [answer.code for answer in answers] == ["kept"] * 8


class Signalling(ImageStore):
    """A store that says when it has begun and ended to place a picture."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, max_file_size=MAX_BYTES)
        self.begun = threading.Event()
        self.ended = threading.Event()

    def place(self, source: Path | bytes) -> PlacedBlob:
        self.begun.set()
        try:
            return super().place(source)
        finally:
            self.ended.set()


async def test_a_call_that_is_given_up_while_it_writes_leaves_no_blob_and_no_lock(
    front: Front, keepsakes: Keepsakes
) -> None:
    store = Signalling(keepsakes.store.root)
    pool = DecoderPool(workers=1, seconds=30)
    signalling = Keepsakes(store, front.index, front._doorbell, pool)
    calling = asyncio.create_task(keep(signalling, "Alex", padded(8_000_000)))
    assert await asyncio.to_thread(store.begun.wait, DEADLINE)
    calling.cancel()
    await asyncio.wait([calling])
    assert calling.cancelled()
    assert await asyncio.to_thread(store.ended.wait, DEADLINE)

    async def nothing() -> bool:
        return await written(front) == NOTHING

    await eventually(nothing, "nothing is left")
    kept = await keep(keepsakes, "Alex", padded(8_000_000))
    await keepsakes.forget(kept.keepsake.id)
    assert await nothing()


@pytest.mark.parametrize("turns", range(0, 40, 4))
async def test_a_call_that_is_given_up_at_any_moment_hinders_no_other(
    front: Front, keepsakes: Keepsakes, turns: int
) -> None:
    calling = asyncio.create_task(keep(keepsakes, "Alex"))
    for _ in range(turns):
        await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait([calling])
    kept = await keep(keepsakes, "Alex")
    await keepsakes.forget(kept.keepsake.id)
    assert await written(front) == NOTHING


async def test_too_many_at_once_are_told_to_come_again(
    front: Front, keepsakes: Keepsakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "WAITING", 10)
    calls = (keep(keepsakes, str(n), picture(n)) for n in range(40))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Busy)]
    kept = [answer.code for answer in answers if isinstance(answer, Kept)]
    assert refused
    assert len(kept) + len(refused) == 40
    assert (await written(front))[1]["keepsakes"] == len(kept) >= 10
    assert (await keep(keepsakes, "later")).code == "kept"


async def test_who_waits_too_long_is_told_so(
    keepsakes: Keepsakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "WAIT_SECONDS", 0.0)
    calls = (keep(keepsakes, "Alex") for _ in range(30))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {Kept, Busy}


# --- quota --------------------------------------------------------------------------------------


async def filled(keepsakes: Keepsakes, *names: str) -> dict[str, str]:
    """Keep a picture of its own under each name; the ids by name."""
    return {
        name: (await keep(keepsakes, name, picture(number))).keepsake.id
        for number, name in enumerate(names)
    }


async def test_K24_the_least_recently_recalled_makes_room_and_can_be_brought_back(
    front: Front, small: Callable[..., Keepsakes]
) -> None:
    keepsakes = small(cap=3)
    ids = await filled(keepsakes, "alpha", "beta", "gamma")
    await keepsakes.touch([ids["alpha"]])
    delta = await keep(keepsakes, "delta", picture(9))
    assert [evicted.about for evicted in delta.evicted] == ["beta"]
    assert delta.evicted[0].trashed_at is not None
    assert sorted(await live(keepsakes)) == ["alpha", "delta", "gamma"]
    assert await trash(keepsakes) == ["beta"]
    page = await front.memory.list_images()
    assert sorted(image.text or "" for image in page.images) == ["alpha", "delta", "gamma"]

    back = await keepsakes.restore(ids["beta"])
    assert (back.code, back.keepsake.id, back.keepsake.trashed_at) == ("kept", ids["beta"], None)
    assert [evicted.about for evicted in back.evicted] == ["gamma"]
    assert sorted(await live(keepsakes)) == ["alpha", "beta", "delta"]
    assert len((await front.memory.list_images()).images) == 3
    assert Path(back.keepsake.file_path).exists()


async def test_what_was_brought_back_is_not_the_next_that_has_to_go(
    small: Callable[..., Keepsakes],
) -> None:
    keepsakes = small(cap=2)
    ids = await filled(keepsakes, "alpha", "beta", "gamma")
    await keepsakes.restore(ids["alpha"])
    kept = await keep(keepsakes, "delta", picture(9))
    assert [evicted.about for evicted in kept.evicted] == ["gamma"]


async def test_the_bytes_of_all_pictures_together_are_bounded_too(
    small: Callable[..., Keepsakes],
) -> None:
    sizes = [len(picture(number)) for number in range(3)]
    keepsakes = small(cap_bytes=sum(sizes) + 1000)
    await filled(keepsakes, "alpha", "beta", "gamma")
    large = await keep(keepsakes, "large", padded(1000 + sizes[0] + 1))
    assert [evicted.about for evicted in large.evicted] == ["alpha", "beta"]
    assert await live(keepsakes) == ["large", "gamma"]


async def test_a_picture_that_exceeds_the_bytes_by_itself_evicts_nothing(
    front: Front, small: Callable[..., Keepsakes]
) -> None:
    keepsakes = small(cap_bytes=5_000)
    await filled(keepsakes, "alpha", "beta")
    before = await written(front)
    with pytest.raises(Quota, match="5000"):
        await keep(keepsakes, "large", padded(5_001))
    assert await written(front) == before
    assert await live(keepsakes) == ["beta", "alpha"]


async def test_pinned_ones_stay_and_where_all_are_pinned_nothing_is_written(
    front: Front, small: Callable[..., Keepsakes]
) -> None:
    keepsakes = small(cap=2)
    ids = await filled(keepsakes, "alpha", "beta")
    assert (await keepsakes.pin(ids["alpha"], True)).pinned
    assert [gone.about for gone in (await keep(keepsakes, "gamma", picture(7))).evicted] == ["beta"]
    gamma = (await keepsakes.page(limit=1)).keepsakes[0]
    await keepsakes.pin(gamma.id, True)
    before = await written(front)
    with pytest.raises(Quota):
        await keep(keepsakes, "delta", picture(8))
    with pytest.raises(Quota):
        await keepsakes.restore(ids["beta"])
    with pytest.raises(Quota):
        await keep(keepsakes, "beta", picture(1))
    assert await written(front) == before
    assert await live(keepsakes) == ["gamma", "alpha"]
    assert await trash(keepsakes) == ["beta"]
    assert (await keep(keepsakes, "gamma", picture(7))).code == "already_kept"
    assert not (await keepsakes.pin(gamma.id, False)).pinned
    assert [gone.about for gone in (await keep(keepsakes, "beta", picture(1))).evicted] == ["gamma"]


async def test_a_lower_cap_takes_effect_with_the_next_save(
    small: Callable[..., Keepsakes],
) -> None:
    await filled(small(cap=9), "a", "b", "c", "d", "e")
    kept = await keep(small(cap=2), "f", picture(9))
    assert [evicted.about for evicted in kept.evicted] == ["a", "b", "c", "d"]


async def test_many_at_once_never_exceed_the_cap_and_name_each_eviction_once(
    small: Callable[..., Keepsakes],
) -> None:
    keepsakes = small(cap=5)
    answers = await asyncio.gather(*(keep(keepsakes, str(n), picture(n)) for n in range(30)))
    evicted = [gone.id for answer in answers for gone in answer.evicted]
    assert len(evicted) == len(set(evicted)) == 25
    assert len(await live(keepsakes)) == 5
    for answer in answers:
        assert answer.keepsake.id not in {gone.id for gone in answer.evicted}


async def test_saving_what_lies_in_the_trash_brings_it_back(
    small: Callable[..., Keepsakes],
) -> None:
    keepsakes = small(cap=2)
    ids = await filled(keepsakes, "alpha", "beta", "gamma")
    again = await keepsakes.remember("ALPHA", picture(0), source="b", note="again")
    assert (again.code, again.keepsake.id) == ("kept", ids["alpha"])
    assert (again.keepsake.note, again.keepsake.trashed_at) == ("again", None)
    assert [evicted.about for evicted in again.evicted] == ["beta"]


async def test_restoring_what_is_not_in_the_trash_changes_nothing(keepsakes: Keepsakes) -> None:
    kept = await keep(keepsakes, "Alex")
    assert await keepsakes.restore(kept.keepsake.id) == Kept("already_kept", kept.keepsake, [])


# --- trash --------------------------------------------------------------------------------------


async def aged(front: Front, days: int) -> None:
    await front.database.fetch(
        "UPDATE keepsakes SET trashed_at = trashed_at - make_interval(days => $1)", days
    )


async def test_the_trash_is_emptied_after_its_days_and_a_file_goes_with_its_last_row(
    front: Front, small: Callable[..., Keepsakes]
) -> None:
    keepsakes = small(cap=1, trash_days=30)
    alone = await keep(keepsakes, "alone", picture(1))
    shared = await keep(keepsakes, "shared", picture(2))
    await keep(keepsakes, "last", picture(2))
    await aged(front, 29)
    assert await keepsakes.purge() == 0
    assert await trash(keepsakes) == ["shared", "alone"]
    await aged(front, 1)
    assert await keepsakes.purge() == 2
    assert await trash(keepsakes) == []
    assert not Path(alone.keepsake.file_path).exists()
    assert Path(shared.keepsake.file_path).exists()
    assert (await written(front))[1] == {"keepsakes": 1, "memories_image": 1, "memories": 1}


async def test_what_lay_in_the_trash_too_long_is_gone_whoever_asks(
    front: Front, small: Callable[..., Keepsakes]
) -> None:
    keepsakes = small(cap=1)
    ids = await filled(keepsakes, "alpha", "beta")
    await aged(front, 31)
    with pytest.raises(KeepsakeNotFound):
        await keepsakes.restore(ids["alpha"])
    assert await written(front) != NOTHING


async def test_a_save_empties_the_trash_now_and_then(
    front: Front, small: Callable[..., Keepsakes]
) -> None:
    keepsakes = small(cap=1)
    await filled(keepsakes, "alpha", "beta")
    await aged(front, 31)
    await keep(small(cap=1), "beta", picture(1))
    assert (await written(front))[1]["keepsakes"] == 1


async def test_forgetting_is_for_good_in_the_trash_and_out_of_it(
    front: Front, small: Callable[..., Keepsakes]
) -> None:
    keepsakes = small(cap=1)
    ids = await filled(keepsakes, "alpha", "beta")
    for name in ("alpha", "beta"):
        await keepsakes.forget(ids[name])
        with pytest.raises(KeepsakeNotFound):
            await keepsakes.get(ids[name], trashed=True)
        with pytest.raises(KeepsakeNotFound):
            await keepsakes.forget(ids[name])
    assert await written(front) == NOTHING


async def test_a_file_stays_until_the_last_name_of_its_picture_is_forgotten(
    front: Front, keepsakes: Keepsakes
) -> None:
    first = await keep(keepsakes, "Alex")
    second = await keep(keepsakes, "the beach")
    await keepsakes.forget(first.keepsake.id)
    assert Path(second.keepsake.file_path).read_bytes() == picture()
    await keepsakes.forget(second.keepsake.id)
    assert await written(front) == NOTHING


async def test_deleting_its_image_or_its_memory_elsewhere_takes_the_keepsake(
    front: Front, keepsakes: Keepsakes
) -> None:
    first = await keep(keepsakes, "Alex", picture(1))
    second = await keep(keepsakes, "Alex", picture(2))
    await front.memory.delete(first.keepsake.image_id)
    await front.database.fetch("DELETE FROM memories WHERE id = $1", second.keepsake.memory_id)
    assert await live(keepsakes) == []


async def test_saves_and_forgets_of_one_picture_never_leave_a_row_without_its_file(
    keepsakes: Keepsakes,
) -> None:
    async def churn(number: int) -> None:
        for turn in range(8):
            kept = await keep(keepsakes, f"{number} {turn}")
            if turn % 2:
                await keepsakes.forget(kept.keepsake.id)

    await asyncio.gather(*(churn(number) for number in range(6)))
    page = await keepsakes.page(limit=100)
    assert len(page.keepsakes) == 6 * 4
    for kept in page.keepsakes:
        assert Path(kept.file_path).read_bytes() == picture()


@pytest.mark.parametrize("first_held", ["memories", "memories_image"])
async def test_a_keepsake_that_is_deleted_while_it_is_saved_again_is_kept_anew(
    front: Front, keepsakes: Keepsakes, first_held: str
) -> None:
    """Whichever row its deletion begins with, nobody ends in a deadlock."""
    first = await keep(keepsakes, "Alex")

    async def in_its_turn() -> bool:
        locked = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted)"
        return bool(await front.database.fetchval(locked))

    async with front.database.transaction() as connection:
        await connection.execute(f"SELECT FROM {first_held} FOR UPDATE")
        saving = asyncio.create_task(keep(keepsakes, "Alex"))
        await eventually(in_its_turn, "the save has its turn")
        await connection.execute("DELETE FROM memories")
    second = await saving
    assert (second.code, second.evicted) == ("kept", [])
    assert second.keepsake.id != first.keepsake.id
    assert Path(second.keepsake.file_path).exists()


async def test_a_keepsake_that_somebody_holds_for_long_makes_its_savers_come_again(
    front: Front, keepsakes: Keepsakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.05)
    first = await keep(keepsakes, "Alex")
    async with front.database.transaction() as connection:
        await connection.execute("SELECT FROM memories FOR UPDATE")
        for asking in (keep(keepsakes, "Alex"), keepsakes.forget(first.keepsake.id)):
            with pytest.raises(Busy):
                await asking
    assert await keep(keepsakes, "Alex") == replace(first, code="already_kept")


async def test_saves_and_deletions_of_the_image_of_one_keepsake_get_along(
    front: Front, keepsakes: Keepsakes
) -> None:
    """Deleting an image waits for no turn of the keepsakes."""
    refused = 0

    async def churn() -> None:
        nonlocal refused
        for _ in range(10):
            kept = await keep(keepsakes, "Alex")
            try:
                await front.memory.delete(kept.keepsake.image_id)
            except ImageNotFound:
                refused += 1

    await asyncio.gather(*(churn() for _ in range(6)))
    assert refused < 60
    kept = await keep(keepsakes, "Alex")
    assert kept.code == "kept"
    assert Path(kept.keepsake.file_path).read_bytes() == picture()


# --- looking and changing -----------------------------------------------------------------------


async def test_an_update_changes_what_is_given(front: Front, keepsakes: Keepsakes) -> None:
    kept = (await keepsakes.remember("Alex", picture(), source="a", note="n", kind="self")).keepsake
    assert await keepsakes.update(kept.id) == kept
    changed = await keepsakes.update(kept.id, about=" Alexa\n", note="", kind="banana")
    assert changed == replace(kept, about="Alexa", note="", kind="other")
    assert await keepsakes.get(kept.id) == changed
    assert (await front.memory.get(kept.image_id)).text == "Alexa"
    assert await front.database.fetchval("SELECT words FROM keepsakes") == "alexa other"
    assert (await keep(keepsakes, "ALEXA")).code == "already_kept"
    assert (await keep(keepsakes, "Alex")).code == "kept"


async def test_a_name_can_be_spelled_anew(keepsakes: Keepsakes) -> None:
    kept = await keep(keepsakes, "alex doe")
    changed = await keepsakes.update(kept.keepsake.id, about="Alex D\u00f3e")
    assert changed == replace(kept.keepsake, about="Alex D\u00f3e")


async def test_a_name_that_the_same_picture_has_already_is_refused(
    keepsakes: Keepsakes,
) -> None:
    first = await keep(keepsakes, "Alex")
    second = await keep(keepsakes, "the beach")
    with pytest.raises(NameTaken, match=first.keepsake.id):
        await keepsakes.update(second.keepsake.id, about="ALEX", note="lost?")
    assert await keepsakes.get(second.keepsake.id) == second.keepsake


async def test_an_update_to_a_name_that_shows_nothing_is_refused(keepsakes: Keepsakes) -> None:
    kept = await keep(keepsakes, "Alex")
    with pytest.raises(AboutEmpty):
        await keepsakes.update(kept.keepsake.id, about="\u200b ", note="x")
    assert await keepsakes.get(kept.keepsake.id) == kept.keepsake


async def test_what_is_in_the_trash_is_only_found_there(
    small: Callable[..., Keepsakes],
) -> None:
    keepsakes = small(cap=1)
    ids = await filled(keepsakes, "alpha", "beta")
    gone = ids["alpha"]
    for looking in (
        keepsakes.get(gone),
        keepsakes.update(gone, note="x"),
        keepsakes.pin(gone, True),
    ):
        with pytest.raises(KeepsakeNotFound):
            await looking
    await keepsakes.touch([gone])
    found = await keepsakes.get(gone, trashed=True)
    assert (found.about, found.note, found.pinned, found.recalled_at) == ("alpha", "", False, None)
    assert found.trashed_at is not None


async def test_a_recall_is_noted(keepsakes: Keepsakes) -> None:
    kept = await keep(keepsakes, "Alex")
    await keepsakes.touch([])
    await keepsakes.touch([kept.keepsake.id])
    found = await keepsakes.get(kept.keepsake.id)
    assert found.recalled_at is not None
    assert found == replace(kept.keepsake, recalled_at=found.recalled_at)


async def test_pages_follow_each_other_newest_first(keepsakes: Keepsakes) -> None:
    await filled(keepsakes, *"abcdefg")
    seen, cursor = [], None
    while True:
        page = await keepsakes.page(limit=3, cursor=cursor)
        seen.append([kept.about for kept in page.keepsakes])
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == [["g", "f", "e"], ["d", "c", "b"], ["a"]]
    with pytest.raises(InvalidArgument):
        await keepsakes.page(cursor="nonsense")
    with pytest.raises(InvalidArgument):
        await keepsakes.page(limit=0)


async def test_B02_names_come_by_how_many_pictures_they_have_and_then_by_name(
    keepsakes: Keepsakes, small: Callable[..., Keepsakes]
) -> None:
    assert await keepsakes.entities() == ([], 0)
    names = [f"name {letter}" for letter in "onmlkjihgfedcba"]
    await filled(keepsakes, *names)
    await keep(keepsakes, "NAME  n", picture(20))
    await keep(keepsakes, "Name \u00f1", picture(21))
    await keep(keepsakes, "name c", picture(22))
    entities, more = await keepsakes.entities()
    assert entities == [
        Entity("name n", 3),
        Entity("name c", 2),
        *(Entity(f"name {letter}", 1) for letter in "abdefghijk"),
    ]
    assert more == 3
    assert await keepsakes.entities(limit=15) == (
        [*entities, *(Entity(f"name {letter}", 1) for letter in "lmo")],
        0,
    )
    await keep(small(cap=2), "new", picture(30))
    assert await keepsakes.entities() == ([Entity("name c", 1), Entity("new", 1)], 0)


@pytest.mark.parametrize(
    "identifier", [str(uuid4()), "", "nonsense", "../../etc/passwd", "\0", "\u202e" * 500]
)
async def test_an_id_that_is_no_keepsake_is_not_found(
    keepsakes: Keepsakes, identifier: str
) -> None:
    for asking in (
        keepsakes.get(identifier),
        keepsakes.get(identifier, trashed=True),
        keepsakes.update(identifier, note="x"),
        keepsakes.pin(identifier, True),
        keepsakes.restore(identifier),
        keepsakes.forget(identifier),
    ):
        with pytest.raises(KeepsakeNotFound) as caught:
            await asking
        assert "\u202e" not in str(caught.value)
        assert "\0" not in str(caught.value)


# --- namespaces ---------------------------------------------------------------------------------


async def test_another_namespace_sees_and_changes_nothing_of_ours(
    front: Front, keepsakes: Keepsakes, other: Keepsakes
) -> None:
    kept = (await keep(keepsakes, "Alex")).keepsake
    for asking in (
        other.get(kept.id),
        other.get(kept.id, trashed=True),
        other.update(kept.id, about="x", note="y", kind="place"),
        other.pin(kept.id, True),
        other.restore(kept.id),
        other.forget(kept.id),
    ):
        with pytest.raises(KeepsakeNotFound):
            await asking
    await other.touch([kept.id])
    assert (await other.page()).keepsakes == (await other.page(trashed=True)).keepsakes == []
    assert await other.entities() == ([], 0)
    assert await keepsakes.get(kept.id) == kept


async def test_another_namespace_keeps_its_own_on_the_same_file(
    front: Front, keepsakes: Keepsakes, other: Keepsakes
) -> None:
    ours = await keep(keepsakes, "Alex")
    await embed(front)
    theirs = await keep(other, "Alex")
    assert (theirs.code, theirs.keepsake.namespace) == ("kept", "other")
    # What one namespace has embedded is nothing that another may find out by saving.
    assert theirs.keepsake.status == "pending"
    assert theirs.keepsake.file_path == ours.keepsake.file_path
    with pytest.raises(ImageNotFound):
        await front.memory.get(theirs.keepsake.image_id)
    await other.forget(theirs.keepsake.id)
    assert Path(ours.keepsake.file_path).exists()


async def test_one_namespace_never_evicts_or_purges_what_another_has(
    front: Front, config: VisionConfig, small: Callable[..., Keepsakes]
) -> None:
    bounds = {"keepsake_cap": 1, "namespace": "other"}
    async with await Front.open(config.model_copy(update=bounds)) as other:
        ours = small(cap=2)
        await filled(ours, "a", "b")
        await filled(other.keepsakes, "their first", "their second")
        await keep(ours, "c", picture(9))
        await aged(front, 31)
        assert await ours.purge() == 1
        assert await live(other.keepsakes) == ["their second"]
        assert await live(ours) == ["c", "b"]
        assert (await written(front))[1]["keepsakes"] == 4


# --- settings -----------------------------------------------------------------------------------


async def test_the_settings_bound_what_a_front_keeps(config: VisionConfig) -> None:
    bounds = {"keepsake_cap": 2, "keepsake_bytes": 3_000, "keepsake_trash_days": 0}
    async with await Front.open(config.model_copy(update=bounds)) as front:
        ids = await filled(front.keepsakes, "a", "b", "c")
        assert await live(front.keepsakes) == ["c", "b"]
        assert await trash(front.keepsakes) == []
        with pytest.raises(KeepsakeNotFound):
            await front.keepsakes.restore(ids["a"])
        with pytest.raises(Quota):
            await keep(front.keepsakes, "large", padded(3_001))
