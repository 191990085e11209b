"""The main job in front of your eyes: ``make demo``."""

import argparse
import asyncio
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from vision_worker import local
from vision_worker.config import VisionConfig
from vision_worker.demo.screens import DEMO_QUERIES, held_out_screens
from vision_worker.images import FORMATS
from vision_worker.migrate import migrate

SHOTS = 24
HITS = 3
PATIENCE_SECONDS = 150.0
TINY_CLIP = Path(__file__).parent / "tiny-clip"
EXTENSIONS = {f".{known.extension}" for known in FORMATS} | {".jpeg", ".tif"}

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--shots", type=Path, help="a folder of your own screenshots")
    parser.add_argument("--query", action="append", help="what to search for")
    options = parser.parse_args()
    queries = options.query or [query for query, _ in DEMO_QUERIES]
    try:
        with demo_folder() as folder:
            return asyncio.run(show(folder, options.shots, queries))
    except KeyboardInterrupt:
        return 130


@contextmanager
def demo_folder() -> Iterator[Path]:
    """A folder of this demo's own; the next demo empties it."""
    folder = Path(tempfile.gettempdir()) / f"vision-worker-demo-{os.getuid()}"
    config = VisionConfig(state_dir=str(folder / "state"))
    local.stop(config)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o711)
    try:
        yield folder
    finally:
        local.stop(config)


async def show(folder: Path, own: Path | None, queries: list[str]) -> int:
    environment = settings(folder)
    started = time.perf_counter()
    config = VisionConfig(state_dir=environment["MEMINI_IMAGE_STATE_DIR"])
    backend = await asyncio.to_thread(local.urls, config)
    await migrate(backend.db_url)
    took = time.perf_counter() - started
    console.print(f"[bold]1.[/] PostgreSQL with pgvector and Valkey are running ({took:.1f} s).")
    shots = own_shots(own) if own else drawn_shots(folder / "shots")
    if not shots:
        console.print(f"There are no pictures in {escape(str(own))}.")
        return 1
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "vision_worker.cli", "mcp"], env=environment
    )
    async with Client(server) as client:
        await save(client, shots)
        with running_worker(folder, environment) as worker:
            if not await watch(client, worker, folder):
                return 1
            for query in queries:
                await search(client, query)
    farewell(folder)
    return 0


@contextmanager
def running_worker(
    folder: Path, environment: dict[str, str]
) -> "Iterator[subprocess.Popen[bytes]]":
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "vision_worker.cli", "worker"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait(30)


def settings(folder: Path) -> dict[str, str]:
    """The environment of the demo's processes: embedded servers and the tiny CLIP."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MEMINI_")}
    return inherited | {
        "HF_HUB_OFFLINE": "1",
        "MEMINI_IMAGE_SEARCH_ENABLED": "true",
        "MEMINI_IMAGE_STATE_DIR": str(folder / "state"),
        "MEMINI_IMAGE_DIR": str(folder / "images"),
        "MEMINI_IMAGE_CLIP_MODEL": os.environ.get("MEMINI_IMAGE_CLIP_MODEL", str(TINY_CLIP)),
    }


def drawn_shots(folder: Path) -> list[tuple[Path, str]]:
    """Screens that the tiny CLIP has never seen, as files with their captions."""
    folder.mkdir()
    shots = []
    for name, caption, picture in held_out_screens(SHOTS, seed=1):
        picture.save(folder / name)
        shots.append((folder / name, caption))
    return shots


def own_shots(folder: Path) -> list[tuple[Path, str]]:
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS)
    return [(path.absolute(), path.stem) for path in files]


async def save(client: Client, shots: list[tuple[Path, str]]) -> None:
    await call(client, "image_index_status")  # the first call waits for the connection
    milliseconds: list[float] = []
    refused: list[str] = []
    for path, caption in shots:
        started = time.perf_counter()
        result = await client.call_tool(
            "save_image_memory",
            {"image_path": str(path), "text": caption, "caption": caption, "tags": ["demo"]},
        )
        milliseconds.append((time.perf_counter() - started) * 1000)
        if result.is_error:
            refused.append(result.content[0].text)  # type: ignore[union-attr]
    ordered = sorted(milliseconds)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    console.print(
        f"[bold]2.[/] {len(shots) - len(refused)} screenshots saved through MCP:"
        f" p50 [bold]{statistics.median(ordered):.1f} ms[/], p95 [bold]{p95:.1f} ms[/] a save."
    )
    for sentence in refused:
        console.print(f"   not saved: {escape(sentence)}")
    console.print("   The agent goes on. Only now a worker starts, and loads CLIP.\n")


async def watch(client: Client, worker: "subprocess.Popen[bytes]", folder: Path) -> bool:
    """Show the backlog shrink; False if the worker died or takes too long."""
    status = await call(client, "image_index_status")
    total = status["pending"] + status["embedded"] + status["failed"]
    deadline = time.monotonic() + PATIENCE_SECONDS
    columns = (TextColumn("[bold]3.[/] Embedding"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("embedding", total=total)
        while status["pending"]:
            if worker.poll() is not None or time.monotonic() > deadline:
                console.print((folder / "worker.log").read_text()[-2000:], markup=False)
                return False
            await asyncio.sleep(0.1)
            status = await call(client, "image_index_status")
            progress.update(task, completed=total - status["pending"])
        progress.update(task, completed=total)
    console.print(f"   {status['embedded']} embedded, {status['failed']} failed.\n")
    return True


async def search(client: Client, query: str) -> None:
    found = await call(client, "query_images", query=query, limit=HITS)
    console.print(f"[bold]?[/] {escape(query)}")
    console.print("   rank  distance  caption, path", style="dim")
    for rank, hit in enumerate(found["result"], 1):
        console.print(f"   {rank:>4}  {hit['distance']:>8.3f}  {escape(hit['caption'] or '')}")
        console.print(f"                   {escape(hit['file_path'])}", style="dim")
    console.print()


async def call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise SystemExit(result.content[0].text)  # type: ignore[union-attr]
    values: dict[str, Any] = result.structured_content
    return values


def farewell(folder: Path) -> None:
    command = shlex.quote(str(Path(sys.executable).with_name("vision-worker")))
    console.print(f"The pictures and the worker's log stay in {escape(str(folder))}.")
    console.print("For an agent, register this as an MCP server on stdio:\n")
    console.print(f"   MEMINI_IMAGE_SEARCH_ENABLED=true {escape(command)} mcp\n")
    console.print("and keep a worker running, here or on a host with a GPU:\n")
    console.print(f"   {escape(command)} worker\n")


if __name__ == "__main__":
    sys.exit(main())
