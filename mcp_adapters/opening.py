"""The one Front of a server process."""

import asyncio
import logging

from vision_worker.config import VisionConfig
from vision_worker.errors import VisionError
from vision_worker.front import Front

logger = logging.getLogger(__name__)


class SharedFront:
    """A Front that is opened in the background and again if that failed."""

    def __init__(self, config: VisionConfig) -> None:
        self._config = config
        self._opening: asyncio.Task[Front] | None = None

    async def __call__(self) -> Front:
        task = self._opening
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._opening = asyncio.create_task(Front.open(self._config))
        return await asyncio.shield(task)

    def begin(self) -> None:
        """Start opening; a failure is told at the first call."""
        self._opening = asyncio.create_task(Front.open(self._config))
        self._opening.add_done_callback(_log_failure)

    async def close(self) -> None:
        task = self._opening
        if task is None:
            return
        if not task.done():
            task.cancel()
        try:
            front = await task
        except (VisionError, asyncio.CancelledError):
            return
        await front.close()


def _log_failure(task: "asyncio.Task[Front]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("%s", error)
