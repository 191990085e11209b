"""The image arm for whoever fuses by hand."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcp_adapters.memini import fuse, image_arm, readable, route_around, start
from tests.pictures import drawing
from tests.rows import Rows
from tests.support import DEADLINE, Process, drained
from vision_worker.errors import ConfigError
from vision_worker.front import Front
from vision_worker.memory import Picture
from vision_worker.runtime import runtime


@pytest.fixture(autouse=True)
def settings(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield
    runtime().close()


async def test_the_arm_answers_with_memories_best_first(
    front: Front, start_worker: Callable[..., Process], tmp_path: Path
) -> None:
    start_worker()
    picture = tmp_path / "shot.png"
    drawing(200, 100).save(picture)
    saved = await front.memory.save(Picture(picture, "shapes"))
    await drained(front)
    assert await start() is True
    assert await image_arm("a red circle") == [saved.memory_id]
    assert fuse([["one", "two"], await image_arm("a red circle")], 60, 2) == [
        "one",
        saved.memory_id,
    ]


async def test_the_arm_is_empty_without_a_worker_and_says_why(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    rows = Rows(front.database)
    await rows.model()
    await rows.image([1.0])
    assert [await image_arm("1 0"), await image_arm("1 0")] == [[], []]
    assert [record.getMessage() for record in caplog.records] == [
        "no image results: No encoder can turn the query into a vector now (no worker is running)."
        " Start 'vision-worker worker' on a host with the model, or wait until it is back, then"
        " ask again."
    ]


async def test_a_forked_process_has_a_runtime_of_its_own(front: Front) -> None:
    shared = runtime()
    status = await shared.run(lambda open_front: open_front.index.status())
    script = (
        "import asyncio, os\n"
        "from vision_worker.runtime import runtime\n"
        "async def pending(front): return (await front.index.status()).pending\n"
        "assert runtime().call(pending) == 0\n"
        "child = os.fork()\n"
        "if not child: os._exit(runtime().call(pending))\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert runtime().call(pending) == 0\n"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], timeout=DEADLINE, check=False
    )
    assert done.returncode == 0
    assert await shared.run(lambda open_front: open_front.index.status()) == status


async def test_with_the_gate_off_the_arm_is_empty_and_opens_nothing(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMINI_IMAGE_SEARCH_ENABLED", "false")
    assert await start() is False
    assert await image_arm("anything") == []
    assert runtime().opened is False


async def test_a_setting_that_cannot_be_used_is_told_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as junk:
        junk.setenv("MEMINI_IMAGE_SEARCH_ENABLED", "junk")
        with pytest.raises(ConfigError, match="MEMINI_IMAGE_SEARCH_ENABLED"):
            await start()


def test_without_memini_in_the_process_there_is_nothing_to_go_around() -> None:
    assert route_around() is False
    assert readable() is None
