"""The image tools on somebody else's MCP server; run as a module, on videre-mcp's."""

import logging
import os
import sys
from importlib import import_module
from typing import Any

from vision_worker.config import PREFIX, VisionConfig
from vision_worker.errors import VisionError

GATE = f"{PREFIX}SEARCH_ENABLED"


def register(server: Any) -> list[str]:
    """Add the image tools to a FastMCP (1.x) or MCPServer (2.x); their names.

    Tools that have these names already, such as videre-mcp's own, are replaced; all others stay as
    they are. With MEMINI_IMAGE_SEARCH_ENABLED off at this moment nothing happens, and the list is
    empty. The connections are opened by the first call and end with the process, which loads no
    model: workers encode the questions. Raises ConfigError.
    """
    config = VisionConfig()
    if not config.search_enabled:
        return []
    from mcp_adapters.opening import SharedFront
    from mcp_adapters.tools import register_tools

    config.local_encoder = False
    return register_tools(server, SharedFront(config))


def main() -> int:
    """Serve videre-mcp's six tools and ours on stdio, in the environment of videre-mcp."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        server = _videre()
        register(server)
    except ImportError as error:
        print(
            f"videre-mcp cannot be imported ({error}). Run this with the Python that it is"
            " installed for: pip install videre-mcp 'vision-worker[mcp]'",
            file=sys.stderr,
        )
        return 1
    except VisionError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    server.run()
    return 0


def _videre() -> Any:
    """videre-mcp's server without its own image tools, which it registers while it is imported."""
    gate = os.environ.get(GATE)
    os.environ[GATE] = "false"
    try:
        return import_module("videre_mcp.server").mcp
    finally:
        if gate is None:
            del os.environ[GATE]
        else:
            os.environ[GATE] = gate


if __name__ == "__main__":
    sys.exit(main())
