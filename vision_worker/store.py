"""The blob store: pictures by the sha256 of their bytes in a local directory."""

import asyncio
import errno
import fcntl
import hashlib
import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self
from uuid import uuid4

from vision_worker.errors import (
    BlobUnreadable,
    EmptyFile,
    FileUnreadable,
    InvalidArgument,
    NotAnImage,
    StorageUnavailable,
    StoreError,
    TooBig,
)
from vision_worker.images import (
    EXTENSIONS,
    MAX_PIXELS,
    ImageInfo,
    describe,
    open_image,
    shown,
    sniff,
)
from vision_worker.types import SaveResult

CHUNK = 1 << 20
LOCK_SECONDS = 5.0


class PlacedBlob:
    """A blob that is durably in place, and cannot be removed until it is let go.

    Leave it as a context manager; call ``retract`` before if the row was certainly not written.
    """

    def __init__(self, result: SaveResult, hold: int, identity: tuple[int, ...] | None) -> None:
        self.result = result
        self._hold = hold
        self._identity = identity

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._hold)

    def retract(self) -> None:
        """Take the file away again if this save created it and nobody has saved it since."""
        path = self.result.file_path
        with suppress(OSError), _locked(path.parent / ".swap", fcntl.LOCK_EX):
            if self._identity == _identity(path):
                path.unlink()


class ImageStore:
    """Blobs at ``<root>/<sha256[:2]>/<sha256>.<ext>``, mode 0600, written once and never changed.

    A blob appears whole or not at all: temporary file, fsync, rename, fsync of the folder. Saving
    a picture again replaces its file, so a damaged blob is healed by a save.

    Two locks in each folder: ``.lock`` is shared by saves until their rows are written and taken
    alone by a removal; ``.swap`` is taken for the moment in which a name changes its file.
    """

    def __init__(
        self,
        image_dir: str | Path,
        *,
        max_file_size: int = 10 * 1024 * 1024,
        max_pixels: int = MAX_PIXELS,
        allowed_roots: tuple[Path, ...] = (),
    ) -> None:
        self.root = Path(image_dir).expanduser().absolute()
        self.max_file_size = max_file_size
        self.max_pixels = max_pixels
        self.allowed_roots = allowed_roots

    def place(self, source: Path | bytes) -> PlacedBlob:
        """Copy a picture into the store while hashing it; blocks on the disk.

        Raises ImageError for what is not kept and StorageUnavailable where nothing can be written.
        """
        if isinstance(source, bytes):
            return self._place(io.BytesIO(source), "the given picture")
        with open_image(source, max_file_size=self.max_file_size, roots=self.allowed_roots) as file:
            return self._place(file, shown(source))

    async def place_in_thread(self, source: Path | bytes) -> PlacedBlob:
        """``place``, off the event loop. Cancelled, it leaves nothing behind and nothing locked."""
        placing = asyncio.ensure_future(asyncio.to_thread(self.place, source))
        try:
            return await asyncio.shield(placing)
        except asyncio.CancelledError:
            # The thread goes on. What it places is nobody's, and must not stay locked.
            placing.add_done_callback(_let_go)
            raise

    def store(self, source: str | Path | bytes, mime_type: str | None = None) -> SaveResult:
        """Keep a picture. ``mime_type`` is accepted for compatibility; the content decides."""
        with self.place(Path(source) if isinstance(source, str) else source) as blob:
            return blob.result

    def store_bytes(self, data: bytes, mime_type: str | None = None) -> SaveResult:
        return self.store(data, mime_type)

    def get_path(self, sha256: str) -> Path | None:
        """Where the blob lies, or None. Raises BlobUnreadable where the folder cannot be read."""
        _require_sha256(sha256)
        stem = self.root / sha256[:2] / sha256
        try:
            paths = (stem.with_suffix(f".{extension}") for extension in EXTENSIONS.values())
            return next((path for path in paths if path.is_file()), None)
        except OSError as error:
            raise BlobUnreadable(path=shown(stem), reason=error.strerror) from error

    def exists(self, sha256: str) -> bool:
        return self.get_path(sha256) is not None

    def delete(self, sha256: str) -> bool:
        """Remove a blob; False if there is none, or if a save holds it just now."""
        with self.removal(sha256) as path:
            if path is None:
                return False
            path.unlink()
            return True

    @contextmanager
    def removal(self, sha256: str) -> Iterator[Path | None]:
        """The blob's path while no save of it can be under way; None if it cannot be removed.

        Raises StoreError where the folder, or the unlinking in the body, fails.
        """
        path = self.get_path(sha256)
        if path is None:
            yield None
            return
        try:
            with _locked(path.parent / ".lock", fcntl.LOCK_EX):
                yield path if path.is_file() else None
        except _Held:
            # Savers hold it for milliseconds. What stays for this once is collected later.
            yield None
        except OSError as error:
            reason = f"{shown(path)} could not be removed ({error.strerror})"
            raise StoreError(reason=reason) from error

    def _place(self, file: BinaryIO, name: str) -> PlacedBlob:
        staged = self.root / ".tmp" / uuid4().hex
        try:
            _make_folder(staged.parent)
            try:
                sha256, size = self._copy(file, staged, name)
                with staged.open("rb") as copy:
                    info = describe(copy, name, max_pixels=self.max_pixels)
                return self._publish(staged, sha256, size, info)
            finally:
                with suppress(OSError):
                    staged.unlink()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StorageUnavailable(path=shown(self.root), reason=reason) from error

    def _copy(self, file: BinaryIO, target: Path, name: str) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0):
            while chunk := _read(file, name):
                if size == 0 and sniff(chunk) is None:
                    raise NotAnImage(path=name)
                size += len(chunk)
                if size > self.max_file_size:
                    raise TooBig(path=name, limit=self.max_file_size)
                digest.update(chunk)
                _write_all(descriptor, chunk)
            if size == 0:
                raise EmptyFile(path=name)
            os.fsync(descriptor)
        return digest.hexdigest(), size

    def _publish(self, staged: Path, sha256: str, size: int, info: ImageInfo) -> PlacedBlob:
        folder = self.root / sha256[:2]
        _make_folder(folder)
        path = folder / f"{sha256}.{EXTENSIONS[info.mime_type]}"
        result = SaveResult(sha256, path, info.mime_type, size, (info.width, info.height))
        hold = _lock(folder / ".lock", fcntl.LOCK_SH)
        blob = PlacedBlob(result, hold, _identity(staged))
        try:
            with _locked(folder / ".swap", fcntl.LOCK_EX):
                try:
                    path.hardlink_to(staged)
                except OSError:
                    # There already, or a file system without links: replace it and never retract.
                    blob = PlacedBlob(result, hold, None)
                    staged.rename(path)
            _fsync_folder(folder)
        except BaseException:
            blob.retract()
            os.close(hold)
            raise
        return blob


class _Held(OSError):
    """Somebody has held a lock for too long."""


def _let_go(placing: asyncio.Future[PlacedBlob]) -> None:
    if not placing.cancelled() and placing.exception() is None:
        with placing.result() as blob:
            blob.retract()


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    descriptor = _lock(path, kind)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path, kind: int) -> int:
    """A descriptor that holds the lock until it is closed. Waits, but never for a stopped holder.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _Held(errno.EBUSY, "another process holds it") from None
                time.sleep(0.002)
    except BaseException:
        os.close(descriptor)
        raise


def _identity(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _read(file: BinaryIO, name: str) -> bytes:
    try:
        return file.read(CHUNK)
    except OSError as error:
        raise FileUnreadable(path=name, reason=error.strerror) from None


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it durably, for the owner alone."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _fsync_folder(folder.parent)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_sha256(value: str) -> None:
    if len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise InvalidArgument(name="sha256", problem="it must be 64 lower-case hex digits")
