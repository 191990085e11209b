"""Saving: durable, idempotent, all or nothing, whatever is away."""

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tests.pictures import drawing, encoded
from vision_worker.config import VisionConfig
from vision_worker.errors import (
    DatabaseUnavailable,
    FileMissing,
    ImageNotFound,
    InvalidArgument,
    NotAnImage,
    VisionError,
)
from vision_worker.front import Front
from vision_worker.local import urls
from vision_worker.memory import Picture
from vision_worker.types import SavedImage


@pytest.fixture
def red(tmp_path: Path) -> Path:
    path = tmp_path / "red.png"
    Image.new("RGB", (64, 48), "red").save(path)
    return path


@pytest.fixture
def blue(tmp_path: Path) -> Path:
    path = tmp_path / "blue.png"
    Image.new("RGB", (64, 48), "blue").save(path)
    return path


def blobs(front: Front) -> list[str]:
    root = front.memory.store.root
    return sorted(path.name for path in root.rglob("*.*") if path.suffix == ".png")


async def count(front: Front, table: str) -> int:
    return int(await front.database.fetchval(f"SELECT count(*) FROM {table}"))


async def test_a_save_keeps_the_bytes_and_both_rows(front: Front, red: Path) -> None:
    picture = Picture(red, "the red one", caption="red", tags=("b", "a", "b"), source_tool="test")
    saved = await front.memory.save(picture)
    digest = hashlib.sha256(red.read_bytes()).hexdigest()
    image = await front.memory.get(saved.image_id)
    path = front.memory.store.root / digest[:2] / f"{digest}.png"
    assert saved == SavedImage(
        memory_id=image.memory_id,
        image_id=image.id,
        sha256=digest,
        file_path=str(path),
        status="pending",
        duplicate=False,
    )
    assert path.read_bytes() == red.read_bytes()
    assert (image.width, image.height, image.file_size_bytes) == (64, 48, red.stat().st_size)
    assert (image.mime_type, image.caption, image.text) == ("image/png", "red", "the red one")
    assert (image.tags, image.source_type, image.source_tool) == (["b", "a"], "session", "test")
    assert (image.status, image.attempts, image.error_code) == ("pending", 0, None)
    metadata = await front.database.fetchval("SELECT metadata::text FROM memories")
    assert saved.image_id in metadata
    assert str(path) in metadata


async def test_an_exact_repeat_returns_the_same_ids(front: Front, red: Path) -> None:
    first = await front.memory.save(Picture(red, "t", caption="c", tags=("x", "y")))
    again = await front.memory.save(Picture(red, "t", caption="c", tags=("y", "x")))
    assert again == replace(first, duplicate=True)
    assert await count(front, "memories_image") == await count(front, "memories") == 1


@pytest.mark.parametrize(
    "other",
    [{"text": "another"}, {"caption": "another"}, {"tags": ("another",)}],
    ids=["text", "caption", "tags"],
)
async def test_the_same_bytes_with_another_word_are_a_second_memory(
    front: Front, red: Path, other: dict[str, object]
) -> None:
    picture = Picture(red, "t", caption="c", tags=("x",))
    first = await front.memory.save(picture)
    second = await front.memory.save(replace(picture, **other))  # type: ignore[arg-type]
    assert second.image_id != first.image_id
    assert second.memory_id != first.memory_id
    assert not second.duplicate
    assert (second.sha256, second.file_path) == (first.sha256, first.file_path)
    assert len(blobs(front)) == 1


async def test_fifty_saves_at_once_of_one_picture_make_one_row(front: Front, red: Path) -> None:
    answers = await asyncio.gather(*(front.memory.save(Picture(red, "t")) for _ in range(50)))
    assert {answer.image_id for answer in answers} == {answers[0].image_id}
    assert sum(not answer.duplicate for answer in answers) == 1
    assert await count(front, "memories") == 1


async def test_a_picture_whose_memory_was_archived_can_be_saved_again(
    front: Front, red: Path
) -> None:
    first = await front.memory.save(Picture(red, "t"))
    await front.database.fetch("UPDATE memories SET is_archived = true")
    second = await front.memory.save(Picture(red, "t"))
    third = await front.memory.save(Picture(red, "t"))
    assert second.image_id != first.image_id
    assert not second.duplicate
    assert third == replace(second, duplicate=True)


async def test_many_are_saved_in_one_go_and_a_bad_one_costs_itself(
    front: Front, red: Path, blue: Path, tmp_path: Path
) -> None:
    text = tmp_path / "notes.png"
    text.write_text("not a picture")
    pictures = [
        Picture(red, "r"),
        Picture(text, "t"),
        Picture(tmp_path / "none.png", "n"),
        Picture(blue, "b"),
        Picture(red, "r"),
    ]
    red_saved, bad, missing, blue_saved, repeated = await front.memory.save_many(pictures)
    assert isinstance(red_saved, SavedImage)
    assert isinstance(bad, NotAnImage)
    assert isinstance(missing, FileMissing)
    assert isinstance(blue_saved, SavedImage)
    assert repeated == replace(red_saved, duplicate=True)
    assert await count(front, "memories_image") == 2


async def test_nothing_to_save_is_no_statement(front: Front) -> None:
    assert await front.memory.save_many([]) == []


async def test_bytes_are_saved_like_a_file(front: Front, red: Path) -> None:
    from_file = await front.memory.save(Picture(red, "t"))
    from_bytes = await front.memory.save(Picture(red.read_bytes(), "t"))
    assert from_bytes == replace(from_file, duplicate=True)


@pytest.mark.parametrize(
    "picture",
    [
        {"text": "x" * 100_001},
        {"text": "zero \0 byte"},
        {"text": "half a pair \ud800"},
        {"text": "t", "caption": "\0"},
        {"text": "t", "tags": ("a\0",)},
        {"text": "t", "tags": tuple(str(n) for n in range(65))},
        {"text": "t", "source_type": "elsewhere"},
    ],
)
def test_what_the_database_could_not_hold_is_refused_before_anything_is_written(
    picture: dict[str, object],
) -> None:
    with pytest.raises(InvalidArgument):
        Picture(Path("/nowhere"), **picture)  # type: ignore[arg-type]


async def test_hostile_text_comes_back_as_it_was(front: Front, red: Path) -> None:
    text = "'); DROP TABLE memories; -- \" \\ {tags} %s $1 \u202e \x1b[31m ☃"
    saved = await front.memory.save(Picture(red, text, caption=text, tags=(text[:100],)))
    image = await front.memory.get(saved.memory_id)
    assert (image.text, image.caption, image.tags) == (text, text, [text[:100]])


async def test_a_save_without_a_database_leaves_no_blob(
    config: VisionConfig, red: Path, tmp_path: Path
) -> None:
    gone = config.model_copy(update={"db_url": f"postgresql:///none?host={tmp_path}"})
    front = Front(gone, urls(gone))
    with pytest.raises(DatabaseUnavailable):
        await front.memory.save(Picture(red, "t"))
    assert blobs(front) == []
    await front.close()


async def test_a_failed_save_never_takes_a_blob_that_was_there_before(
    front: Front, config: VisionConfig, red: Path, tmp_path: Path
) -> None:
    saved = await front.memory.save(Picture(red, "t"))
    gone = config.model_copy(update={"db_url": f"postgresql:///none?host={tmp_path}"})
    without = Front(gone, urls(gone))
    with pytest.raises(DatabaseUnavailable):
        await without.memory.save(Picture(red, "other"))
    assert Path(saved.file_path).read_bytes() == red.read_bytes()
    await without.close()


async def test_a_connection_that_breaks_under_a_save_is_replaced(front: Front, red: Path) -> None:
    await front.memory.save(Picture(red, "first"))
    await front.database.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    saved = await front.memory.save(Picture(red, "second"))
    assert (await front.memory.get(saved.image_id)).text == "second"


async def test_save_returns_while_the_broker_is_down(
    config: VisionConfig, red: Path, tmp_path: Path
) -> None:
    dead = config.model_copy(update={"broker_url": f"redis+socket://{tmp_path}/none.sock"})
    async with await Front.open(dead) as front:
        saved = await front.memory.save(Picture(red, "t"))
        assert (await front.memory.get(saved.image_id)).status == "pending"
        assert not front._doorbell.flush(0)


async def test_a_save_rings_once_the_rows_are_there(front: Front, red: Path) -> None:
    await front.memory.save(Picture(red, "t"))
    assert await asyncio.to_thread(front._doorbell.flush, 10)
    client = front.broker._client()
    try:
        assert await client.llen("vision-worker:embed") == 1
        assert await client.llen("vision-worker:query") == 0
    finally:
        await client.aclose()


async def test_deleting_the_last_memory_of_a_picture_takes_its_file(
    front: Front, red: Path
) -> None:
    first = await front.memory.save(Picture(red, "one"))
    second = await front.memory.save(Picture(red, "two"))
    await front.memory.delete(first.image_id)
    assert len(blobs(front)) == 1
    assert (await front.memory.get(second.image_id)).text == "two"
    await front.memory.delete(second.memory_id)
    assert blobs(front) == []
    assert await count(front, "memories") == 0
    with pytest.raises(ImageNotFound):
        await front.memory.delete(second.image_id)


async def test_deleting_a_memory_elsewhere_cascades_to_its_image(front: Front, red: Path) -> None:
    await front.memory.save(Picture(red, "t"))
    await front.database.fetch("DELETE FROM memories")
    assert await count(front, "memories_image") == 0


async def test_saves_and_deletes_of_one_picture_never_leave_a_row_without_its_file(
    front: Front, red: Path
) -> None:
    async def churn(number: int) -> None:
        for turn in range(10):
            saved = await front.memory.save(Picture(red, f"{number} {turn}"))
            if turn % 3:
                await front.memory.delete(saved.image_id)

    await asyncio.gather(*(churn(number) for number in range(6)))
    page = await front.memory.list_images(limit=100)
    assert len(page.images) == 6 * 4
    for image in page.images:
        assert Path(image.file_path).read_bytes() == red.read_bytes()


async def test_saving_again_heals_a_picture_whose_blob_was_lost(front: Front, red: Path) -> None:
    saved = await front.memory.save(Picture(red, "t"))
    Path(saved.file_path).unlink()
    await front.database.fetch(
        "UPDATE memories_image SET embedding_error_code = 'blob_missing', next_attempt_at = NULL"
    )
    again = await front.memory.save(Picture(red, "t"))
    assert again == replace(saved, duplicate=True, status="pending")
    image = await front.memory.get(saved.image_id)
    assert (image.status, image.error_code) == ("pending", None)
    assert Path(saved.file_path).read_bytes() == red.read_bytes()


async def test_pictures_outside_the_allowed_roots_are_refused(
    config: VisionConfig, red: Path, tmp_path: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.png").symlink_to(red)
    (inside / "real.png").write_bytes(red.read_bytes())
    limited = config.model_copy(update={"allowed_roots": (inside,)})
    async with await Front.open(limited) as front:
        await front.memory.save(Picture(inside / "real.png", "t"))
        for path in (red, inside / "link.png", inside / ".." / "red.png"):
            with pytest.raises(VisionError) as caught:
                await front.memory.save(Picture(path, "t"))
            assert caught.value.code == "outside_allowed_roots"


async def test_another_namespace_keeps_its_own_row_on_the_same_file(
    front: Front, config: VisionConfig, red: Path
) -> None:
    mine = await front.memory.save(Picture(red, "t"))
    async with await Front.open(config.model_copy(update={"namespace": "other"})) as other:
        theirs = await other.memory.save(Picture(red, "t"))
        assert theirs.image_id != mine.image_id
        assert theirs.file_path == mine.file_path
        with pytest.raises(ImageNotFound):
            await other.memory.get(mine.image_id)
        await other.memory.delete(theirs.image_id)
    assert Path(mine.file_path).exists()


@pytest.mark.parametrize("turns", range(0, 40, 4))
async def test_a_save_that_is_given_up_at_any_moment_hinders_no_later_delete(
    front: Front, turns: int
) -> None:
    picture = Picture(encoded(drawing(400, 300), "PNG"), "shapes")
    saving = asyncio.create_task(front.memory.save(picture))
    for _ in range(turns):
        await asyncio.sleep(0)
    saving.cancel()
    await asyncio.wait([saving])
    saved = await front.memory.save(picture)
    await front.memory.delete(saved.image_id)

    assert not Path(saved.file_path).exists()
