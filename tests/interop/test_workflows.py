"""A day of an agent with videre-mcp and memini-ai, from the first screenshot to the last."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from tests.interop.display import Display
from tests.interop.environments import Environment
from tests.interop.test_fusion import scans
from tests.interop.test_videre import OURS, THEIRS, videre
from tests.support import Process, call, drained
from vision_worker.demo.screens import held_out_screens
from vision_worker.front import Front

QUESTION = "a dark login form with a purple button"
WORDS = "Tuesday, second try"


@pytest.fixture
def screens() -> dict[str, Image.Image]:
    """Five kinds of screens, by caption; the question is about one of them."""
    drawn: dict[str, Image.Image] = {}
    kinds = {"login", "chart", "editor", "map", "files"}
    for name, caption, picture in held_out_screens(50, seed=1):
        if (kind := name.partition("-")[0]) in kinds:
            kinds.remove(kind)
            drawn[caption] = picture
    assert QUESTION in drawn
    return drawn


def talks_to_databases() -> bool:
    """Whether the server process has loaded what the image memory cannot do without."""
    (server,) = (
        child
        for child in psutil.Process().children(recursive=True)
        if "mcp_adapters.videre" in child.cmdline()
    )
    return any("asyncpg" in mapped.path for mapped in server.memory_maps())


async def test_a_day_from_the_first_screenshot_to_switching_it_off(
    environment_of: Callable[[str], Environment],
    run_script: Callable[..., Any],
    environment: dict[str, str],
    memini: dict[str, str],
    display: Display,
    front: Front,
    start_worker: Callable[..., Process],
    screens: dict[str, Image.Image],
    tmp_path: Path,
) -> None:
    where = environment_of("videre")
    settings = environment | {"DISPLAY": display.name}
    saved: dict[str, dict[str, Any]] = {}
    async with videre(where, settings) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == THEIRS | OURS

        # A screenshot is taken and kept while no worker is there.
        for number, (caption, screen) in enumerate(screens.items()):
            display.paint(screen)
            shot = tmp_path / f"shot-{number}.png"
            await call(client, "take_screenshot", output_path=str(shot), monitor=1, describe=False)
            saved[caption] = await call(
                client, "save_image_memory", image_path=str(shot), text=f"{WORDS}, {number}"
            )
            assert saved[caption]["status"] == "pending"
            shot.unlink()

        # It is found by what it shows, and the path that comes back opens.
        worker = start_worker(MEMINI_IMAGE_TEXT_MODEL=memini["MEMINI_MODEL_NAME"])
        await drained(front)
        found = await call(client, "query_images", query=QUESTION)
        assert (found["pending"], found["failed"]) == (0, 0)
        first = found["result"][0]
        assert first["image_id"] == saved[QUESTION]["image_id"]
        with Image.open(first["file_path"]) as kept:
            assert kept.size == (1280, 720)
            kept.load()

        # memini-ai finds it, too, among its texts, and leads to the same path.
        (dumped,) = await asyncio.to_thread(
            run_script, "memini", "memini", [["dump", QUESTION, 3]], **memini
        )
        by_id = {entry["id"]: entry for entry in dumped}
        metadata = json.loads(by_id[first["memory_id"]]["metadata_json"])
        assert metadata["image_path"] == first["file_path"]

        # What described pictures before describes them still, as it did.
        described = await client.call_tool("describe_image", {"image_path": first["file_path"]})
        assert talks_to_databases()

    # Switched off, the tools are gone, nothing of ours is loaded, and no table is read.
    worker.kill()
    worker.wait()
    off = settings | {"MEMINI_IMAGE_SEARCH_ENABLED": "false"}
    before = await scans(front)
    async with videre(where, off) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == THEIRS
        again = await client.call_tool("describe_image", {"image_path": first["file_path"]})
        assert again.content == described.content
        assert not talks_to_databases()
    assert await scans(front) == before
