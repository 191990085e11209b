"""Drawn screens, each of a known composition: what the tiny CLIP learns and is asked about."""

from collections import Counter
from itertools import chain, product
from random import Random
from typing import NamedTuple

from PIL import Image

from vision_worker.demo.canvas import Canvas
from vision_worker.demo.kinds import KINDS
from vision_worker.demo.wording import Caption, common_words
from vision_worker.demo.wordings import WORDINGS

HELD_OUT_SHARE = 0.2
SPLIT_SEED = 5
ASPECT_RATIOS = (16 / 9, 16 / 9, 16 / 10, 4 / 3, 3 / 2, 1.0, 3 / 4, 9 / 16)
DENSITIES = (0.5, 1.0)
SCREEN_SIZES = (
    (1280, 720),
    (1920, 1080),
    (1366, 768),
    (1440, 900),
    (1600, 1200),
    (1280, 800),
    (750, 1334),
    (1080, 1080),
)
DEMO_QUERIES = (
    ("the red error dialog on a purple desktop", "dialog-error-light-purple.png"),
    ("where is the dark login form with a purple button", "login-purple-dark.png"),
    ("show me the picture of a desert in the evening", "scene-a-desert-at-sunset.png"),
)
"""What the demo asks about its 24 screens of seed 1, and the file that has to come first."""


class Composition(NamedTuple):
    """A kind of screen with one value for each attribute of that kind."""

    kind: str
    values: tuple[str, ...]

    @property
    def attributes(self) -> dict[str, str]:
        return dict(zip(KINDS[self.kind].attributes, self.values, strict=True))

    def agrees_with(self, kind: str, caption: Caption) -> bool:
        """Whether a caption about that kind is true of this screen."""
        return self.kind == kind and caption.stated.items() <= self.attributes.items()


def compositions() -> list[Composition]:
    """Every screen that can be drawn, kind by kind."""
    return [
        Composition(name, values)
        for name, kind in KINDS.items()
        for values in product(*kind.attributes.values())
        if not kind.impossible(*values)
    ]


def split() -> tuple[list[Composition], list[Composition]]:
    """Compositions for training and held-out ones, about a fifth of every kind.

    Each attribute value of a held-out composition still occurs in training.
    """
    training: list[Composition] = []
    held_out: list[Composition] = []
    for kind in KINDS:
        mine = [composition for composition in compositions() if composition.kind == kind]
        wanted = max(1, round(HELD_OUT_SHARE * len(mine)))
        kept = list(mine)
        for candidate in Random(f"{kind} {SPLIT_SEED}").sample(mine, len(mine)):
            rest = [composition for composition in kept if composition != candidate]
            if wanted and _covers(rest, candidate):
                kept, wanted = rest, wanted - 1
                held_out.append(candidate)
        training += kept
    return training, held_out


def captions(composition: Composition) -> list[str]:
    """Full descriptions; the first is the one a screen is saved with."""
    return WORDINGS[composition.kind].captions(composition.attributes)


def describe(composition: Composition, dice: Random) -> Caption:
    """A random description in free wording, which may leave attributes out."""
    return WORDINGS[composition.kind].describe(composition.attributes, dice)


def vocabulary() -> list[str]:
    """Every word that a description may contain, sorted."""
    words = common_words()
    for name, kind in KINDS.items():
        values = chain.from_iterable(kind.attributes.values())
        words |= WORDINGS[name].vocabulary(values)
    return sorted(words)


def render(
    composition: Composition, seed: int, width: int = 160, height: int | None = None
) -> Image.Image:
    """Draw a screen of that size in pixels; without a height, the seed chooses a usual shape.

    The same arguments give the same pixels.
    """
    dice = Random(f"{composition} {seed}")
    ratio = dice.choice(ASPECT_RATIOS)
    density = dice.uniform(*DENSITIES)
    canvas = Canvas(width, height or round(width / ratio), dice, density)
    KINDS[composition.kind].draw(canvas, *composition.values)
    return canvas.image


def held_out_screens(count: int, seed: int) -> list[tuple[str, str, Image.Image]]:
    """File name, caption and picture of different held-out screens, in the sizes of screens.

    The kinds take turns, so that even a few screens are of many kinds. Raises ValueError if
    there are fewer than ``count``.
    """
    dice = Random(seed)
    _, held_out = split()
    by_kind = [
        _unlike(dice.sample(mine, len(mine)))
        for kind in KINDS
        if (mine := [composition for composition in held_out if composition.kind == kind])
    ]
    longest = max(map(len, by_kind))
    turns = [mine[turn] for turn in range(longest) for mine in by_kind if turn < len(mine)]
    if count > len(turns):
        raise ValueError(f"there are {len(turns)} held-out screens, not {count}")
    return [
        (
            f"{composition.kind}-{'-'.join(composition.values)}.png".replace(" ", "-"),
            captions(composition)[0],
            render(composition, dice.randrange(2**32), *SCREEN_SIZES[index % len(SCREEN_SIZES)]),
        )
        for index, composition in enumerate(turns[:count])
    ]


def _unlike(screens: list[Composition]) -> list[Composition]:
    """The screens in such an order that each has little in common with those before it."""
    ordered: list[Composition] = []
    while rest := [screen for screen in screens if screen not in ordered]:
        before = Counter(value for screen in ordered for value in screen.values)
        ordered.append(min(rest, key=lambda screen: sum(before[value] for value in screen.values)))
    return ordered


def _covers(screens: list[Composition], wanted: Composition) -> bool:
    return all(
        any(screen.values[index] == value for screen in screens)
        for index, value in enumerate(wanted.values)
    )
