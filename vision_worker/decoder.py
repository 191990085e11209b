"""The child process that decodes pictures, so that a bad one costs itself and not a worker.

It reads one JSON request a line and answers with one JSON line, followed by the raw RGB bytes of
each raster. ``python -m vision_worker.decoder SECONDS`` starts it; DecoderPool speaks to it.
"""

import contextlib
import hashlib
import json
import os
import resource
import signal
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from PIL import AvifImagePlugin, Image

from vision_worker.errors import (
    BlobCorrupt,
    BlobMissing,
    BlobUnreadable,
    FileMissing,
    FileUnreadable,
    Undecodable,
    VisionError,
)
from vision_worker.images import decode, frame, open_image, shown, thumbnail

if TYPE_CHECKING:
    from vision_worker.config import Framing

MEMORY_BYTES = 6 << 30
MAX_FILE_SIZE = 100 << 20
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Request:
    """Which picture, and what is wanted of it. ``sha256`` None: not a kept one but any file.

    ``framing`` gives squares of ``size`` pixels for the encoder; ``shrunk`` gives the picture
    itself, ``size`` pixels on its longer side at most. Where ``roots`` are given the file must lie
    inside one of them.
    """

    path: str
    sha256: str | None
    framing: "Framing | Literal['shrunk']"
    size: int
    max_pixels: int
    max_file_size: int = MAX_FILE_SIZE
    roots: tuple[str, ...] = ()


@dataclass(frozen=True)
class Raster:
    """Decoded pixels: ``width * height * 3`` bytes of RGB, row by row."""

    width: int
    height: int
    rgb: bytes


def rasters_of(request: Request) -> list[Raster]:
    """Read, check, decode and frame one picture. Raises ImageError or StoreError."""
    name = shown(request.path)
    try:
        data = _read(request)
        image = decode(BytesIO(data), name, max_pixels=request.max_pixels)
        if request.framing == "shrunk":
            pictures = [thumbnail(image, request.size)]
        else:
            pictures = frame(image, request.framing, request.size)
        return [Raster(picture.width, picture.height, picture.tobytes()) for picture in pictures]
    except MemoryError:
        reason = "it needs more memory than decoding may use"
        raise Undecodable(path=name, format="large", reason=reason) from None


def _read(request: Request) -> bytes:
    name = shown(request.path)
    roots = [Path(root) for root in request.roots]
    try:
        with open_image(
            Path(request.path), max_file_size=request.max_file_size, roots=roots
        ) as file:
            data = file.read()
    except OSError as error:
        raise BlobUnreadable(path=name, reason=error.strerror) from None
    except FileMissing:
        if request.sha256 is None:
            raise
        raise BlobMissing(path=name) from None
    except FileUnreadable as error:
        if request.sha256 is None:
            raise
        raise BlobUnreadable(path=name, reason=error.details["reason"]) from None
    if request.sha256 is not None and hashlib.sha256(data).hexdigest() != request.sha256:
        raise BlobCorrupt(path=name)
    return data


def serve(requests: BinaryIO, answers: BinaryIO, seconds: float) -> None:
    """Answer requests until the other side closes; die of any that takes much too long."""
    answers.write(b"ready\n")
    answers.flush()
    for line in requests:
        # The pool ends a slow child; this ends it when there is no pool any more.
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_SECONDS)
        request = Request(**json.loads(line))
        rasters: list[Raster] = []
        answer: dict[str, object]
        try:
            rasters = rasters_of(request)
            answer = {"sizes": [(raster.width, raster.height) for raster in rasters]}
        except VisionError as error:
            answer = {"code": error.code, "message": str(error)}
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(answer).encode() + b"\n")
        for raster in rasters:
            answers.write(raster.rgb)
        answers.flush()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # Ctrl-C in a terminal reaches the whole group; whoever started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Image.MAX_IMAGE_PIXELS = None
    # One a core by default, each with address space of its own.
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    # Whatever a library prints must not end up between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers, float(sys.argv[1]))


if __name__ == "__main__":
    main()
