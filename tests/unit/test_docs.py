"""The documentation names what the code has, and its links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from vision_worker import errors
from vision_worker.cli import app
from vision_worker.config import PREFIX, VisionConfig
from vision_worker.errors import VisionError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


def kinds(root: type[VisionError] = VisionError) -> Iterator[type[VisionError]]:
    yield root
    for child in root.__subclasses__():
        yield from kinds(child)


def rows(page: Path) -> Iterator[list[str]]:
    """The cells of all table rows of a page."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def section(page: Path, title: str) -> str:
    text = page.read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_error_is_documented_with_its_code_and_whether_it_is_transient() -> None:
    told = {
        code.strip("`"): transient
        for code, _, transient in rows(ROOT / "docs/reference/errors.md")
        if code.startswith("`")
    }
    assert told == {
        kind.code: "yes" if kind.transient else "no"
        for kind in kinds()
        if kind.__module__ == errors.__name__
    }


def test_the_settings_table_has_every_setting_and_no_other() -> None:
    lines = [line for line in section(ROOT / "README.md", "Settings").splitlines() if "|" in line]
    told = {name for line in lines for name in re.findall(r"`([A-Z_]+)`", line.split("|")[1])}
    fields = {"dir" if name == "image_dir" else name for name in VisionConfig.model_fields}
    assert told == {name.upper() for name in fields}


def test_the_settings_table_tells_the_defaults() -> None:
    fields = {
        "dir" if name == "image_dir" else name: field.default
        for name, field in VisionConfig.model_fields.items()
    }
    for line in section(ROOT / "README.md", "Settings").splitlines():
        cells = [re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:3]]
        for name, told in zip(*cells, strict=False):
            default = fields.get(name.lower())
            if default is not None:
                text = f"{default:g}" if type(default) is float else str(default)
                assert told == (text.lower() if isinstance(default, bool) else text), name


def test_no_page_names_a_setting_that_does_not_exist() -> None:
    known = {
        PREFIX + ("DIR" if name == "image_dir" else name.upper())
        for name in VisionConfig.model_fields
    }
    for page in PAGES:
        named = set(re.findall(rf"{PREFIX}[A-Z_]*[A-Z]", page.read_text(encoding="utf-8")))
        assert named <= known, page


def test_every_command_is_documented() -> None:
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    told = {
        name
        for first, *_ in rows(ROOT / "docs/reference/cli.md")
        for name in re.findall(r"^`([a-z-]+)", first)
    }
    assert commands <= told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
