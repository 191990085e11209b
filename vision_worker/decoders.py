"""Child processes that decode pictures, as the rest of the program sees them."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import asdict

from vision_worker.decoder import Raster, Request
from vision_worker.errors import DecoderCrashed, DecoderTimeout, DecoderUnavailable, VisionError
from vision_worker.images import shown

START_SECONDS = 30.0
END_SECONDS = 1.0


class DecoderPool:
    """Up to ``workers`` children, started when needed and replaced when they die or hang."""

    def __init__(self, *, workers: int, seconds: float) -> None:
        self._seconds = seconds
        self._idle: list[Process] = []
        self._places = asyncio.Semaphore(workers)
        self._children: set[Process] = set()
        self._closed = False

    async def decode(self, request: Request) -> list[Raster]:
        """What the request asks for.

        Raises StoreError or ImageError, DecoderCrashed and DecoderTimeout among them, and
        DecoderUnavailable where that is not the picture's fault.
        """
        async with self._places:
            child = await self._take()
            try:
                rasters = await asyncio.wait_for(_ask(child, request), self._seconds)
            except VisionError:
                self._idle.append(child)
                raise
            except TimeoutError:
                await self._end(child)
                raise DecoderTimeout(path=shown(request.path), seconds=self._seconds) from None
            except (OSError, EOFError, ValueError):
                reason = await self._ending(child)
                if self._closed:
                    raise DecoderUnavailable(reason="it was closed") from None
                raise DecoderCrashed(path=shown(request.path), reason=reason) from None
            except BaseException:
                await self._end(child)
                raise
            self._idle.append(child)
            return rasters

    async def close(self) -> None:
        """End all children; what is being decoded fails with DecoderUnavailable."""
        self._closed = True
        self._idle.clear()
        await asyncio.gather(*(self._end(child) for child in list(self._children)))

    async def _take(self) -> Process:
        while self._idle:
            child = self._idle.pop()
            if child.returncode is None:
                return child
            self._children.discard(child)
        return await self._start()

    async def _start(self) -> Process:
        if self._closed:
            raise DecoderUnavailable(reason="it was closed")
        # -P: nothing is imported from the folder that the program happens to be started in.
        command = (sys.executable, "-P", "-m", "vision_worker.decoder", str(self._seconds))
        try:
            child = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
            )
        except OSError as error:
            raise DecoderUnavailable(reason=error.strerror) from None
        self._children.add(child)
        assert child.stdout is not None
        try:
            greeting = await asyncio.wait_for(child.stdout.readline(), START_SECONDS)
        except TimeoutError:
            await self._end(child)
            raise DecoderUnavailable(reason=f"no start in {START_SECONDS:g} seconds") from None
        except BaseException:
            await self._end(child)
            raise
        if self._closed:
            await self._end(child)
            raise DecoderUnavailable(reason="it was closed")
        if not greeting:
            raise DecoderUnavailable(reason=await self._ending(child))
        return child

    async def _ending(self, child: Process) -> str:
        """How a child that stopped answering came to its end, by itself if it can."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), END_SECONDS)
        await self._end(child)
        code = child.returncode or 0
        return f"signal {-code}" if code < 0 else f"exit status {code}"

    async def _end(self, child: Process) -> None:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        await child.wait()
        self._children.discard(child)


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
