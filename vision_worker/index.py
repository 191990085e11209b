"""The ``memories_image`` table: save, look up, list, delete and count rows."""

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import asyncpg

from vision_worker.config import Framing
from vision_worker.database import Database
from vision_worker.errors import InvalidArgument
from vision_worker.statements import statement
from vision_worker.types import (
    ImageFilter,
    ImageList,
    ImageRecord,
    IndexStatus,
    SavedImage,
)

LIVE_SECONDS = 20.0
"""A worker that gave no sign of life for this long counts as gone."""
MAX_LIMIT = 1000
Order = Literal["newest", "oldest"]


@dataclass(frozen=True)
class NewImage:
    """What a save inserts: one memory and its image row. ``save_key`` identifies exact repeats."""

    image_id: str
    memory_id: str
    save_key: str
    namespace: str
    text: str
    source_type: str
    file_path: str
    sha256: str
    mime_type: str
    width: int | None
    height: int | None
    file_size_bytes: int
    caption: str | None
    source_tool: str | None
    tags: list[str]
    metadata: dict[str, str]


@dataclass(frozen=True)
class Backlog:
    """What a filter leaves unranked, and which model ranks the rest.

    ``models`` are the values of ``embedding_model`` that mean the active model.
    """

    model: str | None
    models: tuple[str, ...]
    framing: Framing
    input_size: int
    pending: int
    failed: int
    encoder_alive: bool


class ImageIndex:
    """Rows of one namespace. Every method raises BackendError where the database fails."""

    def __init__(self, database: Database, *, namespace: str = "default") -> None:
        self.database = database
        self.namespace = namespace

    async def save(self, images: Sequence[NewImage]) -> dict[str, SavedImage]:
        """Insert what is new and find what is there, in one statement; answers by ``save_key``."""
        given = {image.save_key: image for image in images}
        saved: dict[str, SavedImage] = {}
        while given:
            rows = await self.database.fetch(
                statement("save"), json.dumps([asdict(image) for image in given.values()])
            )
            archived = [row["save_key"] for row in rows if row["archived"]]
            if archived:
                await self.database.fetch(statement("release_save_keys"), archived)
            for row in rows:
                if not row["archived"]:
                    saved[row["save_key"]] = _saved(row, given.pop(row["save_key"]))
            # What is still given was inserted by someone else meanwhile, or was archived: again.
        return saved

    async def get(self, identifier: str) -> ImageRecord | None:
        """The row with this image id or memory id."""
        uuid = parse_uuid("image_id", identifier)
        row = await self.database.fetchrow(statement("get"), self.namespace, uuid, uuid)
        return record(row) if row else None

    async def page(
        self,
        where: ImageFilter = ImageFilter(),
        *,
        limit: int = 20,
        order: Order = "newest",
        cursor: str | None = None,
    ) -> ImageList:
        """One page in order of ``created_at``, continued by ``cursor``."""
        check_limit(limit)
        if order not in ("newest", "oldest"):
            raise InvalidArgument(name="order", problem="it must be 'newest' or 'oldest'")
        after = decode_cursor(cursor) if cursor else (None, None)
        rows = await self.database.fetch(
            statement(f"list_{order}"), *self.parameters(where), *after, limit + 1
        )
        images = [record(row) for row in rows[:limit]]
        more = len(rows) > limit
        return ImageList(images, encode_cursor(rows[limit - 1]) if more else None)

    async def delete(self, identifier: str) -> str | None:
        """Delete the memory and its image row; the sha256 of the blob it pointed to."""
        uuid = parse_uuid("image_id", identifier)
        row = await self.database.fetchrow(statement("delete"), self.namespace, uuid, uuid)
        return str(row["sha256"]) if row else None

    async def is_referenced(self, sha256: str) -> bool:
        """Whether any row, in whatever namespace, points to this blob."""
        return bool(await self.database.fetchval(statement("is_referenced"), sha256))

    async def backlog(self, where: ImageFilter = ImageFilter()) -> Backlog:
        row = await self.database.fetchrow(
            statement("counts"), *self.parameters(where), LIVE_SECONDS
        )
        assert row is not None
        models = [row["model"]] if row["model"] else []
        if row["framing"] == "centre-crop":
            # A bare name, as other software writes it, means the published centre crop.
            models.append(row["model_name"])
        return Backlog(
            model=row["model"],
            models=tuple(models),
            framing=row["framing"] or "tiles",
            input_size=row["input_size"] or 0,
            pending=row["pending"],
            failed=row["failed"],
            encoder_alive=row["encoder_alive"],
        )

    async def status(self, *, ready_seconds: float = 300.0) -> IndexStatus:
        row = await self.database.fetchrow(statement("status"), self.namespace, LIVE_SECONDS)
        assert row is not None
        waiting = row["oldest_claimable_seconds"]
        return IndexStatus(
            namespace=self.namespace,
            model=row["model"],
            pending=row["pending"],
            embedded=row["embedded"],
            failed=row["failed"],
            oldest_pending_seconds=row["oldest_pending_seconds"],
            workers=row["workers"],
            ready=waiting is None or waiting < ready_seconds,
        )

    async def failures(self) -> list[dict[str, Any]]:
        """Failed images by error code: ``{"code", "images", "example"}``."""
        return [
            dict(row) for row in await self.database.fetch(statement("failures"), self.namespace)
        ]

    async def retry(self, code: str | None = None) -> int:
        """Make failed rows (of one error code) pending again; how many."""
        return int(await self.database.fetchval(statement("retry"), self.namespace, code))

    async def due(self) -> int:
        """Rows of all namespaces that a worker could claim now."""
        return int(await self.database.fetchval(statement("due")))

    async def workers(self) -> list[dict[str, Any]]:
        """Workers that gave a sign of life lately."""
        return [dict(row) for row in await self.database.fetch(statement("workers"), LIVE_SECONDS)]

    def parameters(self, where: ImageFilter) -> tuple[object, ...]:
        """The first five parameters of every filtered statement."""
        return (
            self.namespace,
            json.dumps(list(where.tags)) if where.tags else None,
            where.source_type,
            where.created_after,
            where.created_before,
        )


def record(row: asyncpg.Record) -> ImageRecord:
    return ImageRecord(
        id=str(row["id"]),
        memory_id=str(row["memory_id"]),
        file_path=row["file_path"],
        sha256=row["sha256"],
        mime_type=row["mime_type"],
        width=row["width"],
        height=row["height"],
        file_size_bytes=row["file_size_bytes"],
        caption=row["caption"],
        embedding_model=row["embedding_model"],
        tags=json.loads(row["tags"]),
        created_at=row["created_at"].isoformat(),
        text=row["text"],
        source_type=row["source_type"],
        source_tool=row["source_tool"],
        namespace=row["namespace"],
        status=row["embedding_status"],
        error=row["embedding_error"],
        error_code=row["embedding_error_code"],
        attempts=row["attempts"],
        embedded_at=row["embedded_at"].isoformat() if row["embedded_at"] else None,
    )


def parse_uuid(name: str, value: str) -> UUID:
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidArgument(name=name, problem=f"{value!r} is not a uuid") from None


def check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(name="limit", problem=f"it must lie between 1 and {MAX_LIMIT}")


def _saved(row: asyncpg.Record, given: NewImage) -> SavedImage:
    return SavedImage(
        memory_id=str(row["memory_id"]),
        image_id=str(row["id"]),
        sha256=row["sha256"],
        file_path=row["file_path"],
        status=row["embedding_status"],
        duplicate=str(row["id"]) != given.image_id,
    )


def encode_cursor(row: asyncpg.Record) -> str:
    """Where a page in order of ``created_at`` and ``id`` ended."""
    text = f"{row['created_at'].isoformat()} {row['id']}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode_cursor(cursor: str) -> tuple[datetime, UUID]:
    """Raises InvalidArgument."""
    try:
        created_at, identifier = base64.urlsafe_b64decode(cursor.encode()).decode().split(" ")
        return datetime.fromisoformat(created_at), UUID(identifier)
    except ValueError:
        raise InvalidArgument(
            name="cursor", problem="it is not one that an earlier answer gave"
        ) from None
