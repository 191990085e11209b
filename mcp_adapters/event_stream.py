"""Events of a conversation as server-sent events."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from mcp_adapters.presence import while_present

HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 2000
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class EventStream:
    """Sends events until they end or the client goes; a comment now and then keeps it open."""

    def __init__(self, events: AsyncGenerator[tuple[int, dict[str, Any]]]) -> None:
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(HEADERS).raw
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body"})
            return
        if await while_present(receive, self._send(send)):
            await send({"type": "http.response.body"})

    async def _send(self, send: Send) -> None:
        await send(_part(f"retry: {RETRY_MILLISECONDS}\n\n"))
        upcoming = asyncio.ensure_future(anext(self._events, None))
        try:
            while True:
                await asyncio.wait({upcoming}, timeout=HEARTBEAT_SECONDS)
                if not upcoming.done():
                    await send(_part(":\n\n"))
                    continue
                item = upcoming.result()
                if item is None:
                    return
                identifier, event = item
                await send(_part(f"id: {identifier}\ndata: {json.dumps(event)}\n\n"))
                upcoming = asyncio.ensure_future(anext(self._events, None))
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)
            await self._events.aclose()


def _part(text: str) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}


def last_event_id(headers: Headers) -> int | None:
    """The id after which to go on; None, for everything that is kept, if there is none."""
    text = headers.get("last-event-id", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
