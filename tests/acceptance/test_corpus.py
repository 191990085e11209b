"""Real application screenshots, out of the documentation packages of Debian."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from PIL import Image

from tests.environments import ROOT
from tests.support import Process, agent, call, drained
from vision_worker.front import Front

PACKAGES = ("wireshark-doc", "debian-handbook", "debian-edu-doc-en")
FOLDER = ROOT / ".cache" / "debian-docs"
SUFFIXES = {".gif", ".jpeg", ".jpg", ".png"}
AT_LEAST = 200
EXTREMES = 10
"""How many of the smallest, largest, widest, tallest, and so on."""
AT_ONCE = 8


@dataclass(frozen=True)
class Shot:
    path: Path
    size: int
    width: int
    height: int
    sha256: str

    @property
    def is_png(self) -> bool:
        return self.path.suffix.lower() == ".png"


@pytest.fixture(scope="module")
def shots() -> list[Shot]:
    """At least 200 different ones and some copies, always the same of the same packages."""
    return choose([look_at(path) for path in pictures_below(unpacked())])


async def test_every_screenshot_of_three_manuals_is_kept_embedded_and_found_by_itself(
    environment: dict[str, str],
    shots: list[Shot],
    start_worker: Callable[..., Process],
    front: Front,
) -> None:
    start_worker(MEMINI_IMAGE_CLIP_FRAMING="letterbox")
    async with agent(environment) as client:
        turns = asyncio.Semaphore(AT_ONCE)

        async def ask(tool: str, shot: Shot, **more: object) -> dict[str, object]:
            async with turns:
                return await call(client, tool, image_path=str(shot.path), **more)

        saved = await asyncio.gather(
            *(ask("save_image_memory", shot, text=str(shot.path)) for shot in shots)
        )
        assert [answer["sha256"] for answer in saved] == [shot.sha256 for shot in shots]
        assert {answer["duplicate"] for answer in saved} == {False}
        assert len({answer["image_id"] for answer in saved}) == len(shots)

        await drained(front)
        rows = await front.database.fetch(
            "SELECT id, sha256, file_path, embedding_status, embedding_error FROM memories_image"
        )
        failed = [dict(row) for row in rows if row["embedding_status"] != "embedded"]
        print(f"{len(rows)} rows, failed: {failed}")
        assert {str(row["id"]) for row in rows} == {answer["image_id"] for answer in saved}
        assert all(row["embedding_status"] == "failed" for row in failed)
        assert all(row["embedding_error"] for row in failed)
        assert len(failed) * 100 < len(rows)

        lost = {row["sha256"] for row in failed}
        wanted = [shot for shot in shots if shot.sha256 not in lost]
        pages = await asyncio.gather(
            *(ask("find_similar_images", shot, limit=1) for shot in wanted)
        )
    first = [page["result"][0] for page in pages]  # type: ignore[index]
    assert max(hit["distance"] for hit in first) < 1e-4
    missed = [
        (shot.path, hit["text"])
        for shot, hit in zip(wanted, first, strict=True)
        if hit["sha256"] != shot.sha256
    ]
    assert missed == []


def unpacked() -> Path:
    """The folder with the packages, fetched and unpacked once; skips where that cannot be done."""
    if FOLDER.is_dir():
        return FOLDER
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        pytest.skip("there is no apt-get and dpkg to fetch Debian packages with")
    FOLDER.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as folder:
        scratch = Path(folder)
        download(scratch)
        for package in scratch.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, scratch / "whole"], check=True)
        (scratch / "whole").rename(FOLDER)
    return FOLDER


def download(folder: Path) -> None:
    """Fetch the packages; where the system's package lists are empty, with lists of our own."""
    (folder / "lists" / "partial").mkdir(parents=True)
    own = ("-o", f"Dir::State::lists={folder / 'lists'}")
    if apt_get(folder, "download", *PACKAGES) is None:
        return
    problem = apt_get(folder, *own, "update") or apt_get(folder, *own, "download", *PACKAGES)
    if problem is not None:
        pytest.skip(f"apt-get cannot fetch {', '.join(PACKAGES)}: {problem}")


def apt_get(folder: Path, *arguments: str) -> str | None:
    """Run ``apt-get`` in the folder; what it says if it fails."""
    done = subprocess.run(
        ["apt-get", "-qq", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr.strip()[-500:] or "no reason told"


def pictures_below(folder: Path) -> list[Path]:
    """All pictures, in order; a link stands for no file of its own."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink()
    )


def look_at(path: Path) -> Shot:
    content = path.read_bytes()
    with Image.open(path) as picture:
        width, height = picture.size
    return Shot(path, len(content), width, height, sha256(content).hexdigest())


def choose(shots: list[Shot]) -> list[Shot]:
    """The extremes of every kind, others evenly out of the rest, and copies of some of them."""
    firsts: dict[str, Shot] = {}
    copies = [shot for shot in shots if firsts.setdefault(shot.sha256, shot) is not shot]
    different = list(firsts.values())
    chosen = dict.fromkeys([shot for shot in different if not shot.is_png][: 2 * EXTREMES])
    orders: tuple[Callable[[Shot], float], ...] = (
        lambda shot: shot.size,
        lambda shot: shot.width,
        lambda shot: shot.height,
        lambda shot: shot.width / shot.height,
    )
    for order in orders:
        ranked = sorted(different, key=order)
        chosen |= dict.fromkeys([*ranked[:EXTREMES], *ranked[-EXTREMES:]])
    rest = [shot for shot in different if shot not in chosen]
    chosen |= dict.fromkeys(rest[:: max(1, len(rest) // (AT_LEAST - len(chosen)))])
    assert len(chosen) >= AT_LEAST
    again = {shot.sha256: shot for shot in copies if firsts[shot.sha256] in chosen}
    return [*chosen, *list(again.values())[: 2 * EXTREMES]]
