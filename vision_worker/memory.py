"""The image memory: save, get, list and delete; what every adapter calls."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from vision_worker.errors import (
    DatabaseUnavailable,
    ImageNotFound,
    InvalidArgument,
    SchemaOutdated,
    VisionError,
)
from vision_worker.index import ImageIndex, NewImage, Order
from vision_worker.queue import Doorbell
from vision_worker.store import ImageStore, PlacedBlob
from vision_worker.types import ImageFilter, ImageList, ImageRecord, SavedImage

SOURCE_TYPES = frozenset(
    {"session", "file", "web", "boomerang", "project", "thought", "image", "github"}
)
MAX_TEXT = 100_000
MAX_CAPTION = 10_000
MAX_TAGS = 64
MAX_TAG = 200


@dataclass(frozen=True)
class Picture:
    """One picture to save: an absolute path or the bytes themselves, and what to say about it."""

    source: Path | bytes
    text: str
    caption: str | None = None
    tags: tuple[str, ...] = ()
    source_type: str = "session"
    source_tool: str | None = None

    def __post_init__(self) -> None:
        _check_text("text", self.text, MAX_TEXT)
        if self.caption is not None:
            _check_text("caption", self.caption, MAX_CAPTION)
        if len(self.tags) > MAX_TAGS:
            raise InvalidArgument(name="tags", problem=f"there are more than {MAX_TAGS}")
        for tag in self.tags:
            _check_text("tags", tag, MAX_TAG)
        if self.source_type not in SOURCE_TYPES:
            known = ", ".join(sorted(SOURCE_TYPES))
            raise InvalidArgument(name="source_type", problem=f"it must be one of {known}")


class ImageMemory:
    """Pictures with a text each, in one namespace.

    A save is durable when it returns: the blob is on disk, the rows are committed, and the picture
    is found by look as soon as a worker has embedded it. Nothing here waits for a model or for the
    broker. All methods raise VisionError.
    """

    def __init__(self, store: ImageStore, index: ImageIndex, doorbell: Doorbell) -> None:
        self.store = store
        self.index = index
        self._doorbell = doorbell

    async def save(self, picture: Picture) -> SavedImage:
        """Keep one picture. An exact repeat returns the first one's ids and ``duplicate=True``."""
        (result,) = await self.save_many([picture])
        if isinstance(result, VisionError):
            raise result
        return result

    async def save_many(self, pictures: Sequence[Picture]) -> list[SavedImage | VisionError]:
        """Keep many pictures in one round trip; a bad one costs only itself.

        Raises BackendError where the database fails: then nothing of the list was kept.
        """
        with ExitStack() as placed:
            blobs = await asyncio.gather(*(self._place(picture, placed) for picture in pictures))
            kept = [blob for blob in blobs if isinstance(blob, PlacedBlob)]
            rows = [
                self._row(picture, blob) if isinstance(blob, PlacedBlob) else blob
                for picture, blob in zip(pictures, blobs, strict=True)
            ]
            try:
                saved = await self.index.save([row for row in rows if isinstance(row, NewImage)])
            except (DatabaseUnavailable, InvalidArgument, SchemaOutdated):
                # Certainly not written. After a connection that broke it might be: then it stays.
                for blob in kept:
                    blob.retract()
                raise
        if any(answer.status == "pending" for answer in saved.values()):
            self._doorbell.ring()
        return _answers(rows, saved)

    async def get(self, identifier: str) -> ImageRecord:
        """The picture with this image id or memory id. Raises ImageNotFound."""
        image = await self.index.get(identifier)
        if image is None:
            raise ImageNotFound(id=identifier, namespace=self.index.namespace)
        return image

    async def list_images(
        self,
        where: ImageFilter = ImageFilter(),
        *,
        limit: int = 20,
        order: Order = "newest",
        cursor: str | None = None,
    ) -> ImageList:
        """One page of pictures in order of time."""
        return await self.index.page(where, limit=limit, order=order, cursor=cursor)

    async def delete(self, identifier: str) -> None:
        """Delete a picture and its memory; the file goes with its last row.

        Raises ImageNotFound.
        """
        sha256 = await self.index.delete(identifier)
        if sha256 is None:
            raise ImageNotFound(id=identifier, namespace=self.index.namespace)
        await remove_unreferenced(self.store, self.index, sha256)

    async def _place(self, picture: Picture, placed: ExitStack) -> PlacedBlob | VisionError:
        try:
            return placed.enter_context(await self.store.place_in_thread(picture.source))
        except VisionError as error:
            return error

    def _row(self, picture: Picture, blob: PlacedBlob) -> NewImage:
        stored = blob.result
        width, height = stored.dimensions or (None, None)
        image_id, memory_id = str(uuid4()), str(uuid4())
        identity = [
            self.index.namespace,
            stored.sha256,
            picture.text,
            picture.caption,
            sorted(set(picture.tags)),
        ]
        return NewImage(
            image_id=image_id,
            memory_id=memory_id,
            save_key=hashlib.sha256(json.dumps(identity).encode()).hexdigest(),
            namespace=self.index.namespace,
            text=picture.text,
            source_type=picture.source_type,
            file_path=str(stored.file_path),
            sha256=stored.sha256,
            mime_type=stored.mime_type,
            width=width,
            height=height,
            file_size_bytes=stored.file_size_bytes,
            caption=picture.caption,
            source_tool=picture.source_tool,
            tags=list(dict.fromkeys(picture.tags)),
            metadata={
                "image_id": image_id,
                "image_path": str(stored.file_path),
                "image_sha256": stored.sha256,
            },
        )


async def remove_unreferenced(store: ImageStore, index: ImageIndex, sha256: str) -> None:
    """Remove a blob that no row points to any more. Raises StoreError or BackendError."""
    with ExitStack() as stack:
        path = await asyncio.to_thread(stack.enter_context, store.removal(sha256))
        if path is not None and not await index.is_referenced(sha256):
            path.unlink(missing_ok=True)


def _answers(
    rows: Sequence[NewImage | VisionError], saved: dict[str, SavedImage]
) -> list[SavedImage | VisionError]:
    """One answer per picture; a repeat within the list itself is a duplicate too."""
    answers: list[SavedImage | VisionError] = []
    seen: set[str] = set()
    for row in rows:
        if isinstance(row, NewImage):
            answer = saved[row.save_key]
            repeated = row.save_key in seen
            seen.add(row.save_key)
            answers.append(replace(answer, duplicate=True) if repeated else answer)
        else:
            answers.append(row)
    return answers


def _check_text(name: str, value: str, longest: int) -> None:
    if len(value) > longest:
        raise InvalidArgument(name=name, problem=f"it is longer than {longest} characters")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidArgument(name=name, problem="it holds characters that are not text")
