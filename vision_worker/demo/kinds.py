"""The kinds of screens: what varies in each, and how it is drawn."""

from collections.abc import Callable
from dataclasses import dataclass

from vision_worker.demo import applications, pictures, scenes, windows
from vision_worker.demo.canvas import ACCENTS, COLOURS

BOTH = ("light", "dark")


@dataclass(frozen=True)
class Kind:
    """Screens of one sort. ``draw`` takes a canvas and one value of each attribute, in order."""

    attributes: dict[str, tuple[str, ...]]
    draw: Callable[..., None]
    impossible: Callable[..., bool] = lambda *_: False


def _unreadable(colour: str, background: str) -> bool:
    pale = background == "white" and colour in ("yellow", "cyan")
    return colour == background or pale


KINDS: dict[str, Kind] = {
    "shape": Kind(
        {
            "colour": tuple(name for name in COLOURS if name != "gray"),
            "shape": ("circle", "square", "triangle", "star", "cross", "ring"),
            "background": ("white", "black", "gray"),
        },
        pictures.draw_shape,
        lambda colour, _, background: colour == background,
    ),
    "terminal": Kind(
        {
            "colour": ("green", "white", "yellow", "red", "cyan", "orange"),
            "background": ("black", "blue", "white"),
        },
        windows.draw_terminal,
        _unreadable,
    ),
    "chart": Kind(
        {
            "colour": ACCENTS,
            "chart": ("bar chart", "line chart", "scatter plot", "area chart"),
            "background": ("white", "black"),
        },
        pictures.draw_chart,
    ),
    "pie": Kind(
        {
            "colour": ACCENTS,
            "style": ("pie chart", "donut chart"),
            "background": ("white", "black"),
        },
        pictures.draw_pie,
    ),
    "editor": Kind(
        {
            "theme": BOTH,
            "layout": (
                "with a sidebar",
                "without a sidebar",
                "with a terminal panel",
                "in two panes",
            ),
            "colour": ACCENTS,
        },
        windows.draw_editor,
    ),
    "dialog": Kind(
        {
            "dialog": ("error", "warning", "info", "success"),
            "theme": BOTH,
            "desktop": ("blue", "green", "purple", "gray"),
        },
        windows.draw_dialog,
    ),
    "login": Kind(
        {"colour": ACCENTS, "theme": BOTH},
        windows.draw_login,
    ),
    "chat": Kind(
        {"colour": ACCENTS, "theme": BOTH},
        applications.draw_chat,
    ),
    "sheet": Kind(
        {"colour": ACCENTS, "theme": BOTH},
        applications.draw_sheet,
    ),
    "web": Kind(
        {
            "layout": ("an article", "a search page", "an image gallery", "a video player"),
            "theme": BOTH,
            "colour": ACCENTS,
        },
        applications.draw_web,
    ),
    "map": Kind(
        {"colour": ACCENTS, "style": ("street map", "satellite map")},
        pictures.draw_map,
    ),
    "calendar": Kind(
        {"colour": ACCENTS, "theme": BOTH},
        applications.draw_calendar,
    ),
    "files": Kind(
        {"colour": ("yellow", "blue", "green", "purple"), "theme": BOTH},
        applications.draw_files,
    ),
    "scene": Kind(
        {
            "place": ("mountains", "the sea", "a forest", "a city", "a desert"),
            "time": ("by day", "at dawn", "at sunset", "at night"),
        },
        scenes.draw_scene,
    ),
    "kanban": Kind(
        {
            "colour": ("yellow", "blue", "green", "purple"),
            "columns": ("three", "four", "five"),
            "theme": BOTH,
        },
        applications.draw_kanban,
    ),
    "settings": Kind(
        {"colour": ACCENTS, "theme": BOTH},
        windows.draw_settings,
    ),
}
