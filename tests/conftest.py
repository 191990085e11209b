"""Real PostgreSQL, real Valkey, real worker processes, shared by the tests of a run."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis

from tests.support import DEADLINE, TINY_CLIP, Process, execute, with_database
from vision_worker import local
from vision_worker.broker import redis_url
from vision_worker.config import VisionConfig
from vision_worker.front import Front
from vision_worker.migrate import migrate

os.environ["HF_HUB_OFFLINE"] = "1"
# A shell that runs the tests in the background has them ignore it, and so all their children.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No setting of the person who runs the tests reaches them.
for name in [name for name in os.environ if name.startswith("MEMINI_")]:
    del os.environ[name]


@pytest.fixture(scope="session")
def state_dir() -> Iterator[Path]:
    # Not below pytest's own folder: as root, the servers run as a user who cannot enter that one.
    folder = Path(tempfile.mkdtemp(prefix="vision-worker-tests-", dir="/tmp"))
    yield folder
    local.stop(VisionConfig(state_dir=str(folder)))
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def backend(state_dir: Path) -> local.Urls:
    """The embedded servers of this run, with one migrated database to copy."""
    backend = local.urls(VisionConfig(state_dir=str(state_dir)))
    asyncio.run(_make_template(backend.db_url))
    return backend


@pytest.fixture
def database_url(backend: local.Urls) -> Iterator[str]:
    """A database of the test's own, migrated and empty."""
    name = f"test_{uuid4().hex[:12]}"
    asyncio.run(execute(backend.db_url, f"CREATE DATABASE {name} TEMPLATE template_vision"))
    yield with_database(backend.db_url, name)
    asyncio.run(execute(backend.db_url, f"DROP DATABASE {name} WITH (FORCE)"))


_broker_numbers = count(1)


@pytest.fixture
def broker_url(backend: local.Urls) -> str:
    """A broker of the test's own, empty: the next of Valkey's sixteen databases."""
    number = next(_broker_numbers) % 15 + 1
    url = backend.broker_url.replace("virtual_host=0", f"virtual_host={number}")
    with Redis.from_url(redis_url(url)) as client:
        client.flushdb()
    return url


@pytest.fixture
def environment(database_url: str, broker_url: str, tmp_path: Path) -> dict[str, str]:
    """What a process of the test's own installation has set."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("MEMINI_")
    }
    return inherited | {
        "HF_HUB_OFFLINE": "1",
        "MEMINI_IMAGE_SEARCH_ENABLED": "true",
        "MEMINI_IMAGE_DB_URL": database_url,
        "MEMINI_IMAGE_BROKER_URL": broker_url,
        "MEMINI_IMAGE_DIR": str(tmp_path / "images"),
        "MEMINI_IMAGE_CLIP_MODEL": str(TINY_CLIP),
        "MEMINI_IMAGE_SWEEP_SECONDS": "1",
    }


@pytest.fixture
def config(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> VisionConfig:
    for name, value in environment.items():
        if name.startswith("MEMINI_"):
            monkeypatch.setenv(name, value)
    return VisionConfig()


@pytest.fixture
async def front(config: VisionConfig) -> AsyncIterator[Front]:
    async with await Front.open(config) as front:
        yield front


@pytest.fixture
def start_worker(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts worker processes on the test's own database and broker; kills them at the end."""
    started: list[Process] = []

    def start(*arguments: str, **variables: str) -> Process:
        log = tmp_path / f"worker-{len(started)}.log"
        process = Process(["worker", *arguments], environment | variables, log)
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()


@pytest.fixture
def run_cli(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one command of the command line to its end."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "vision_worker.cli", *arguments],
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    return run


async def _make_template(url: str) -> None:
    await execute(url, "CREATE DATABASE template_vision")
    await migrate(with_database(url, "template_vision"))
