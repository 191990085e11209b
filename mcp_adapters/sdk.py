"""The MCP SDK of either major version behind one set of names."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

from mcp.types import CallToolResult, ImageContent, TextContent, ToolAnnotations

MAJOR = int(version("mcp").split(".")[0])

_module, _server = ("mcpserver", "MCPServer") if MAJOR >= 2 else ("fastmcp", "FastMCP")
Server: Any = getattr(import_module(f"mcp.server.{_module}"), _server)
ResourceError: Any = import_module(f"mcp.server.{_module}.exceptions").ResourceError

__all__ = [
    "MAJOR",
    "CallToolResult",
    "ImageContent",
    "ResourceError",
    "Server",
    "TextContent",
    "ToolAnnotations",
    "annotations",
    "text",
    "tool_result",
]


def annotations(
    title: str, *, read_only: bool = False, idempotent: bool = False, destructive: bool = False
) -> ToolAnnotations:
    """Hints about a tool; none of ours reaches beyond the image memory."""
    return ToolAnnotations.model_validate(
        {
            "title": title,
            "readOnlyHint": read_only,
            "idempotentHint": idempotent,
            "destructiveHint": destructive,
            "openWorldHint": False,
        }
    )


def tool_result(
    content: list[Any], structured: dict[str, Any] | None, *, is_error: bool = False
) -> CallToolResult:
    return CallToolResult.model_validate(
        {"content": content, "structuredContent": structured, "isError": is_error}
    )


def text(value: str) -> TextContent:
    return TextContent(type="text", text=value)
