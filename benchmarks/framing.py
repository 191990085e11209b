"""Which framing finds wide screenshots whose subject sits at an edge: recall@1 and recall@5.

    python benchmarks/framing.py [--views N]

Held-out screens of the tiny CLIP are drawn into one end of a wide desktop; the query is the
screen's caption, the gallery holds every held-out screen once.
"""

import argparse
from random import Random
from typing import get_args

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from vision_worker.config import Framing
from vision_worker.demo.__main__ import TINY_CLIP
from vision_worker.demo.screens import captions, render, split
from vision_worker.embedder import ClipEmbedder
from vision_worker.images import frame

DESKTOPS = {"16:9 whole": (1.0, 16 / 9), "16:9 edge": (0.6, 16 / 9), "21:9 edge": (0.5, 21 / 9)}
"""Share of the width that the screen takes, and the shape of the desktop."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=2, help="pictures drawn of each screen")
    views = parser.parse_args().views
    _, held_out = split()
    table = Table("framing", *(f"{name} R@{k}" for name in DESKTOPS for k in (1, 5)))
    for framing in get_args(Framing):
        embedder = ClipEmbedder(str(TINY_CLIP), "cpu", framing=framing)
        texts = np.array([embedder.encode_text(captions(screen)[0]) for screen in held_out])
        cells = []
        for share, ratio in DESKTOPS.values():
            ranks = []
            for view in range(views):
                dice = Random(view)
                pictures = [
                    desktop(render(s, view, 640, 400), share, ratio, dice) for s in held_out
                ]
                squares = [
                    [square.tobytes() for square in frame(picture, framing, embedder.input_size)]
                    for picture in pictures
                ]
                scores = texts @ embedder.encode_squares(squares).T
                ranks.append((scores > np.diag(scores)[:, None]).sum(1))
            cells += [f"{(np.concatenate(ranks) < k).mean():.2f}" for k in (1, 5)]
        table.add_row(framing, *cells)
    Console(width=110).print(table)


def desktop(screen: Image.Image, share: float, ratio: float, dice: Random) -> Image.Image:
    """The screen at the left or right end of an empty grey desktop, filling its height."""
    if share == 1.0:
        return screen.resize((round(screen.height * ratio), screen.height))
    height = screen.height
    wide = Image.new("RGB", (round(height * ratio), height), (96, 110, 130))
    window = screen.resize((round(wide.width * share), height))
    wide.paste(window, (0 if dice.random() < 0.5 else wide.width - window.width, 0))
    return wide


if __name__ == "__main__":
    main()
