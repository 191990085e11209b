"""The process that an agent waits for has loaded nothing that only a worker needs."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from mcp import Client, StdioServerParameters

from tests.environments import HEAVY
from tests.pictures import drawing
from tests.support import Process, drained
from vision_worker.front import Front

CELERY = frozenset({"celery", "kombu"})
LIGHT_MODULES = (
    "vision_worker",
    "vision_worker.cli",
    "vision_worker.front",
    "vision_worker.memory",
    "vision_worker.query",
    "mcp_adapters.server",
)
LOADED = "import sys, importlib; importlib.import_module(sys.argv[1]); print(*sys.modules)"
EVERY_NAME = (
    "import sys, vision_worker as v; [getattr(v, n) for n in v.__all__]; print(*sys.modules)"
)


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_importing_a_light_module_loads_neither_torch_nor_numpy_nor_celery(module: str) -> None:
    assert loaded(LOADED, module) & (HEAVY | CELERY) == set()


def test_taking_every_public_name_loads_neither_torch_nor_numpy_nor_celery() -> None:
    assert loaded(EVERY_NAME) & (HEAVY | CELERY) == set()


async def test_a_server_that_saved_and_refused_a_query_has_loaded_nothing_heavy(
    environment: dict[str, str],
    start_worker: Callable[..., Process],
    front: Front,
    tmp_path: Path,
) -> None:
    picture, log = tmp_path / "drawing.png", tmp_path / "imports.log"
    drawing(400, 300).save(picture)
    serve = 'exec "$0" -X importtime -m vision_worker.cli mcp 2>"$1"'
    server = StdioServerParameters(
        command="/bin/sh", args=["-c", serve, sys.executable, str(log)], env=environment
    )
    before = set(psutil.Process().children())
    async with Client(server) as client:
        (process,) = set(psutil.Process().children()) - before
        saved = await client.call_tool(
            "save_image_memory", {"image_path": str(picture), "text": "a drawing"}
        )
        assert not saved.is_error
        worker = start_worker()
        await drained(front)
        worker.kill(signal.SIGTERM)
        assert worker.wait() == 0
        status = await client.call_tool("image_index_status", {})
        assert status.structured_content is not None
        assert (status.structured_content["embedded"], status.structured_content["workers"]) == (
            1,
            0,
        )
        for tool, arguments in (
            ("query_images", {"query": "a drawing"}),
            ("find_similar_images", {"image_path": str(picture)}),
        ):
            refused = await client.call_tool(tool, arguments)
            assert refused.is_error
            assert refused.structured_content is not None
            assert refused.structured_content["error"]["code"] == "encoder_unavailable"
        libraries = mapped(process) | {
            name for child in process.children(recursive=True) for name in mapped(child)
        }
    imported = imports(log)
    assert "vision_worker.front" in imported
    assert {name.partition(".")[0] for name in imported} & (HEAVY | CELERY) == set()
    assert {name for name in libraries if any(f"/{heavy}" in name for heavy in HEAVY)} == set()


def loaded(script: str, *arguments: str) -> set[str]:
    """The top-level modules that a new Python holds after the script."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def imports(log: Path) -> set[str]:
    """Every module named in what ``-X importtime`` wrote."""
    lines = log.read_text().splitlines()
    return {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:")}


def mapped(process: psutil.Process) -> set[str]:
    """The files a process has mapped; where the system does not tell, none."""
    maps = Path(f"/proc/{process.pid}/maps")
    if not os.access(maps, os.R_OK):
        return set()
    rows = (line.split(maxsplit=5) for line in maps.read_text().splitlines())
    return {row[5] for row in rows if len(row) == 6}
