"""Search: by a sentence, by a picture, by an image that is kept already."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from vision_worker.decoder import Request
from vision_worker.decoders import DecoderPool
from vision_worker.encoder import QueryEncoder
from vision_worker.errors import ImageNotFound, InvalidArgument
from vision_worker.images import open_image
from vision_worker.index import Backlog, ImageIndex, check_limit, parse_uuid
from vision_worker.statements import statement
from vision_worker.types import ImageFilter, SearchPage, SearchResult

EXACT_ROWS = 5_000
"""Up to this many rows under the filter all of them are compared; beyond, HNSW is scanned."""
MAX_QUERY = 4_000
MAX_SCAN_TUPLES = 100_000


@dataclass(frozen=True)
class Limits:
    """What a picture that is searched by may be."""

    max_file_size: int
    max_pixels: int
    allowed_roots: tuple[Path, ...] = ()


class ImageQuery:
    """Ranks embedded images of the active model in one namespace; archived memories never show.

    Hits come nearest first by cosine distance, ties by id. All methods raise VisionError.
    """

    def __init__(
        self, encoder: QueryEncoder, index: ImageIndex, decoders: DecoderPool, limits: Limits
    ) -> None:
        self._encoder = encoder
        self._index = index
        self._decoders = decoders
        self._limits = limits

    async def search_by_text(
        self, text: str, limit: int = 10, *, where: ImageFilter = ImageFilter(), offset: int = 0
    ) -> SearchPage:
        """The images that look like what ``text`` says."""
        check_limit(limit)
        if not text.strip():
            raise InvalidArgument(name="query", problem="it is empty; say what to look for")
        if len(text) > MAX_QUERY:
            raise InvalidArgument(name="query", problem=f"it is longer than {MAX_QUERY} characters")
        backlog = await self._index.backlog(where)
        if backlog.model is None or not await self._count(backlog, where, 1):
            return SearchPage([], backlog.pending, backlog.failed)
        vector = await self._encoder.encode_text(
            text, model=backlog.model, worker_alive=backlog.encoder_alive
        )
        return await self._ranked(vector, backlog, where, limit, offset)

    async def search_by_image(
        self, path: Path, limit: int = 10, *, where: ImageFilter = ImageFilter(), offset: int = 0
    ) -> SearchPage:
        """The images that look like the picture in this file; it is not kept."""
        check_limit(limit)
        backlog = await self._index.backlog(where)
        if backlog.model is None or not await self._count(backlog, where, 1):
            return SearchPage([], backlog.pending, backlog.failed)
        await asyncio.to_thread(self._check, path)
        rasters = await self._decoders.decode(
            Request(
                path=str(path),
                sha256=None,
                framing=backlog.framing,
                size=backlog.input_size,
                max_pixels=self._limits.max_pixels,
            )
        )
        vector = await self._encoder.encode_squares(
            [raster.rgb for raster in rasters],
            model=backlog.model,
            worker_alive=backlog.encoder_alive,
        )
        return await self._ranked(vector, backlog, where, limit, offset)

    async def search_by_id(
        self, image_id: str, limit: int = 10, *, where: ImageFilter = ImageFilter(), offset: int = 0
    ) -> SearchPage:
        """The images that look like one that is kept, that one left out.

        Raises ImageNotFound; for an image that is not embedded yet the page is empty.
        """
        check_limit(limit)
        uuid = parse_uuid("image_id", image_id)
        row = await self._index.database.fetchrow(
            statement("embedding_of"), self._index.namespace, uuid
        )
        if row is None:
            raise ImageNotFound(id=image_id, namespace=self._index.namespace)
        backlog = await self._index.backlog(where)
        if row["embedding"] is None or row["embedding_model"] not in backlog.models:
            return SearchPage([], backlog.pending, backlog.failed)
        page = await self._ranked(json.loads(row["embedding"]), backlog, where, limit + 1, offset)
        others = [hit for hit in page.hits if hit.image_id != str(uuid)]
        return SearchPage(others[:limit], page.pending, page.failed)

    async def _count(self, backlog: Backlog, where: ImageFilter, most: int) -> int:
        return int(
            await self._index.database.fetchval(
                statement("count_ranked"), *self._filter(backlog, where), most
            )
        )

    def _filter(self, backlog: Backlog, where: ImageFilter) -> tuple[object, ...]:
        return (*self._index.parameters(where), list(backlog.models))

    async def _ranked(
        self, vector: list[float], backlog: Backlog, where: ImageFilter, limit: int, offset: int
    ) -> SearchPage:
        arguments = (*self._filter(backlog, where), json.dumps(vector), limit, offset)
        few = await self._count(backlog, where, EXACT_ROWS + 1) <= EXACT_ROWS
        rows = [] if few else await self._scan(arguments, limit + offset)
        if few or len(rows) < limit:
            # Too few from the graph: the filter hides them from it, so compare every row.
            rows = await self._index.database.fetch(statement("nearest_exact"), *arguments)
        return SearchPage([_hit(row) for row in rows], backlog.pending, backlog.failed)

    async def _scan(self, arguments: tuple[object, ...], wanted: int) -> list[asyncpg.Record]:
        breadth = max(40, min(1000, 2 * wanted))
        async with self._index.database.transaction() as connection:
            await connection.execute(
                f"SET LOCAL hnsw.ef_search = {breadth};"
                f"SET LOCAL hnsw.iterative_scan = relaxed_order;"
                f"SET LOCAL hnsw.max_scan_tuples = {MAX_SCAN_TUPLES}"
            )
            rows: list[asyncpg.Record] = await connection.fetch(
                statement("nearest_hnsw"), *arguments
            )
            return rows

    def _check(self, path: Path) -> None:
        limits = self._limits
        open_image(path, max_file_size=limits.max_file_size, roots=limits.allowed_roots).close()


def _hit(row: asyncpg.Record) -> SearchResult:
    return SearchResult(
        memory_id=str(row["memory_id"]),
        image_id=str(row["id"]),
        file_path=row["file_path"],
        sha256=row["sha256"],
        caption=row["caption"],
        distance=max(0.0, float(row["distance"])),
        text=row["text"],
        created_at=row["created_at"].isoformat(),
        tags=json.loads(row["tags"]),
    )
