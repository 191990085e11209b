"""An HTTP/1.1 client that sends a target as it is given and reads answers as they come."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp

from tests.support import DEADLINE


@dataclass(frozen=True)
class Answer:
    """A whole answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Reply:
    """An answer whose body is still coming."""

    def __init__(self, connection: h11.Connection, reader: asyncio.StreamReader) -> None:
        self._connection = connection
        self._reader = reader
        self.status = 0
        self.headers: dict[str, str] = {}

    async def head(self) -> None:
        event = await self._event()
        assert isinstance(event, h11.Response), event
        self.status = event.status_code
        self.headers = {name.decode(): value.decode() for name, value in event.headers}

    async def parts(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)
        assert isinstance(event, h11.EndOfMessage), event

    async def frames(self) -> AsyncIterator[dict[str, str]]:
        """Server-sent events as ``{field: value}``, comments under an empty name."""
        text = ""
        async for part in self.parts():
            text += part.decode()
            while "\n\n" in text:
                frame, _, text = text.partition("\n\n")
                yield dict(line.split(":", 1) for line in frame.splitlines())

    async def _event(self) -> Any:
        async with asyncio.timeout(DEADLINE):
            while (event := self._connection.next_event()) is h11.NEED_DATA:
                self._connection.receive_data(await self._reader.read(1 << 16))
        return event


@asynccontextmanager
async def request(
    port: int,
    target: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    source: str = "127.0.0.1",
) -> AsyncIterator[Reply]:
    """Send a request from that address of this machine; leaving closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        connection = h11.Connection(h11.CLIENT)
        given = {"Host": f"127.0.0.1:{port}"} | dict(headers or {})
        lines = [(name, value.encode("latin-1")) for name, value in given.items()]
        for event in (h11.Request(method=method, target=target, headers=lines), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        reply = Reply(connection, reader)
        await reply.head()
        yield reply
    finally:
        writer.close()


async def fetch(port: int, target: str, **options: Any) -> Answer:
    """The whole answer to one request; options as for ``request``."""
    async with request(port, target, **options) as reply:
        body = b"".join([part async for part in reply.parts()])
        return Answer(reply.status, reply.headers, body)


@asynccontextmanager
async def serving(app: ASGIApp, *, at: int = 0) -> AsyncIterator[int]:
    """Runs an app on a server of its own in this event loop, at that port or a free one."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=at, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(DEADLINE):
        while not server.started:
            assert not task.done(), "the server did not start"
            await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task
