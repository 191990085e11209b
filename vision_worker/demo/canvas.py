"""A picture to draw on whose units do not depend on its size in pixels."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from random import Random

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
Point = tuple[float, float]

LONG_SIDE = 160.0
SMALLEST_FONT = 6
WHITE: Colour = (255, 255, 255)
COLOURS: dict[str, Colour] = {
    "red": (220, 30, 30),
    "green": (30, 170, 60),
    "blue": (40, 80, 225),
    "yellow": (245, 215, 40),
    "orange": (245, 140, 25),
    "purple": (135, 50, 180),
    "pink": (250, 130, 190),
    "cyan": (50, 205, 225),
    "black": (15, 15, 15),
    "white": (250, 250, 250),
    "gray": (135, 135, 135),
}
ACCENTS = ("red", "green", "blue", "orange", "purple")
_WORDS = (
    "build cart code count data date done draft edit error file form help home host index inbox "
    "item list login main mail meeting menu month name next note open order page path plan port "
    "price report reply root sales save search send server status table task team test total user "
    "value view week"
)
WORDS = tuple(_WORDS.split())


@dataclass(frozen=True)
class Theme:
    """The colours of a light or a dark application."""

    background: Colour
    panel: Colour
    border: Colour
    text: Colour


class Canvas:
    """Pen, paper and dice of one drawing.

    Lengths are units: the longer side of the picture measures ``160 / density`` of them, so a
    higher density means larger letters and widgets on the same picture.
    """

    def __init__(self, width: int, height: int, dice: Random, density: float = 1.0) -> None:
        self.image = Image.new("RGB", (width, height))
        self.dice = dice
        self.unit = max(width, height) / LONG_SIDE * density
        self.width = width / self.unit
        self.height = height / self.unit
        self._pen = ImageDraw.Draw(self.image)

    def rectangle(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        fill: Colour | None = None,
        *,
        outline: Colour | None = None,
        radius: float = 0.0,
    ) -> None:
        if right <= left or bottom <= top:
            return
        box = tuple(self._pixels((left, top, right, bottom)))
        if radius:
            self._pen.rounded_rectangle(box, radius * self.unit, fill, outline, self._thin())
        else:
            self._pen.rectangle(box, fill, outline, self._thin())

    def ellipse(
        self,
        x: float,
        y: float,
        radius: float,
        fill: Colour | None = None,
        *,
        across: float | None = None,
        outline: Colour | None = None,
        stroke: float = 0.0,
    ) -> None:
        """A circle, or with ``across`` an ellipse of that horizontal radius."""
        half = radius if across is None else across
        box = tuple(self._pixels((x - half, y - radius, x + half, y + radius)))
        self._pen.ellipse(box, fill, outline, self._stroke(stroke))

    def slice(
        self, x: float, y: float, radius: float, start: float, end: float, fill: Colour
    ) -> None:
        """A piece of a pie between two angles in degrees, clockwise from three o'clock."""
        box = tuple(self._pixels((x - radius, y - radius, x + radius, y + radius)))
        self._pen.pieslice(box, start, end, fill)

    def line(self, points: Iterable[Point], fill: Colour, stroke: float = 0.0) -> None:
        """A line of at least one pixel through the points."""
        self._pen.line(self._points(points), fill, self._stroke(stroke), joint="curve")

    def polygon(self, points: Iterable[Point], fill: Colour) -> None:
        self._pen.polygon(self._points(points), fill)

    def text(self, x: float, y: float, text: str, fill: Colour, size: float) -> float:
        """Write a line and return how wide it is."""
        font = _font(max(SMALLEST_FONT, round(size * self.unit)))
        self._pen.text((x * self.unit, y * self.unit), text, fill, font)
        return font.getlength(text) / self.unit

    def fill(self, colour: Colour) -> None:
        self._pen.rectangle((0, 0, *self.image.size), colour)

    def shade(self, top: Colour, bottom: Colour) -> None:
        """Fill with a vertical gradient."""
        ramp = Image.linear_gradient("L").resize(self.image.size)
        self.image.paste(Image.composite(_plain(bottom, ramp), _plain(top, ramp), ramp))

    def vary(self, colour: Colour, amount: float = 14.0) -> Colour:
        """The colour, off by up to ``amount`` in each channel."""
        red, green, blue = (
            min(255, max(0, round(value + self.dice.uniform(-amount, amount)))) for value in colour
        )
        return red, green, blue

    def colour(self, name: str, amount: float = 14.0) -> Colour:
        return self.vary(COLOURS[name], amount)

    def theme(self, name: str) -> Theme:
        if name == "dark":
            level = self.dice.randint(18, 45)
            tint = self.dice.randint(0, 10)
            background = (level, level, level + tint)
            panel = (level + 24, level + 24, level + 26 + tint)
            return Theme(background, panel, (level + 52,) * 3, (208, 208, 212))
        level = self.dice.randint(240, 255)
        return Theme(
            (level,) * 3, (level - 26, level - 25, level - 21), (level - 62,) * 3, (45, 45, 50)
        )

    def words(self, count: int) -> str:
        return " ".join(self.dice.choices(WORDS, k=count))

    def _pixels(self, lengths: Iterable[float]) -> list[float]:
        return [length * self.unit for length in lengths]

    def _points(self, points: Iterable[Point]) -> list[tuple[float, float]]:
        return [(x * self.unit, y * self.unit) for x, y in points]

    def _thin(self) -> int:
        return self._stroke(0.5)

    def _stroke(self, stroke: float) -> int:
        return max(1, round(stroke * self.unit))


def blend(first: Colour, second: Colour, share: float = 0.5) -> Colour:
    """``share`` of the second colour in the first."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def _plain(colour: Colour, like: Image.Image) -> Image.Image:
    return Image.new("RGB", like.size, colour)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font
