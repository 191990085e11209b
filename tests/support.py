"""What tests of every kind lean on."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from mcp import Client, StdioServerParameters

import vision_worker
from vision_worker.front import Front

TINY_CLIP = Path(vision_worker.__file__).parent / "demo" / "tiny-clip"
DEADLINE = 60.0


class Process:
    """A ``vision-worker`` process with its output in a file."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "vision_worker.cli", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.popen.send_signal(number)

    def wait(self) -> int:
        return self.popen.wait(DEADLINE)

    def end(self) -> None:
        if self.popen.poll() is None:
            self.kill(signal.SIGCONT)
            self.kill()
        self.popen.wait(DEADLINE)


async def eventually(
    condition: Callable[[], Awaitable[object]], what: str, seconds: float = DEADLINE
) -> None:
    """Poll until the condition holds; fail with ``what`` at the deadline."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.05)


async def drained(front: Front) -> None:
    """Wait until nothing is pending."""

    async def empty() -> bool:
        return (await front.index.status()).pending == 0

    await eventually(empty, "nothing pending")


def with_database(url: str, name: str) -> str:
    base, _, query = url.partition("?")
    return (
        f"{base.rsplit('/', 1)[0]}/{name}?{query}" if query else f"{base.rsplit('/', 1)[0]}/{name}"
    )


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


async def execute(url: str, sql: str) -> None:
    """One statement on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


@asynccontextmanager
async def agent(environment: dict[str, str]) -> AsyncIterator[Client]:
    """An agent's MCP client, speaking to a server process of its own over stdio."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "vision_worker.cli", "mcp"], env=environment
    )
    async with Client(server) as client:
        yield client


async def call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content
