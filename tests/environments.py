"""Throw-away Python environments, made as somebody else would make them."""

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = frozenset({"numpy", "scipy", "sentence_transformers", "torch", "transformers"})


def clean_variables(**more: str) -> dict[str, str]:
    """The variables of this process without what could lead another Python back to the checkout."""
    dropped = ("MEMINI_", "PYTHON", "VIRTUAL_ENV", "PYTEST_", "COVERAGE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | more


def run(
    *command: str | Path, cwd: Path, variables: dict[str, str] | None = None, status: int = 0
) -> str:
    """Run a command to its end and return its stdout; any other exit status fails the test."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=variables or clean_variables(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    if done.returncode != status:
        told = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        pytest.fail(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{told}")
    return done.stdout


def require_registry() -> None:
    """Skip the test where pip reaches no packages."""
    if (reason := _unreachable()) is not None:
        pytest.skip(f"pip cannot fetch packages here: {reason}")


def make_environment(folder: Path, *requirements: str, python: str | Path = sys.executable) -> Path:
    """A new virtual environment with these packages; returns its ``bin`` folder."""
    cwd = folder.parent
    run(python, "-m", "venv", "--without-pip", folder, cwd=cwd)
    binaries = folder / "bin"
    pip = (sys.executable, "-m", "pip", "--python", binaries / "python")
    options = ("--quiet", "--no-compile", "--disable-pip-version-check")
    run(*pip, "install", *options, *requirements, cwd=cwd)
    return binaries


@cache
def _unreachable() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, "wcwidth"],
            env=clean_variables(),
            capture_output=True,
            text=True,
            check=False,
        )
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
