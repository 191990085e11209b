"""Embedded servers that die or hang under an open front."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from vision_worker import local
from vision_worker.config import VisionConfig
from vision_worker.front import Front
from vision_worker.memory import Picture


@pytest.fixture
def own(tmp_path: Path) -> Iterator[VisionConfig]:
    """Settings of an installation with embedded servers of its own."""
    folder = tempfile.mkdtemp(prefix="vision-worker-faults-", dir="/tmp")
    config = VisionConfig(state_dir=folder, image_dir=str(tmp_path / "images"))
    yield config
    local.stop(config)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def shot(tmp_path: Path) -> Path:
    path = tmp_path / "shot.png"
    Image.new("RGB", (64, 48), "red").save(path)
    return path


async def test_a_save_starts_the_embedded_postgresql_again_that_was_killed(
    own: VisionConfig, shot: Path
) -> None:
    async with await Front.open(own) as front:
        first = await front.memory.save(Picture(shot, "before"))
        pid_file = Path(str(own.state_dir)) / "postgres" / "postmaster.pid"
        os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)
        second = await front.memory.save(Picture(shot, "after"))
        assert (await front.memory.get(first.image_id)).text == "before"
        assert (await front.memory.get(second.image_id)).text == "after"


async def test_a_new_front_saves_while_the_embedded_broker_hangs(
    own: VisionConfig, shot: Path
) -> None:
    local.urls(own)
    (pid,) = valkeys(Path(str(own.state_dir)))
    os.kill(pid, signal.SIGSTOP)
    try:
        async with await Front.open(own) as front:
            saved = await front.memory.save(Picture(shot, "t"))
            assert saved.status == "pending"
    finally:
        os.kill(pid, signal.SIGCONT)


def valkeys(folder: Path) -> list[int]:
    """Valkey processes that work in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"valkey-server" in command and str(folder).encode() in command:
            found.append(int(process.name))
    return found
