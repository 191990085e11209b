"""The command line: ``vision-worker --help``."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vision_worker.config import VisionConfig
from vision_worker.errors import VisionError
from vision_worker.front import Front
from vision_worker.memory import Picture
from vision_worker.types import ImageFilter, ImageRecord, IndexStatus, SavedImage

EXIT_ERROR, EXIT_PARTLY, EXIT_NOT_READY = 1, 3, 4
POLL_SECONDS = 0.2

app = typer.Typer(
    name="vision-worker",
    help="Image memory for AI agents: save now, embed after, rank only what is embedded.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON of a documented, stable shape.")]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="May be given several times.")]


@app.command()
def up() -> None:
    """Start the embedded servers and bring the database up to date."""

    async def work(front: Front) -> None:
        out.print("PostgreSQL and Valkey are running.")
        if front.config.resolved_db_url is None:
            out.print(f"  data     {escape(str(front.config.resolved_state_dir))}")
        out.print(f"  pictures {escape(str(front.config.resolved_image_dir))}")
        out.print("Next: 'vision-worker worker' embeds, 'vision-worker mcp' serves an agent.")

    _with_front(work)


@app.command()
def down() -> None:
    """Stop the embedded servers; the data stays."""
    from vision_worker import local

    stopped = _guarded(lambda: local.stop(VisionConfig()))
    out.print(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.")


@app.command()
def mcp() -> None:
    """Serve the image tools to an agent, over MCP on stdin and stdout."""
    from mcp_adapters.server import build_server

    config = _guarded(VisionConfig)
    if not config.search_enabled:
        err.print(
            "vision-worker: image memory is off, so this server offers no tools."
            " Set MEMINI_IMAGE_SEARCH_ENABLED=true to turn it on."
        )
    config.local_encoder = False
    _log()
    build_server(config).run("stdio")


@app.command()
def worker(
    queues: Annotated[str, typer.Option(help="embed, query, or both.")] = "embed,query",
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = None,
    model: Annotated[str | None, typer.Option(help="Hub name or folder of a CLIP model.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, max=1024)] = None,
    pool: Annotated[str, typer.Option(help="threads or solo.")] = "threads",
) -> None:
    """Embed pending images until stopped; start it on the host with the GPU."""
    wanted = tuple(dict.fromkeys(queue.strip() for queue in queues.split(",") if queue.strip()))
    if not wanted or not set(wanted) <= {"embed", "query"}:
        raise typer.BadParameter("it takes embed, query or embed,query", param_hint="--queues")
    if pool not in ("threads", "solo"):
        raise typer.BadParameter("it takes threads or solo", param_hint="--pool")
    given = {"clip_device": device, "clip_model": model, "batch_size": batch_size}

    def start() -> int:
        config = VisionConfig(**{name: value for name, value in given.items() if value is not None})
        backend = asyncio.run(_backend(config))
        try:
            from vision_worker.tasks import run_worker
        except ImportError as error:
            _fail_plainly(f"{error}. Install the worker: pip install 'vision-worker[worker]'")
        return run_worker(config, *backend, queues=wanted, pool=pool)

    _log()
    raise typer.Exit(_guarded(start))


@app.command()
def migrate(
    to: Annotated[
        int | None, typer.Option(help="The version to end at; 0 is an empty one.")
    ] = None,
    down: Annotated[bool, typer.Option("--down", help="Take back the newest migration.")] = False,
) -> None:
    """Bring the database to the schema of this version, or back."""
    from vision_worker import migrate as migrations
    from vision_worker.local import urls

    async def work() -> list[str]:
        url = urls(VisionConfig()).db_url
        target = to
        if down and target is None:
            target = max(0, await migrations.current(url) - 1)
        return await migrations.migrate(url, to=target)

    names = _guarded(lambda: asyncio.run(work()))
    out.print("\n".join(names) if names else "Nothing to do.")


@app.command()
def save(
    paths: Annotated[list[Path], typer.Argument(help="Pictures, or folders of pictures.")],
    text: Annotated[
        str | None, typer.Option(help="What to remember; else the file's name.")
    ] = None,
    caption: Annotated[str | None, typer.Option(help="What it shows, in a few words.")] = None,
    tag: TagOption = None,
    as_json: AsJson = False,
) -> None:
    """Keep pictures. Bad files are passed over and listed at the end."""

    async def work(front: Front) -> int:
        failures: list[tuple[Path, VisionError]] = []
        files = list(_files(paths))
        for path in _progress(files, "saving", hidden=as_json or len(files) < 2):
            started = perf_counter()
            try:
                saved = await front.memory.save(
                    Picture(
                        source=path.absolute(),
                        text=text or path.stem,
                        caption=caption,
                        tags=tuple(tag or ()),
                        source_type="file",
                        source_tool="vision-worker save",
                    )
                )
            except VisionError as error:
                failures.append((path, error))
                if as_json:
                    _print_json({"path": str(path), "error": _error(error)})
                continue
            milliseconds = round((perf_counter() - started) * 1000, 2)
            if as_json:
                _print_json({"path": str(path), **asdict(saved), "save_ms": milliseconds})
            elif len(files) < 2:
                out.print(_saved(saved, milliseconds))
        if not as_json:
            if len(files) > 1:
                out.print(f"Saved {len(files) - len(failures)} of {len(files)} files.")
            for path, failure in failures:
                err.print(f"[red]{escape(str(path))}[/]: {failure.code}: {escape(str(failure))}")
        if failures:
            return EXIT_ERROR if len(failures) == len(files) else EXIT_PARTLY
        return 0

    raise typer.Exit(_with_front(work))


@app.command()
def search(
    text: Annotated[str, typer.Argument(help="What the picture shows.")],
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 10,
    tag: TagOption = None,
    as_json: AsJson = False,
) -> None:
    """Find pictures by a sentence, nearest first."""

    async def work(front: Front) -> None:
        where = ImageFilter(tags=tuple(tag or ()))
        page = await front.query.search_by_text(text, limit, where=where)
        if as_json:
            _print_json(asdict(page))
            return
        table = Table("rank", "distance", "caption", "path", box=None)
        for rank, hit in enumerate(page.hits, 1):
            table.add_row(
                str(rank),
                f"{hit.distance:.4f}",
                escape(hit.caption or hit.text or ""),
                escape(hit.file_path),
            )
        out.print(table if page.hits else "No picture is found.")
        if page.pending or page.failed:
            out.print(f"{page.pending} more are pending, {page.failed} failed.")

    _with_front(work, as_json=as_json)


@app.command("list")
def list_images(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    tag: TagOption = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first.")] = False,
    cursor: Annotated[str | None, typer.Option(help="From an earlier answer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Page through the pictures in order of time."""

    async def work(front: Front) -> None:
        page = await front.memory.list_images(
            ImageFilter(tags=tuple(tag or ())),
            limit=limit,
            order="oldest" if oldest else "newest",
            cursor=cursor,
        )
        if as_json:
            images = [_image(image) for image in page.images]
            _print_json({"images": images, "cursor": page.cursor})
            return
        table = Table("id", "saved", "status", "caption", "path", box=None)
        for image in page.images:
            table.add_row(
                image.id,
                (image.created_at or "")[:19],
                image.status,
                escape(image.caption or image.text or ""),
                escape(image.file_path),
            )
        out.print(table if page.images else "No pictures yet.")
        if page.cursor:
            out.print(f"More: --cursor {page.cursor}")

    _with_front(work, as_json=as_json)


@app.command()
def get(identifier: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Everything known about one picture, by its image id or memory id."""

    async def work(front: Front) -> None:
        image = _image(await front.memory.get(identifier))
        if as_json:
            _print_json(image)
            return
        table = Table(show_header=False, box=None)
        for name, value in image.items():
            table.add_row(name, escape("" if value is None else str(value)))
        out.print(table)

    _with_front(work, as_json=as_json)


@app.command()
def delete(
    identifier: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False
) -> None:
    """Delete a picture and its memory for good."""

    async def work(front: Front) -> None:
        await front.memory.delete(identifier)
        if as_json:
            _print_json({"id": identifier, "deleted": True})
        else:
            out.print(f"Deleted {identifier}.")

    _with_front(work, as_json=as_json)


@app.command()
def status(as_json: AsJson = False) -> None:
    """How far embedding has come, and whether workers are alive."""

    async def work(front: Front) -> None:
        state = await front.index.status(ready_seconds=front.config.ready_seconds)
        if as_json:
            _print_json(asdict(state))
            return
        _print_status(state)
        for failure in await front.index.failures():
            out.print(f"  {failure['images']} failed with {failure['code']}: {failure['example']}")
        for seen in await front.index.workers():
            if seen["state"] != "ready":
                out.print(f"  worker {seen['hostname']}: {seen['state']} {seen['detail'] or ''}")

    _with_front(work, as_json=as_json)


@app.command()
def wait(
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.")] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Wait until nothing is pending."""

    async def work(front: Front) -> int:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        deadline = perf_counter() + timeout
        state = await front.index.status()
        total = state.pending
        columns = (TextColumn("embedding"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=err, disable=as_json or not total) as progress:
            task = progress.add_task("embedding", total=total)
            while state.pending and perf_counter() < deadline:
                await asyncio.sleep(POLL_SECONDS)
                state = await front.index.status()
                total = max(total, state.pending)
                progress.update(task, total=total, completed=total - state.pending)
        if as_json:
            _print_json(asdict(state))
        else:
            _print_status(state)
        return EXIT_NOT_READY if state.pending else 0

    raise typer.Exit(_with_front(work, as_json=as_json))


@app.command()
def retry(
    code: Annotated[str | None, typer.Option(help="Only failures with this code.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make failed pictures pending again."""

    async def work(front: Front) -> None:
        count = await front.index.retry(code)
        if as_json:
            _print_json({"retried": count})
        else:
            out.print(f"{count} pictures are pending again.")

    _with_front(work, as_json=as_json)


@app.command()
def sweep(as_json: AsJson = False) -> None:
    """Ring for the workers if anything is waiting."""

    async def work(front: Front) -> None:
        due = await front.index.due()
        if due:
            await asyncio.to_thread(front.broker.ring)
        if as_json:
            _print_json({"due": due})
        else:
            out.print(f"{due} pictures are waiting." + (" Rang." if due else ""))

    _with_front(work, as_json=as_json)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check every part and say what to do; exit status 1 if something is broken."""
    from vision_worker.doctor import examine

    checks = asyncio.run(examine())
    marks = {"ok": "[green]ok[/]  ", "warning": "[yellow]warn[/]", "broken": "[red]bad[/] "}
    if as_json:
        _print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            out.print(f"{marks[check.state]} {check.name}: {escape(check.detail)}")
            if check.advice:
                out.print(f"       -> {escape(check.advice)}")
    raise typer.Exit(EXIT_ERROR if any(check.state == "broken" for check in checks) else 0)


def main() -> None:
    app()


async def _backend(config: VisionConfig) -> tuple[str, str]:
    from vision_worker.local import urls
    from vision_worker.migrate import migrate as bring_up

    backend = await asyncio.to_thread(urls, config)
    if config.resolved_db_url is None:
        await bring_up(backend.db_url)
    return backend.db_url, backend.broker_url


def _with_front(work: Callable[[Front], Awaitable[Any]], *, as_json: bool = False) -> Any:
    async def run() -> Any:
        async with await Front.open(VisionConfig()) as front:
            return await work(front)

    return _guarded(lambda: asyncio.run(run()), as_json=as_json)


def _guarded(work: Callable[[], Any], *, as_json: bool = False) -> Any:
    try:
        return work()
    except VisionError as error:
        if as_json:
            _print_json({"error": _error(error)})
        err.print(f"[red]{error.code}[/]: {escape(str(error))}")
        raise typer.Exit(EXIT_ERROR) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _fail_plainly(message: str) -> NoReturn:
    err.print(escape(message))
    raise typer.Exit(EXIT_ERROR)


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(
                file
                for file in path.rglob("*")
                if not file.name.startswith(".") and not file.is_dir()
            )
        else:
            yield path


def _progress(files: list[Path], label: str, *, hidden: bool) -> Iterator[Path]:
    from rich.progress import track

    return iter(track(files, label, console=err, disable=hidden))


def _image(image: ImageRecord) -> dict[str, Any]:
    values = asdict(image)
    del values["embedding"]
    return values


def _saved(saved: SavedImage, milliseconds: float) -> str:
    again = " (already kept)" if saved.duplicate else ""
    return (
        f"Saved {saved.image_id}{again} in {milliseconds:.1f} ms: {saved.status},"
        f" {escape(saved.file_path)}"
    )


def _print_status(state: IndexStatus) -> None:
    table = Table(show_header=False, box=None)
    for name, value in asdict(state).items():
        shown = f"{value:.1f}" if isinstance(value, float) else value
        table.add_row(name.replace("_", " "), "-" if shown is None else str(shown))
    out.print(table)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _error(error: VisionError) -> dict[str, str]:
    return {"code": error.code, "message": str(error)}


def _log() -> None:
    import logging

    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    for noisy in ("sentence_transformers", "celery.app.trace", "celery.worker.strategy"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
