"""How every command runs: with an open image memory, and with errors told in a sentence."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NoReturn

import typer

from vision_worker import console
from vision_worker.config import VisionConfig
from vision_worker.errors import VisionError
from vision_worker.front import Front

EXIT_ERROR, EXIT_PARTLY, EXIT_PENDING, EXIT_INTERRUPTED = 1, 3, 4, 130

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON of a documented, stable shape.")]


def with_front(work: Callable[[Front], Awaitable[Any]], *, as_json: bool = False) -> Any:
    async def run() -> Any:
        async with await Front.open(VisionConfig()) as front:
            return await work(front)

    return guarded(lambda: asyncio.run(run()), as_json=as_json)


def guarded(work: Callable[[], Any], *, as_json: bool = False) -> Any:
    try:
        return work()
    except VisionError as error:
        if as_json:
            console.say_json({"error": console.error_object(error)})
        console.complain(str(error), error.code)
        raise typer.Exit(EXIT_ERROR) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def give_up(message: str) -> NoReturn:
    console.complain(message)
    raise typer.Exit(EXIT_ERROR)
