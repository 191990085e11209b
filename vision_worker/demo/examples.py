"""What the training shows: drawn screens as pixels, and what is true of them."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vision_worker.demo.screens import Composition, render
from vision_worker.demo.wording import Caption
from vision_worker.images import frame

SIDE = 64
MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)
WIDTHS = (320, 480, 480, 640, 1280)

console = Console()


@dataclass(frozen=True)
class Drawings:
    """Letterboxed screens, uint8 (n, 3, 64, 64), with their compositions' indices, int64 (n,)."""

    squares: torch.Tensor
    owners: torch.Tensor


class Truths:
    """Which of some compositions a caption is true of."""

    def __init__(self, screens: Sequence[Composition]) -> None:
        self._screens = screens
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], torch.Tensor] = {}

    def of(self, kind: str, caption: Caption) -> torch.Tensor:
        """bool (compositions,) for a caption about that kind."""
        key = kind, frozenset(caption.stated.items())
        if key not in self._known:
            truths = [screen.agrees_with(kind, caption) for screen in self._screens]
            self._known[key] = torch.tensor(truths)
        return self._known[key]


def draw(screens: Sequence[Composition], counts: Sequence[int], dice: Random) -> Drawings:
    """So many drawings of each screen, in many sizes and shapes."""
    squares, owners = [], []
    with progress() as shown:
        task = shown.add_task("drawing", total=sum(counts))
        for owner, (screen, count) in enumerate(zip(screens, counts, strict=True)):
            for _ in range(count):
                picture = render(screen, dice.randrange(2**32), dice.choice(WIDTHS))
                squares.append(letterboxed(worn(picture, dice)))
                owners.append(owner)
            shown.advance(task, count)
    pixels = torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2).contiguous()
    return Drawings(pixels, torch.tensor(owners))


def worn(picture: Image.Image, dice: Random) -> Image.Image:
    """Sometimes a picture as other programs hand it on: JPEG artefacts, halved by averaging."""
    if dice.random() < 0.15:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=dice.randint(40, 90))
        picture = Image.open(file)
    if dice.random() < 0.15 and min(picture.size) > 2 * SIDE:
        picture = picture.reduce(2)
    return picture


def letterboxed(picture: Image.Image) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    [square] = frame(picture, "letterbox", SIDE)
    return np.asarray(square, np.uint8)


def normalised(squares: torch.Tensor) -> torch.Tensor:
    mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, DEVIATION))
    return (squares.float() / 255 - mean) / deviation


def disturbed(pixels: torch.Tensor) -> torch.Tensor:
    """Contrast, tint and noise of each picture changed a little."""
    count = len(pixels)
    contrast = 1 + 0.1 * torch.randn(count, 1, 1, 1)
    tint = 0.1 * torch.randn(count, 3, 1, 1)
    return pixels * contrast + tint + 0.05 * torch.randn_like(pixels)


def progress() -> Progress:
    columns = (TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console)
