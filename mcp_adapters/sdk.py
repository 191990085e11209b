"""The MCP SDK of either major version behind one set of names."""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeVar, get_args

from mcp.types import CallToolResult, ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel, model_validator

MAJOR = int(version("mcp").split(".")[0])

_module, _server = ("mcpserver", "MCPServer") if MAJOR >= 2 else ("fastmcp", "FastMCP")
_exceptions: Any = import_module(f"mcp.server.{_module}.exceptions")
Server: Any = getattr(import_module(f"mcp.server.{_module}"), _server)
ResourceError: Any = _exceptions.ResourceError

Tool = TypeVar("Tool", bound=Callable[..., Awaitable[CallToolResult]])

__all__ = [
    "MAJOR",
    "Answer",
    "CallToolResult",
    "ImageContent",
    "ResourceError",
    "Server",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "annotations",
    "discard",
    "servable",
    "text",
    "tool_result",
]


class Blocks(list[Any]):
    """Content blocks, with the structured answer that they were made from."""

    structured: Any


class Answer(BaseModel):
    """What a tool answers: the schema of its structured content."""

    @model_validator(mode="before")
    @classmethod
    def _unwrap(cls, value: Any) -> Any:
        return value.structured if isinstance(value, Blocks) else value


def servable(tool: Tool) -> Tool:
    """The tool as this SDK can serve it; it returns ``Annotated[CallToolResult, SomeAnswer]``.

    1.x either does not know that a tool may return a whole result, or holds an error against the
    schema of the answer. There, an error is raised, so its sentence follows the SDK's own words.
    """
    if MAJOR >= 2:
        return tool
    signature = inspect.signature(tool)
    _, answer = get_args(signature.return_annotation)

    @wraps(tool)
    async def plain(**arguments: Any) -> Blocks:
        result: Any = await tool(**arguments)
        if result.isError:
            raise _exceptions.ToolError(result.content[0].text)
        blocks = Blocks(result.content)
        blocks.structured = result.structuredContent
        return blocks

    adapted: Any = plain
    adapted.__signature__ = signature.replace(return_annotation=answer)
    return adapted  # type: ignore[no-any-return]


def discard(server: Any, tool: str) -> None:
    """Take a tool away, if the server has one of that name. Early 1.x has no call for it."""
    server._tool_manager._tools.pop(tool, None)


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
