"""Kept pictures and events over HTTP: an app that runs by itself or is mounted into another."""

import asyncio
import logging
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from mcp_adapters.blobs import BlobResponse
from mcp_adapters.event_stream import EventStream, last_event_id
from mcp_adapters.gate import Gate, Redaction
from mcp_adapters.opening import SharedFront
from mcp_adapters.problems import problem
from mcp_adapters.tokens import Signer
from vision_worker.config import VisionConfig
from vision_worker.errors import (
    FileUnreadable,
    ImageError,
    InvalidArgument,
    KeepsakeNotFound,
    VisionError,
)
from vision_worker.events import check_conversation
from vision_worker.front import Front
from vision_worker.images import open_image

logger = logging.getLogger(__name__)

IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def create_app(config: VisionConfig, *, front: Front | None = None) -> Starlette:
    """The routes below ``/api`` for the namespace of the settings.

    Without a ``front`` it opens one of its own at the first request, and closes it at the end of
    its lifespan, which an app that mounts it has to enter. ``app.state.signer`` makes the tokens
    of links, and is None without ``http_token``; ``await app.state.end_streams()`` lets a server
    come to its end that waits for open responses.
    """
    shared = SharedFront(config)
    signer = Signer(config.http_token, namespace=config.namespace) if config.http_token else None

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if front is None:
            shared.begin()
        try:
            yield
        finally:
            await served.end_streams()
            await shared.close()

    served = _Served(shared, front)
    routes = [
        Route("/visual-memory/{id:path}", served.picture, methods=["GET", "HEAD"]),
        Route("/events/{conversation:path}", served.events, methods=["GET", "HEAD"]),
    ]
    gate = Middleware(Gate, token=config.http_token, signer=signer)
    app = Starlette(
        routes=[Mount("/api", routes=routes, middleware=[gate])],
        middleware=[Middleware(Redaction)],
        exception_handlers={HTTPException: _http_problem, VisionError: _vision_problem},
        lifespan=lifespan,
    )
    # A redirect would repeat the query, token and all.
    app.router.redirect_slashes = False
    app.state.signer, app.state.end_streams = signer, served.end_streams
    return app


class _Served:
    def __init__(self, shared: SharedFront, front: Front | None) -> None:
        self._shared = shared
        self._front = front

    async def end_streams(self) -> None:
        if self._front is not None:
            await self._front.events.close()

    async def _opened(self) -> Front:
        if self._front is None:
            self._front = await self._shared()
        return self._front

    async def picture(self, request: Request) -> ASGIApp:
        identifier = request.path_params["id"]
        if not IDENTIFIER.fullmatch(identifier):
            raise HTTPException(404)
        front = await self._opened()
        keepsake = await front.keepsakes.get(identifier)
        root = front.config.resolved_image_dir
        file = await asyncio.to_thread(_open, Path(keepsake.file_path), root)
        return BlobResponse(file, mime_type=keepsake.mime_type, etag=keepsake.sha256)

    async def events(self, request: Request) -> ASGIApp:
        conversation = request.path_params["conversation"]
        try:
            check_conversation(conversation)
        except InvalidArgument:
            raise HTTPException(404) from None
        front = await self._opened()
        last_id = last_event_id(request.headers)
        return EventStream(front.events.subscribe(conversation, last_id))


def _open(path: Path, root: Path) -> BinaryIO:
    try:
        # A row that points out of the folder of pictures opens nothing.
        return open_image(path, max_file_size=sys.maxsize, roots=(root,))
    except FileUnreadable:
        raise
    except ImageError:
        raise HTTPException(404) from None


def _http_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        # The same for everything, so that nobody learns what there is.
        return problem(404, "not_found", "There is nothing here.")
    response = problem(error.status_code, "refused", error.detail)
    response.headers.update(error.headers or {})
    return response


def _vision_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, VisionError)
    if isinstance(error, KeepsakeNotFound):
        return _http_problem(request, HTTPException(404))
    logger.warning("%s: %s", error.code, error)
    return problem(503, error.code, "The image memory cannot answer just now.")
