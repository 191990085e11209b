"""The way of a keepsake's picture into the store: bounded, and decoded before it is promised."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from vision_worker.decoder import Request
from vision_worker.decoders import DecoderPool
from vision_worker.errors import (
    Busy,
    EmptyFile,
    FileUnreadable,
    ImageError,
    NotAnImage,
    Undecodable,
)
from vision_worker.images import open_image, shown
from vision_worker.store import ImageStore, PlacedBlob

MAX_BYTES = 12_000_000
WORKING = 4
"""Pictures that are read, decoded and written at once; each is in memory meanwhile."""
WAITING = 1_000
"""Calls that may wait for that."""
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Taken:
    """The bytes of a picture, the sha256 of them in hex, and what to call it in a sentence."""

    name: str
    data: bytes
    sha256: str


class Intake:
    """Takes pictures in, a few at a time. The store's own bounds are those of a picture."""

    def __init__(self, store: ImageStore, decoders: DecoderPool) -> None:
        self._store = store
        self._decoders = decoders
        self._places = asyncio.Semaphore(WORKING)
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait to be one of the few. Raises Busy where too many wait, or for too long."""
        if self._waiting >= WAITING:
            raise Busy()
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise Busy() from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._places.release()

    async def take(self, picture: Path | bytes) -> Taken:
        """Read a picture. Raises ImageError."""
        name = shown(picture) if isinstance(picture, Path) else "the given picture"
        return await asyncio.to_thread(self._take, picture, name)

    async def place(self, taken: Taken) -> PlacedBlob:
        """Put it into the store, whole and decodable, or not at all.

        Raises ImageError and StoreError.
        """
        blob = await self._store.place_in_thread(taken.data)
        try:
            await self._decode(blob, taken.name)
        except BaseException:
            with blob:
                blob.retract()
            raise
        return blob

    def _take(self, picture: Path | bytes, name: str) -> Taken:
        data = self._read(picture, name) if isinstance(picture, Path) else picture
        if not data:
            raise NotAnImage(path=name)
        return Taken(name, data, hashlib.sha256(data).hexdigest())

    def _read(self, path: Path, name: str) -> bytes:
        limit, roots = self._store.max_file_size, self._store.allowed_roots
        try:
            with open_image(path, max_file_size=limit, roots=roots) as file:
                return file.read(limit + 1)
        except EmptyFile:
            raise NotAnImage(path=name) from None
        except OSError as error:
            raise FileUnreadable(path=name, reason=error.strerror) from None

    async def _decode(self, blob: PlacedBlob, name: str) -> None:
        """Raises Undecodable for a picture that only begins like one, and StoreError."""
        stored = blob.result
        request = Request(
            path=str(stored.file_path),
            sha256=stored.sha256,
            framing="shrunk",
            size=1,
            max_pixels=self._store.max_pixels,
        )
        try:
            await self._decoders.decode(request)
        except ImageError as error:
            kind = stored.mime_type.removeprefix("image/").upper()
            reason = f"its pixels cannot be read ({error.code})"
            raise Undecodable(path=name, format=kind, reason=reason) from error
