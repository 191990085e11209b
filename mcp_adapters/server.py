"""Our own MCP server: all image tools, on stdio."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from mcp_adapters.opening import SharedFront
from mcp_adapters.sdk import MAJOR, Server
from mcp_adapters.tools import register_tools
from vision_worker.config import VisionConfig

INSTRUCTIONS = (
    "Long-term memory for pictures. Save screenshots with save_image_memory the moment they are"
    " taken; it answers in milliseconds. Find them later with query_images by describing what they"
    " show. Answers carry absolute paths: open the file to look at it, or ask get_image for a view."
)


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
