"""The doctor: what it finds in a healthy installation, and in one with a part broken."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.rows import Rows
from tests.support import execute
from vision_worker import doctor as module
from vision_worker import local
from vision_worker.config import VisionConfig
from vision_worker.doctor import Check, examine
from vision_worker.errors import ModelUnavailable
from vision_worker.migrate import migrations

RunCli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without a memini-ai."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def own_servers(config: VisionConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[VisionConfig]:
    """Embedded servers that run and may be hurt."""
    folder = tempfile.mkdtemp(dir="/tmp", prefix="vision-worker-test-")
    for name, value in (("STATE_DIR", folder), ("DB_URL", ""), ("BROKER_URL", "")):
        monkeypatch.setenv(f"MEMINI_IMAGE_{name}", value)
    config = VisionConfig()
    local.urls(config)
    yield config
    local.stop(config)
    shutil.rmtree(folder)


async def found(state: str) -> dict[str, Check]:
    """The checks with that state, by name; all others have no need of advice."""
    checks = await examine()
    assert all(check.advice for check in checks if check.state != "ok")
    assert not any(check.advice for check in checks if check.state == "ok")
    return {check.name: check for check in checks if check.state == state}


async def test_a_healthy_installation_has_no_fault(run_cli: RunCli, rows: Rows) -> None:
    await rows.model()
    await rows.image([1, 0])
    await rows.worker()
    result = run_cli("doctor", "--json")
    checks = json.loads(result.stdout)
    assert result.returncode == 0
    assert {check["state"] for check in checks} == {"ok"}
    names = ["gate", "pictures", "broker", "database", "worker host:1", "model"]
    assert [check["name"] for check in checks] == names
    assert [check.keys() for check in checks] == [asdict(Check("", "ok", "")).keys()] * 6
    assert "1 embedded, 0 pending, 0 failed" in checks[3]["detail"]


def test_what_is_broken_is_told_with_what_to_do_and_ends_with_one(
    run_cli: RunCli, tmp_path: Path
) -> None:
    away = f"redis+socket://{tmp_path}/none.sock"
    result = run_cli("doctor", MEMINI_IMAGE_BROKER_URL=away, MEMINI_IMAGE_SEARCH_ENABLED="false")
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "warning  gate: the image tools are off"
    assert lines[1].strip().startswith("-> Set MEMINI_IMAGE_SEARCH_ENABLED=true")
    (broken,) = [n for n, line in enumerate(lines) if line.startswith("broken ")]
    assert lines[broken].startswith("broken   broker: The broker cannot be reached")
    assert lines[broken + 1] == "         -> Start it, or correct MEMINI_IMAGE_BROKER_URL."


async def test_a_setting_that_cannot_be_used_is_all_there_is_to_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMINI_IMAGE_LEASE_SECONDS", "soon")
    (check,) = await examine()
    assert (check.name, check.state) == ("settings", "broken")
    assert "MEMINI_IMAGE_LEASE_SECONDS is not usable" in check.detail


@pytest.mark.usefixtures("config")
async def test_a_database_that_is_away_hides_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMINI_IMAGE_DB_URL", f"postgresql://u:secret@/x?host={tmp_path}")
    broken = await found("broken")
    assert broken.keys() == {"database"}
    assert broken["database"].detail.startswith("cannot be reached: ")
    assert "secret" not in repr(broken)
    assert "broker" in await found("ok")


@pytest.mark.usefixtures("config")
async def test_a_url_that_is_none_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMINI_IMAGE_DB_URL", "mysql://u:secret@host/x")
    broken = await found("broken")
    assert broken.keys() == {"database"}
    assert "secret" not in repr(broken)
    monkeypatch.setenv("MEMINI_IMAGE_BROKER_URL", "http://u:secret@host/x")
    broken = await found("broken")
    assert "MEMINI_IMAGE_BROKER_URL is not usable: " in broken["settings"].detail
    assert "secret" not in repr(broken)


async def test_missing_migrations_are_told(config: VisionConfig) -> None:
    assert config.db_url is not None
    await execute(config.db_url, "DELETE FROM vision_migrations WHERE version > 2")
    broken = await found("broken")
    assert broken.keys() == {"database"}
    assert (
        broken["database"].detail
        == f"reachable, but {len(migrations()) - 2} migrations are missing"
    )
    assert broken["database"].advice == "Run 'vision-worker migrate'."


async def test_a_database_newer_than_this_version_is_told(config: VisionConfig) -> None:
    assert config.db_url is not None
    await execute(config.db_url, "INSERT INTO vision_migrations VALUES (99, '99_later', 'x')")
    assert "Update vision-worker" in (await found("broken"))["database"].detail


async def test_an_installation_without_a_worker_is_warned_of(rows: Rows) -> None:
    await rows.worker("loading")
    assert (await found("warning")).keys() == {"worker host:1"}
    await rows.database.fetch("DELETE FROM vision_workers")
    assert (await found("warning")).keys() == {"workers"}


async def test_a_worker_whose_model_failed_is_told_with_its_reason(rows: Rows) -> None:
    await rows.worker("model_failed")
    assert (await found("broken"))["worker host:1"].detail == "model_failed: out of memory"


async def test_images_that_wait_too_long_and_failures_are_told(rows: Rows) -> None:
    await rows.worker()
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    await rows.image(created_at=hour_ago, next_attempt_at=hour_ago)
    await rows.image(error="undecodable")
    assert (await found("broken")).keys() == {"backlog"}
    failures = (await found("warning"))["failures"]
    assert failures.detail == "1 images failed"
    assert failures.advice == (
        "See 'vision-worker status'. No retry helps against undecodable: delete those pictures"
        " with 'vision-worker delete', or save better ones."
    )


async def test_only_failures_that_may_end_otherwise_are_to_be_tried_again(rows: Rows) -> None:
    for code in ("poison", "undecodable", "undecodable", "too_many_pixels", "blob_unreadable"):
        await rows.image(error=code)
    failures = (await found("warning"))["failures"]
    assert failures.detail == "5 images failed"
    assert failures.advice == (
        "See 'vision-worker status'. 'vision-worker retry --code blob_unreadable' and"
        " 'vision-worker retry --code poison' may help. No retry helps against too_many_pixels,"
        " undecodable: delete those pictures with 'vision-worker delete', or save better ones."
    )


@pytest.mark.usefixtures("config")
async def test_a_picture_folder_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MEMINI_IMAGE_DIR", f"{tmp_path}/file/images")
    broken = await found("broken")
    assert broken.keys() == {"pictures"}
    assert broken["pictures"].detail == f"{tmp_path}/file/images cannot be written"
    monkeypatch.setenv("MEMINI_IMAGE_DIR", f"{tmp_path}/new/images")
    monkeypatch.setattr(module, "FEW_BYTES", 1 << 60)
    assert "GiB free" in (await found("warning"))["pictures"].detail
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("config")
async def test_a_model_that_is_not_here_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMINI_IMAGE_CLIP_MODEL", f"{tmp_path}/none")
    model = (await found("warning"))["model"]
    assert model.detail == str(
        ModelUnavailable(model=f"{tmp_path}/none", reason="there is no such folder")
    )


async def test_the_text_model_is_told_where_memini_ai_wants_it(
    rows: Rows, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "text model" not in {check.name for check in await examine()}
    await rows.database.fetch("CREATE TABLE memory_relationships (id uuid PRIMARY KEY)")
    assert (await found("ok"))["text model"].detail.startswith("all-MiniLM-L6-v2@")
    monkeypatch.setenv("MEMINI_IMAGE_TEXT_MODEL", f"{tmp_path}/none")
    warned = (await found("warning"))["text model"]
    assert warned.detail.startswith(f"{tmp_path}/none: there is no such folder")
    assert "MEMINI_IMAGE_TEXT_MODEL" in warned.advice
    monkeypatch.setenv("MEMINI_IMAGE_TEXT_MODEL", "off")
    assert "text model" not in {check.name for check in await examine()}


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("device", ["gpu9", "cuda:99"])
async def test_a_device_that_is_not_there_is_blamed_on_its_variable(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMINI_IMAGE_CLIP_DEVICE", "cpu")
    assert (await found("ok"))["device"].detail == "cpu"
    monkeypatch.setenv("MEMINI_IMAGE_CLIP_DEVICE", device)
    detail = (await found("warning"))["device"].detail
    assert detail.startswith(f"MEMINI_IMAGE_CLIP_DEVICE is {device}: ")


@pytest.mark.usefixtures("config")
async def test_another_program_of_the_name_of_memini_ai_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "memini-ai package" not in await found("warning")
    installed = tmp_path / "memini_ai-0.1.2.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: memini-ai\nVersion: 0.1.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    check = (await found("warning"))["memini-ai package"]
    assert check.detail.startswith("the package memini-ai 0.1.2 is installed here. It is another")
    assert "pip uninstall memini-ai" in check.advice


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    "state",
    [
        '{"state": "running", "uri": "postgresql://postgres:@/postgres?host=%s"}',
        '{"state": "starting", "uri": ""}',
        '{"state": "running", "uri": "postgresql://postgres:@/postgres?host=\\u0000"}',
        '{"state": "run',
        "[]",
        "{}",
    ],
)
async def test_what_a_memini_ai_that_is_gone_has_left_is_no_alarm(home: Path, state: str) -> None:
    file = home / ".memini-ai" / "pgembed" / "server.json"
    file.parent.mkdir(parents=True)
    file.write_text(state.replace("%s", str(home)))
    assert "memini-ai" not in {check.name for check in await examine()}


@pytest.mark.usefixtures("config")
async def test_a_database_that_memini_ai_has_stopped_is_told_with_how_to_start_it(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    for url in (f"postgresql://postgres@/postgres?host={home}/data", f"postgresql://{home}/data"):
        monkeypatch.setenv("MEMINI_IMAGE_DB_URL", url)
        assert "correct MEMINI_IMAGE_DB_URL" in (await found("broken"))["database"].advice
    monkeypatch.setenv("MEMINI_PGEMBED_DATA_DIR", f"{home}/data")
    monkeypatch.setenv("MEMINI_IMAGE_DB_URL", f"postgresql://postgres@/postgres?host={home}/data")
    advice = "It is memini-ai's own, which ends with it: start memini-ai."
    assert (await found("broken"))["database"].advice == advice


@pytest.mark.usefixtures("config")
async def test_embedded_servers_that_do_not_run_are_not_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("MEMINI_IMAGE_STATE_DIR", str(state))
    monkeypatch.setenv("MEMINI_IMAGE_BROKER_URL", "")
    assert "valkey" in await found("warning")
    assert "database" in await found("ok")
    monkeypatch.setenv("MEMINI_IMAGE_DB_URL", "")
    warned = await found("warning")
    assert {"postgres", "valkey"} <= warned.keys()
    assert warned["postgres"].advice == "Run 'vision-worker up'."
    assert await found("broken") == {}
    assert not state.exists()


@pytest.mark.usefixtures("backend", "config")
async def test_embedded_servers_that_run_are_examined(
    monkeypatch: pytest.MonkeyPatch, state_dir: Path
) -> None:
    monkeypatch.setenv("MEMINI_IMAGE_STATE_DIR", str(state_dir))
    monkeypatch.setenv("MEMINI_IMAGE_BROKER_URL", "")
    monkeypatch.setenv("MEMINI_IMAGE_DB_URL", "")
    assert {"postgres", "valkey", "broker"} <= (await found("ok")).keys()
    # No one has brought the database of these servers themselves up to date.
    assert (await found("broken")).keys() == {"database"}


async def test_an_embedded_database_with_images_that_does_not_run_is_broken(
    own_servers: VisionConfig,
) -> None:
    local.stop(own_servers)
    postgres = (await found("broken"))["postgres"]
    assert (
        postgres.detail == "the embedded server is not running, so no image can be saved or found"
    )
    assert postgres.advice == "Run 'vision-worker up'."


async def test_an_embedded_server_that_hangs_is_not_taken_for_one_that_does_not_run(
    own_servers: VisionConfig,
) -> None:
    pid = int((own_servers.resolved_state_dir / "valkey.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        valkey = (await found("broken"))["valkey"]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert valkey.detail == "the embedded server is there, but does not answer"
    assert str(own_servers.resolved_state_dir / "valkey.log") in valkey.advice
