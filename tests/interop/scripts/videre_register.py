"""A server with tools of its own, before and after ours are registered on it, as a client sees it.

Runs on either version of the SDK.
"""

import asyncio
import json
import os
import sys
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any

from mcp_adapters.sdk import MAJOR, Server
from mcp_adapters.videre import GATE, register

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("greet", {}),
    ("image_index_status", {}),
    ("get_image", {"image_id": "00000000-0000-0000-0000-000000000000"}),
    ("query_images", {"query": "a form", "tag": ["site:a"]}),
    ("save_image_memory", {"image_path": "/shot.png"}),
    ("list_images", {"limit": "many"}),
    ("find_similar_images", {"image_path": "/shot.png", "tags": '["site:a", 1]'}),
]


def connected(server: Any) -> AbstractAsyncContextManager[Any]:
    if MAJOR >= 2:
        client: AbstractAsyncContextManager[Any] = import_module("mcp").Client(server)
        return client
    memory: Any = import_module("mcp.shared.memory")
    session: AbstractAsyncContextManager[Any] = memory.create_connected_server_and_client_session(
        server._mcp_server
    )
    return session


async def seen(client: Any) -> dict[str, Any]:
    return {tool.name: tool.model_dump(mode="json") for tool in (await client.list_tools()).tools}


async def main() -> None:
    server = Server("host")

    @server.tool()  # type: ignore[untyped-decorator]
    def greet() -> str:
        """Say hello."""
        return "hello"

    @server.tool()  # type: ignore[untyped-decorator]
    def get_image() -> str:
        """A tool of theirs that has the name of one of ours."""
        return "theirs"

    async with connected(server) as client:
        before = await seen(client)
        os.environ[GATE] = "false"
        closed = register(server)
        untouched = await seen(client) == before and "asyncpg" not in sys.modules
        os.environ[GATE] = "true"
        names = register(server)
        again = register(server)
        tools = await seen(client)
        answers = {
            name: (await client.call_tool(name, arguments)).model_dump(mode="json", by_alias=True)
            for name, arguments in CALLS
        }
        templates = await client.list_resource_templates()
    told = {
        "major": MAJOR,
        "closed": closed,
        "untouched": untouched,
        "names": names,
        "again": again,
        "tools": list(tools),
        "same": [name for name in before if tools[name] == before[name]],
        "resources": len(templates.model_dump(by_alias=True)["resourceTemplates"]),
        "status": answers["image_index_status"]["structuredContent"],
        "texts": {name: answer["content"][0]["text"] for name, answer in answers.items()},
        "errors": [name for name, answer in answers.items() if answer["isError"]],
    }
    print(json.dumps(told))


asyncio.run(main())
