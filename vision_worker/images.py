"""Image bytes: sniffed by content, bounded before decoding, made into upright RGB squares."""

import math
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

from PIL import Image, ImageOps

from vision_worker.config import Framing
from vision_worker.errors import (
    EmptyFile,
    FileMissing,
    FileUnreadable,
    NotAFile,
    NotAnImage,
    OutsideRoots,
    TooBig,
    TooManyPixels,
    Undecodable,
)

CLIP_MEAN_COLOUR = (123, 117, 104)
"""CLIP's channel means in 8 bits: bars of this colour are zero after normalisation."""
MAX_TILES = 6
HEAD_BYTES = 32


@dataclass(frozen=True)
class Format:
    name: str
    mime_type: str
    extension: str
    plugin: str
    image_class: str


FORMATS = (
    Format("PNG", "image/png", "png", "PIL.PngImagePlugin", "PngImageFile"),
    Format("JPEG", "image/jpeg", "jpg", "PIL.JpegImagePlugin", "JpegImageFile"),
    Format("WEBP", "image/webp", "webp", "PIL.WebPImagePlugin", "WebPImageFile"),
    Format("GIF", "image/gif", "gif", "PIL.GifImagePlugin", "GifImageFile"),
    Format("BMP", "image/bmp", "bmp", "PIL.BmpImagePlugin", "BmpImageFile"),
    Format("TIFF", "image/tiff", "tiff", "PIL.TiffImagePlugin", "TiffImageFile"),
    Format("AVIF", "image/avif", "avif", "PIL.AvifImagePlugin", "AvifImageFile"),
)
_BY_NAME = {known.name: known for known in FORMATS}
EXTENSIONS = {known.mime_type: known.extension for known in FORMATS}


@dataclass(frozen=True)
class ImageInfo:
    """What the header says; width and height in pixels as stored, before any EXIF rotation."""

    mime_type: str
    width: int
    height: int


def sniff(head: bytes) -> Format | None:
    """The format that the first 32 bytes announce, whatever a name or a declared type says."""
    name = None
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        name = "PNG"
    elif head.startswith(b"\xff\xd8\xff"):
        name = "JPEG"
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        name = "WEBP"
    elif head.startswith((b"GIF87a", b"GIF89a")):
        name = "GIF"
    elif head.startswith(b"BM"):
        name = "BMP"
    elif head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        name = "TIFF"
    elif head[4:8] == b"ftyp" and any(brand in head[8:32] for brand in (b"avif", b"avis")):
        name = "AVIF"
    return _BY_NAME[name] if name else None


def open_image(path: Path, *, max_file_size: int, roots: Iterable[Path] = ()) -> BinaryIO:
    """Open an image file for reading without ever blocking on what is not a regular file.

    Raises ImageError: missing, unreadable, not a regular file, empty, larger than
    ``max_file_size`` bytes, or outside ``roots`` once symbolic links are resolved.
    """
    try:
        real = path.resolve(strict=True)
        _require_inside(path, real, roots)
        # O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise FileMissing(path=shown(path)) from None
    except RuntimeError:
        raise FileUnreadable(path=shown(path), reason="its links form a loop") from None
    except OSError as error:
        if stat_kind := _kind_of(path):
            raise NotAFile(path=shown(path), kind=stat_kind) from None
        raise FileUnreadable(path=shown(path), reason=error.strerror) from None
    file = os.fdopen(descriptor, "rb", buffering=0)
    try:
        status = os.fstat(descriptor)
        if kind := _kind(status.st_mode):
            raise NotAFile(path=shown(path), kind=kind)
        if status.st_size == 0:
            raise EmptyFile(path=shown(path))
        if status.st_size > max_file_size:
            raise TooBig(path=shown(path), limit=max_file_size)
    except BaseException:
        file.close()
        raise
    return file


def describe(file: BinaryIO, name: str, *, max_pixels: int) -> ImageInfo:
    """Read the header of an open image, without decoding its pixels.

    Raises NotAnImage, Undecodable or TooManyPixels.
    """
    image = _open_header(file, name, max_pixels=max_pixels)
    mime_type = _BY_NAME[str(image.format)].mime_type
    return ImageInfo(mime_type, image.width, image.height)


def decode(file: BinaryIO, name: str, *, max_pixels: int) -> Image.Image:
    """Decode the first frame into an upright RGB picture; transparency lies on white.

    Raises NotAnImage, Undecodable or TooManyPixels.
    """
    image = _open_header(file, name, max_pixels=max_pixels)
    try:
        image.load()
        return upright_rgb(image)
    except MemoryError:
        raise
    except Exception as error:
        raise Undecodable(path=name, format=image.format, reason=_reason(error)) from None


def upright_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB with EXIF orientation applied and transparency laid on white."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, rgba)
    return image.convert("RGB")


def frame(image: Image.Image, framing: Framing, size: int) -> list[Image.Image]:
    """Make an RGB picture into ``size`` x ``size`` squares: one, or for ``tiles`` up to seven."""
    if framing == "centre-crop":
        return [_centre_crop(image, size)]
    if framing == "tiles":
        return [_letterbox(image, size), *_tiles(image, size)]
    return [_letterbox(image, size)]


def shown(path: Path) -> str:
    """A path as it may be printed: control characters and bytes that are not text are escaped."""
    text = str(path)
    return (
        text if text.isprintable() else text.encode("unicode_escape", "backslashreplace").decode()
    )


def thumbnail(image: Image.Image, side: int) -> Image.Image:
    """A copy whose longer side is at most ``side`` pixels."""
    copy = image.copy()
    copy.thumbnail((side, side), Image.Resampling.LANCZOS)
    return copy


def _letterbox(image: Image.Image, size: int) -> Image.Image:
    scale = size / max(image.size)
    fitted = tuple(max(1, round(side * scale)) for side in image.size)
    canvas = Image.new("RGB", (size, size), CLIP_MEAN_COLOUR)
    shrunk = image.resize((fitted[0], fitted[1]), Image.Resampling.BICUBIC)
    canvas.paste(shrunk, ((size - fitted[0]) // 2, (size - fitted[1]) // 2))
    return canvas


def _centre_crop(image: Image.Image, size: int) -> Image.Image:
    """As CLIP published it: shorter side to ``size``, then the centre square.

    The square is cut from the source through ``box``, so that a 1 x 60000 picture never grows.
    """
    short = min(image.size)
    left, top = (image.width - short) / 2, (image.height - short) / 2
    box = (left, top, left + short, top + short)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box)


def _tiles(image: Image.Image, size: int) -> list[Image.Image]:
    short, long = sorted(image.size)
    count = min(MAX_TILES, math.ceil(long / short))
    if count < 2:
        return []
    squares = []
    for index in range(count):
        offset = (long - short) * index / (count - 1)
        left, top = (offset, 0.0) if image.width > image.height else (0.0, offset)
        box = (left, top, left + short, top + short)
        squares.append(image.resize((size, size), Image.Resampling.BICUBIC, box=box))
    return squares


def _open_header(file: BinaryIO, name: str, *, max_pixels: int) -> Image.Image:
    file.seek(0)
    kind = sniff(file.read(HEAD_BYTES))
    file.seek(0)
    if kind is None:
        raise NotAnImage(path=name)
    # The plugin's own class, not Image.open: only the sniffed format is ever tried, and the pixel
    # bound is ours rather than Pillow's process-wide one.
    try:
        image: Image.Image = getattr(import_module(kind.plugin), kind.image_class)(file)
    except Exception as error:
        raise Undecodable(path=name, format=kind.name, reason=_reason(error)) from None
    if image.width * image.height > max_pixels:
        raise TooManyPixels(path=name, width=image.width, height=image.height, limit=max_pixels)
    return image


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey becomes 8-bit by its high byte; wider ranges are stretched to 0..255."""
    if image.mode.startswith("I;16"):
        return image.convert("I").point(lambda value: value / 257).convert("L")
    low, high = (float(bound) for bound in image.getextrema())  # type: ignore[arg-type]
    if image.mode == "I" and low >= 0 and high <= 65535:
        low, high = 0.0, 65535.0
    scale = 255.0 / (high - low) if high > low else 0.0
    offset = -low * scale
    return image.convert("F").point(lambda value: value * scale + offset).convert("L")


def _require_inside(path: Path, real: Path, roots: Iterable[Path]) -> None:
    allowed = [root.resolve() for root in roots]
    if allowed and not any(real.is_relative_to(root) for root in allowed):
        raise OutsideRoots(path=shown(path), roots=", ".join(map(str, allowed)))


def _kind_of(path: Path) -> str | None:
    try:
        return _kind(path.stat().st_mode)
    except OSError:
        return None


def _kind(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISFIFO(mode):
        return "named pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device"


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return text or type(error).__name__
