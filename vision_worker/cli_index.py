"""The commands about the index: status, wait, retry, sweep."""

import asyncio
from dataclasses import asdict
from time import perf_counter
from typing import Annotated

import typer

from vision_worker import console
from vision_worker.cli_run import EXIT_PENDING, AsJson, with_front
from vision_worker.front import Front
from vision_worker.reembed import aim
from vision_worker.types import IndexStatus

POLL_SECONDS = 0.2

app = typer.Typer()


@app.command()
def status(as_json: AsJson = False) -> None:
    """How far embedding has come, and whether workers are alive."""

    async def work(front: Front) -> None:
        state = await _status(front)
        if as_json:
            console.say_json(asdict(state))
            return
        _say_status(state)
        for failure in await front.index.failures():
            console.say(f"{failure['images']} failed, {failure['code']}: {failure['example']}")
        for seen in await front.index.workers():
            if seen["state"] != "ready":
                detail = f": {seen['detail']}" if seen["detail"] else ""
                console.say(f"worker {seen['hostname']}:{seen['pid']} {seen['state']}{detail}")

    with_front(work, as_json=as_json)


@app.command()
def wait(
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait at most.")] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Wait until nothing is pending."""

    async def work(front: Front) -> int:
        deadline = perf_counter() + timeout
        state = await _status(front)
        total = state.pending
        with console.Progress("embedding", 0 if as_json else total) as progress:
            while state.pending and perf_counter() < deadline:
                await asyncio.sleep(min(POLL_SECONDS, max(0.0, deadline - perf_counter())))
                state = await _status(front)
                total = max(total, state.pending)
                progress.show(total - state.pending, total)
        if as_json:
            console.say_json(asdict(state))
        else:
            _say_status(state)
        if state.pending and not state.workers:
            console.complain("No worker is ready: start 'vision-worker worker'.")
        return EXIT_PENDING if state.pending else 0

    raise typer.Exit(with_front(work, as_json=as_json))


@app.command()
def retry(
    code: Annotated[str | None, typer.Option(help="Only failures with this code.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make failed pictures pending again."""

    async def work(front: Front) -> None:
        count = await front.index.retry(code)
        if as_json:
            console.say_json({"retried": count})
        else:
            console.say(f"{count} pictures are pending again.")

    with_front(work, as_json=as_json)


@app.command()
def reembed(
    to: Annotated[str | None, typer.Option(help="Key of the model, as its worker tells.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change the model: embed every picture anew in the background, then switch at once."""

    async def work(front: Front) -> None:
        model, waiting = await aim(front.database, to)
        if as_json:
            console.say_json({"model": model, "waiting": waiting})
        else:
            console.say(
                f"{waiting} pictures are embedded anew with {model}. Until a change of model is"
                " complete, searches use the old one; 'vision-worker status' shows which."
            )

    with_front(work, as_json=as_json)


@app.command()
def sweep(as_json: AsJson = False) -> None:
    """Ring for the workers if anything is waiting."""

    async def work(front: Front) -> None:
        due = await front.index.due()
        if due:
            await asyncio.to_thread(front.broker.ring)
        if as_json:
            console.say_json({"due": due})
        else:
            console.say(f"{due} pictures are waiting." + (" Rang." if due else ""))

    with_front(work, as_json=as_json)


async def _status(front: Front) -> IndexStatus:
    return await front.index.status(ready_seconds=front.config.ready_seconds)


def _say_status(state: IndexStatus) -> None:
    console.say_table(
        [(name.replace("_", " "), console.shown(value)) for name, value in asdict(state).items()]
    )
