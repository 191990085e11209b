"""The front: everything a caller needs to save and search, put together from the settings."""

import asyncio
import logging
from typing import Self

from vision_worker.broker import Broker
from vision_worker.config import VisionConfig
from vision_worker.database import Database
from vision_worker.decoders import DecoderPool
from vision_worker.encoder import LocalEncoder, QueryEncoder
from vision_worker.errors import LocalServerError
from vision_worker.events import Events
from vision_worker.index import ImageIndex
from vision_worker.intake import MAX_BYTES
from vision_worker.keepsakes import Keepsakes
from vision_worker.local import Urls, urls
from vision_worker.memory import ImageMemory
from vision_worker.migrate import migrate
from vision_worker.query import ImageQuery, Limits
from vision_worker.queue import Doorbell
from vision_worker.recall import Recall
from vision_worker.store import ImageStore
from vision_worker.views import ImageViews

logger = logging.getLogger(__name__)


class Front:
    """An open image memory. ``async with await Front.open() as front: ...``"""

    def __init__(self, config: VisionConfig, backend: Urls) -> None:
        self.config = config
        self.backend = backend
        self.database = Database(
            backend.db_url,
            pool_size=config.db_pool_size,
            revive=(lambda: urls(config)) if config.resolved_db_url is None else None,
        )
        self.broker = Broker(backend.broker_url)
        self.index = ImageIndex(self.database, namespace=config.namespace)
        self.events = Events(self.database, namespace=config.namespace)
        self._doorbell = Doorbell(self.broker.ring)
        self._decoders = DecoderPool(workers=1, seconds=config.decode_seconds)
        store = ImageStore(
            config.resolved_image_dir,
            max_file_size=config.max_file_size,
            max_pixels=config.max_pixels,
            allowed_roots=config.allowed_roots,
        )
        self.memory = ImageMemory(store, self.index, self._doorbell)
        self._keepsake_decoders = DecoderPool(
            workers=config.decode_workers, seconds=config.decode_seconds
        )
        self.keepsakes = Keepsakes(
            ImageStore(store.root, max_file_size=MAX_BYTES, max_pixels=config.max_pixels),
            self.index,
            self._doorbell,
            self._keepsake_decoders,
            cap=config.keepsake_cap,
            cap_bytes=config.keepsake_bytes,
            trash_days=config.keepsake_trash_days,
        )
        self.encoder = QueryEncoder(
            self.broker,
            seconds=config.query_timeout,
            local=self._local_encoder if config.local_encoder else None,
        )
        limits = Limits(config.max_file_size, config.max_pixels, config.allowed_roots)
        self.recall = Recall(self.index, self.encoder)
        self.query = ImageQuery(self.encoder, self.index, self._decoders, limits)
        self.views = ImageViews(self._decoders, max_pixels=config.max_pixels)

    @classmethod
    async def open(cls, config: VisionConfig | None = None) -> Self:
        """Start the embedded servers if they are used, and migrate them; then connect.

        Raises ConfigError or BackendError.
        """
        config = config or VisionConfig()
        front = cls(config, await open_backend(config))
        await front.database.pool()
        return front

    async def close(self, *, flush_seconds: float = 1.0) -> None:
        """Let the last bell go out, then let go of everything."""
        await self.events.close()
        await asyncio.to_thread(self._doorbell.flush, flush_seconds)
        self._doorbell.close()
        await self._decoders.close()
        await self._keepsake_decoders.close()
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def ring(self) -> None:
        """Wake a worker, for rows that were written past ``memory``."""
        self._doorbell.ring()

    def _local_encoder(self) -> LocalEncoder:
        from vision_worker.embedder import ClipEmbedder

        config = self.config
        return ClipEmbedder(config.clip_model, config.clip_device, framing=config.clip_framing)


async def open_backend(config: VisionConfig) -> Urls:
    """Start the embedded servers where they are used, and migrate the embedded database.

    Where only the broker cannot be started the rest goes on without one: saves need none.
    """
    try:
        backend = await asyncio.to_thread(urls, config)
    except LocalServerError as error:
        if config.resolved_db_url is None or config.broker_url:
            raise
        logger.warning("no broker: %s", error)
        return Urls(config.resolved_db_url, "")
    if config.resolved_db_url is None:
        await migrate(backend.db_url)
    return backend
