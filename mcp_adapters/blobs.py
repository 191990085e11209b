"""A stored picture as an HTTP response: streamed, by range, with headers that keep it a picture."""

import asyncio
import os
import re
from collections.abc import Sequence
from typing import BinaryIO

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_adapters.presence import while_present
from mcp_adapters.problems import problem

RASTERS = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/avif"}
)
CHUNK = 1 << 16
RANGE = re.compile(r"bytes=\s*([0-9]{0,1000})-([0-9]{0,1000})\s*", re.ASCII)
ENTITY_TAG = re.compile(r'(?:W/)?("[^"]*")')


class BlobResponse:
    """Sends an open file, which it closes; ``etag`` names its bytes.

    What is not a raster type goes out as bytes that no browser opens on the origin.
    """

    def __init__(self, file: BinaryIO, *, mime_type: str, etag: str) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._etag = f'"{etag}"'
        self._headers = {
            "Accept-Ranges": "bytes",
            "Cache-Control": "private",
            "Content-Type": mime_type if mime_type in RASTERS else "application/octet-stream",
            "Cross-Origin-Resource-Policy": "same-origin",
            "ETag": self._etag,
            "X-Content-Type-Options": "nosniff",
        }
        if mime_type not in RASTERS:
            self._headers["Content-Disposition"] = "attachment"
            self._headers["Content-Security-Policy"] = "default-src 'none'; sandbox"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_present(receive, self._respond(scope, receive, send))
        finally:
            self._file.close()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if _names(headers.getlist("if-none-match"), self._etag):
            del self._headers["Content-Type"], self._headers["Accept-Ranges"]
            await Response(status_code=304, headers=self._headers)(scope, receive, send)
            return
        status, start, end = 200, 0, self._size
        asked = headers.get("range") if scope["method"] == "GET" else None
        if asked and headers.get("if-range", self._etag) == self._etag:
            part = byte_range(asked, self._size)
            if part is not None:
                status, (start, end) = 206, part
                self._headers["Content-Range"] = f"bytes {start}-{end - 1}/{self._size}"
        if start >= end:
            refusal = problem(416, "range_not_satisfiable", "The picture has no such bytes.")
            refusal.headers["Content-Range"] = f"bytes */{self._size}"
            await refusal(scope, receive, send)
            return
        self._headers["Content-Length"] = str(end - start)
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": Headers(self._headers).raw,
            }
        )
        if scope["method"] != "HEAD":
            await self._send(start, end, send)
        await send({"type": "http.response.body"})

    async def _send(self, start: int, end: int, send: Send) -> None:
        descriptor = self._file.fileno()
        while start < end:
            length = min(CHUNK, end - start)
            chunk = await asyncio.to_thread(os.pread, descriptor, length, start)
            if not chunk:
                raise OSError("a stored picture became shorter while it was sent")
            start += len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


def byte_range(asked: str, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last; empty if there are none in the file.

    None means that the header does not count: several ranges, or no range of bytes at all.
    """
    found = RANGE.fullmatch(asked.strip())
    if not found or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(0, size - int(found[2])), size
    start = int(found[1])
    if not found[2]:
        return start, size
    last = int(found[2])
    return None if last < start else (start, min(last + 1, size))


def _names(given: Sequence[str], etag: str) -> bool:
    """Whether If-None-Match names this tag; weak ones count."""
    text = ",".join(given)
    return text.strip() == "*" or etag in ENTITY_TAG.findall(text)
