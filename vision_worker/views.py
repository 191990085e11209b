"""Bounded renditions of kept pictures, for eyes and for models that look at them."""

import asyncio
from io import BytesIO

from PIL import Image

from vision_worker.decoder import Raster, Request
from vision_worker.decoders import DecoderPool
from vision_worker.types import ImageRecord

THUMBNAIL_SIDE = 512
FULL_SIDE = 1568
MAX_BYTES = 1_000_000


class ImageViews:
    """Renders JPEGs of at most 1 MB; the pictures are decoded in a child process."""

    def __init__(self, decoders: DecoderPool, *, max_pixels: int) -> None:
        self._decoders = decoders
        self._max_pixels = max_pixels

    async def render(self, image: ImageRecord, side: int) -> bytes:
        """A JPEG whose longer side has at most ``side`` pixels.

        Raises StoreError where the stored file is gone or damaged, ImageError where it is bad.
        """
        (raster,) = await self._decoders.decode(
            Request(
                path=image.file_path,
                sha256=image.sha256,
                framing="shrunk",
                size=side,
                max_pixels=self._max_pixels,
            )
        )
        return await asyncio.to_thread(_jpeg, raster)


def _jpeg(raster: Raster) -> bytes:
    picture = Image.frombytes("RGB", (raster.width, raster.height), raster.rgb)
    for quality in (85, 70, 50, 30):
        buffer = BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        if buffer.tell() <= MAX_BYTES:
            break
    return buffer.getvalue()
