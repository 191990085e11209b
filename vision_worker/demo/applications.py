"""Drawings of applications: chat, spreadsheet, calendar, files, kanban board and web pages."""

from vision_worker.demo.canvas import COLOURS, WHITE, Canvas, blend
from vision_worker.demo.windows import title_bar


def draw_chat(canvas: Canvas, colour: str, theme: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    canvas.fill(look.background)
    y, mine = 4.0, dice.random() < 0.5
    if dice.random() < 0.5:
        y += title_bar(canvas, look)
    while y < canvas.height - 12:
        width, lines = canvas.width * dice.uniform(0.28, 0.58), dice.choice((1, 1, 2, 3))
        height = 4 + lines * 7.5
        left = canvas.width - width - 5 if mine else 5.0
        fill = canvas.colour(colour) if mine else look.panel
        canvas.rectangle(left, y, left + width, y + height, fill, radius=4)
        for line in range(lines):
            text = canvas.words(max(1, int(width / 22)))
            canvas.text(left + 4, y + 2 + line * 7.5, text, WHITE if mine else look.text, 5.5)
        y += height + dice.uniform(3, 7)
        mine = dice.random() < 0.5 if y > 40 else not mine


def draw_sheet(canvas: Canvas, colour: str, theme: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    canvas.fill(look.background)
    columns, row = dice.randint(4, 8), dice.uniform(8, 11)
    rows = int(canvas.height / row) + 1
    cell = canvas.width / columns
    marked = dice.randint(2, max(3, min(rows - 2, 9)))
    canvas.rectangle(0, 0, canvas.width, row, look.panel)
    canvas.rectangle(0, marked * row, canvas.width, (marked + 1) * row, canvas.colour(colour))
    line = blend(look.border, look.text, 0.25)
    for index in range(rows):
        y = index * row
        canvas.line([(0, y), (canvas.width, y)], line, 0.5)
        for column in range(columns):
            if dice.random() < 0.85:
                text = str(dice.randint(1, 9999)) if index else chr(65 + column)
                canvas.text(column * cell + 2, y + row / 2 - 3, text, look.text, 5.5)
    for column in range(columns):
        canvas.line([(column * cell, 0), (column * cell, canvas.height)], line, 0.5)


def draw_calendar(canvas: Canvas, colour: str, theme: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    canvas.fill(look.background)
    canvas.text(4, 2, dice.choice(("March", "June", "October")) + " 2026", look.text, 8)
    top, rows = 13.0, 5
    width, height = canvas.width / 7, (canvas.height - 13) / rows
    marked, line = dice.randrange(7 * rows), blend(look.border, look.text, 0.25)
    for day in range(7 * rows):
        x, y = day % 7 * width, top + day // 7 * height
        fill = canvas.colour(colour) if day == marked else None
        canvas.rectangle(x, y, x + width, y + height, fill, outline=line)
        canvas.text(x + 2, y + 1.5, str(day % 31 + 1), look.text, 5.5)


def draw_files(canvas: Canvas, colour: str, theme: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    canvas.fill(look.background)
    side = canvas.width * dice.uniform(0.18, 0.25)
    canvas.rectangle(0, 0, side, canvas.height, look.panel)
    for place in range(6):
        canvas.text(3, 5 + place * 9, canvas.words(1).capitalize(), look.text, 5.5)
    columns = dice.randint(3, 5)
    cell = (canvas.width - side) / columns
    fill = canvas.colour(colour)
    for index in range(columns * (int(canvas.height / cell) + 1)):
        if dice.random() < 0.9:
            x = side + (index % columns + 0.15) * cell
            y = (index // columns + 0.12) * cell
            canvas.rectangle(x, y, x + cell * 0.32, y + cell * 0.14, fill)
            canvas.rectangle(x, y + cell * 0.08, x + cell * 0.7, y + cell * 0.57, fill)
            canvas.text(x + cell * 0.1, y + cell * 0.62, canvas.words(1), look.text, 5)


def draw_kanban(canvas: Canvas, colour: str, columns: str, theme: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    canvas.fill(look.background)
    top = title_bar(canvas, look) if dice.random() < 0.4 else 0.0
    count = {"three": 3, "four": 4, "five": 5}[columns]
    lane, gap = canvas.width / count, canvas.width * 0.018
    card = min(canvas.height * 0.2, lane * dice.uniform(0.4, 0.55))
    for index in range(count):
        left, right = index * lane + gap, (index + 1) * lane - gap
        canvas.rectangle(
            left, top + 3, right, canvas.height - 3, blend(look.panel, look.border, 0.5)
        )
        canvas.text(left + 2, top + 4, canvas.words(1).capitalize(), look.text, 5.5)
        y = top + 12
        for _ in range(dice.randint(1, 5)):
            if y + card > canvas.height - 5:
                break
            canvas.rectangle(left + gap, y, right - gap, y + card, canvas.colour(colour), radius=1)
            ink = COLOURS["black"] if colour == "yellow" else WHITE
            canvas.text(left + gap + 2, y + 1.5, canvas.words(1), ink, 5)
            y += card + 3


def draw_web(canvas: Canvas, layout: str, theme: str, colour: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    width, height = canvas.width, canvas.height
    canvas.fill(look.background)
    bar = title_bar(canvas, look)
    canvas.rectangle(22, 1.5, width - 10, bar - 1.5, look.background, radius=2)
    top = 2 * bar + 3
    canvas.rectangle(0, bar, width, top - 1, canvas.colour(colour))
    canvas.text(4, bar + 1.5, canvas.words(2).capitalize(), WHITE, 6)
    if layout == "an article":
        left = width * dice.uniform(0.08, 0.2)
        canvas.text(left, top + 3, canvas.words(3).capitalize(), look.text, 10)
        y = top + 18
        if dice.random() < 0.5:
            _photo(canvas, left, y, width - 2 * left, height * 0.26)
            y += height * 0.26 + 5
        while y < height - 4:
            text = canvas.words(max(2, int((width - 2 * left) / 13)))
            canvas.text(left, y, text, look.text, 4.5)
            y += 6 if dice.random() < 0.85 else 11
    elif layout == "a search page":
        size = min(width * 0.11, height * 0.2)
        x = width / 2 - size * 1.7
        for index, letter in enumerate("Search"):
            ink = COLOURS[("blue", "red", "yellow", "green")[index % 4]]
            x += canvas.text(x, height * 0.3, letter, ink, size)
        box = (width * 0.18, height * 0.56, width * 0.82, height * 0.68)
        canvas.rectangle(*box, look.panel, outline=look.text, radius=height * 0.06)
    elif layout == "an image gallery":
        columns = dice.randint(3, 5)
        cell = width / columns
        for index in range(columns * (int(height / cell) + 1)):
            x, y = index % columns * cell + 2, top + index // columns * cell + 2
            _photo(canvas, x, y, cell - 4, cell - 4)
    else:
        left = width * dice.uniform(0.03, 0.08)
        right, bottom = width * dice.uniform(0.7, 0.95), top + (height - top) * 0.72
        canvas.rectangle(left, top, right, bottom, canvas.vary((14, 14, 16), 8))
        x, y, size = (left + right) / 2, (top + bottom) / 2, (bottom - top) * 0.2
        canvas.polygon([(x - size, y - size), (x - size, y + size), (x + size, y)], WHITE)
        track, played = bottom - 4, left + (right - left) * dice.uniform(0.15, 0.8)
        canvas.line([(left + 3, track), (right - 3, track)], (160, 160, 160), 1)
        canvas.line([(left + 3, track), (played, track)], COLOURS["red"], 1.8)
        for line in range(3):
            canvas.text(left, bottom + 3 + line * 7, canvas.words(5), look.text, 5)


def _photo(canvas: Canvas, x: float, y: float, width: float, height: float) -> None:
    canvas.rectangle(x, y, x + width, y + height, canvas.vary((120, 150, 190), 80))
    hill = [(x, y + height), (x + width * 0.4, y + height * 0.4), (x + width, y + height)]
    canvas.polygon(hill, canvas.vary((80, 110, 80), 40))
