"""The commands about pictures: save, search, list, get, delete."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from vision_worker import console
from vision_worker.cli_run import EXIT_ERROR, EXIT_PARTLY, AsJson, with_front
from vision_worker.errors import ImageError, InvalidArgument, VisionError
from vision_worker.front import Front
from vision_worker.memory import Picture
from vision_worker.types import ImageFilter, ImageRecord, SavedImage, SearchResult

app = typer.Typer()

TagOption = Annotated[list[str] | None, typer.Option("--tag", help="May be given several times.")]
Identifier = Annotated[str, typer.Argument(metavar="ID", help="An image id or a memory id.")]
Limit = Annotated[int, typer.Option(min=1, max=1000)]


@app.command()
def save(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Pictures, or folders of pictures.")
    ],
    text: Annotated[
        str | None, typer.Option(help="What to remember; else the file's name.")
    ] = None,
    caption: Annotated[str | None, typer.Option(help="What it shows, in a few words.")] = None,
    tag: TagOption = None,
    as_json: AsJson = False,
) -> None:
    """Keep pictures. Bad files are passed over and listed at the end."""
    if not all(path.strip() for path in paths):
        # As a Path it would be the current folder.
        raise typer.BadParameter("a path is empty", param_hint="PATH")

    async def keep(front: Front, path: Path) -> SavedImage:
        # A name that is not text is remembered as far as it is.
        name = os.fsencode(path.stem).decode(errors="replace")
        picture = Picture(
            source=path.absolute(),
            text=text or name,
            caption=caption,
            tags=tuple(tag or ()),
            source_type="file",
            source_tool="vision-worker save",
        )
        return await front.memory.save(picture)

    async def work(front: Front) -> int:
        files = list(_files(map(Path, paths)))
        failures: list[tuple[Path, VisionError]] = []
        with console.Progress("saving", 0 if as_json or len(files) < 2 else len(files)) as progress:
            for path in progress.over(files):
                started = perf_counter()
                try:
                    saved = await keep(front, path)
                except (ImageError, InvalidArgument) as error:
                    failures.append((path, error))
                    if as_json:
                        console.say_json({"path": str(path), "error": console.error_object(error)})
                    continue
                milliseconds = round((perf_counter() - started) * 1000, 2)
                if as_json:
                    console.say_json({"path": str(path), **asdict(saved), "save_ms": milliseconds})
                elif len(files) == 1:
                    console.say(_saved(saved, milliseconds))
        if len(files) != 1 and not as_json:
            console.say(f"Saved {len(files) - len(failures)} of {len(files)} files.")
        for path, failure in failures:
            console.complain(f"{path}: {failure}", failure.code)
        if not failures:
            return 0
        return EXIT_PARTLY if len(failures) < len(files) else EXIT_ERROR

    raise typer.Exit(with_front(work, as_json=as_json))


@app.command()
def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the picture shows.")],
    limit: Limit = 10,
    tag: TagOption = None,
    as_json: AsJson = False,
) -> None:
    """Find pictures by a sentence, nearest first."""

    async def work(front: Front) -> None:
        where = ImageFilter(tags=tuple(tag or ()))
        page = await front.query.search_by_text(text, limit, where=where)
        if as_json:
            console.say_json(asdict(page))
            return
        if page.hits:
            hits = [
                (rank, f"{hit.distance:.4f}", hit.image_id, _about(hit), hit.file_path)
                for rank, hit in enumerate(page.hits, 1)
            ]
            console.say_table([("rank", "distance", "id", "caption", "path"), *hits])
        else:
            console.say("No picture is found.")
        if page.pending or page.failed:
            console.say(f"Not ranked: {page.pending} pending, {page.failed} failed.")

    with_front(work, as_json=as_json)


@app.command("list")
def list_images(
    limit: Limit = 20,
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
            images = [_fields(image) for image in page.images]
            console.say_json({"images": images, "cursor": page.cursor})
            return
        if page.images:
            rows = [
                (
                    image.id,
                    (image.created_at or "")[:19],
                    image.status,
                    _about(image),
                    image.file_path,
                )
                for image in page.images
            ]
            console.say_table([("id", "saved", "status", "caption", "path"), *rows])
        else:
            console.say("No pictures.")
        if page.cursor:
            console.say(f"More: --cursor {page.cursor}")

    with_front(work, as_json=as_json)


@app.command()
def get(identifier: Identifier, as_json: AsJson = False) -> None:
    """Everything known about one picture."""

    async def work(front: Front) -> None:
        image = _fields(await front.memory.get(identifier))
        if as_json:
            console.say_json(image)
        else:
            console.say_table([(name, console.shown(value)) for name, value in image.items()])

    with_front(work, as_json=as_json)


@app.command()
def delete(identifier: Identifier, as_json: AsJson = False) -> None:
    """Delete a picture and its memory for good."""

    async def work(front: Front) -> None:
        await front.memory.delete(identifier)
        if as_json:
            console.say_json({"id": identifier, "deleted": True})
        else:
            console.say(f"Deleted {identifier}.")

    with_front(work, as_json=as_json)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files given, and those in the folders given; hidden ones only if given by name."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for found in sorted(path.rglob("*")):
            hidden = any(part.startswith(".") for part in found.relative_to(path).parts)
            if not hidden and not found.is_dir():
                yield found


def _fields(image: ImageRecord) -> dict[str, Any]:
    values = asdict(image)
    del values["embedding"]
    return values


def _about(image: ImageRecord | SearchResult) -> str:
    return console.short(image.caption or image.text)


def _saved(saved: SavedImage, milliseconds: float) -> str:
    again = " (already kept)" if saved.duplicate else ""
    return (
        f"Saved {saved.image_id}{again} in {milliseconds:.1f} ms: {saved.status}, {saved.file_path}"
    )
