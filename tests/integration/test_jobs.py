"""The state machine of a row: pending, leased, embedded or failed, whoever dies in between."""

import asyncio
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from vision_worker.database import Database
from vision_worker.errors import BlobMissing, StorageUnavailable, Undecodable
from vision_worker.front import Front
from vision_worker.jobs import FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, Claim, Jobs, retry_delay
from vision_worker.memory import Picture

MODEL = "test@1+letterbox"


def vector(number: int) -> list[float]:
    """A vector that can be told from others by its first component."""
    return [float(number), *[0.0] * 766, 1.0]


async def activate(database: Database, model: str = MODEL) -> None:
    await database.fetch("UPDATE vision_models SET active = false")
    await database.fetch(
        "INSERT INTO vision_models (key, name, source, framing, native_dim, input_size, active)"
        " VALUES ($1, 'test', 'test', 'letterbox', 512, 64, true)"
        " ON CONFLICT (key) DO UPDATE SET active = true",
        model,
    )


@pytest.fixture
async def jobs(front: Front) -> Jobs:
    await activate(front.database)
    return Jobs(front.database, MODEL, lease_seconds=60, max_attempts=3)


async def save(front: Front, tmp_path: Path, count: int) -> list[UUID]:
    ids = []
    for number in range(count):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
        ids.append(UUID((await front.memory.save(Picture(path, str(number)))).image_id))
    return ids


async def row(front: Front, image: UUID) -> dict[str, Any]:
    found = await front.database.fetchrow(
        "SELECT embedding_status AS status, embedding_error_code AS code, attempts,"
        " next_attempt_at IS NULL AS final, lease_token IS NOT NULL AS leased, embedding_model,"
        " (embedding::real[])[1]::int AS number"
        " FROM memories_image WHERE id = $1",
        image,
    )
    assert found is not None
    return dict(found)


async def expire(front: Front) -> None:
    await front.database.fetch(
        "UPDATE memories_image SET lease_expires_at = now() - '1 s'::interval"
    )


async def due_now(front: Front) -> None:
    await front.database.fetch(
        "UPDATE memories_image SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL"
    )


async def test_the_oldest_rows_are_claimed_first_and_counted(
    front: Front, jobs: Jobs, tmp_path: Path
) -> None:
    ids = await save(front, tmp_path, 3)
    claim = await jobs.claim(2)
    assert {job.id for job in claim.jobs} == set(ids[:2])
    assert [job.attempts for job in claim.jobs] == [1, 1]
    assert await row(front, ids[0]) == {
        "status": "pending",
        "code": None,
        "attempts": 1,
        "final": False,
        "leased": True,
        "embedding_model": None,
        "number": None,
    }


async def test_a_leased_row_is_not_claimed_again(front: Front, jobs: Jobs, tmp_path: Path) -> None:
    await save(front, tmp_path, 1)
    assert len((await jobs.claim(10)).jobs) == 1
    assert (await jobs.claim(10)).jobs == []


async def test_claims_at_once_never_share_a_row(front: Front, jobs: Jobs, tmp_path: Path) -> None:
    ids = await save(front, tmp_path, 40)
    claims = await asyncio.gather(*(jobs.claim(7) for _ in range(8)))
    claimed = [job.id for claim in claims for job in claim.jobs]
    assert len(claimed) == len(set(claimed))
    rest = [job.id for job in (await jobs.claim(100)).jobs]
    assert sorted([*claimed, *rest]) == sorted(ids)


async def test_a_completed_row_has_its_vector_and_no_lease(
    front: Front, jobs: Jobs, tmp_path: Path
) -> None:
    (image,) = await save(front, tmp_path, 1)
    claim = await jobs.claim(1)
    assert await jobs.complete(claim, {image: vector(7)}) == {image}
    assert await row(front, image) == {
        "status": "embedded",
        "code": None,
        "attempts": 1,
        "final": True,
        "leased": False,
        "embedding_model": MODEL,
        "number": 7,
    }


async def test_a_result_that_comes_after_the_lease_went_to_another_does_not_land(
    front: Front, jobs: Jobs, tmp_path: Path
) -> None:
    (image,) = await save(front, tmp_path, 1)
    slow = await jobs.claim(1)
    await expire(front)
    quick = await jobs.claim(1)
    assert [job.id for job in quick.jobs] == [image]
    assert await jobs.complete(slow, {image: vector(1)}) == set()
    assert not await jobs.fail(slow, slow.jobs[0], BlobMissing(path="x"))
    assert await jobs.complete(quick, {image: vector(2)}) == {image}
    assert (await row(front, image))["number"] == 2


async def test_a_vector_is_written_once(front: Front, jobs: Jobs, tmp_path: Path) -> None:
    (image,) = await save(front, tmp_path, 1)
    claim = await jobs.claim(1)
    await jobs.complete(claim, {image: vector(1)})
    assert await jobs.complete(claim, {image: vector(2)}) == set()
    assert (await row(front, image))["number"] == 1


async def test_a_worker_of_another_model_neither_claims_nor_completes(
    front: Front, jobs: Jobs, tmp_path: Path
) -> None:
    (image,) = await save(front, tmp_path, 1)
    claim = await jobs.claim(1)
    await activate(front.database, "other@2+letterbox")
    assert await jobs.complete(claim, {image: vector(1)}) == set()
    await expire(front)
    assert (await jobs.claim(1)).jobs == []
    assert (await row(front, image))["status"] == "pending"


async def test_a_renewed_lease_is_kept(front: Front, jobs: Jobs, tmp_path: Path) -> None:
    short = Jobs(front.database, MODEL, lease_seconds=1, max_attempts=3)
    long = Jobs(front.database, MODEL, lease_seconds=3600, max_attempts=3)
    await save(front, tmp_path, 1)
    claim = await short.claim(1)
    await long.renew([claim.token])
    left = await front.database.fetchval(
        "SELECT extract(epoch FROM lease_expires_at - now())::float8 FROM memories_image"
    )
    assert left > 60


async def test_a_permanent_error_fails_the_row_at_once(
    front: Front, jobs: Jobs, tmp_path: Path
) -> None:
    (image,) = await save(front, tmp_path, 1)
    claim = await jobs.claim(1)
    error = Undecodable(path="x", format="PNG", reason="bad \0 chunk")
    assert await jobs.fail(claim, claim.jobs[0], error)
    assert await row(front, image) == {
        "status": "failed",
        "code": "undecodable",
        "attempts": 1,
        "final": True,
        "leased": False,
        "embedding_model": None,
        "number": None,
    }
    assert "bad  chunk" in str((await front.memory.get(str(image))).error)


async def test_a_transient_error_is_tried_again_until_the_attempts_are_spent(
    front: Front, jobs: Jobs, tmp_path: Path
) -> None:
    (image,) = await save(front, tmp_path, 1)
    error = StorageUnavailable(path="x", reason="away")
    for attempt in (1, 2):
        claim = await jobs.claim(1)
        await jobs.fail(claim, claim.jobs[0], error)
        state = await row(front, image)
        assert (state["status"], state["attempts"], state["code"]) == (
            "pending",
            attempt,
            "storage_unavailable",
        )
        assert (await jobs.claim(1)).jobs == []  # not before its time
        await due_now(front)
    claim = await jobs.claim(1)
    await jobs.fail(claim, claim.jobs[0], error)
    assert (await row(front, image))["status"] == "failed"


async def test_a_row_that_kills_its_worker_each_time_is_set_aside(
    front: Front, jobs: Jobs, tmp_path: Path
) -> None:
    (image,) = await save(front, tmp_path, 1)
    for _ in range(3):
        assert len((await jobs.claim(1)).jobs) == 1
        await expire(front)  # the worker died without a word
    assert (await jobs.claim(1)).jobs == []
    state = await row(front, image)
    assert (state["status"], state["code"]) == ("failed", "poison")


async def test_released_rows_are_claimable_at_once_and_lose_no_attempt(
    front: Front, jobs: Jobs, tmp_path: Path
) -> None:
    (image,) = await save(front, tmp_path, 1)
    claim = await jobs.claim(1)
    await jobs.release(claim, claim.jobs)
    assert (await row(front, image))["attempts"] == 0
    assert [job.id for job in (await jobs.claim(1)).jobs] == [image]


async def test_retry_makes_failed_rows_pending_again_by_code(
    front: Front, jobs: Jobs, tmp_path: Path
) -> None:
    await save(front, tmp_path, 2)
    claim = await jobs.claim(2)
    await jobs.fail(claim, claim.jobs[0], BlobMissing(path="x"))
    await jobs.fail(claim, claim.jobs[1], Undecodable(path="x", format="PNG", reason="bad"))
    assert await front.index.retry("blob_missing") == 1
    assert [job.id for job in (await jobs.claim(2)).jobs] == [claim.jobs[0].id]
    assert await front.index.retry() == 1


def test_retry_delays_double_up_to_a_bound() -> None:
    for attempts in range(1, 30):
        longest = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** (attempts - 1))
        assert math.floor(longest / 2) <= retry_delay(attempts) <= longest


@dataclass
class Model:
    """What the table must say, kept beside it."""

    embedded: dict[UUID, int] = field(default_factory=dict)
    failed: set[UUID] = field(default_factory=set)


STEPS = st.lists(
    st.sampled_from(["claim", "crash", "expire", "complete", "fail", "retry later", "release"]),
    min_size=1,
    max_size=25,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_any_interleaving_of_claims_crashes_and_completions_ends_right(
    steps: list[str], database_url: str
) -> None:
    asyncio.run(_interleave(steps, database_url))


async def _interleave(steps: list[str], database_url: str) -> None:
    database = Database(database_url, pool_size=1)
    try:
        await database.fetch("DELETE FROM memories")
        await database.fetch(
            "WITH memory AS (INSERT INTO memories (text, source_type)"
            " SELECT n::text, 'file' FROM generate_series(1, 5) AS n RETURNING id)"
            " INSERT INTO memories_image (memory_id, file_path, sha256, mime_type)"
            " SELECT id, 'x', repeat('0', 64), 'image/png' FROM memory"
        )
        await activate(database)
        jobs = Jobs(database, MODEL, lease_seconds=60, max_attempts=100)
        model = Model()
        held: list[Claim] = []
        for number, step in enumerate(steps):
            await _step(step, number, jobs, model, held, database)
            await _agrees(model, database)
        # Whatever was left lying: the leases run out and one more worker finishes everything.
        await database.fetch("UPDATE memories_image SET lease_expires_at = now() - '1 s'::interval")
        await database.fetch(
            "UPDATE memories_image SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL"
        )
        claim = await jobs.claim(100)
        await jobs.complete(claim, {job.id: vector(1000) for job in claim.jobs})
        model.embedded.update({job.id: 1000 for job in claim.jobs})
        await _agrees(model, database)
        assert len(model.embedded) + len(model.failed) == 5
    finally:
        await database.close()


async def _step(
    step: str, number: int, jobs: Jobs, model: Model, held: list[Claim], database: Database
) -> None:
    if step == "claim":
        claim = await jobs.claim(2)
        finished = {*model.embedded, *model.failed}
        assert not {job.id for job in claim.jobs} & finished
        if claim.jobs:
            held.append(claim)
    elif step == "expire":
        await database.fetch("UPDATE memories_image SET lease_expires_at = now() - '1 s'::interval")
    elif held:
        claim = held.pop(0)
        if step == "complete":
            written = await jobs.complete(claim, {job.id: vector(number) for job in claim.jobs})
            assert not written & set(model.embedded)
            model.embedded.update(dict.fromkeys(written, number))
        elif step == "fail":
            for job in claim.jobs:
                if await jobs.fail(claim, job, BlobMissing(path="x")):
                    model.failed.add(job.id)
        elif step == "retry later":
            for job in claim.jobs:
                await jobs.fail(claim, job, StorageUnavailable(path="x", reason="away"))
        elif step == "release":
            await jobs.release(claim, claim.jobs)


async def _agrees(model: Model, database: Database) -> None:
    rows = await database.fetch(
        "SELECT id, embedding_status, (embedding::real[])[1]::int AS number FROM memories_image"
    )
    embedded = {row["id"]: row["number"] for row in rows if row["number"] is not None}
    failed = {row["id"] for row in rows if row["embedding_status"] == "failed"}
    assert embedded == model.embedded
    assert failed == model.failed
