"""Child processes that decode pictures, as the rest of the program sees them."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import asdict

from vision_worker.decoder import Raster, Request
from vision_worker.errors import DecoderCrashed, DecoderTimeout, VisionError

START_SECONDS = 30.0


class DecoderPool:
    """Up to ``workers`` children, started when needed and replaced when they die or hang."""

    def __init__(self, *, workers: int, seconds: float) -> None:
        self._seconds = seconds
        self._idle: list[Process] = []
        self._places = asyncio.Semaphore(workers)
        self._children: set[Process] = set()

    async def decode(self, request: Request) -> list[Raster]:
        """What the request asks for.

        Raises StoreError or ImageError, DecoderCrashed and DecoderTimeout among them.
        """
        async with self._places:
            child = self._idle.pop() if self._idle else await self._start()
            healthy = False
            try:
                rasters = await asyncio.wait_for(_ask(child, request), self._seconds)
                healthy = True
                return rasters
            except VisionError:
                healthy = True
                raise
            except TimeoutError:
                raise DecoderTimeout(path=request.path, seconds=self._seconds) from None
            except (OSError, EOFError, ValueError):
                await child.wait()
                raise DecoderCrashed(path=request.path, reason=_ending(child)) from None
            finally:
                if healthy:
                    self._idle.append(child)
                else:
                    self._discard(child)

    async def close(self) -> None:
        for child in list(self._children):
            self._discard(child)
            await child.wait()
        self._idle.clear()

    async def _start(self) -> Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "vision_worker.decoder", stdin=PIPE, stdout=PIPE
        )
        self._children.add(child)
        assert child.stdout is not None
        await asyncio.wait_for(child.stdout.readline(), START_SECONDS)
        return child

    def _discard(self, child: Process) -> None:
        self._children.discard(child)
        with contextlib.suppress(ProcessLookupError):
            child.kill()


async def _ask(child: Process, request: Request) -> list[Raster]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
    await child.stdin.drain()
    answer = json.loads(await child.stdout.readline())
    if "code" in answer:
        raise VisionError.revive(answer["code"], answer["message"])
    return [
        Raster(width, height, await child.stdout.readexactly(width * height * 3))
        for width, height in answer["sizes"]
    ]


def _ending(child: Process) -> str:
    code = child.returncode or 0
    return f"signal {-code}" if code < 0 else f"exit status {code}"
