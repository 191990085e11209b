"""The command line: ``vision-worker --help``."""

import asyncio
import logging
import shlex
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from vision_worker import cli_images, cli_index, console, neighbour
from vision_worker.cli_run import EXIT_ERROR, AsJson, give_up, guarded, with_front
from vision_worker.config import VisionConfig
from vision_worker.errors import SchemaOutdated
from vision_worker.front import Front, open_backend

app = typer.Typer(
    name="vision-worker",
    help="Image memory for AI agents: save now, embed after, rank only what is embedded.",
    epilog="""\b
Exit status:
  0    done
  1    an error, told on stderr in a sentence
  2    the command was not understood
  3    save: some files were kept and some were not
  4    wait: images are still pending
  130  interrupted
""",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
def up(
    env: Annotated[
        bool,
        typer.Option(
            "--env",
            help="Print only the settings, password included, by which memini-ai 1.x uses the"
            " same database.",
        ),
    ] = False,
) -> None:
    """Start the embedded servers and bring their database up to date."""
    from vision_worker.migrate import pending

    async def work(front: Front) -> None:
        if missing := await pending(front.backend.db_url):
            raise SchemaOutdated(reason=f"{len(missing)} migrations")
        if env:
            for name, value in neighbour.settings(front.backend.db_url).items():
                console.say(f"export {name}={shlex.quote(value)}")
            return
        console.say("PostgreSQL and Valkey are running.")
        if not (front.config.resolved_db_url and front.config.broker_url):
            console.say(f"  data     {front.config.resolved_state_dir}")
        console.say(f"  pictures {front.config.resolved_image_dir}")
        console.say("Next: 'vision-worker worker' embeds, 'vision-worker mcp' serves an agent.")
        console.say("For memini-ai 1.x: 'vision-worker up --env' prints how it uses this database.")

    with_front(work)


@app.command()
def down() -> None:
    """Stop the embedded servers; the data stays."""
    from vision_worker import local

    stopped = guarded(lambda: local.stop(VisionConfig()))
    console.say(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.")


@app.command()
def mcp() -> None:
    """Serve the image tools to an agent, over MCP on stdin and stdout."""

    def serve() -> None:
        config = VisionConfig()
        if not config.search_enabled:
            console.complain(
                "image memory is off, so this server offers no tools."
                " Set MEMINI_IMAGE_SEARCH_ENABLED=true to turn it on.",
                "vision-worker",
            )
        try:
            from mcp_adapters.server import build_server
        except ImportError as error:
            give_up(f"{error}. Install the server: pip install 'vision-worker[mcp]'")
        config.local_encoder = False
        _log()
        build_server(config).run("stdio")

    guarded(serve)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen at.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0: a free one.")] = None,
) -> None:
    """Serve kept pictures and events over HTTP until stopped."""
    given = {"http_host": host, "http_port": port}

    def start() -> None:
        config = VisionConfig(**{name: value for name, value in given.items() if value is not None})
        try:
            from mcp_adapters.serve import serve
        except ImportError as error:
            give_up(f"{error}. Install the server: pip install 'vision-worker[keepsakes]'")
        config.local_encoder = False
        _log()
        serve(config)

    guarded(start)


@app.command()
def worker(
    queues: Annotated[str, typer.Option(help="embed, query, or both.")] = "embed,query",
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = None,
    model: Annotated[str | None, typer.Option(help="Hub name or folder of a CLIP model.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, max=1024)] = None,
    pool: Annotated[str, typer.Option(help="threads or solo.")] = "threads",
) -> None:
    """Embed pending images until stopped, on the host with the GPU."""
    wanted = tuple(dict.fromkeys(queue.strip() for queue in queues.split(",") if queue.strip()))
    if not wanted or not set(wanted) <= {"embed", "query"}:
        raise typer.BadParameter("it takes embed, query or embed,query", param_hint="--queues")
    if pool not in ("threads", "solo"):
        raise typer.BadParameter("it takes threads or solo", param_hint="--pool")
    given = {"clip_device": device, "clip_model": model, "batch_size": batch_size}

    def start() -> int:
        config = VisionConfig(**{name: value for name, value in given.items() if value is not None})
        backend = asyncio.run(open_backend(config))
        try:
            from vision_worker.tasks import run_worker
        except ImportError as error:
            give_up(f"{error}. Install the worker: pip install 'vision-worker[worker]'")
        return run_worker(config, backend.db_url, backend.broker_url, queues=wanted, pool=pool)

    _log()
    raise typer.Exit(guarded(start))


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

    for line in guarded(lambda: asyncio.run(work())) or ["Nothing to do."]:
        console.say(line)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check every part and say what to do."""
    from vision_worker.doctor import examine

    checks = guarded(lambda: asyncio.run(examine()), as_json=as_json)
    if as_json:
        console.say_json([asdict(check) for check in checks])
    else:
        for check in checks:
            console.say(f"{check.state:<8} {check.name}: {check.detail}")
            if check.advice:
                console.say(f"         -> {check.advice}")
    raise typer.Exit(EXIT_ERROR if any(check.state == "broken" for check in checks) else 0)


app.add_typer(cli_images.app)
app.add_typer(cli_index.app)


def main() -> None:
    console.tolerate_odd_characters()
    app()


def _log() -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    for noisy in ("sentence_transformers", "celery.app.trace", "celery.worker.strategy"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # A database that is away is told by our own sentence; the pool's tracebacks add nothing.
    logging.getLogger("asyncpg.pool").setLevel(logging.CRITICAL)


if __name__ == "__main__":
    main()
