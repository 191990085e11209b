"""Pictures that tests make, whole and broken, and files of every other kind."""

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

NOBODY = 65534


def drawing(width: int = 40, height: int = 24) -> Image.Image:
    """A small RGB picture with a gradient, shapes and no symmetry."""
    picture = Image.merge(
        "RGB",
        (
            Image.linear_gradient("L").resize((width, height)),
            Image.radial_gradient("L").resize((width, height)),
            Image.linear_gradient("L").rotate(90).resize((width, height)),
        ),
    )
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 0, width // 3, height // 4), fill=(200, 30, 30))
    pen.ellipse((width // 2, height // 2, width * 5 // 6, height * 5 // 6), fill=(20, 20, 220))
    return picture


def encoded(picture: Image.Image, format_name: str, **options: Any) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, format_name, **options)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def png(
    width: int, height: int, depth: int, colour: int, pixels: bytes, *, extra: bytes = b""
) -> bytes:
    """A PNG by hand. ``pixels`` is one row of samples, repeated ``height`` times."""
    packer = zlib.compressobj(9)
    rows = [packer.compress(b"\0" + pixels) for _ in range(height)]
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            extra,
            chunk(b"IDAT", b"".join(rows) + packer.flush()),
            chunk(b"IEND", b""),
        )
    )


def bomb(side: int = 13_300) -> bytes:
    """A PNG of some 30 kB with ``side`` x ``side`` pixels of a palette with transparency."""
    palette = chunk(b"PLTE", bytes((255, 0, 0, 0, 0, 255))) + chunk(b"tRNS", b"\x80\xff")
    return png(side, side, 1, 3, bytes(-(-side // 8)), extra=palette)


def animated_webp(width: int, height: int) -> bytes:
    """A WebP of a few hundred bytes whose header says that its canvas is of this size."""
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    data = bytearray(encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:]))
    canvas = data.index(b"VP8X") + 12
    data[canvas : canvas + 6] = b"".join(
        (side - 1).to_bytes(3, "little") for side in (width, height)
    )
    return bytes(data)


def files_below(folder: Path) -> list[str]:
    """All files of a store except its locks, relative and in order."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not path.is_dir() and path.name not in (".lock", ".swap")
    )


@contextmanager
def ordinary_user(*folders: Path) -> Iterator[None]:
    """Permissions count inside: root becomes nobody, who owns the folders for as long."""
    if os.geteuid() != 0:
        yield
        return
    for folder in folders:
        os.chown(folder, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
