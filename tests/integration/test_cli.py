"""The command line as people and scripts meet it: real processes, what they print, how they end."""

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.rows import MODEL, Rows
from tests.support import DEADLINE, Process, json_lines
from vision_worker.front import Front
from vision_worker.memory import Picture

RunCli = Callable[..., subprocess.CompletedProcess[str]]
UNKNOWN = "00000000-0000-0000-0000-000000000000"
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
NASTY = "[red]\x1b[31mred\x1b]0;title\x07\x9b2J\u202e[/red] [/] \\"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pictures, a file that is none, and things that are passed over."""
    folder = tmp_path / "a folder"
    (folder / "deeper").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    Image.new("RGB", (8, 8), "red").save(folder / "red.png")
    Image.new("RGB", (8, 8), "blue").save(folder / "deeper" / "blue.png")
    Image.new("RGB", (8, 8), "green").save(folder / ".hidden" / "green.png")
    (folder / "notes.txt").write_text("no picture")
    return folder


def table(result: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """Cells of a printed table, which are two spaces or more apart."""
    return [re.split(" {2,}", line) for line in result.stdout.splitlines()]


def test_a_folder_is_saved_past_its_bad_files(run_cli: RunCli, folder: Path) -> None:
    result = run_cli("save", str(folder), "--tag", "a")
    assert result.stdout == "Saved 2 of 3 files.\n"
    assert result.stderr.startswith(f"not_an_image: {folder}/notes.txt: ")
    assert len(result.stderr.splitlines()) == 1
    assert result.returncode == 3

    listed = json.loads(run_cli("list", "--json").stdout)["images"]
    assert {(image["text"], image["source_type"], *image["tags"]) for image in listed} == {
        ("red", "file", "a"),
        ("blue", "file", "a"),
    }


def test_json_of_a_save_is_one_object_a_line(run_cli: RunCli, folder: Path) -> None:
    red, missing = folder / "red.png", folder / "none.png"
    result = run_cli("save", str(red), str(red), str(missing), "--json", "--caption", "rød")
    first, again, bad = json_lines(result.stdout)
    assert result.returncode == 3
    assert result.stderr.startswith("file_not_found: ")
    assert bad.keys() == {"path", "error"}
    assert bad["path"] == str(missing)
    assert bad["error"] == {
        "code": "file_not_found",
        "message": f"There is no file at {missing}. Check the path, or take the screenshot again.",
    }
    assert first.keys() == again.keys()
    assert first.keys() == {
        "path",
        "memory_id",
        "image_id",
        "sha256",
        "file_path",
        "status",
        "duplicate",
        "save_ms",
    }
    assert (first["path"], first["status"], first["duplicate"]) == (str(red), "pending", False)
    assert again | {"save_ms": 0} == first | {"duplicate": True, "save_ms": 0}
    assert isinstance(first["save_ms"], float)

    only_bad = run_cli("save", str(missing))
    assert (only_bad.returncode, only_bad.stdout) == (1, "")
    assert "Traceback" not in only_bad.stderr


def test_a_name_that_is_no_text_and_an_empty_folder_are_no_obstacle(
    run_cli: RunCli, folder: Path, tmp_path: Path
) -> None:
    odd = os.fsdecode(os.fsencode(folder) + b"/\xff\x1b[31m.png")
    Path(odd).write_bytes((folder / "red.png").read_bytes())
    saved = run_cli("save", odd, "--json")
    assert saved.returncode == 0
    assert json.loads(saved.stdout)["path"] == odd
    listed = run_cli("list")
    assert "\ufffd\\x1b[31m" in listed.stdout
    (tmp_path / "empty").mkdir()
    nothing = run_cli("save", str(tmp_path / "empty"))
    assert (nothing.returncode, nothing.stdout) == (0, "Saved 0 of 0 files.\n")


async def test_pages_of_a_listing_are_whole_lines_that_follow_each_other(
    run_cli: RunCli, rows: Rows
) -> None:
    long = "/pictures/" + "very-long-name/" * 20
    images = [
        await rows.image(
            file_path=f"{long}{number}.png",
            caption=f"caption {number} " * 20,
            created_at=NOON + timedelta(hours=number),
            tags=("a",) if number else (),
        )
        for number in range(3)
    ]
    first = run_cli("list", "--limit", "2")
    header, *lines = table(first)
    assert header == ["id", "saved", "status", "caption", "path"]
    cursor = first.stdout.split("--cursor ")[1].strip()
    second = run_cli("list", "--limit", "2", "--cursor", cursor)
    assert [line[0] for line in (*lines[:2], *table(second)[1:])] == images[::-1]
    assert [line[-1] for line in lines[:2]] == [f"{long}2.png", f"{long}1.png"]
    assert lines[0][3].startswith("caption 2 caption 2 ")
    assert len(lines[0][3]) == 50

    page = json.loads(run_cli("list", "--json", "--oldest", "--tag", "a", "--limit", "1").stdout)
    assert page.keys() == {"images", "cursor"}
    assert [image["id"] for image in page["images"]] == [images[1]]
    assert page["cursor"]
    refused = run_cli("list", "--cursor", "x")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("invalid_argument: cursor is not usable")


async def test_one_picture_is_shown_and_deleted(run_cli: RunCli, rows: Rows) -> None:
    image = await rows.image(caption="a form", tags=("b", "a"), width=640, created_at=NOON)
    memory = await rows.database.fetchval("SELECT memory_id::text FROM memories_image")
    shown = json.loads(run_cli("get", image, "--json").stdout)
    assert "embedding" not in shown
    assert (shown["id"], shown["memory_id"], shown["caption"]) == (image, memory, "a form")
    assert (shown["tags"], shown["width"], shown["status"]) == (["b", "a"], 640, "pending")
    by_memory = {line[0]: line[-1] for line in table(run_cli("get", memory))}
    assert by_memory["id"] == image
    assert by_memory["tags"] == "b, a"
    assert by_memory["error"] == "-"

    deleted = run_cli("delete", memory)
    assert (deleted.returncode, deleted.stdout) == (0, f"Deleted {memory}.\n")
    for command, identifier, code in (
        ("get", image, "image_not_found"),
        ("delete", UNKNOWN, "image_not_found"),
        ("get", "shot.png", "invalid_argument"),
        ("delete", "\x1b[31m", "invalid_argument"),
    ):
        result = run_cli(command, identifier, "--json")
        assert result.returncode == 1
        assert json.loads(result.stdout)["error"]["code"] == code
        assert result.stderr.startswith(f"{code}: ")
        assert "\x1b" not in result.stderr


async def test_text_of_agents_reaches_the_terminal_as_data(
    run_cli: RunCli, rows: Rows, tmp_path: Path
) -> None:
    image = await rows.image(text=NASTY, caption=NASTY, tags=(NASTY,), file_path=f"/p/{NASTY}.png")
    await rows.image(error="undecodable")
    await rows.database.fetch(
        "UPDATE memories_image SET embedding_error = $1 WHERE embedding_error IS NOT NULL", NASTY
    )
    await rows.worker("model_failed")
    await rows.database.fetch("UPDATE vision_workers SET detail = $1", NASTY)
    bad = run_cli("save", str(tmp_path / NASTY))
    seen = r"[red]\x1b[31mred\x1b]0;title\x07\x9b2J\u202e[/red] [/] " + "\\"
    for output in (
        run_cli("list").stdout,
        run_cli("get", image).stdout,
        run_cli("status").stdout,
        run_cli("doctor").stdout,
        bad.stderr,
    ):
        assert seen in output
        assert all(character.isprintable() or character == "\n" for character in output)
    listed = run_cli("list", "--json").stdout
    assert listed.isascii()
    assert NASTY in {image["caption"] for image in json.loads(listed)["images"]}


async def test_the_status_says_how_far_it_is_and_what_is_wrong(run_cli: RunCli, rows: Rows) -> None:
    await rows.model()
    await rows.image([1, 0])
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    await rows.image(created_at=hour_ago, next_attempt_at=hour_ago)
    await rows.image(error="undecodable")
    await rows.image(error="poison")
    await rows.worker("model_failed")
    state = json.loads(run_cli("status", "--json").stdout)
    waiting = state.pop("oldest_pending_seconds")
    assert waiting == pytest.approx(3600, abs=60)
    assert state == {
        "namespace": "default",
        "model": MODEL,
        "pending": 1,
        "embedded": 1,
        "failed": 2,
        "workers": 0,
        "ready": False,
    }
    patient = run_cli("status", "--json", MEMINI_IMAGE_READY_SECONDS="7200")
    assert json.loads(patient.stdout)["ready"] is True
    lines = run_cli("status").stdout.splitlines()
    assert lines[1].split() == ["model", MODEL]
    assert lines[7].split() == ["ready", "no"]
    assert sorted(lines[8:]) == [
        "1 failed, poison: it is poison",
        "1 failed, undecodable: it is undecodable",
        "worker host:1 model_failed: out of memory",
    ]

    assert run_cli("retry", "--code", "poison").stdout == "1 pictures are pending again.\n"
    assert json.loads(run_cli("retry", "--json").stdout) == {"retried": 1}
    assert run_cli("sweep").stdout == "3 pictures are waiting. Rang.\n"
    late = run_cli("wait", "--timeout", "0.3", "--json")
    assert late.returncode == 4
    assert json.loads(late.stdout)["pending"] == 3
    assert late.stderr == "No worker is ready: start 'vision-worker worker'.\n"


def test_what_was_saved_is_waited_for_and_found(
    run_cli: RunCli, folder: Path, start_worker: Callable[..., Process]
) -> None:
    assert run_cli("wait").returncode == 0  # nothing is pending: it does not wait
    run_cli("save", str(folder / "red.png"), "--caption", "all red")
    unready = run_cli("search", "red", "--json")
    assert json.loads(unready.stdout) == {"hits": [], "pending": 1, "failed": 0}
    worker = start_worker()
    waited = run_cli("wait", "--timeout", str(DEADLINE - 5), "--json")
    assert (waited.returncode, json.loads(waited.stdout)["embedded"]) == (0, 1)

    found = run_cli("search", "something red")
    header, (rank, distance, image, caption, path) = table(found)
    assert header == ["rank", "distance", "id", "caption", "path"]
    assert (rank, caption) == ("1", "all red")
    assert path.endswith(".png")
    page = json.loads(run_cli("search", "something red", "--json").stdout)
    (hit,) = page["hits"]
    assert (page["pending"], page["failed"]) == (0, 0)
    assert (hit["image_id"], hit["file_path"], hit["caption"]) == (image, path, "all red")
    assert hit["distance"] == pytest.approx(float(distance), abs=1e-4)

    worker.kill(signal.SIGTERM)
    assert worker.wait() == 0
    alone = run_cli("search", "something red", MEMINI_IMAGE_LOCAL_ENCODER="false")
    assert (alone.returncode, alone.stdout) == (1, "")
    assert alone.stderr == (
        "encoder_unavailable: No encoder can turn the query into a vector now (no worker is"
        " running). Start 'vision-worker worker' on a host with the model, or wait until it is"
        " back, then ask again.\n"
    )


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["status", "doctor", "up", "down", "mcp", "worker", "migrate"])
def test_a_setting_that_cannot_be_used_is_one_sentence(run_cli: RunCli, command: str) -> None:
    result = run_cli(command, MEMINI_IMAGE_BATCH_SIZE="many")
    assert result.returncode == 1
    said = result.stdout + result.stderr
    assert "MEMINI_IMAGE_BATCH_SIZE is not usable: " in said
    assert "Traceback" not in said


def test_a_database_that_is_away_is_one_sentence(run_cli: RunCli, folder: Path) -> None:
    away = {"MEMINI_IMAGE_DB_URL": f"postgresql://u:secret@/x?host={folder}"}
    for command in (("status", "--json"), ("save", str(folder), "--json")):
        result = run_cli(*command, **away)
        assert result.returncode == 1
        (answer,) = json_lines(result.stdout)
        assert answer["error"]["code"] == "database_unavailable"  # type: ignore[index]
        assert "secret" not in result.stdout + result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_a_command_that_is_not_understood_ends_with_two(run_cli: RunCli) -> None:
    for arguments in (
        ("list", "--limit", "0"),
        ("get",),
        ("dance",),
        ("worker", "--queues", "embed,other"),
        ("worker", "--pool", "prefork"),
    ):
        result = run_cli(*arguments)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
    described = run_cli("--help").stdout
    assert "Exit status:" in described
    assert "wait: images are still pending" in described


def test_the_server_says_on_stderr_what_turns_it_on(run_cli: RunCli) -> None:
    result = run_cli("mcp", MEMINI_IMAGE_SEARCH_ENABLED="false")
    assert (result.returncode, result.stdout) == (0, "")
    assert "Set MEMINI_IMAGE_SEARCH_ENABLED=true to turn it on." in result.stderr


class Terminal:
    """A command whose stderr is a terminal."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self._handle, screen = pty.openpty()
        self.seen = ""
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "vision_worker.cli", *arguments],
            env=environment | {"TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=screen,
            text=True,
        )
        os.close(screen)

    def read_until(self, word: str) -> None:
        while word not in self.seen:
            self.seen += os.read(self._handle, 4096).decode()

    def end(self) -> tuple[int, str]:
        output, _ = self.popen.communicate(timeout=DEADLINE)
        with suppress(OSError):
            while part := os.read(self._handle, 4096):
                self.seen += part.decode()
        os.close(self._handle)
        return self.popen.returncode, output


def test_a_bar_is_shown_to_a_person_only(environment: dict[str, str], folder: Path) -> None:
    terminal = Terminal(environment, "save", str(folder))
    code, output = terminal.end()
    assert (code, output) == (3, "Saved 2 of 3 files.\n")
    assert "saving" in terminal.seen
    assert "not_an_image" in terminal.seen


async def test_an_interrupted_wait_ends_without_a_traceback(
    environment: dict[str, str], rows: Rows
) -> None:
    await rows.image()
    terminal = Terminal(environment, "wait")
    await asyncio.to_thread(terminal.read_until, "embedding")
    terminal.popen.send_signal(signal.SIGINT)
    code, output = await asyncio.to_thread(terminal.end)
    assert (code, output) == (130, "")
    assert "Traceback" not in terminal.seen


def test_an_interrupted_server_ends_without_a_traceback(environment: dict[str, str]) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "vision_worker.cli", "mcp"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    server.stdin.write(json.dumps(hello) + "\n")
    server.stdin.flush()
    assert json.loads(server.stdout.readline())["id"] == 1
    server.send_signal(signal.SIGINT)
    _, said = server.communicate(timeout=DEADLINE)
    assert server.returncode == 130
    assert "Traceback" not in said


# --- servers ------------------------------------------------------------------------------------


@pytest.fixture
def own_state() -> Iterator[Path]:
    # The servers of root run as a user who cannot enter pytest's own folder.
    folder = Path(tempfile.mkdtemp(prefix="vision-worker-cli-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def shell_variables(script: str) -> dict[str, str]:
    """What a shell has exported after it has run the script."""
    command = ["env", "-i", "/bin/sh", "-c", f"{script}\nexec env -0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    variables = dict(item.split("=", 1) for item in done.stdout.split("\0") if item)
    return {name: value for name, value in variables.items() if name.startswith("MEMINI_")}


def test_the_embedded_servers_are_started_and_stopped(run_cli: RunCli, own_state: Path) -> None:
    own: dict[str, Any] = {
        "MEMINI_IMAGE_STATE_DIR": str(own_state),
        "MEMINI_IMAGE_DB_URL": "",
        "MEMINI_IMAGE_BROKER_URL": "",
    }
    try:
        started = run_cli("up", **own)
        assert started.returncode == 0
        assert "PostgreSQL and Valkey are running." in started.stdout
        assert str(own_state) in started.stdout
        password = (own_state / "password").read_text()
        assert password not in started.stdout + started.stderr
        settings = shell_variables(run_cli("up", "--env", **own).stdout)
        assert settings.keys() == {"MEMINI_VECTOR_BACKEND", "MEMINI_DB_URL"}
        assert settings["MEMINI_VECTOR_BACKEND"] == "postgres-external"
        assert f":{password}@" in settings["MEMINI_DB_URL"]
        same = own | {"MEMINI_IMAGE_DB_URL": settings["MEMINI_DB_URL"]}
        assert json.loads(run_cli("status", "--json", **same).stdout)["pending"] == 0
        assert json.loads(run_cli("status", "--json", **own).stdout)["pending"] == 0
    finally:
        stopped = run_cli("down", **own)
    assert stopped.stdout == "Stopped postgres, valkey.\n"
    assert run_cli("down", **own).stdout == "Nothing was running.\n"


def test_the_schema_goes_back_and_forth(run_cli: RunCli) -> None:
    assert run_cli("migrate").stdout == "Nothing to do.\n"
    newest = run_cli("migrate", "--down").stdout
    outdated = run_cli("up")
    assert outdated.returncode == 1
    assert outdated.stderr.startswith("schema_outdated: The database lacks what this version needs")
    assert run_cli("migrate").stdout == newest
    refused = run_cli("migrate", "--to", "99")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("invalid_argument: to is not usable")


async def test_a_save_by_the_library_and_one_by_the_command_are_the_same(
    run_cli: RunCli, front: Front, folder: Path
) -> None:
    saved = await front.memory.save(Picture(folder / "red.png", "red", source_type="file"))
    again = json.loads(run_cli("save", str(folder / "red.png"), "--json").stdout)
    assert (again["image_id"], again["duplicate"]) == (saved.image_id, True)


def test_the_reference_names_every_command_and_no_other(run_cli: RunCli) -> None:
    listed = run_cli("--help").stdout.split("Commands:\n")[1].split("\n\n")[0]
    commands = [line.split()[0] for line in listed.splitlines()]
    reference = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
    assert re.findall(r"^\| `([a-z]+)", reference.read_text(), re.MULTILINE) == commands
