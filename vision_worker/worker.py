"""What runs beside Celery in a worker process: the model, the pipeline, heartbeats, NOTIFY."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from typing import Any
from uuid import uuid4

import asyncpg

from vision_worker.config import VisionConfig
from vision_worker.database import CONNECT_SECONDS, SESSION, Database
from vision_worker.decoders import DecoderPool
from vision_worker.embedder import ClipEmbedder
from vision_worker.errors import EncoderError, EncoderUnavailable, ModelMismatch, VisionError
from vision_worker.jobs import Jobs
from vision_worker.pipeline import Pipeline
from vision_worker.reembed import Reembedding
from vision_worker.statements import statement
from vision_worker.texts import Texts

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
RETRY_SECONDS = 2.0
STOP_SECONDS = 10.0
LOOK_UP_SECONDS = 10.0
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
        self._told = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)
        self._pipeline: Pipeline | None = None
        self._texts: Texts | None = None
        self._database: Database | None = None
        self._other: ClipEmbedder | None = None
        self._other_lock = threading.Lock()
        self._stopping = asyncio.Event()
        self._model_changed = asyncio.Event()
        self._endings = (self._stopping, self._model_changed)
        self.stopped = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def ring(self) -> None:
        """Wake the pipeline; harmless at any time."""
        self._call(self._ring)

    def embedder_for(self, key: str) -> ClipEmbedder:
        """The embedder of that model: our own, or during a change of model the active one.

        Blocks while it is loaded. Raises EncoderUnavailable for any other key.
        """
        if key == self.embedder.key:
            return self.embedder
        with self._other_lock:
            if self._other is None or self._other.key != key:
                self._other = self._load_active(key)
            return self._other

    def _load_active(self, key: str) -> ClipEmbedder:
        async def look_up() -> asyncpg.Record | None:
            assert self._database is not None
            return await self._database.fetchrow(statement("active_model"))

        active = asyncio.run_coroutine_threadsafe(look_up(), self._loop).result(LOOK_UP_SECONDS)
        if active is not None and active["key"] == key:
            other = ClipEmbedder(
                active["source"], self._config.clip_device, framing=active["framing"]
            )
            if other.key == key:
                return other
        raise EncoderUnavailable(reason=f"this worker has {self.embedder.key}, not {key}")

    def stop(self) -> None:
        """Finish the batch in hand or give it back, say farewell, and end; waits ten seconds."""
        self._call(self._stop)
        self._thread.join(STOP_SECONDS)

    def _call(self, function: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _ring(self) -> None:
        for work in (self._pipeline, self._texts):
            if work is not None:
                work.bell.set()

    def _stop(self) -> None:
        self._stopping.set()
        for work in (self._pipeline, self._texts):
            if work is not None:
                work.stop()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()
            self.stopped.set()

    async def _main(self) -> None:
        database = Database(self._database_url, pool_size=self._config.db_pool_size)
        self._database = database
        beating = asyncio.create_task(self._beat(database))
        listening = asyncio.create_task(self._listen())
        texting = asyncio.create_task(self._fill_texts())
        try:
            while not self._stopping.is_set():
                try:
                    await self._work(database)
                except VisionError as error:
                    if self._told != str(error):
                        logger.warning("%s", error)
                    self._told = str(error)
                    self._say(_state_of(error), str(error))
                    await self._pause(RETRY_SECONDS)
                except Exception as error:
                    # A worker that ended here would look alive to Celery and embed nothing.
                    logger.exception("unexpected; trying again")
                    self._say("error", type(error).__name__)
                    await self._pause(RETRY_SECONDS)
        finally:
            for task in (beating, listening, texting):
                task.cancel()
            await asyncio.wait([texting], timeout=CONNECT_SECONDS)
            with contextlib.suppress(VisionError):
                await database.fetch(statement("farewell"), self._id)
            await database.close()

    async def _work(self, database: Database) -> None:
        active, key = await self._register(database)
        if active != key:
            if not await database.fetchval(statement("is_target"), key):
                raise ModelMismatch(active=active, configured=key)
            await self._reembed(database, key)
            return
        jobs = Jobs(
            database,
            key,
            lease_seconds=self._config.lease_seconds,
            max_attempts=self._config.max_attempts,
        )
        self._say("ready", "")
        self._told = ""
        await self._heartbeat(database)
        logger.info("ready model=%s device=%s", key, self.embedder.device)
        if "embed" in self._queues:
            await self._run_pipeline(jobs)
        else:
            await self._idle()

    async def _idle(self) -> None:
        """What a worker does that answers queries only."""
        self._model_changed.clear()
        waits = [asyncio.ensure_future(event.wait()) for event in self._endings]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _reembed(self, database: Database, key: str) -> None:
        """Give every image a vector of this model, then make it the active one."""
        self._say("reembedding", "")
        await self._heartbeat(database)
        logger.info("reembedding model=%s", key)
        work = Reembedding(
            database,
            key,
            lease_seconds=self._config.lease_seconds,
            max_attempts=self._config.max_attempts,
        )
        while not self._stopping.is_set():
            await work.enlist()
            await self._run_pipeline(work, until_empty=True)
            if self._stopping.is_set():
                return
            if await work.switch():
                logger.info("switched model=%s", key)
                return
            if not await database.fetchval(statement("is_target"), key):
                return
            await self._pause(RETRY_SECONDS)

    async def _run_pipeline(self, jobs: Jobs, *, until_empty: bool = False) -> None:
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
            until_empty=until_empty,
        )
        if self._stopping.is_set():
            return
        try:
            await self._pipeline.run()
        finally:
            self._pipeline = None
            await decoders.close()

    async def _fill_texts(self) -> None:
        """The text side, on a connection of its own: nothing here waits for it, nor it for us."""
        if "embed" not in self._queues or self._config.text_model == "off":
            return
        database = Database(self._database_url, pool_size=1)
        self._texts = Texts(
            database,
            self._config.text_model,
            device=self._config.clip_device,
            sweep_seconds=self._config.sweep_seconds,
        )
        try:
            await self._texts.run()
        finally:
            await database.close()

    async def _register(self, database: Database) -> tuple[str, str]:
        """Load the model and make it known; the keys of the active model and of ours."""
        if self._state not in ("ready", "reembedding"):
            self._say("loading", "")
        embedder = self.embedder
        await asyncio.to_thread(embedder.get_model)
        await database.fetch(
            statement("register_model"),
            embedder.key,
            embedder.source.name,
            embedder.model_name,
            embedder.framing,
            embedder.native_dim,
            embedder.input_size,
        )
        return str(await database.fetchval(statement("active_model"))), embedder.key

    async def _beat(self, database: Database) -> None:
        while True:
            with contextlib.suppress(VisionError):
                await self._heartbeat(database)
                if self._state == "ready":
                    await self._look_at_model(database)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _look_at_model(self, database: Database) -> None:
        """Lay the work down once another model has become the active one."""
        active = await database.fetchval(statement("active_model"))
        if active != self.embedder.key:
            self._say("model_mismatch", "")
            self._model_changed.set()
            if self._pipeline is not None:
                self._pipeline.stop()

    async def _heartbeat(self, database: Database) -> None:
        ready = self._state in ("ready", "reembedding", "model_mismatch")
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
                connection = await asyncpg.connect(
                    self._database_url, timeout=CONNECT_SECONDS, server_settings=SESSION
                )
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


def _state_of(error: VisionError) -> str:
    if isinstance(error, ModelMismatch):
        return "model_mismatch"
    return "model_failed" if isinstance(error, EncoderError) else "backend_failed"
