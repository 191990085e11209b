"""Search: by a sentence or by a picture."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
from PIL import Image

from mcp_adapters.memini import FARTHEST, readable, route_around
from memini_vision.embedder import ClipEmbedder
from memini_vision.index import ImageIndex
from vision_worker import index, query
from vision_worker.database import Database
from vision_worker.decoders import DecoderPool
from vision_worker.front import Front
from vision_worker.images import upright_rgb
from vision_worker.runtime import runtime
from vision_worker.types import SearchPage, SearchResult

__all__ = ["ImageQuery"]

MAX_FILE_SIZE = 1 << 30


class ImageQuery:
    """Ranks finished images, nearest first. ``ImageQuery(embedder, index)``, ``ImageQuery(pool)``.

    A sentence is encoded by a worker. Where none answers EncoderUnavailable is raised at once and
    no model is loaded: a caller that fuses these results with its own goes on with its own.

    Inside memini-ai this makes the image arm work; see ``mcp_adapters.memini.route_around``.
    """

    def __init__(
        self, embedder: ClipEmbedder | asyncpg.Pool, index: ImageIndex | None = None
    ) -> None:
        if index is None and not isinstance(embedder, asyncpg.Pool):
            raise TypeError("give an embedder and an index, or a pool alone")
        self._index = index
        self._pool = None if index else embedder
        self._farthest = FARTHEST if route_around() else float("inf")
        self._readable = readable()

    async def search_by_text(self, text: str, limit: int = 10) -> list[SearchResult]:
        """The images that look like what ``text`` says. Raises VisionError."""
        if self._index is None:
            return await self._on_pool(lambda search: search.search_by_text(text, limit))
        page = await (await self._index.shared()).search_by_text(text, limit)
        return [
            hit
            for hit in page.hits
            if hit.distance < self._farthest
            and (self._readable is None or hit.source_type in self._readable)
        ]

    async def search_by_image(
        self, image: Image.Image | str | Path, limit: int = 10
    ) -> list[SearchResult]:
        """The images that look like this one. A worker has to be there. Raises VisionError."""
        with tempfile.TemporaryDirectory() as folder:
            path = await asyncio.to_thread(_file, image, Path(folder))
            if self._index is None:
                return await self._on_pool(lambda search: search.search_by_image(path, limit))
            page = await (await self._index.shared()).run(
                lambda front: _search_by_file(front, front.index, path, limit)
            )
            return page.hits

    async def _on_pool(
        self, work: Callable[[query.ImageQuery], Awaitable[SearchPage]]
    ) -> list[SearchResult]:
        front = await runtime().run(_itself)
        rows = index.ImageIndex(GivenPool(self._pool), namespace=front.config.namespace)
        return (await _searching(front, rows, work)).hits


class GivenPool(Database):
    """Somebody else's connections, on their event loop."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._given = pool

    async def pool(self) -> asyncpg.Pool:
        return self._given


async def _searching(
    front: Front,
    rows: index.ImageIndex,
    work: Callable[[query.ImageQuery], Awaitable[SearchPage]],
) -> SearchPage:
    decoders = DecoderPool(workers=1, seconds=front.config.decode_seconds)
    limits = query.Limits(MAX_FILE_SIZE, front.config.max_pixels)
    try:
        return await work(query.ImageQuery(front.encoder, rows, decoders, limits))
    finally:
        await decoders.close()


async def _search_by_file(
    front: Front, rows: index.ImageIndex, path: Path, limit: int
) -> SearchPage:
    return await _searching(front, rows, lambda search: search.search_by_image(path, limit))


async def _itself(front: Front) -> Front:
    return front


def _file(image: Image.Image | str | Path, folder: Path) -> Path:
    if not isinstance(image, Image.Image):
        return Path(image)
    path = folder / "picture.png"
    upright_rgb(image).save(path, compress_level=1)
    return path
