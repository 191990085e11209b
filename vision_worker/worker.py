"""What runs beside Celery in a worker process: the model, the pipeline, heartbeats, NOTIFY."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import asyncpg

from vision_worker.config import VisionConfig
from vision_worker.database import CONNECT_SECONDS, Database
from vision_worker.decoders import DecoderPool
from vision_worker.embedder import ClipEmbedder
from vision_worker.errors import EncoderError, ModelMismatch, VisionError
from vision_worker.jobs import Jobs
from vision_worker.pipeline import Pipeline
from vision_worker.statements import statement

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
RETRY_SECONDS = 2.0
STOP_SECONDS = 10.0
CHANNEL = "vision_worker_pending"


class EmbeddingWorker:
    """Runs in a thread with an event loop of its own; ``ring`` and ``stop`` may be called from any.

    A database that goes away, a model that cannot be had yet and a lost NOTIFY connection are
    waited out; ``state`` in the worker's row says which.
    """

    def __init__(self, config: VisionConfig, database_url: str, *, queues: tuple[str, ...]) -> None:
        self.embedder = ClipEmbedder(
            config.clip_model, config.clip_device, framing=config.clip_framing
        )
        self._config = config
        self._database_url = database_url
        self._queues = queues
        self._id = uuid4()
        self._state, self._detail = "starting", ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)
        self._pipeline: Pipeline | None = None
        self._stopping = asyncio.Event()
        self.stopped = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def ring(self) -> None:
        """Wake the pipeline; harmless at any time."""
        self._call(self._ring)

    def stop(self) -> None:
        """Finish the batch in hand or give it back, say farewell, and end; waits ten seconds."""
        self._call(self._stop)
        self._thread.join(STOP_SECONDS)

    def _call(self, function: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _ring(self) -> None:
        if self._pipeline is not None:
            self._pipeline.bell.set()

    def _stop(self) -> None:
        self._stopping.set()
        if self._pipeline is not None:
            self._pipeline.stop()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except Exception:
            logger.exception("the embedding worker ended on an error")
        finally:
            self._loop.close()
            self.stopped.set()

    async def _main(self) -> None:
        database = Database(self._database_url, pool_size=self._config.db_pool_size)
        beating = asyncio.create_task(self._beat(database))
        listening = asyncio.create_task(self._listen())
        try:
            while not self._stopping.is_set():
                try:
                    await self._work(database)
                except VisionError as error:
                    self._say(_state_of(error), str(error))
                    logger.warning("%s", error)
                    await self._pause(RETRY_SECONDS)
        finally:
            for task in (beating, listening):
                task.cancel()
            with contextlib.suppress(VisionError):
                await database.fetch(statement("farewell"), self._id)
            await database.close()

    async def _work(self, database: Database) -> None:
        key = await self._register(database)
        jobs = Jobs(
            database,
            lease_seconds=self._config.lease_seconds,
            max_attempts=self._config.max_attempts,
        )
        decoders = DecoderPool(
            workers=self._config.decode_workers, seconds=self._config.decode_seconds
        )
        self._pipeline = Pipeline(
            jobs,
            decoders,
            self.embedder,
            batch_size=self._config.batch_size,
            max_pixels=self._config.max_pixels,
            sweep_seconds=self._config.sweep_seconds,
        )
        self._say("ready", "")
        await self._heartbeat(database)
        logger.info("ready model=%s device=%s", key, self.embedder.device)
        if "embed" not in self._queues or self._stopping.is_set():
            await self._stopping.wait()
            return
        try:
            await self._pipeline.run()
        finally:
            self._pipeline = None
            await decoders.close()

    async def _register(self, database: Database) -> str:
        """Load the model and make sure that it is the one this database is embedded with."""
        self._say("loading", "")
        embedder = self.embedder
        await asyncio.to_thread(embedder.get_model)
        key = embedder.key
        await database.fetch(
            statement("register_model"),
            key,
            embedder.source.name,
            embedder.model_name,
            embedder.framing,
            embedder.native_dim,
            embedder.input_size,
        )
        active = await database.fetchval(statement("active_model"))
        if active != key:
            raise ModelMismatch(active=active, configured=key)
        return key

    async def _beat(self, database: Database) -> None:
        while True:
            with contextlib.suppress(VisionError):
                await self._heartbeat(database)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _heartbeat(self, database: Database) -> None:
        ready = self._state == "ready"
        await database.fetch(
            statement("heartbeat"),
            self._id,
            socket.gethostname(),
            os.getpid(),
            self.embedder.key if ready else None,
            list(self._queues),
            self.embedder.device if ready else None,
            self._state,
            self._detail or None,
        )

    async def _listen(self) -> None:
        """NOTIFY is a second bell that needs no broker; lost, it is taken up again."""
        while True:
            lost = asyncio.Event()
            try:
                connection = await asyncpg.connect(self._database_url, timeout=CONNECT_SECONDS)
                connection.add_termination_listener(lambda _, lost=lost: lost.set())
                await connection.add_listener(CHANNEL, lambda *_: self._ring())
                self._ring()
                await lost.wait()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                logger.debug("not listening: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    def _say(self, state: str, detail: str) -> None:
        self._state, self._detail = state, detail

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def submit(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def _state_of(error: VisionError) -> str:
    if isinstance(error, ModelMismatch):
        return "model_mismatch"
    return "model_failed" if isinstance(error, EncoderError) else "backend_failed"
