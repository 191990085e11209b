"""A change of model: searches see the old one, whole, until the new one is complete."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Process, drained, eventually
from vision_worker.demo.screens import held_out_screens
from vision_worker.front import Front
from vision_worker.memory import Picture

StartWorker = Callable[..., Process]
SHOTS = 24


@pytest.fixture
async def embedded(front: Front, start_worker: StartWorker, tmp_path: Path) -> Process:
    """A worker that has embedded 24 screens with the default framing, tiles."""
    worker = start_worker()
    for name, caption, picture in held_out_screens(SHOTS, seed=1):
        picture.resize((320, 320 * picture.height // picture.width)).save(tmp_path / name)
        await front.memory.save(Picture(tmp_path / name, caption, caption=caption))
    await drained(front)
    return worker


async def models(front: Front) -> set[tuple[str, str]]:
    rows = await front.database.fetch(
        "SELECT embedding_status, coalesce(embedding_model, '') AS model FROM memories_image"
    )
    return {(row["embedding_status"], row["model"].partition("+")[2]) for row in rows}


async def waiting_for_another_model(front: Front) -> bool:
    return any(worker["state"] == "model_mismatch" for worker in await front.index.workers())


async def active_framing(front: Front) -> str:
    return ((await front.index.status()).model or "").partition("+")[2]


async def test_a_worker_with_another_model_touches_nothing_until_it_is_asked(
    embedded: Process,
    front: Front,
    start_worker: StartWorker,
    run_cli: Callable[..., object],
    tmp_path: Path,
) -> None:
    embedded.end()
    start_worker(MEMINI_IMAGE_CLIP_FRAMING="letterbox")

    async def refused() -> bool:
        return await waiting_for_another_model(front)

    await eventually(refused, "the second worker says that it has another model")
    assert await models(front) == {("embedded", "tiles")}
    (worker,) = [w for w in await front.index.workers() if w["state"] == "model_mismatch"]
    assert "vision-worker reembed" in worker["detail"]

    # Saved now, it waits for the change with the others: the old model's worker is gone.
    name, caption, picture = held_out_screens(SHOTS + 1, seed=1)[SHOTS]
    picture.save(tmp_path / name)
    await front.memory.save(Picture(tmp_path / name, caption))
    (damaged, *_) = (await front.memory.list_images(limit=1, order="oldest")).images
    Path(damaged.file_path).write_bytes(b"no longer a picture")

    run_cli("reembed")

    async def switched() -> bool:
        return await active_framing(front) == "letterbox"

    await eventually(switched, "the new model is the active one")
    assert await models(front) == {("embedded", "letterbox"), ("failed", "")}
    failed = await front.memory.get(damaged.id)
    assert (failed.status, failed.error_code) == ("failed", "blob_corrupt")
    status = await front.index.status()
    assert (status.embedded, status.failed, status.pending) == (SHOTS, 1, 0)
    left = "SELECT count(*) FROM vision_reembeddings"
    assert await front.database.fetchval(left) == 0
    page = await front.query.search_by_text(caption, 1)
    assert [hit.text for hit in page.hits] == [caption]


async def test_the_worker_of_the_old_model_serves_searches_until_the_switch_and_then_rests(
    embedded: Process,
    front: Front,
    start_worker: StartWorker,
    run_cli: Callable[..., object],
) -> None:
    question = "a dark login form"
    before = (await front.query.search_by_text(question, SHOTS)).hits
    start_worker("--batch-size", "1", MEMINI_IMAGE_CLIP_FRAMING="centre-crop")

    async def refused() -> bool:
        return await waiting_for_another_model(front)

    await eventually(refused, "the second worker says that it has another model")
    run_cli("reembed")
    seen = 0

    async def switched() -> bool:
        nonlocal seen
        hits = (await front.query.search_by_text(question, SHOTS)).hits
        if await active_framing(front) == "tiles":
            assert hits == before
            seen += 1
            return False
        return True

    await eventually(switched, "the new model is the active one")
    assert seen > 0
    after = (await front.query.search_by_text(question, SHOTS)).hits
    assert len(after) == SHOTS
    assert await models(front) == {("embedded", "centre-crop")}

    async def resting() -> bool:
        states = sorted(worker["state"] for worker in await front.index.workers())
        return states == ["model_mismatch", "ready"]

    await eventually(resting, "the old worker lays its work down")


async def test_vectors_of_an_adopted_database_are_made_anew_when_asked(
    embedded: Process, front: Front, run_cli: Callable[..., object]
) -> None:
    await front.database.fetch("UPDATE memories_image SET embedding_model = 'clip-ViT-B-32'")
    assert (await front.query.search_by_text("a dark login form")).hits == []
    run_cli("reembed")
    await drained(front)
    assert await models(front) == {("embedded", "tiles")}
    assert len((await front.query.search_by_text("a dark login form", SHOTS)).hits) == SHOTS
