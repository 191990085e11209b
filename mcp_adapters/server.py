"""Our own MCP server: all image tools, on stdio."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from mcp_adapters.sdk import MAJOR, Server
from mcp_adapters.tools import register_tools
from vision_worker.config import VisionConfig
from vision_worker.errors import VisionError
from vision_worker.front import Front

logger = logging.getLogger(__name__)

INSTRUCTIONS = (
    "Long-term memory for pictures. Save screenshots with save_image_memory the moment they are"
    " taken; it answers in milliseconds. Find them later with query_images by describing what they"
    " show. Answers carry absolute paths: open the file to look at it, or ask get_image for a view."
)


class SharedFront:
    """The one Front of a server process, opened in the background and again if that failed."""

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


def build_server(config: VisionConfig) -> Any:
    """An MCP server with the image tools, or without any where the gate is closed."""
    front = SharedFront(config)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        if config.search_enabled:
            front.begin()
        try:
            yield
        finally:
            await front.close()

    options: dict[str, Any] = {"version": version("vision-worker")} if MAJOR >= 2 else {}
    server = Server(
        "vision-worker",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        log_level="WARNING",
        **options,
    )
    if config.search_enabled:
        register_tools(server, front)
    return server


def _log_failure(task: "asyncio.Task[Front]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("%s", error)
