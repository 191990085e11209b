"""The built wheel in empty environments, far from the checkout."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from tests.environments import HEAVY, ROOT, clean_variables, make_environment, require_registry, run
from tests.support import DEADLINE

pytestmark = pytest.mark.timeout(600)

WHERE = """
import json, sys
from pathlib import Path
import vision_worker.migrate, vision_worker.statements, mcp_adapters.server
package = Path(vision_worker.__file__).parent
files = [m.__file__ for n, m in sys.modules.items() if n.startswith(("vision_worker", "mcp_adap"))]
print(json.dumps({
    "files": [f for f in files if f],
    "path": sys.path,
    "package": str(package),
    "migrations": [m.up for m in vision_worker.migrate.migrations()],
}))
"""
LIGHT = f"""
import sys
from importlib.util import find_spec
import vision_worker
from vision_worker import Front, ImageMemory, ImageQuery, VisionConfig, fuse
import mcp_adapters.server
mcp_adapters.server.build_server(VisionConfig(search_enabled=True))
heavy = {sorted(HEAVY)}
print([name for name in heavy if name in sys.modules or find_spec(name)])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as for a release: the source distribution first, the wheel from that."""
    require_registry()
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The ``bin`` folder of an environment with everything, in a folder with spaces."""
    folder = tmp_path_factory.mktemp("a folder with spaces") / "an environment"
    constraints = str(ROOT / "constraints.txt")
    yield make_environment(folder, "-c", constraints, f"vision-worker[all] @ {wheel.as_uri()}")
    # pytest keeps the folders of its last runs, and this one holds torch.
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment with the core and the MCP server only."""
    folder = tmp_path_factory.mktemp("light") / "environment"
    constraints = str(ROOT / "constraints.txt")
    return make_environment(folder, "-c", constraints, f"vision-worker[mcp] @ {wheel.as_uri()}")


@pytest.fixture
def work_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "somewhere else"
    folder.mkdir()
    return folder


@pytest.fixture
def state_dir() -> Iterator[str]:
    # Not below pytest's own folder: as root, the servers run as a user who cannot enter that one.
    folder = tempfile.mkdtemp(prefix="vw-wheel-")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def variables(installed: Path, work_folder: Path, state_dir: str) -> Iterator[dict[str, str]]:
    """A home and embedded servers of the test's own, and the model of the wheel."""
    site = run(installed / "python", "-c", WHERE, cwd=work_folder)
    variables = clean_variables(
        HOME=str(work_folder / "home"),
        HF_HUB_OFFLINE="1",
        MEMINI_IMAGE_STATE_DIR=state_dir,
        MEMINI_IMAGE_CLIP_MODEL=str(Path(json.loads(site)["package"], "demo", "tiny-clip")),
    )
    yield variables
    run(installed / "vision-worker", "down", cwd=work_folder, variables=variables)


def test_the_main_job_runs_from_the_installed_wheel(
    installed: Path, work_folder: Path, variables: dict[str, str]
) -> None:
    program = installed / "vision-worker"

    def vision_worker(*arguments: str | Path) -> str:
        return run(program, *arguments, cwd=work_folder, variables=variables)

    circle, square = work_folder / "circle.png", work_folder / "square.png"
    for path, shape, colour in ((circle, "ellipse", "red"), (square, "rectangle", "blue")):
        picture = Image.new("RGB", (640, 360), (135, 135, 135))
        getattr(ImageDraw.Draw(picture), shape)((200, 60, 440, 300), fill=colour)
        picture.save(path)

    assert "PostgreSQL and Valkey are running." in vision_worker("up")
    saved = [json.loads(vision_worker("save", path, "--json")) for path in (circle, square)]
    assert [answer["status"] for answer in saved] == ["pending", "pending"]
    with (work_folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [program, "worker"], cwd=work_folder, env=variables, stdout=log, stderr=log
        )
    try:
        waited = json.loads(vision_worker("wait", "--timeout", "60", "--json"))
        assert (waited["pending"], waited["embedded"], waited["failed"]) == (0, 2, 0)
        search = ("search", "a red circle on a gray background", "--json")
        first, second = json.loads(vision_worker(*search))["hits"]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE) == 0
    finally:
        worker.kill()
        worker.wait()
    assert first["image_id"] == saved[0]["image_id"]
    assert first["sha256"] == sha256(circle.read_bytes()).hexdigest()
    assert second["image_id"] == saved[1]["image_id"]
    assert Path(first["file_path"]).is_relative_to(work_folder / "home")
    assert "Stopped" in vision_worker("down")
    assert vision_worker("down") == "Nothing was running.\n"


def test_code_migrations_statements_and_model_come_out_of_the_wheel(
    installed: Path, work_folder: Path
) -> None:
    found = json.loads(run(installed / "python", "-c", WHERE, cwd=work_folder))
    package, environment = Path(found["package"]), installed.parent
    assert package.is_relative_to(environment)
    assert package.parent.name == "site-packages"
    assert [name for name in found["files"] if not Path(name).is_relative_to(environment)] == []
    assert [name for name in found["path"] if name and Path(name).is_relative_to(ROOT)] == []
    assert found["migrations"] == [
        path.read_text() for path in sorted((ROOT / "migrations").glob("*.up.sql"))
    ]
    carried = sorted(path.name for path in (package / "migrations").iterdir())
    assert carried == sorted(path.name for path in (ROOT / "migrations").iterdir())
    for path in (ROOT / "vision_worker" / "demo" / "tiny-clip").iterdir():
        assert (package / "demo" / "tiny-clip" / path.name).read_bytes() == path.read_bytes()


def test_the_core_and_the_mcp_extra_need_and_bring_no_torch_and_no_numpy(
    light: Path, work_folder: Path
) -> None:
    assert run(light / "python", "-c", LIGHT, cwd=work_folder) == "[]\n"


def test_a_light_installation_says_what_to_install_for_the_rest(
    light: Path, work_folder: Path, state_dir: str
) -> None:
    variables = clean_variables(HOME=str(work_folder), MEMINI_IMAGE_STATE_DIR=state_dir)
    done = subprocess.run(
        [light / "vision-worker", "up"],
        cwd=work_folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "vision-worker[local]" in done.stderr
