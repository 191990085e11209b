"""The blob store: pictures by the sha256 of their bytes in a local directory."""

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

from vision_worker.errors import InvalidArgument, NotAnImage, StorageUnavailable, TooBig
from vision_worker.images import EXTENSIONS, ImageInfo, describe, open_image, shown, sniff
from vision_worker.types import SaveResult

CHUNK = 1 << 20
LOCK_SECONDS = 5.0


class PlacedBlob:
    """A blob that is durably in place, shared-locked against removal until it is let go.

    Leave it as a context manager; call ``retract`` before if the row was certainly not written.
    """

    def __init__(self, result: SaveResult, lock: int, identity: tuple[int, ...] | None) -> None:
        self.result = result
        self._lock = lock
        self._identity = identity

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def retract(self) -> None:
        """Take the file away again if this save created it and nobody has saved it since."""
        path = self.result.file_path
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._identity == _identity(path):
                path.unlink()


class ImageStore:
    """Blobs at ``<root>/<sha256[:2]>/<sha256>.<ext>``, mode 0600, written once and never changed.

    A blob appears whole or not at all: temporary file, fsync, rename, fsync of the folder. Saving
    a picture again replaces its file, so a damaged blob is healed by a save.
    """

    def __init__(
        self,
        image_dir: str | Path,
        *,
        max_file_size: int = 10 * 1024 * 1024,
        max_pixels: int = 178_000_000,
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

    def store(self, source: str | Path | bytes, mime_type: str | None = None) -> SaveResult:
        """Keep a picture. ``mime_type`` is accepted for compatibility; the content decides."""
        with self.place(Path(source) if isinstance(source, str) else source) as blob:
            return blob.result

    def store_bytes(self, data: bytes, mime_type: str | None = None) -> SaveResult:
        return self.store(data, mime_type)

    def get_path(self, sha256: str) -> Path | None:
        """Where the blob lies, or None."""
        _require_sha256(sha256)
        stem = self.root / sha256[:2] / sha256
        paths = (stem.with_suffix(f".{extension}") for extension in EXTENSIONS.values())
        return next((path for path in paths if path.is_file()), None)

    def exists(self, sha256: str) -> bool:
        return self.get_path(sha256) is not None

    def delete(self, sha256: str) -> bool:
        """Remove a blob; False if there is none, or if a save holds it just now."""
        with self.removal(sha256) as path:
            if path is None:
                return False
            path.unlink(missing_ok=True)
            return True

    @contextmanager
    def removal(self, sha256: str) -> Iterator[Path | None]:
        """The blob's path while no save of it can be under way; None if it cannot be removed."""
        path = self.get_path(sha256)
        if path is None:
            yield None
            return
        lock = _open_lock(path.parent)
        try:
            yield path if _lock_exclusively(lock) else None
        finally:
            os.close(lock)

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
                staged.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StorageUnavailable(path=self.root, reason=reason) from error

    def _copy(self, file: BinaryIO, target: Path, name: str) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as copy:
            while chunk := file.read(CHUNK):
                if size == 0 and sniff(chunk) is None:
                    raise NotAnImage(path=name)
                size += len(chunk)
                if size > self.max_file_size:
                    raise TooBig(path=name, limit=self.max_file_size)
                digest.update(chunk)
                _write_all(descriptor, chunk)
            os.fsync(copy.fileno())
        return digest.hexdigest(), size

    def _publish(self, staged: Path, sha256: str, size: int, info: ImageInfo) -> PlacedBlob:
        folder = self.root / sha256[:2]
        _make_folder(folder)
        path = folder / f"{sha256}.{EXTENSIONS[info.mime_type]}"
        lock = _open_lock(folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            identity: tuple[int, ...] | None = _identity(staged)
            try:
                path.hardlink_to(staged)
            except OSError:
                # There already, or a file system without links: replace it, and never retract it.
                staged.rename(path)
                identity = None
            _fsync_folder(folder)
        except BaseException:
            os.close(lock)
            raise
        result = SaveResult(sha256, path, info.mime_type, size, (info.width, info.height))
        return PlacedBlob(result, lock, identity)


def _open_lock(folder: Path) -> int:
    return os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _identity(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _fsync_folder(folder.parent)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock_exclusively(descriptor: int) -> bool:
    """Savers hold the lock for milliseconds, so a bounded wait is enough; gc takes what is left."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)


def _require_sha256(value: str) -> None:
    if len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise InvalidArgument(name="sha256", problem="it must be 64 lower-case hex digits")
