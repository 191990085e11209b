"""Drawings of landscapes: five places at four times of day."""

from vision_worker.demo.canvas import WHITE, Canvas, Colour, blend

SKIES: dict[str, tuple[Colour, Colour]] = {
    "by day": ((90, 160, 235), (195, 222, 246)),
    "at dawn": ((120, 150, 205), (250, 190, 205)),
    "at sunset": ((135, 60, 120), (252, 150, 70)),
    "at night": ((6, 8, 32), (24, 28, 70)),
}
LAMPS: dict[str, Colour] = {
    "by day": (255, 240, 150),
    "at dawn": (255, 225, 205),
    "at sunset": (255, 190, 80),
    "at night": (238, 238, 222),
}
LIGHT = {"by day": 1.0, "at dawn": 0.8, "at sunset": 0.65, "at night": 0.42}


def draw_scene(canvas: Canvas, place: str, time: str) -> None:
    dice = canvas.dice
    width, height = canvas.width, canvas.height
    canvas.shade(*SKIES[time])
    if time == "at night":
        for _ in range(dice.randint(20, 45)):
            star = (dice.uniform(0, width), dice.uniform(0, height * 0.5))
            canvas.ellipse(*star, width * 0.003, WHITE)
    radius = min(width, height) * dice.uniform(0.06, 0.11)
    sky = (width * dice.uniform(0.15, 0.85), height * dice.uniform(0.12, 0.32))
    canvas.ellipse(*sky, radius, LAMPS[time])
    {
        "mountains": _mountains,
        "the sea": _sea,
        "a forest": _forest,
        "a city": _city,
        "a desert": _desert,
    }[place](canvas, time, height * dice.uniform(0.55, 0.68))


def _lit(canvas: Canvas, colour: Colour, time: str) -> Colour:
    return canvas.vary(blend((0, 0, 0), colour, LIGHT[time]), 8)


def _mountains(canvas: Canvas, time: str, _: float) -> None:
    dice, width, height = canvas.dice, canvas.width, canvas.height
    for peak in range(3, 0, -1):
        x = width * (dice.uniform(0, 0.4) + (peak - 1) * 0.3)
        half, tall = width * dice.uniform(0.25, 0.4), height * dice.uniform(0.4, 0.62)
        rock, snow = _lit(canvas, (105, 98, 108), time), _lit(canvas, (250, 250, 255), time)
        canvas.polygon([(x - half, height), (x, height - tall), (x + half, height)], rock)
        cap = dice.uniform(0.25, 0.35)
        line = height - tall * (1 - cap)
        canvas.polygon([(x - half * cap, line), (x, height - tall), (x + half * cap, line)], snow)


def _sea(canvas: Canvas, time: str, horizon: float) -> None:
    dice, width, height = canvas.dice, canvas.width, canvas.height
    canvas.rectangle(0, horizon, width, height, _lit(canvas, (25, 95, 175), time))
    for _ in range(dice.randint(14, 26)):
        x, y = dice.uniform(-0.1, 1) * width, dice.uniform(horizon, height)
        wave = _lit(canvas, (135, 185, 225), time)
        canvas.line([(x, y), (x + width * dice.uniform(0.04, 0.16), y)], wave, height * 0.008)
    if dice.random() < 0.5:
        x, size = width * dice.uniform(0.2, 0.8), height * dice.uniform(0.08, 0.14)
        sail, hull = _lit(canvas, (250, 250, 250), time), _lit(canvas, (120, 60, 30), time)
        canvas.polygon([(x, horizon - size), (x, horizon), (x + size * 0.7, horizon)], sail)
        canvas.rectangle(x - size * 0.5, horizon, x + size * 0.8, horizon + size * 0.25, hull)


def _forest(canvas: Canvas, time: str, horizon: float) -> None:
    dice, width, height = canvas.dice, canvas.width, canvas.height
    canvas.rectangle(0, horizon, width, height, _lit(canvas, (70, 125, 55), time))
    feet = sorted(dice.uniform(horizon, height) for _ in range(dice.randint(12, 20)))
    for y in feet:
        x, tall = dice.uniform(0, width), height * dice.uniform(0.28, 0.48)
        half = min(tall * 0.3, width * 0.14)
        trunk, leaf = _lit(canvas, (95, 65, 35), time), _lit(canvas, (20, 105, 45), time)
        canvas.rectangle(x - half * 0.15, y - 1, x + half * 0.15, y + tall * 0.12, trunk)
        canvas.polygon([(x - half, y), (x, y - tall), (x + half, y)], leaf)


def _city(canvas: Canvas, time: str, _: float) -> None:
    dice, width, height = canvas.dice, canvas.width, canvas.height
    lamp: Colour = (200, 222, 240) if time == "by day" else (252, 226, 120)
    pane = max(width, height) * 0.016
    x = -width * dice.uniform(0, 0.05)
    while x < width:
        wide, roof = width * dice.uniform(0.07, 0.15), height * dice.uniform(0.35, 0.75)
        canvas.rectangle(x, roof, x + wide, height, _lit(canvas, (120, 120, 132), time))
        y = roof + pane
        while y < height - pane:
            for column in range(int(wide / pane / 2)):
                if dice.random() < 0.6:
                    left = x + pane * (2 * column + 0.6)
                    canvas.rectangle(left, y, left + pane, y + pane, lamp)
            y += 2.4 * pane
        x += wide + width * dice.uniform(0, 0.015)


def _desert(canvas: Canvas, time: str, horizon: float) -> None:
    dice, width, height = canvas.dice, canvas.width, canvas.height
    canvas.rectangle(0, horizon, width, height, _lit(canvas, (232, 195, 120), time))
    for _ in range(3):
        x, y = dice.uniform(0, width), dice.uniform(horizon, height)
        dune = _lit(canvas, (215, 172, 98), time)
        canvas.ellipse(
            x, y + height * 0.1, height * 0.14, dune, across=width * dice.uniform(0.3, 0.5)
        )
    for _ in range(dice.randint(1, 3)):
        x, y = width * dice.uniform(0.1, 0.9), dice.uniform(horizon + 2, height)
        tall, cactus = height * dice.uniform(0.12, 0.22), _lit(canvas, (60, 130, 60), time)
        stem = tall * 0.12
        canvas.rectangle(x - stem, y - tall, x + stem, y, cactus)
        canvas.rectangle(x - 3.5 * stem, y - tall * 0.6, x + 3.5 * stem, y - tall * 0.42, cactus)
        for side in (-3.5, 2.0):
            left = x + side * stem
            canvas.rectangle(left, y - tall * 0.85, left + 1.5 * stem, y - tall * 0.42, cactus)
