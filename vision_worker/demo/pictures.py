"""Drawings that are no windows: shapes, charts, pies and maps."""

import math

from vision_worker.demo.canvas import COLOURS, WHITE, Canvas, Colour, Point, blend

VIVID = tuple(name for name in COLOURS if name not in ("black", "white", "gray"))


def draw_shape(canvas: Canvas, colour: str, shape: str, background: str) -> None:
    dice = canvas.dice
    canvas.fill(canvas.colour(background, 6))
    radius = dice.uniform(0.18, 0.42) * min(canvas.width, canvas.height)
    x = dice.uniform(radius, canvas.width - radius)
    y = dice.uniform(radius, canvas.height - radius)
    fill = canvas.colour(colour)
    if shape == "circle":
        canvas.ellipse(x, y, radius, fill)
    elif shape == "ring":
        stroke = radius * dice.uniform(0.22, 0.4)
        canvas.ellipse(x, y, radius, outline=fill, stroke=stroke)
    elif shape == "square":
        half = radius * 0.85
        canvas.rectangle(x - half, y - half, x + half, y + half, fill)
    elif shape == "triangle":
        base = y + radius * 0.8
        canvas.polygon(
            [(x, y - radius), (x - radius * 0.95, base), (x + radius * 0.95, base)], fill
        )
    elif shape == "cross":
        half = radius * dice.uniform(0.25, 0.38)
        canvas.rectangle(x - radius, y - half, x + radius, y + half, fill)
        canvas.rectangle(x - half, y - radius, x + half, y + radius, fill)
    else:
        canvas.polygon(_star(x, y, radius), fill)


def _star(x: float, y: float, radius: float) -> list[Point]:
    return [
        (
            x + radius * (1 if corner % 2 == 0 else 0.42) * math.sin(corner * math.pi / 5),
            y - radius * (1 if corner % 2 == 0 else 0.42) * math.cos(corner * math.pi / 5),
        )
        for corner in range(10)
    ]


def draw_chart(canvas: Canvas, colour: str, chart: str, background: str) -> None:
    dice = canvas.dice
    paper = canvas.colour(background, 6)
    canvas.fill(paper)
    ink: Colour = (60, 60, 60) if background == "white" else (190, 190, 190)
    left, right = canvas.width * 0.12, canvas.width * 0.95
    top, bottom = canvas.height * 0.14, canvas.height * 0.86
    width, height = right - left, bottom - top
    if dice.random() < 0.6:
        canvas.text(left, canvas.height * 0.03, canvas.words(3).capitalize(), ink, 6)
    grid = dice.random() < 0.5
    for step in range(5):
        y = top + height * step / 4
        canvas.text(left - 9, y - 3, str(100 - 25 * step), ink, 4)
        if grid:
            canvas.line([(left, y), (right, y)], blend(ink, paper, 0.7), 0.4)
    canvas.line([(left, top), (left, bottom), (right, bottom)], ink, 0.8)
    fill = canvas.colour(colour)
    if chart == "bar chart":
        count = dice.randint(3, 9)
        slot = width / count
        for bar in range(count):
            x = left + bar * slot
            level = bottom - dice.uniform(0.15, 0.98) * height
            canvas.rectangle(x + slot * 0.15, level, x + slot * 0.85, bottom - 0.8, fill)
    elif chart == "scatter plot":
        size = canvas.width * dice.uniform(0.011, 0.02)
        slope = dice.uniform(-1, 1)
        for _ in range(dice.randint(18, 50)):
            share = dice.random()
            level = 0.5 + slope * (share - 0.5) + dice.gauss(0, 0.12)
            y = bottom - min(0.97, max(0.03, level)) * height
            canvas.ellipse(left + (0.03 + share * 0.94) * width, y, size, fill)
    else:
        points = _walk(canvas, left, bottom, width, height)
        if chart == "area chart":
            canvas.polygon([(left, bottom - 0.8), *points, (right, bottom - 0.8)], fill)
        else:
            canvas.line(points, fill, canvas.width * dice.uniform(0.013, 0.02))


def _walk(canvas: Canvas, left: float, bottom: float, width: float, height: float) -> list[Point]:
    count = canvas.dice.randint(5, 14)
    level = canvas.dice.uniform(0.3, 0.7)
    points = []
    for step in range(count):
        level = min(0.95, max(0.1, level + canvas.dice.gauss(0, 0.17)))
        points.append((left + width * step / (count - 1), bottom - level * height))
    return points


def draw_pie(canvas: Canvas, colour: str, style: str, background: str) -> None:
    """One slice, the largest, has the colour; the others are other colours or greys."""
    dice = canvas.dice
    paper = canvas.colour(background, 6)
    canvas.fill(paper)
    radius = min(canvas.width, canvas.height) * dice.uniform(0.3, 0.44)
    x, y = canvas.width * dice.uniform(0.42, 0.58), canvas.height / 2
    others = dice.sample([name for name in VIVID if name != colour], dice.randint(2, 4))
    sizes = [dice.uniform(0.6, 1.2) for _ in others]
    main = sum(sizes) * dice.uniform(1.2, 2.2)
    angle = dice.uniform(0, 360)
    whole = main + sum(sizes)
    for name, size in zip([colour, *others], [main, *sizes], strict=True):
        end = angle + 360 * size / whole
        canvas.slice(x, y, radius, angle, end, canvas.colour(name))
        angle = end
    if style == "donut chart":
        canvas.ellipse(x, y, radius * 0.5, paper)


def draw_map(canvas: Canvas, colour: str, style: str) -> None:
    dice = canvas.dice
    width, height = canvas.width, canvas.height
    satellite = style == "satellite map"
    canvas.fill(canvas.vary((50, 80, 45) if satellite else (235, 232, 222), 8))
    for _ in range(dice.randint(4, 9)):
        park = canvas.vary((75, 95, 55) if satellite else (200, 225, 190), 15)
        canvas.ellipse(
            dice.uniform(0, width), dice.uniform(0, height), width * dice.uniform(0.05, 0.19), park
        )
    if dice.random() < 0.6:
        river = [(step * width / 5, dice.uniform(0, height)) for step in range(6)]
        canvas.line(river, (30, 50, 80) if satellite else (150, 195, 235), width * 0.045)
    streets: list[Colour] = [(150, 150, 130)] if satellite else [WHITE, (250, 220, 130)]
    for _ in range(dice.randint(6, 12)):
        start = (dice.uniform(0, width), dice.choice((0.0, dice.uniform(0, height))))
        end = (dice.uniform(0, width), dice.choice((height, dice.uniform(0, height))))
        canvas.line([start, end], dice.choice(streets), width * dice.uniform(0.006, 0.02))
    size = min(width, height) * dice.uniform(0.075, 0.11)
    x, y = width * dice.uniform(0.25, 0.75), height * dice.uniform(0.3, 0.65)
    fill = canvas.colour(colour)
    canvas.polygon([(x - size * 0.8, y), (x + size * 0.8, y), (x, y + size * 2)], fill)
    canvas.ellipse(x, y - size * 0.2, size, fill)
    canvas.ellipse(x, y - size * 0.15, size * 0.35, WHITE)
