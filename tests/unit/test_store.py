"""The blob store under many hands, kills, full disks and damage."""

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from PIL import Image

from tests.pictures import drawing, encoded, files_below, ordinary_user
from vision_worker import store as store_module
from vision_worker.errors import StorageUnavailable, StoreError, TooBig, VisionError
from vision_worker.store import ImageStore, PlacedBlob
from vision_worker.types import SaveResult

DEADLINE = 60
DATA = encoded(drawing(), "PNG")
DIGEST = sha256(DATA).hexdigest()
NAME = f"{DIGEST[:2]}/{DIGEST}.png"


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LOCK_SECONDS", 0.05)


@pytest.fixture
def reachable() -> Iterator[Path]:
    with TemporaryDirectory(prefix="vision-worker-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(VisionError) as caught:
        call()
    return caught.value.code


def shard_mates() -> tuple[bytes, bytes]:
    """Two pictures whose files lie in the same folder."""
    seen: dict[str, bytes] = {}
    for level in itertools.count():
        data = encoded(Image.new("RGB", (1, 1), (level % 256, level // 256, 0)), "BMP")
        shard = sha256(data).hexdigest()[:2]
        if shard in seen:
            return seen[shard], data
        seen[shard] = data
    raise AssertionError


def test_a_picture_is_kept_under_its_hash_for_the_owner_alone(
    store: ImageStore, tmp_path: Path
) -> None:
    source = tmp_path / "wrong.jpg"
    source.write_bytes(DATA)
    result = store.store(source)
    path = store.root / NAME
    assert result == SaveResult(DIGEST, path, "image/png", len(DATA), (40, 24))
    assert path.read_bytes() == DATA
    assert files_below(store.root) == [NAME]
    modes = {
        str(entry.relative_to(store.root)): entry.stat().st_mode & 0o777
        for entry in store.root.rglob("*")
    }
    folders = {".tmp", DIGEST[:2]}
    assert modes == {
        name: 0o700 if name in folders else 0o600
        for name in {*folders, NAME, f"{DIGEST[:2]}/.lock", f"{DIGEST[:2]}/.swap"}
    }
    assert store.root.stat().st_mode & 0o777 == 0o700


def test_new_folders_above_the_store_are_for_the_owner_alone(tmp_path: Path) -> None:
    ImageStore(tmp_path / "new" / "images").store(DATA)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_paths_strings_and_bytes_are_kept_alike(store: ImageStore, tmp_path: Path) -> None:
    source = tmp_path / "a.png"
    source.write_bytes(DATA)
    kept = [
        store.store(source),
        store.store(str(source)),
        store.store(DATA),
        store.store_bytes(DATA, "image/jpeg"),
    ]
    assert kept == [kept[0]] * 4


def test_a_kept_picture_is_found_and_deleted_once(store: ImageStore) -> None:
    assert (store.exists(DIGEST), store.get_path(DIGEST), store.delete(DIGEST)) == (
        False,
        None,
        False,
    )
    store.store(DATA)
    assert (store.exists(DIGEST), store.get_path(DIGEST)) == (True, store.root / NAME)
    assert [store.delete(DIGEST), store.delete(DIGEST)] == [True, False]
    assert files_below(store.root) == []


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", DIGEST.upper(), DIGEST + "0", "é" * 64])
def test_what_is_no_hash_finds_nothing(store: ImageStore, digest: str) -> None:
    assert code_of(lambda: store.get_path(digest)) == "invalid_argument"
    assert code_of(lambda: store.delete(digest)) == "invalid_argument"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_file"),
        (b"not a picture", "not_an_image"),
        (DATA[:40], "undecodable"),
        (DATA + b"\0" * 2000, "too_big"),
        (encoded(Image.new("1", (101, 100)), "PNG"), "too_many_pixels"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path: Path, data: bytes, code: str) -> None:
    store = ImageStore(tmp_path / "images", max_file_size=len(DATA) + 1000, max_pixels=10_000)
    source = tmp_path / "source"
    source.write_bytes(data)
    assert code_of(lambda: store.place(data)) == code
    assert code_of(lambda: store.place(source)) == code
    assert files_below(store.root) == []


def test_sources_outside_the_allowed_roots_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(DATA)
    store = ImageStore(tmp_path / "images", allowed_roots=(tmp_path / "screenshots",))
    assert code_of(lambda: store.place(tmp_path / "a.png")) == "outside_allowed_roots"
    assert not store.root.exists()


def test_a_file_that_grows_while_it_is_read_is_kept_as_it_was_read(
    store: ImageStore, tmp_path: Path
) -> None:
    source = tmp_path / "a.png"
    source.write_bytes(DATA)
    full, done = threading.Event(), threading.Event()

    def grow() -> None:
        with source.open("ab", buffering=0) as file:
            while not done.is_set():
                if source.stat().st_size > 2 * store.max_file_size:
                    full.set()
                    return
                file.write(b"\0" * 4_000)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        while not full.is_set():
            with suppress(TooBig):
                result = store.store(source)
                kept = result.file_path.read_bytes()
                assert (sha256(kept).hexdigest(), len(kept)) == (
                    result.sha256,
                    result.file_size_bytes,
                )
    finally:
        done.set()
        writer.join()
    assert code_of(lambda: store.store(source)) == "too_big"
    assert not [name for name in files_below(store.root) if name.startswith(".tmp")]


def test_twenty_threads_that_place_the_same_picture_end_with_one_file(store: ImageStore) -> None:
    gate = threading.Barrier(20)

    def place(_: int) -> SaveResult:
        gate.wait(DEADLINE)
        return store.store(DATA)

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(place, range(20)))
    assert results == [results[0]] * 20
    assert files_below(store.root) == [NAME]
    assert (store.root / NAME).read_bytes() == DATA


def test_a_picture_is_whole_at_every_moment_in_which_it_is_there(store: ImageStore) -> None:
    store.store(DATA)
    path, done, seen = store.root / NAME, threading.Event(), set()

    def watch() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(100):
        store.store(DATA)
    done.set()
    watcher.join()
    assert seen == {DATA}


# --- taking back --------------------------------------------------------------------------------


def test_a_retracted_save_leaves_nothing(store: ImageStore) -> None:
    with store.place(DATA) as blob:
        blob.retract()
        blob.retract()
    assert files_below(store.root) == []


ENDS = ("commit", "retract")
INTERLEAVINGS = sorted(set(itertools.permutations("AABB")))


@pytest.mark.parametrize("order", INTERLEAVINGS, ids="".join)
@pytest.mark.parametrize("ends", list(itertools.product(ENDS, ENDS)), ids="-".join)
def test_a_retraction_only_takes_what_no_other_save_relies_on(
    store: ImageStore, order: tuple[str, ...], ends: tuple[str, str]
) -> None:
    """Two saves of one picture, each placed and then committed or retracted, in every order."""
    placed: dict[str, PlacedBlob] = {}
    for name in order:
        if name not in placed:
            placed[name] = store.place(DATA)
            continue
        with placed[name] as blob:
            if ends["AB".index(name)] == "retract":
                blob.retract()
    if "commit" in ends:
        assert (store.root / NAME).read_bytes() == DATA
    elif order in (("A", "A", "B", "B"), ("B", "B", "A", "A")):
        assert files_below(store.root) == []
    assert not list((store.root / ".tmp").iterdir())


def test_neighbours_in_one_folder_are_retracted_beside_each_other(store: ImageStore) -> None:
    with ExitStack() as stack:
        blobs = [stack.enter_context(store.place(data)) for data in shard_mates()]
        for blob in blobs:
            blob.retract()
    assert files_below(store.root) == []


def test_a_retraction_beside_a_hundred_saves_of_the_same_picture_loses_none(
    store: ImageStore,
) -> None:
    def fail(_: int) -> None:
        with store.place(DATA) as blob:
            blob.retract()

    def succeed(_: int) -> bool:
        with store.place(DATA) as blob:
            return blob.result.file_path.is_file()

    with ThreadPoolExecutor(4) as pool:
        failures = [pool.submit(fail, turn) for turn in range(100)]
        assert all(pool.map(succeed, range(100)))
        for failure in failures:
            failure.result(DEADLINE)
        pool.submit(succeed, 0).result(DEADLINE)
    assert files_below(store.root) == [NAME]


# --- locks --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_a_save_under_way_blocks_removal(store: ImageStore) -> None:
    with store.place(DATA):
        assert store.delete(DIGEST) is False
        with store.removal(DIGEST) as path:
            assert path is None
    assert store.delete(DIGEST) is True


@pytest.mark.usefixtures("impatient")
def test_a_removal_under_way_blocks_saves_into_its_folder_for_a_bounded_time(
    store: ImageStore,
) -> None:
    store.store(DATA)
    with store.removal(DIGEST) as path:
        assert path == store.root / NAME
        assert code_of(lambda: store.place(DATA)) == "storage_unavailable"
        assert store.delete(DIGEST) is False
    assert files_below(store.root) == [NAME]
    assert store.store(DATA).sha256 == DIGEST


def test_a_save_that_meets_a_removal_brings_the_picture_back(store: ImageStore) -> None:
    store.store(DATA)
    with ThreadPoolExecutor(1) as pool:
        with store.removal(DIGEST) as path:
            assert path is not None
            saving = pool.submit(store.store, DATA)
            path.unlink()
            assert not saving.done()
        saving.result(DEADLINE)
    assert (store.root / NAME).read_bytes() == DATA


@pytest.mark.usefixtures("impatient")
def test_a_killed_saver_lets_go_of_its_lock(store: ImageStore) -> None:
    program = (
        "import sys; from vision_worker.store import ImageStore\n"
        "with ImageStore(sys.argv[1]).place(bytes.fromhex(sys.argv[2])):\n"
        "    print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(store.root), DATA.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as saver:
        assert saver.stdout is not None
        assert saver.stdout.readline()
        assert store.delete(DIGEST) is False
        saver.send_signal(signal.SIGSTOP)
        assert store.delete(DIGEST) is False
        assert store.store(DATA).sha256 == DIGEST
        saver.kill()
        saver.wait(DEADLINE)
    assert store.delete(DIGEST) is True


# --- damage and kills ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage", [DATA[:100], b"", bytes([DATA[0] ^ 1]) + DATA[1:]], ids=["cut", "empty", "flipped"]
)
def test_a_damaged_blob_is_healed_by_saving_again(store: ImageStore, damage: bytes) -> None:
    store.store(DATA)
    (store.root / NAME).write_bytes(damage)
    with store.place(DATA) as blob:
        blob.retract()
    assert (store.root / NAME).read_bytes() == DATA


KILLS = """
import json, os, signal, sys
from pathlib import Path
from vision_worker.store import ImageStore

data, root = bytes.fromhex(sys.argv[1]), Path(sys.argv[2])
events = {"open", "os.mkdir", "os.link", "os.rename", "os.remove", "fcntl.flock"}
turn = 0
while True:
    store = ImageStore(root / str(turn))
    child = os.fork()
    if child == 0:
        seen = 0
        def kill(event, _):
            global seen
            if event in events:
                seen += 1
                if seen > turn:
                    os.kill(os.getpid(), signal.SIGKILL)
        store.max_file_size = 10 ** 7
        import PIL.PngImagePlugin
        sys.addaudithook(kill)
        store.place(data)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    turn += 1
print(turn)
"""


def test_a_kill_at_any_moment_leaves_no_half_blob_under_its_name(tmp_path: Path) -> None:
    """The saving process is killed at its first, second, ... system call that counts."""
    done = subprocess.run(
        [sys.executable, "-c", KILLS, DATA.hex(), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout)
    assert kills >= 8
    appeared = 0
    for turn in range(kills):
        store = ImageStore(tmp_path / str(turn))
        blobs = [name for name in files_below(store.root) if not name.startswith(".tmp")]
        assert blobs in ([], [NAME])
        if blobs:
            appeared += 1
            assert (store.root / NAME).read_bytes() == DATA
        store.store(DATA)
        assert (store.root / NAME).read_bytes() == DATA
    assert appeared >= 1


# --- storage that fails -------------------------------------------------------------------------

FULL = """
import json, resource, sys
from vision_worker.errors import VisionError
from vision_worker.store import ImageStore

store = ImageStore(sys.argv[1])
small, large = (bytes.fromhex(data) for data in sys.argv[2:])
store.store(small)
resource.setrlimit(resource.RLIMIT_FSIZE, (len(large) - 1, len(large) - 1))
try:
    store.store(large)
except VisionError as error:
    print(json.dumps([error.code, str(error), error.transient]))
"""


def test_a_disk_that_takes_no_more_bytes_leaves_nothing_half(store: ImageStore) -> None:
    large = DATA + b"\0" * 50_000
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(store.root), DATA.hex(), large.hex()],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    reason = os.strerror(errno.EFBIG)
    assert json.loads(done.stdout) == [
        "storage_unavailable",
        f"Nothing was saved: the image folder {store.root} cannot be written ({reason}). Free "
        "some space or set MEMINI_IMAGE_DIR to a folder that can be written, then save again.",
        True,
    ]
    assert files_below(store.root) == [NAME]


def test_a_full_file_system_leaves_nothing_half(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)],
        capture_output=True,
        check=False,
    ).returncode
    if mounted != 0:
        pytest.skip("a small file system cannot be mounted here; the file size limit stands in")
    try:
        store = ImageStore(mount / "images")
        store.store(DATA)
        assert code_of(lambda: store.store(DATA + b"\0" * 300_000)) == "storage_unavailable"
        assert files_below(store.root) == [NAME]
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        assert code_of(lambda: store.store(DATA)) == "storage_unavailable"
        with pytest.raises(StoreError):
            store.delete(DIGEST)
        assert files_below(store.root) == [NAME]
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_folder_that_may_not_be_written_is_said_so(reachable: Path) -> None:
    frozen = reachable / "frozen"
    frozen.mkdir()
    frozen.chmod(0o500)
    with ordinary_user(frozen):
        assert code_of(lambda: ImageStore(frozen / "images").store(DATA)) == "storage_unavailable"
        assert code_of(lambda: ImageStore(frozen).store(DATA)) == "storage_unavailable"
    frozen.chmod(0o700)
    assert files_below(frozen) == []


def test_a_store_that_may_not_be_looked_into_says_so(reachable: Path) -> None:
    store = ImageStore(reachable / "images")
    store.store(DATA)
    (store.root / DIGEST[:2]).chmod(0)
    with ordinary_user(store.root):
        calls = [lambda: store.exists(DIGEST), lambda: store.delete(DIGEST)]
        assert [code_of(call) for call in calls] == ["blob_unreadable"] * 2
    (store.root / DIGEST[:2]).chmod(0o700)


@pytest.mark.parametrize("where", ["file", "file/deeper", "/proc/none"])
def test_a_store_that_cannot_be_a_folder_is_unavailable(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageUnavailable):
        ImageStore(tmp_path / where).store(DATA)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_in_the_place_of_a_blob_is_an_error_and_no_loss(store: ImageStore) -> None:
    (store.root / NAME).mkdir(parents=True)
    assert code_of(lambda: store.store(DATA)) == "storage_unavailable"
    assert not list((store.root / ".tmp").iterdir())
