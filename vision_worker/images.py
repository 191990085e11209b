"""Image bytes: sniffed by content, bounded before decoding, made into upright RGB squares."""

import math
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from PIL import Image

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

if TYPE_CHECKING:
    # Decoders start in a tenth of the time without the settings library.
    from vision_worker.config import Framing

MAX_PIXELS = 178_000_000
CLIP_MEAN_COLOUR = (123, 117, 104)
"""CLIP's channel means in 8 bits: bars of this colour are zero after normalisation."""
MAX_TILES = 6
HEAD_BYTES = 32
BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
ORIENTATION = 0x0112
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
O_PATH = getattr(os, "O_PATH", os.O_RDONLY)


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
    elif head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in BMP_HEADERS:
        name = "BMP"
    elif head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        name = "TIFF"
    elif head[4:8] == b"ftyp" and any(brand in head[8:32] for brand in (b"avif", b"avis")):
        name = "AVIF"
    return _BY_NAME[name] if name else None


def open_image(path: Path, *, max_file_size: int, roots: Iterable[Path] = ()) -> BinaryIO:
    """Open an image file for reading without ever blocking on what is not a regular file.

    Raises ImageError: outside ``roots`` once symbolic links are resolved, missing, unreadable, not
    a regular file, empty, or larger than ``max_file_size`` bytes. Of what lies outside the roots
    not even the existence is told.
    """
    try:
        real = path.resolve()
        _require_inside(path, real, roots)
        descriptor = _open_real(real)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise FileMissing(path=shown(path)) from None
    except RuntimeError:
        raise FileUnreadable(path=shown(path), reason="its links form a loop") from None
    except OSError as error:
        if kind := _kind_of(path):
            raise NotAFile(path=shown(path), kind=kind) from None
        raise FileUnreadable(path=shown(path), reason=error.strerror) from None
    try:
        status = os.fstat(descriptor)
        if kind := _kind(status.st_mode):
            raise NotAFile(path=shown(path), kind=kind)
        if status.st_size == 0:
            raise EmptyFile(path=shown(path))
        if status.st_size > max_file_size:
            raise TooBig(path=shown(path), limit=max_file_size)
        return os.fdopen(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def describe(file: BinaryIO, name: str, *, max_pixels: int) -> ImageInfo:
    """Read the header of an open image, without decoding its pixels.

    Raises NotAnImage, Undecodable or TooManyPixels.
    """
    image = _open_header(file, name, max_pixels=max_pixels)
    mime_type = _BY_NAME[str(image.format)].mime_type
    return ImageInfo(mime_type, image.width, image.height)


def decode(file: BinaryIO, name: str, *, max_pixels: int) -> Image.Image:
    """Decode the first frame into an upright RGB picture; transparency lies on white.

    Raises NotAnImage, Undecodable or TooManyPixels, and MemoryError.
    """
    image = _open_header(file, name, max_pixels=max_pixels)
    try:
        return upright_rgb(image)
    except MemoryError:
        raise
    except Exception as error:
        raise Undecodable(path=name, format=image.format, reason=_reason(error)) from None


def upright_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB with EXIF orientation applied and transparency laid on white."""
    image.load()
    turn = UPRIGHT.get(_orientation(image))
    if turn is not None:
        image = image.transpose(turn)
    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    if image.has_transparency_data:
        rgba = image if image.mode == "RGBA" else image.convert("RGBA")
        white = Image.new("RGB", rgba.size, "white")
        white.paste(rgba, (0, 0), rgba)
        return white
    return image if image.mode == "RGB" else image.convert("RGB")


def frame(image: Image.Image, framing: "Framing", size: int) -> list[Image.Image]:
    """Make an RGB picture into ``size`` x ``size`` squares: one, or for ``tiles`` up to seven."""
    if framing == "centre-crop":
        return [_centre_crop(image, size)]
    if framing == "tiles":
        return [_letterbox(image, size), *_tiles(image, size)]
    return [_letterbox(image, size)]


def thumbnail(image: Image.Image, side: int) -> Image.Image:
    """The picture with its longer side brought down to ``side`` pixels, if it is longer."""
    longest = max(image.size)
    if longest <= side:
        return image
    width, height = (max(1, round(length * side / longest)) for length in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0)


def shown(path: Path | str) -> str:
    """A path as it may be printed: control characters and bytes that are not text are escaped."""
    text = str(path)
    if text.isprintable():
        return text
    return text.encode("unicode_escape", "backslashreplace").decode()


def _letterbox(image: Image.Image, size: int) -> Image.Image:
    scale = size / max(image.size)
    width, height = (max(1, round(length * scale)) for length in image.size)
    canvas = Image.new("RGB", (size, size), CLIP_MEAN_COLOUR)
    fitted = image.resize((width, height), Image.Resampling.BICUBIC)
    canvas.paste(fitted, ((size - width) // 2, (size - height) // 2))
    return canvas


def _centre_crop(image: Image.Image, size: int) -> Image.Image:
    """As CLIP published it: shorter side to ``size``, then the centre square.

    The square is cut from the source through ``box``, so that a 1 x 60000 picture never grows.
    """
    (left, right), (top, bottom) = (_middle(length, image, size) for length in image.size)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, right, bottom))


def _middle(length: int, image: Image.Image, size: int) -> tuple[float, float]:
    resized = size * length // min(image.size)
    start = (resized - size) // 2
    return start * length / resized, (start + size) * length / resized


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
    head = file.read(HEAD_BYTES)
    file.seek(0)
    kind = sniff(head)
    if kind is None:
        raise NotAnImage(path=name)
    if kind.name == "WEBP":
        # Opening one allocates its whole canvas.
        _require_pixels(_webp_size(head), name, max_pixels)
    # The plugin's own class, not Image.open: only the sniffed format is ever tried, and the pixel
    # bound is ours rather than Pillow's process-wide one.
    try:
        image: Image.Image = getattr(import_module(kind.plugin), kind.image_class)(file)
    except Exception as error:
        raise Undecodable(path=name, format=kind.name, reason=_reason(error)) from None
    _require_pixels(image.size, name, max_pixels)
    return image


def _require_pixels(size: tuple[int, int], name: str, limit: int) -> None:
    width, height = size
    if width * height > limit:
        raise TooManyPixels(path=name, width=width, height=height, limit=limit)


def _webp_size(head: bytes) -> tuple[int, int]:
    if head[12:16] == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    sides = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
    return sides[0] & 0x3FFF, sides[1] & 0x3FFF


def _orientation(image: Image.Image) -> int:
    try:
        orientation: int = image.getexif().get(ORIENTATION, 1)
        return orientation
    except Exception:
        # A picture with damaged EXIF is still a picture.
        return 1


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey keeps its high byte; wider ranges are stretched to 0..255."""
    if image.mode.startswith("I;16"):
        image = image.convert("I")
    low, high = (float(bound) for bound in image.getextrema())  # type: ignore[arg-type]
    if image.mode == "I" and low >= 0 and high <= 65535:
        return image.point([value >> 8 for value in range(65536)], "L")
    scale = 255.0 / (high - low) if high > low else 0.0
    offset = 0.5 - low * scale
    return image.convert("F").point(lambda value: value * scale + offset).convert("L")


def _open_real(real: Path) -> int:
    """Open a resolved path. A part of it that has become a link since is not followed."""
    folder = os.open(real.anchor, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in real.parts[1:-1]:
            flags = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(part, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        # O_NONBLOCK: opening a FIFO for reading would otherwise wait for a writer.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(real.name or real.anchor, flags, dir_fd=folder)
    finally:
        os.close(folder)


def _require_inside(path: Path, real: Path, roots: Iterable[Path]) -> None:
    allowed = [root.resolve() for root in roots]
    if allowed and not any(real.is_relative_to(root) for root in allowed):
        raise OutsideRoots(path=shown(path), roots=", ".join(map(shown, allowed)))


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
    text = " ".join(str(error).split()).rstrip(".")[:200]
    return shown(text) or type(error).__name__
