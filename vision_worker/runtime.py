"""One front for each database in a process, whatever loops and threads its callers have."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from vision_worker.config import VisionConfig
from vision_worker.errors import EncoderUnavailable, VisionError
from vision_worker.front import Front, open_backend
from vision_worker.types import SearchPage

logger = logging.getLogger(__name__)

T = TypeVar("T")
ENCODE_SECONDS = 2.0
"""How long a ranking that is to be fused waits for a worker to encode the question."""
SILENT_SECONDS = 20.0
"""How long a worker that did not answer is not asked again."""


class Runtime:
    """A front on an event loop of its own, opened at first use and shared by everyone.

    Callers may come and go with their own loops, or without any: the connections, the cache of
    query vectors and the encoder stay.
    """

    def __init__(self, config: VisionConfig) -> None:
        self.config = config
        self._opening: asyncio.Task[Front] | None = None
        self._silent_until = 0.0
        self._told = ""

    def call(self, work: Callable[[Front], Awaitable[T]]) -> T:
        """Do ``work`` and block until it is done; from any thread."""
        return asyncio.run_coroutine_threadsafe(self._do(work), _loop()).result()

    async def run(self, work: Callable[[Front], Awaitable[T]]) -> T:
        """Do ``work`` and await it; from any event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._do(work), _loop()))

    @property
    def opened(self) -> bool:
        """Whether anything was asked of it since it was closed."""
        return self._opening is not None

    def close(self) -> None:
        """Let the connections go; the next use opens them again."""
        opening, self._opening = self._opening, None
        if opening is not None:
            asyncio.run_coroutine_threadsafe(_close(opening), _loop()).result()

    async def search_by_text(self, text: str, limit: int) -> SearchPage:
        """A ranking to be fused with others: it may fail, but never keeps them waiting.

        Loads no model, and does not ask a worker again that left the last question unanswered.
        Raises VisionError; since callers go on without a word, the log says once why.
        """

        async def search(front: Front) -> SearchPage:
            backlog = await front.index.backlog()
            if backlog.model is not None:
                alive = backlog.encoder_alive and time.monotonic() > self._silent_until
                await self._encode(front, text, backlog.model, alive)
            return await front.query.search_by_text(text, limit)

        try:
            page = await self.run(search)
        except VisionError as error:
            if self._told != str(error):
                logger.warning("no image results: %s", error)
            self._told = str(error)
            raise
        self._told = ""
        return page

    async def _encode(self, front: Front, text: str, model: str, alive: bool) -> None:
        encoding = front.encoder.encode_text(text, model=model, worker_alive=alive, load=False)
        try:
            await asyncio.wait_for(encoding, ENCODE_SECONDS)
        except (EncoderUnavailable, TimeoutError) as error:
            if alive:
                self._silent_until = time.monotonic() + SILENT_SECONDS
            if isinstance(error, EncoderUnavailable):
                raise
            reason = f"no worker answered within {ENCODE_SECONDS:g} seconds"
            raise EncoderUnavailable(reason=reason) from None

    async def _do(self, work: Callable[[Front], Awaitable[T]]) -> T:
        task = self._opening
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._opening = asyncio.create_task(self._open())
        return await work(await asyncio.shield(task))

    async def _open(self) -> Front:
        front = Front(self.config, await open_backend(self.config))
        await front.database.pool()
        with _lock:
            _runtimes.setdefault(front.backend.db_url, self)
        return front


async def _close(opening: asyncio.Task[Front]) -> None:
    try:
        front = await opening
    except (VisionError, asyncio.CancelledError):
        return
    await front.close()


_runtimes: dict[str | None, Runtime] = {}
_latest: list[Runtime] = []
_loops: list[asyncio.AbstractEventLoop] = []
_lock = threading.Lock()


def _after_fork() -> None:
    """A child has neither the thread of the loop nor connections of its own: it begins anew."""
    global _lock
    _lock = threading.Lock()
    # Kept, since what is let go here would be closed under the parent.
    _of_parent.append((dict(_runtimes), list(_latest), list(_loops)))
    for shared in (_runtimes, _latest, _loops):
        shared.clear()


_of_parent: list[object] = []
os.register_at_fork(after_in_child=_after_fork)


def runtime(db_url: str | None = None) -> Runtime:
    """The runtime of this process for that database; without a URL, for that of the settings.

    Raises ConfigError.
    """
    config = VisionConfig(**({"db_url": db_url} if db_url else {}))
    with _lock:
        found = _runtimes.setdefault(config.resolved_db_url, Runtime(config))
        _latest[:] = [found]
        return found


def current() -> Runtime | None:
    """The runtime that was asked for last; before that, the one of the database that is set."""
    if _latest:
        return _latest[0]
    return runtime() if VisionConfig().resolved_db_url else None


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if not _loops:
            _loops.append(asyncio.new_event_loop())
            threading.Thread(
                target=_loops[0].run_forever, name="vision-worker", daemon=True
            ).start()
        return _loops[0]
