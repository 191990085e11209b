"""Pictures in memini-ai's own ranking, with the real memini-ai of both lines."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mcp_adapters.memini import FARTHEST, fuse
from tests.rows import Rows
from tests.support import Process, drained, eventually
from vision_worker.demo.screens import held_out_screens
from vision_worker.front import Front
from vision_worker.memory import Picture
from vision_worker.types import SavedImage

LINES = ("memini", "memini-1")
TOPICS = (
    "the invoice of the carpenter is due on Friday",
    "our cat prefers the blue cushion",
    "basil needs more water than rosemary",
    "the train to the coast leaves from platform nine",
    "bake the bread for forty minutes",
    "the neighbours asked for the ladder",
)
NOTE = "Tuesday, second try"
RunScript = Callable[..., Any]
StartWorker = Callable[..., Process]


@pytest.fixture
def shots(tmp_path: Path) -> list[tuple[str, Path]]:
    """A login screen and four others that the tiny CLIP tells apart from it, by caption."""
    drawn = {}
    for name, caption, picture in held_out_screens(50, seed=1):
        kind = name.partition("-")[0]
        if kind in ("login", "chart", "editor", "map", "files") and kind not in drawn:
            path = tmp_path / name
            picture.resize((640, 640 * picture.height // picture.width)).save(path)
            drawn[kind] = (caption, path)
    return [drawn[kind] for kind in ("login", "chart", "editor", "map", "files")]


async def save(front: Front, path: Path, text: str) -> SavedImage:
    return await front.memory.save(Picture(path, text, source_type="file"))


async def steps(
    run_script: RunScript, name: str, memini: dict[str, str], *given: list[Any], gate: bool = True
) -> list[Any]:
    """What memini-ai answers to each step, in a process of its own."""
    gated = {"MEMINI_IMAGE_SEARCH_ENABLED": str(gate).lower()}
    return await asyncio.to_thread(run_script, name, "memini", list(given), **memini, **gated)


@pytest.mark.parametrize("line", LINES)
async def test_a_picture_that_matches_comes_up_in_memini_and_one_with_a_matching_text_comes_first(
    line: str,
    run_script: RunScript,
    memini: dict[str, str],
    front: Front,
    start_worker: StartWorker,
    shots: list[tuple[str, Path]],
) -> None:
    (question, login), *others = shots
    worker = start_worker(MEMINI_IMAGE_TEXT_MODEL="off")
    seen = await save(front, login, NOTE)
    for _, path in others:
        await save(front, path, NOTE + " of something else")
    await drained(front)
    added = await steps(run_script, line, memini, *(["add", text] for text in TOPICS))
    query = ["query", question, 6]

    (fused,) = await steps(run_script, line, memini, query)
    (text_only,) = await steps(run_script, line, memini, query, gate=False)
    page = await front.query.search_by_text(question, 17)
    looks = [hit.memory_id for hit in page.hits if hit.distance < FARTHEST]
    assert set(text_only) <= set(added)
    assert looks[0] == seen.memory_id
    assert fused == fuse([text_only, looks], limit=6)
    assert fused[:2] == [text_only[0], seen.memory_id]

    worker.kill()
    worker.wait()
    silent, modules, gone = await steps(
        run_script, line, memini, query, ["local_models"], ["query", question, 6]
    )
    assert (silent, modules, gone) == (text_only, [], text_only)

    # The text model fills memories.embedding, so the same memory is found by its words, too.
    start_worker(MEMINI_IMAGE_TEXT_MODEL=memini["MEMINI_MODEL_NAME"])
    both = await save(front, login, question)

    async def found_by_text() -> bool:
        rows = await front.database.fetch("SELECT FROM memories WHERE embedding IS NULL")
        return not rows

    await drained(front)
    await eventually(found_by_text, "text vectors of all memories")
    (fused,) = await steps(run_script, line, memini, query)
    assert fused[0] == both.memory_id
    assert seen.memory_id in fused


@pytest.mark.parametrize("line", LINES)
async def test_pending_and_failed_pictures_neither_appear_in_memini_nor_disturb_it(
    line: str,
    run_script: RunScript,
    memini: dict[str, str],
    front: Front,
    start_worker: StartWorker,
    shots: list[tuple[str, Path]],
) -> None:
    (question, login), *_ = shots
    start_worker(MEMINI_IMAGE_TEXT_MODEL="off")
    seen = await save(front, login, NOTE)
    await drained(front)
    rows = Rows(front.database)
    await rows.image(error="undecodable")
    await rows.image(lease_expires_at=datetime(2100, 1, 1, tzinfo=UTC))
    (fused,) = await steps(run_script, line, memini, ["query", question, 10])
    assert fused == [seen.memory_id]
    status = await front.index.status()
    assert (status.embedded, status.pending, status.failed) == (1, 1, 1)


@pytest.mark.parametrize("line", LINES)
async def test_two_hundred_queries_open_no_connection_more(
    line: str,
    run_script: RunScript,
    memini: dict[str, str],
    front: Front,
    start_worker: StartWorker,
    shots: list[tuple[str, Path]],
) -> None:
    (question, login), *_ = shots
    start_worker(MEMINI_IMAGE_TEXT_MODEL="off")
    await save(front, login, NOTE)
    await drained(front)
    (counted,) = await steps(run_script, line, memini, ["queries", question, 200])
    assert counted["after"] == counted["before"]
    assert len(counted["seconds"]) == 200


@pytest.mark.parametrize("line", LINES)
async def test_with_the_gate_off_memini_answers_as_ever_and_touches_nothing_of_ours(
    line: str,
    run_script: RunScript,
    memini: dict[str, str],
    front: Front,
    start_worker: StartWorker,
    shots: list[tuple[str, Path]],
    environment_of: Callable[[str], Any],
) -> None:
    (question, login), *_ = shots
    worker = start_worker(MEMINI_IMAGE_TEXT_MODEL="off")
    await save(front, login, question)
    await drained(front)
    worker.kill()
    worker.wait()
    await steps(run_script, line, memini, *(["add", text] for text in TOPICS), gate=False)
    dump = ["dump", question, 5]
    before = await scans(front)
    await steps(run_script, line, memini, gate=False)
    started = await scans(front)
    ours, modules = await steps(
        run_script, line, memini, dump, ["modules", "memini_vision", "vision_worker"], gate=False
    )
    assert await scans(front) - started == started - before
    assert modules == []
    published = str(environment_of("published").pythonpath)
    without = memini | {"PYTHONPATH": f"{published}:{environment_of(line).pythonpath}"}
    (theirs,) = await steps(run_script, line, without, dump, gate=False)
    assert ours == theirs
    assert ours != []


@pytest.mark.parametrize("line", LINES)
async def test_memini_s_own_search_is_gone_around_only_where_it_is_broken(
    line: str, run_script: RunScript, memini: dict[str, str], front: Front
) -> None:
    assert await steps(run_script, line, memini, ["mended"], ["start"], ["own_search"]) == [
        {"gone_around": False, "own_search": True},
        True,
        False,
    ]
    assert await steps(run_script, line, memini, ["start"], ["own_search"], gate=False) == [
        False,
        True,
    ]


async def scans(front: Front) -> int:
    """How often anybody's ended session has read from the table of images."""
    ended = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name NOT LIKE 'vision%'"

    async def alone() -> bool:
        return bool(await front.database.fetchval(ended + " AND datname = current_database()"))

    await eventually(alone, "the sessions of memini-ai ended")
    return int(
        await front.database.fetchval(
            "SELECT coalesce(sum(seq_scan), 0) + coalesce(sum(idx_scan), 0)"
            " FROM pg_stat_user_tables WHERE relname = 'memories_image'"
        )
    )
