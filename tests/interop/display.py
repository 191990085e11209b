"""A virtual display that tests can paint on."""

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Self

from PIL import Image

from tests.support import DEADLINE

WIDTH, HEIGHT = 1280, 720
BYTES_PER_LINE, COLOURS = 12, 19
"""Where the header of an X window dump, 25 numbers, says so."""


class Display:
    """An Xvfb whose screen is a file of pixels; ``name`` is for the variable DISPLAY."""

    program = shutil.which("Xvfb")

    def __init__(self, folder: Path) -> None:
        assert self.program is not None
        self._frame = folder / "Xvfb_screen0"
        read, write = os.pipe()
        options = f"-displayfd {write} -screen 0 {WIDTH}x{HEIGHT}x24 -nolisten tcp -fbdir"
        self._server = subprocess.Popen(
            [self.program, *options.split(), str(folder)],
            pass_fds=[write],
            stderr=subprocess.DEVNULL,
        )
        os.close(write)
        with os.fdopen(read) as number:
            self.name = f":{number.readline().strip()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.terminate()
        self._server.wait(DEADLINE)

    def paint(self, picture: Image.Image) -> None:
        """Fill the screen. The file is an X window dump: a header, colours, rows of BGRX."""
        shown = picture.convert("RGB").resize((WIDTH, HEIGHT))
        pixels = Image.merge("RGBX", (*reversed(shown.split()), Image.new("L", shown.size)))
        with self._frame.open("r+b") as file, mmap.mmap(file.fileno(), 0) as frame:
            header = struct.unpack(">25I", frame[:100])
            assert header[BYTES_PER_LINE] == 4 * WIDTH
            start = header[0] + 12 * header[COLOURS]
            frame[start : start + 4 * WIDTH * HEIGHT] = pixels.tobytes()
