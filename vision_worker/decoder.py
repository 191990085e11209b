"""The child process that decodes pictures, so that a bad one costs itself and not a worker.

It reads one JSON request a line and answers with one JSON line, followed by the raw RGB bytes of
each raster. ``python -m vision_worker.decoder`` starts it; DecoderPool speaks to it.
"""

import contextlib
import hashlib
import json
import resource
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal

from vision_worker.config import Framing
from vision_worker.errors import BlobCorrupt, BlobMissing, BlobUnreadable, Undecodable, VisionError
from vision_worker.images import decode, frame, thumbnail

MEMORY_BYTES = 6 << 30


@dataclass(frozen=True)
class Request:
    """Which picture, and what is wanted of it. ``sha256`` None skips the check.

    ``framing`` gives squares of ``size`` pixels for the encoder; ``shrunk`` gives the picture
    itself, ``size`` pixels on its longer side at most.
    """

    path: str
    sha256: str | None
    framing: Framing | Literal["shrunk"]
    size: int
    max_pixels: int


@dataclass(frozen=True)
class Raster:
    """Decoded pixels: ``width * height * 3`` bytes of RGB, row by row."""

    width: int
    height: int
    rgb: bytes


def rasters_of(request: Request) -> list[Raster]:
    """Read, check, decode and frame one picture. Raises ImageError or StoreError."""
    path = Path(request.path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise BlobMissing(path=request.path) from None
    except OSError as error:
        raise BlobUnreadable(path=request.path, reason=error.strerror) from None
    if request.sha256 is not None and hashlib.sha256(data).hexdigest() != request.sha256:
        raise BlobCorrupt(path=request.path)
    try:
        image = decode(BytesIO(data), request.path, max_pixels=request.max_pixels)
        if request.framing == "shrunk":
            pictures = [thumbnail(image, request.size)]
        else:
            pictures = frame(image, request.framing, request.size)
        return [Raster(picture.width, picture.height, picture.tobytes()) for picture in pictures]
    except MemoryError:
        reason = "it needs more memory than decoding may use"
        raise Undecodable(path=request.path, format="large", reason=reason) from None


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the other side closes."""
    answers.write(b"ready\n")
    answers.flush()
    for line in requests:
        request = Request(**json.loads(line))
        rasters: list[Raster] = []
        answer: dict[str, object]
        try:
            rasters = rasters_of(request)
            answer = {"sizes": [(raster.width, raster.height) for raster in rasters]}
        except VisionError as error:
            answer = {"code": error.code, "message": str(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        for raster in rasters:
            answers.write(raster.rgb)
        answers.flush()


def main() -> None:
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
