"""The MCP SDK of either major version behind one set of names."""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeVar, get_args

from mcp.types import CallToolResult, ImageContent, TextContent, ToolAnnotations
from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    model_validator,
)

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
    "add_tool",
    "annotations",
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


class Arguments(BaseModel):
    """What a tool takes, and nothing else; what does not fit gets to the tool as a Misfit."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _fit(cls, given: Any, handler: ModelWrapValidatorHandler["Arguments"]) -> Any:
        try:
            return handler(given)
        except ValidationError as error:
            return Misfit(error, list(cls.model_fields))


class Misfit:
    """Stands for arguments that do not fit, where the SDK expects those that do."""

    def __init__(self, error: ValidationError, known: list[str]) -> None:
        first = error.errors()[0]
        self.name = ".".join(map(str, first["loc"]))
        self.problem = {
            "missing": "it has to be given",
            "extra_forbidden": f"the tool takes {', '.join(known) or 'no arguments'}",
        }.get(first["type"], first["msg"][:1].lower() + first["msg"][1:])

    def model_dump_one_level(self) -> dict[str, "Misfit"]:
        return {"misfit": self}


def add_tool(
    server: Any, tool: Tool, refuse: Callable[[str, str], CallToolResult], **about: Any
) -> None:
    """Add a tool that returns ``Annotated[CallToolResult, SomeAnswer]``, or replace one.

    Arguments that are missing, unknown or of a wrong type are answered by ``refuse``, which is
    given the name of one of them and what is wrong with it; the SDK would ignore unknown ones.
    """

    @wraps(tool)
    async def checked(**arguments: Any) -> CallToolResult:
        misfit = arguments.get("misfit")
        if isinstance(misfit, Misfit):
            return refuse(misfit.name, misfit.problem)
        return await tool(**arguments)

    # Early 1.x has no call that takes a tool away, and none has one for a model of the arguments.
    tools = server._tool_manager._tools
    tools.pop(tool.__name__, None)
    server.add_tool(_servable(checked), **about)
    added = tools[tool.__name__]
    model = added.fn_metadata.arg_model
    added.fn_metadata.arg_model = create_model(model.__name__, __base__=(Arguments, model))
    added.parameters = added.fn_metadata.arg_model.model_json_schema(by_alias=True)


def _servable(tool: Tool) -> Tool:
    """The tool as this SDK can serve it.

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
