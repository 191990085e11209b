"""What an agent waits for at start: our MCP server's first tool list, beside the bare SDK's import.

    python benchmarks/front.py [--runs N] [--out FILE]

Each run starts, one after the other, a Python that does nothing, one that imports ``mcp``, and our
server, over stdio, with its embedded servers running already, as they do once anything has used
them. Resident memory is that of the server after its first tool list, and once its first save has
rung for a worker.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import psutil
from mcp import Client, StdioServerParameters
from PIL import Image
from redis import Redis
from rich.console import Console
from rich.table import Table

from vision_worker import local
from vision_worker.broker import redis_url
from vision_worker.config import VisionConfig
from vision_worker.message import EMBED_QUEUE, KEY_PREFIX

RESULTS = Path(__file__).parent / "results" / "front.json"
BARE = {"bare Python": "pass", "import mcp": "import mcp"}
BELL_SECONDS = 30.0
Measures = dict[str, list[float]]


def seconds_of(script: str) -> float:
    started = perf_counter()
    subprocess.run([sys.executable, "-c", script], check=True)
    return perf_counter() - started


def megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 1e6


def wait_for_bell(broker: Redis) -> None:
    deadline = perf_counter() + BELL_SECONDS
    while not broker.llen(KEY_PREFIX + EMBED_QUEUE):
        assert perf_counter() < deadline, "the server did not ring"
        sleep(0.02)


async def measure_server(
    variables: dict[str, str], picture: Path, broker: Redis
) -> dict[str, float]:
    """Seconds from start to first tool list and to the answer of a first save; RSS in MB."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "vision_worker.cli", "mcp"], env=variables
    )
    await asyncio.to_thread(broker.flushdb)
    before = set(psutil.Process().children())
    async with AsyncExitStack() as stack:
        started = perf_counter()
        client = await stack.enter_async_context(Client(server))
        await client.list_tools()
        listed = perf_counter() - started
        (process,) = set(psutil.Process().children()) - before
        rss_listed = megabytes(process)
        save = {"image_path": str(picture), "text": "a picture"}
        result = await client.call_tool("save_image_memory", save)
        saved = perf_counter() - started
        assert not result.is_error, result.content
        await asyncio.to_thread(wait_for_bell, broker)
        return {
            "tool list, s": listed,
            "first save, s": saved,
            "RSS at tool list, MB": rss_listed,
            "RSS after the bell, MB": megabytes(process),
        }


def measure(runs: int) -> Measures:
    measures: Measures = {}
    # Not below a private folder: as root, the servers run as a user who cannot enter that one.
    folder = Path(tempfile.mkdtemp(prefix="vw-front-"))
    config = VisionConfig(state_dir=str(folder))
    variables = os.environ | {
        "MEMINI_IMAGE_SEARCH_ENABLED": "true",
        "MEMINI_IMAGE_STATE_DIR": str(folder),
        "MEMINI_IMAGE_DIR": str(folder / "images"),
    }
    try:
        broker = Redis.from_url(redis_url(local.urls(config).broker_url))
        picture = folder / "picture.png"
        Image.new("RGB", (640, 360), "navy").save(picture)
        # The first run fills the file cache and migrates the database; it does not count.
        for number in range(runs + 1):
            run = {f"{name}, s": seconds_of(script) for name, script in BARE.items()}
            run |= asyncio.run(measure_server(variables, picture, broker))
            for name, value in run.items() if number else ():
                measures.setdefault(name, []).append(round(value, 4))
    finally:
        local.stop(config)
        shutil.rmtree(folder, ignore_errors=True)
    return measures


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the start of the MCP server.")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    measures = measure(chosen.runs)
    table = Table("measure", "median", "least", "most", title=f"{chosen.runs} runs")
    for name, values in measures.items():
        table.add_row(name, *(f"{pick(values):.2f}" for pick in (median, min, max)))
    Console().print(table)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps({"python": sys.version, "runs": measures}, indent=2) + "\n")
    print(chosen.out)


if __name__ == "__main__":
    main()
