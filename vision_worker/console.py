"""What the command line writes: sentences, tables, JSON, errors, progress."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

import typer
from rich.cells import cell_len, set_cell_size

from vision_worker.errors import VisionError

Item = TypeVar("Item")

WIDEST = 50
"""Cells that a caption may take in a table. Ids and paths are never cut."""


def plain(text: object) -> str:
    """Text from outside on one line; what could steer a terminal is made visible instead."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in str(text)
    )


def short(text: str | None) -> str:
    """The beginning of a caption."""
    line = " ".join((text or "").split())
    return line if cell_len(line) <= WIDEST else set_cell_size(line, WIDEST - 1) + "…"


def say(text: str) -> None:
    """One line on stdout."""
    typer.echo(plain(text))


def complain(text: str, label: str = "") -> None:
    """One line on stderr, after a label in red."""
    start = typer.style(f"{plain(label)}: ", fg="red") if label else ""
    typer.echo(start + plain(text), err=True)


def say_table(rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns, as wide as they need to be, on a terminal and in a pipe alike."""
    lines = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)
        ]
        typer.echo("  ".join(cells).rstrip())


def say_json(value: object) -> None:
    """One line of ASCII."""
    typer.echo(json.dumps(value))


def error_object(error: VisionError) -> dict[str, str]:
    return {"code": error.code, "message": str(error)}


def shown(value: object) -> str:
    """A field as people read it."""
    if value is None or value == []:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)


class Progress:
    """A bar on stderr, on a terminal only."""

    def __init__(self, label: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        self._bar = Bar(
            TextColumn(label),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            disable=not console.is_terminal or not total,
            transient=True,
        )
        self._task = self._bar.add_task(label, total=total)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def over(self, items: Sequence[Item]) -> Iterator[Item]:
        for number, item in enumerate(items):
            self.show(number, len(items))
            yield item


def tolerate_odd_characters() -> None:
    """A name that is no text in the encoding of the terminal must not end the program."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
