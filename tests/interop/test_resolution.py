"""Whether pip takes our ``memini_vision`` for the ``vision`` extra of those who ask for it."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.environments import require_registry, run
from tests.interop.environments import DROP_IN, ROOT


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    require_registry()
    folder = tmp_path_factory.mktemp("wheels")
    for project in (ROOT, DROP_IN):
        run(sys.executable, "-m", "build", "--wheel", "-q", "-o", folder, project, cwd=folder)
    return sorted(folder.glob("*.whl"))


@pytest.mark.parametrize(
    ("asked", "pinned"),
    [
        ("memini-ai-dev[vision]==0.8.2", {"memini-ai-dev": "0.8.2"}),
        ("videre-mcp[vision]==0.3.2", {"videre-mcp": "0.3.2", "transformers": "4.48.3"}),
    ],
)
def test_pip_resolves_the_vision_extra_to_ours(
    asked: str, pinned: dict[str, str], wheels: list[Path], tmp_path: Path
) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("torch==2.13.0\n")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    options = ("--dry-run", "--ignore-installed", "--report", tmp_path / "report.json")
    run(*pip, *options, "-c", constraints, asked, *wheels, cwd=tmp_path)
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    chosen = {item["metadata"]["name"]: item["metadata"]["version"] for item in report["install"]}
    # memini-ai 0.8.2 asks for any pgvector and fails with 0.5.
    wanted = {"memini-vision": "0.2.0", "vision-worker": "0.1.0", "pgvector": "0.4.2"} | pinned
    assert {name: chosen.get(name) for name in wanted} == wanted


def test_the_drop_in_holds_the_published_modules_and_the_library_does_not_hold_it(
    wheels: list[Path],
) -> None:
    drop_in, library = (zipfile.ZipFile(wheel).namelist() for wheel in wheels)
    modules = ("__init__", "config", "embedder", "index", "query", "store", "types")
    assert {f"memini_vision/{module}.py" for module in modules} <= set(drop_in)
    assert [name for name in library if "memini_vision" in name] == []
    assert "mcp_adapters/memini.py" in library
