"""Rows of ``memories_image`` for software that brings its own memories."""

import json
from typing import overload

import asyncpg

from vision_worker import neighbour
from vision_worker.config import PREFIX, VisionConfig
from vision_worker.database import Database
from vision_worker.errors import ConfigError, InvalidArgument, SchemaOutdated
from vision_worker.front import Front
from vision_worker.index import parse_uuid, record
from vision_worker.migrate import current, is_fresh, migrate
from vision_worker.runtime import Runtime, runtime
from vision_worker.statements import statement
from vision_worker.types import EMBEDDING_DIM, ImageRecord

__all__ = ["ImageIndex"]

POOL_SIZE = 5


class ImageIndex:
    """Free to make: all indexes of one database share their connections. Raises VisionError.

    ``insert`` keeps a row at once, whether its picture has a vector yet or not.
    """

    def __init__(self, db_url: str = "") -> None:
        self._db_url = db_url
        self._initialized = False

    async def shared(self) -> Runtime:
        """What all indexes of this database share; without a URL, of the database that is set, else
        of the one that memini-ai embeds. Raises ConfigError where there is none.
        """
        url = self._db_url or VisionConfig().resolved_db_url or _embedded.get("url")
        if not url and (found := await neighbour.running()):
            url = _embedded["url"] = found
        if not url:
            problem = "it is not set, and neither is MEMINI_DB_URL; say where the database is"
            raise ConfigError(variable=f"{PREFIX}DB_URL", problem=problem)
        return runtime(url)

    async def initialize(self) -> None:
        """See to the tables, once."""
        if not self._initialized:
            await self.ensure_schema()
            self._initialized = True

    async def ensure_schema(self) -> None:
        """Make the tables where there are none yet.

        A table of images that is there already is left alone: SchemaOutdated says what to do.
        """
        url = self._db_url or await (await self.shared()).run(_url)
        if await current(url):
            return
        if not await is_fresh(url):
            raise SchemaOutdated(reason="its table of images is of another software")
        await migrate(url)

    @overload
    async def insert(self, given: ImageRecord, /) -> str: ...
    @overload
    async def insert(
        self,
        *,
        memory_id: str,
        file_path: str,
        sha256: str,
        mime_type: str,
        embedding: list[float] | None = None,
        width: int | None = None,
        height: int | None = None,
        file_size_bytes: int | None = None,
        caption: str | None = None,
        source_tool: str | None = None,
        tags: list[str] | None = None,
        embedding_model: str | None = "clip-ViT-B-32",
    ) -> tuple[str, str | None]: ...
    async def insert(
        self,
        given: ImageRecord | None = None,
        /,
        *,
        memory_id: str = "",
        file_path: str = "",
        sha256: str = "",
        mime_type: str = "",
        embedding: list[float] | None = None,
        width: int | None = None,
        height: int | None = None,
        file_size_bytes: int | None = None,
        caption: str | None = None,
        source_tool: str | None = None,
        tags: list[str] | None = None,
        embedding_model: str | None = "clip-ViT-B-32",
    ) -> str | tuple[str, str | None]:
        """Give a memory its picture: (image id, time of creation), or for a record its id.

        ``embedding`` has 768 floats. A finished vector is kept as one of ``embedding_model``. The
        zeros of ``ClipEmbedder.encode_image``, or None, make the row pending, and a worker is woken
        to embed it. Raises InvalidArgument where there is no such memory, or it has a picture.
        """
        row = given or ImageRecord(
            id="",
            memory_id=memory_id,
            file_path=file_path,
            sha256=sha256,
            mime_type=mime_type,
            embedding=embedding,
            width=width,
            height=height,
            file_size_bytes=file_size_bytes,
            caption=caption,
            source_tool=source_tool,
            tags=tags or [],
            embedding_model=embedding_model,
        )
        kept = await (await self.shared()).run(lambda front: _insert(front, row))
        identifier = str(kept["id"])
        return identifier if given is not None else (identifier, kept["created_at"].isoformat())

    async def get_by_id(self, image_id: str) -> ImageRecord | None:
        return await (await self.shared()).run(lambda front: front.index.get(image_id))

    async def get_by_memory_id(self, memory_id: str) -> ImageRecord | None:
        return await (await self.shared()).run(lambda front: front.index.get(memory_id))

    async def get_by_sha256(self, sha256: str) -> ImageRecord | None:
        """The oldest row of these bytes whose memory is not archived."""
        return await (await self.shared()).run(lambda front: _get_by_sha256(front, sha256))

    async def delete(self, image_id: str) -> bool:
        """Delete the row; the memory and the file stay. False if there is none."""
        return await (await self.shared()).run(lambda front: _detach(front, image_id))

    async def close(self) -> None:
        """Close the connections that ``_get_pool`` opened here; what is shared stays open."""
        if (database := _finished.get(self._db_url)) is not None:
            await database.close()

    async def _get_pool(self) -> asyncpg.Pool:
        """Connections for SQL that knows nothing of pending rows.

        On them ``memories_image`` holds only what a search may rank, in the published columns, and
        JSON columns are read as objects.
        """
        if self._db_url not in _finished:
            rows = await (await self.shared()).run(_finished_rows)
            _finished.setdefault(self._db_url, rows)
        return await _finished[self._db_url].pool()


_finished: dict[str, Database] = {}
_embedded: dict[str, str] = {}


async def _url(front: Front) -> str:
    return front.backend.db_url


async def _insert(front: Front, row: ImageRecord) -> asyncpg.Record:
    vector = row.embedding
    if vector is not None and len(vector) != EMBEDDING_DIM:
        problem = f"it has {len(vector)} numbers, not {EMBEDDING_DIM}"
        raise InvalidArgument(name="embedding", problem=problem)
    finished = vector is not None and any(vector)
    kept = await front.database.fetchrow(
        statement("attach"),
        parse_uuid("memory_id", row.memory_id),
        front.index.namespace,
        row.file_path,
        row.sha256,
        row.mime_type,
        row.width,
        row.height,
        row.file_size_bytes,
        row.caption,
        row.source_tool,
        json.dumps(row.tags),
        json.dumps(list(map(float, vector))) if vector and finished else None,
        row.embedding_model,
    )
    if kept is None:
        problem = f"{row.memory_id} is no memory, or has a picture already"
        raise InvalidArgument(name="memory_id", problem=problem)
    if kept["embedding_status"] == "pending":
        front.ring()
    return kept


async def _get_by_sha256(front: Front, sha256: str) -> ImageRecord | None:
    row = await front.database.fetchrow(statement("get_by_sha256"), front.index.namespace, sha256)
    return record(row) if row else None


async def _detach(front: Front, image_id: str) -> bool:
    row = await front.database.fetchrow(
        statement("detach"), front.index.namespace, parse_uuid("image_id", image_id)
    )
    return row is not None


async def _finished_rows(front: Front) -> Database:
    if await front.database.fetchval("SELECT to_regclass('vision_worker.memories_image') IS NULL"):
        raise SchemaOutdated(
            reason="the view vision_worker.memories_image is missing, since the role that migrated"
            " may not create schemas: grant it that, and first run 'vision-worker migrate --to 6'"
        )
    search_path = await front.database.fetchval("SELECT current_setting('search_path')")
    return Database(
        front.backend.db_url,
        pool_size=POOL_SIZE,
        settings={
            "search_path": f"vision_worker, {search_path}",
            "vision_worker.namespace": front.index.namespace,
        },
        prepare=_read_json,
    )


async def _read_json(connection: asyncpg.Connection) -> None:
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: value if isinstance(value, str) else json.dumps(value),
        decoder=json.loads,
    )
