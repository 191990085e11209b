"""The image tools for an agent, on any MCP server object of either SDK version."""

import base64
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_adapters.answers import Deleted, Hits, ImageDetails, IndexState, Listing, Saved
from mcp_adapters.sdk import (
    Answer,
    CallToolResult,
    ImageContent,
    ResourceError,
    Tool,
    add_tool,
    annotations,
    text,
    tool_result,
)
from vision_worker.errors import ImageError, InvalidArgument, PathNotAbsolute, VisionError
from vision_worker.front import Front
from vision_worker.memory import Picture
from vision_worker.types import ImageFilter
from vision_worker.views import FULL_SIDE, THUMBNAIL_SIDE

logger = logging.getLogger(__name__)

OpenFront = Callable[[], Awaitable[Front]]
Tags = Annotated[list[str] | None, Field(description="only pictures that carry all of these tags")]
Limit = Annotated[int, Field(description="how many at most, 1 to 1000")]
Order = Literal["newest", "oldest", "desc", "asc"]


def register_tools(server: Any, open_front: OpenFront) -> list[str]:
    """Add the seven image tools and the ``image://`` resource to a server; the tools' names.

    ``open_front`` is awaited at each call and should return the same Front. A tool of the same name
    is replaced.
    """
    names: list[str] = []

    async def answer(work: Callable[[Front], Awaitable[CallToolResult]]) -> CallToolResult:
        try:
            return await work(await open_front())
        except VisionError as error:
            return _failure(error)

    def tool(title: str, **hints: bool) -> Callable[[Tool], Tool]:
        def add(function: Tool) -> Tool:
            names.append(function.__name__)
            about = annotations(title, **hints)
            add_tool(server, function, _refusal, title=title, annotations=about)
            return function

        return add

    @tool("Save a picture", idempotent=True)
    async def save_image_memory(
        image_path: Annotated[str, Field(description="absolute path of a picture on this machine")],
        text: Annotated[str, Field(description="what to remember about it, in a sentence or two")],
        caption: Annotated[str | None, Field(description="what it shows, in a few words")] = None,
        tags: Annotated[list[str] | None, Field(description="labels to filter by later")] = None,
        source_type: Annotated[
            str, Field(description="where it comes from: session, file, web, project, image, …")
        ] = "session",
    ) -> Annotated[CallToolResult, Saved]:
        """Keep a screenshot or any other picture, together with a text, for good.

        Returns at once: the picture is copied and safe when this answers, so the original may be
        deleted. It becomes findable by what it shows a moment later, in the background (status
        'pending' until then). Saving exactly the same again is harmless and says duplicate=true.
        """

        async def work(front: Front) -> CallToolResult:
            picture = Picture(
                source=_absolute(image_path),
                text=text,
                caption=caption,
                tags=tuple(tags or ()),
                source_type=source_type,
                source_tool="save_image_memory",
            )
            return _structured(Saved.of(await front.memory.save(picture)))

        return await answer(work)

    @tool("Search pictures", read_only=True, idempotent=True)
    async def query_images(
        query: Annotated[str, Field(description="what the picture shows, in plain words")],
        limit: Limit = 10,
        tags: Tags = None,
        source_type: Annotated[str | None, Field(description="only pictures from there")] = None,
        created_after: Annotated[datetime | None, Field(description="ISO 8601")] = None,
        created_before: Annotated[datetime | None, Field(description="ISO 8601")] = None,
        order: Annotated[
            Literal["distance", "time"],
            Field(description="the nearest ones nearest first, or the same ones newest first"),
        ] = "distance",
    ) -> Annotated[CallToolResult, Hits]:
        """Find kept pictures by what they look like: nearest first, each with its path.

        Only embedded pictures can be ranked; 'pending' and 'failed' say how many others match the
        same filter. If something saved just now is missing and pending is above 0, ask again in a
        few seconds.
        """

        async def work(front: Front) -> CallToolResult:
            where = _filter(tags, source_type, created_after, created_before)
            page = await front.query.search_by_text(query, limit, where=where)
            if order == "time":
                page.hits.sort(key=lambda hit: hit.created_at or "", reverse=True)
            return _hits(Hits.of(page))

        return await answer(work)

    @tool("Find similar pictures", read_only=True, idempotent=True)
    async def find_similar_images(
        image_id: Annotated[
            str | None, Field(description="a kept picture; left out itself")
        ] = None,
        image_path: Annotated[str | None, Field(description="absolute path of any picture")] = None,
        limit: Limit = 10,
        tags: Tags = None,
    ) -> Annotated[CallToolResult, Hits]:
        """Find kept pictures that look like another one: give image_id or image_path, not both."""

        async def work(front: Front) -> CallToolResult:
            where = _filter(tags)
            if (image_id is None) == (image_path is None):
                raise InvalidArgument(
                    name="image_id", problem="give either image_id or image_path, exactly one"
                )
            if image_id is not None:
                return _hits(Hits.of(await front.query.search_by_id(image_id, limit, where=where)))
            path = _absolute(str(image_path))
            return _hits(Hits.of(await front.query.search_by_image(path, limit, where=where)))

        return await answer(work)

    @tool("Look at a picture", read_only=True, idempotent=True)
    async def get_image(
        image_id: Annotated[str | None, Field(description="id of the picture")] = None,
        memory_id: Annotated[str | None, Field(description="id of its memory instead")] = None,
        view: Annotated[
            Literal["path", "thumbnail", "full"],
            Field(description="path: facts only; thumbnail or full: the picture to look at, too"),
        ] = "path",
    ) -> Annotated[CallToolResult, ImageDetails]:
        """Everything known about one kept picture, its path first; on demand the picture itself."""

        async def work(front: Front) -> CallToolResult:
            identifier = image_id or memory_id
            if identifier is None or (image_id and memory_id):
                raise InvalidArgument(
                    name="image_id", problem="give either image_id or memory_id, exactly one"
                )
            image = await front.memory.get(identifier)
            blocks: list[Any] = []
            if view != "path":
                side = THUMBNAIL_SIDE if view == "thumbnail" else FULL_SIDE
                data = base64.b64encode(await front.views.render(image, side)).decode()
                blocks = [
                    ImageContent.model_validate(
                        {"type": "image", "data": data, "mimeType": "image/jpeg"}
                    )
                ]
            return _structured(ImageDetails.of(image), *blocks)

        return await answer(work)

    @tool("List pictures", read_only=True, idempotent=True)
    async def list_images(
        limit: Limit = 20,
        tags: Tags = None,
        order: Annotated[Order, Field(description="newest first, or oldest first")] = "newest",
        cursor: Annotated[str | None, Field(description="from an earlier answer")] = None,
    ) -> Annotated[CallToolResult, Listing]:
        """Page through the kept pictures in order of time, whether embedded yet or not."""

        async def work(front: Front) -> CallToolResult:
            page = await front.memory.list_images(
                _filter(tags),
                limit=limit,
                order="newest" if order in ("newest", "desc") else "oldest",
                cursor=cursor,
            )
            return _structured(Listing.of(page))

        return await answer(work)

    @tool("Delete a picture", destructive=True, idempotent=False)
    async def delete_image(
        image_id: Annotated[str, Field(description="id of the picture")],
    ) -> Annotated[CallToolResult, Deleted]:
        """Delete a kept picture and its memory for good. Another memory of it keeps the file."""

        async def work(front: Front) -> CallToolResult:
            await front.memory.delete(image_id)
            return _structured(Deleted(image_id=image_id, deleted=True))

        return await answer(work)

    @tool("State of the image index", read_only=True, idempotent=True)
    async def image_index_status() -> Annotated[CallToolResult, IndexState]:
        """How many pictures are embedded, pending and failed, and whether a worker is alive."""

        async def work(front: Front) -> CallToolResult:
            status = await front.index.status(ready_seconds=front.config.ready_seconds)
            return _structured(IndexState.of(status))

        return await answer(work)

    @server.resource(  # type: ignore[untyped-decorator]
        "image://{image_id}",
        name="image",
        title="A kept picture",
        description="The picture as a JPEG of at most 1568 pixels on its longer side.",
        mime_type="image/jpeg",
    )
    async def image(image_id: str) -> bytes:
        try:
            front = await open_front()
            return await front.views.render(await front.memory.get(image_id), FULL_SIDE)
        except VisionError as error:
            raise ResourceError(f"{error.code}: {error}") from None

    return names


def _structured(answer: Answer, *blocks: Any) -> CallToolResult:
    values = answer.model_dump(mode="json")
    return tool_result([text(json.dumps(values, ensure_ascii=False)), *blocks], values)


def _hits(answer: Hits) -> CallToolResult:
    """The list as before for a client that knows only that; the counts stand beside it."""
    values = answer.model_dump(mode="json")
    note = f"{answer.pending} matching images are still pending, {answer.failed} failed."
    listed = json.dumps(values["result"], ensure_ascii=False)
    return tool_result([text(listed), text(note)], values)


def _failure(error: VisionError) -> CallToolResult:
    if not isinstance(error, ImageError | InvalidArgument):
        logger.warning("%s: %s", error.code, error)
    structured = {"error": {"code": error.code, "message": str(error)}}
    return tool_result([text(f"{error.code}: {error}")], structured, is_error=True)


def _refusal(name: str, problem: str) -> CallToolResult:
    return _failure(InvalidArgument(name=name, problem=problem))


def _absolute(path: str) -> Path:
    if "\0" in path:
        raise InvalidArgument(name="image_path", problem="it holds a zero byte")
    expanded = Path(path).expanduser() if path.startswith("~/") else Path(path)
    if not expanded.is_absolute():
        raise PathNotAbsolute(path=path or "An empty string")
    return expanded


def _filter(
    tags: list[str] | None,
    source_type: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
) -> ImageFilter:
    for name, moment in (("created_after", created_after), ("created_before", created_before)):
        if moment is not None and moment.tzinfo is None:
            raise InvalidArgument(name=name, problem="it needs a time zone, such as ...Z")
    return ImageFilter(tuple(tags or ()), source_type, created_after, created_before)
