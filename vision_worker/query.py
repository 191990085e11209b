"""Search: by a sentence, by a picture, by an image that is kept already."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

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
WINDOWS = (100, 500)
"""How many nearest rows a scan collects. Pages are cut from the same window, so that none of them
repeats or skips a row of another."""
MAX_SCAN_TUPLES = 20_000
"""Where a scan gives up: past that a filter hides so much that comparing every row is faster."""
MAX_OFFSET = 1_000_000
MAX_QUERY = 4_000


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
        _check_page(limit, offset)
        if not text.strip():
            raise InvalidArgument(name="query", problem="it is empty; say what to look for")
        if len(text) > MAX_QUERY:
            raise InvalidArgument(name="query", problem=f"it is longer than {MAX_QUERY} characters")
        ranking = await self._ranking(where)
        if not ranking.rows:
            return ranking.page([])
        vector = await self._encoder.encode_text(
            text, model=ranking.model, worker_alive=ranking.backlog.encoder_alive
        )
        return await self._nearest(vector, ranking, limit, offset)

    async def search_by_image(
        self, path: Path, limit: int = 10, *, where: ImageFilter = ImageFilter(), offset: int = 0
    ) -> SearchPage:
        """The images that look like the picture in this file; it is not kept."""
        _check_page(limit, offset)
        ranking = await self._ranking(where)
        if not ranking.rows:
            await asyncio.to_thread(self._check, path)
            return ranking.page([])
        rasters = await self._decoders.decode(
            Request(
                path=str(path),
                sha256=None,
                framing=ranking.backlog.framing,
                size=ranking.backlog.input_size,
                max_pixels=self._limits.max_pixels,
                max_file_size=self._limits.max_file_size,
                roots=tuple(map(str, self._limits.allowed_roots)),
            )
        )
        vector = await self._encoder.encode_squares(
            [raster.rgb for raster in rasters],
            model=ranking.model,
            worker_alive=ranking.backlog.encoder_alive,
        )
        return await self._nearest(vector, ranking, limit, offset)

    async def search_by_id(
        self, image_id: str, limit: int = 10, *, where: ImageFilter = ImageFilter(), offset: int = 0
    ) -> SearchPage:
        """The images that look like one that is kept, that one left out.

        Raises ImageNotFound; for an image that is not embedded yet the page is empty.
        """
        _check_page(limit, offset)
        uuid = parse_uuid("image_id", image_id)
        row = await self._index.database.fetchrow(
            statement("embedding_of"), self._index.namespace, uuid
        )
        if row is None:
            raise ImageNotFound(id=image_id, namespace=self._index.namespace)
        ranking = await self._ranking(where, without=uuid)
        if row["embedding_model"] not in ranking.backlog.models or not ranking.rows:
            return ranking.page([])
        return await self._nearest(json.loads(row["embedding"]), ranking, limit, offset)

    async def _ranking(self, where: ImageFilter, *, without: UUID | None = None) -> "_Ranking":
        backlog = await self._index.backlog(where)
        arguments = (*self._index.parameters(where), list(backlog.models), without)
        rows = await self._index.database.fetchval(
            statement("count_ranked"), *arguments, EXACT_ROWS + 1
        )
        return _Ranking(backlog, arguments, rows)

    async def _nearest(
        self, vector: list[float], ranking: "_Ranking", limit: int, offset: int
    ) -> SearchPage:
        arguments = (*ranking.arguments, json.dumps(vector), limit, offset)
        window = next((size for size in WINDOWS if offset + limit <= size), None)
        if ranking.rows > EXACT_ROWS and window is not None:
            rows = await self._scan(arguments, window)
            if rows and rows[0]["candidates"] == window:
                return ranking.page(rows)
        return ranking.page(
            await self._index.database.fetch(statement("nearest_exact"), *arguments)
        )

    async def _scan(self, arguments: tuple[object, ...], window: int) -> list[asyncpg.Record]:
        """A page out of the ``window`` nearest; its ``candidates`` are fewer than that where the
        filter hides too many from HNSW."""
        async with self._index.database.transaction() as connection:
            await connection.execute(
                f"SET LOCAL hnsw.ef_search = {2 * window};"
                f"SET LOCAL hnsw.iterative_scan = relaxed_order;"
                f"SET LOCAL hnsw.max_scan_tuples = {MAX_SCAN_TUPLES}"
            )
            rows: list[asyncpg.Record] = await connection.fetch(
                statement("nearest_hnsw"), *arguments, window
            )
            return rows

    def _check(self, path: Path) -> None:
        limits = self._limits
        open_image(path, max_file_size=limits.max_file_size, roots=limits.allowed_roots).close()


@dataclass(frozen=True)
class _Ranking:
    """What is to be ranked: ``rows`` of them, counted no further than needed to choose how."""

    backlog: Backlog
    arguments: tuple[object, ...]
    rows: int

    @property
    def model(self) -> str:
        assert self.backlog.model is not None
        return self.backlog.model

    def page(self, rows: list[asyncpg.Record]) -> SearchPage:
        return SearchPage([_hit(row) for row in rows], self.backlog.pending, self.backlog.failed)


def _check_page(limit: int, offset: int) -> None:
    check_limit(limit)
    if not 0 <= offset <= MAX_OFFSET:
        raise InvalidArgument(name="offset", problem=f"it must lie between 0 and {MAX_OFFSET}")


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
        source_type=row["source_type"],
    )
