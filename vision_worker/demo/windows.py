"""Drawings of a computer's own windows: terminal, editor, dialog, login and settings."""

from vision_worker.demo.canvas import COLOURS, WHITE, Canvas, Colour, Theme, blend

CODE_COLOURS: dict[str, tuple[Colour, ...]] = {
    "dark": ((226, 140, 80), (96, 168, 240), (140, 205, 105), (212, 130, 212)),
    "light": ((175, 60, 10), (20, 60, 190), (25, 125, 30), (145, 30, 145)),
}
CONSOLES: dict[str, Colour] = {
    "black": (12, 12, 12),
    "blue": (20, 30, 115),
    "white": (250, 250, 250),
}
BAR = 8.0


def draw_terminal(canvas: Canvas, colour: str, background: str) -> None:
    dice = canvas.dice
    canvas.fill(canvas.vary(CONSOLES[background], 8))
    top = 2.0
    if dice.random() < 0.6:
        canvas.rectangle(0, 0, canvas.width, BAR, (90, 90, 92))
        window_buttons(canvas)
        top += BAR
    ink, size = canvas.colour(colour), dice.uniform(6.5, 10)
    room = int((canvas.height - top) / (size * 1.25))
    for line in range(dice.randint(max(3, room // 2), max(4, room))):
        if dice.random() < 0.9:
            prompt = "$ " if dice.random() < 0.4 else ""
            text = prompt + canvas.words(dice.randint(2, max(3, int(canvas.width / size / 3))))
            canvas.text(3, top + line * size * 1.25, text, ink, size)


def draw_editor(canvas: Canvas, theme: str, layout: str, colour: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    canvas.fill(look.background)
    top = title_bar(canvas, look) if dice.random() < 0.5 else 0.0
    left, bottom = 0.0, canvas.height - BAR
    canvas.rectangle(0, bottom, canvas.width, canvas.height, canvas.colour(colour))
    canvas.text(3, bottom + 1.2, canvas.words(3), WHITE, 5)
    if layout == "with a sidebar":
        left = canvas.width * dice.uniform(0.22, 0.32)
        canvas.rectangle(0, top, left, bottom, blend(look.panel, look.border, 0.45))
        for entry in range(dice.randint(6, max(7, int((bottom - top) / 7) - 1))):
            indent = 3 + 4 * (entry % 3 > 0)
            canvas.text(indent, top + 3 + entry * 7, canvas.words(1) + ".py", look.text, 5)
    elif layout == "with a terminal panel":
        below = bottom
        bottom -= (bottom - top) * dice.uniform(0.3, 0.4)
        canvas.rectangle(0, bottom, canvas.width, below, (8, 8, 10))
        canvas.rectangle(0, bottom, canvas.width, bottom + 1.5, look.border)
        for line in range(int((below - bottom - 3) / 6.5)):
            canvas.text(3, bottom + 3 + line * 6.5, "$ " + canvas.words(4), (110, 235, 120), 5.5)
    middle = canvas.width * dice.uniform(0.47, 0.53)
    columns = [(left, middle), (middle, canvas.width)]
    if layout != "in two panes":
        columns = [(left, canvas.width)]
    for start, end in columns:
        _source_code(canvas, look, CODE_COLOURS[theme], (start, top, end, bottom))
    if len(columns) > 1:
        canvas.rectangle(middle - 2, top, middle + 2, bottom, blend(look.border, look.text, 0.35))


def _source_code(
    canvas: Canvas,
    look: Theme,
    colours: tuple[Colour, ...],
    box: tuple[float, float, float, float],
) -> None:
    dice = canvas.dice
    left, top, right, bottom = box
    size = dice.uniform(5.5, 7.5)
    faint = blend(look.background, look.text, 0.4)
    depth, number, y = 0, dice.randint(1, 200), top + 3
    while y < bottom - size:
        canvas.text(left + 2, y, str(number), faint, size * 0.8)
        x = left + 12 + 7 * depth
        for _ in range(dice.choice((0, 1, 2, 3, 4, 4, 5))):
            word = canvas.words(1)
            if x + size * 0.6 * len(word) > right - 2:
                break
            x += canvas.text(x, y, word, dice.choice((*colours, look.text)), size) + 2.5
        depth = min(3, max(0, depth + dice.choice((-1, 0, 0, 1))))
        y += size * 1.3
        number += 1


def draw_dialog(canvas: Canvas, kind: str, theme: str, desktop: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    canvas.fill(canvas.vary(blend(COLOURS[desktop], COLOURS["gray"], 0.4)))
    width = canvas.width * dice.uniform(0.6, 0.82)
    height = min(canvas.height * dice.uniform(0.5, 0.7), width * 0.9)
    left, top = (canvas.width - width) / 2, (canvas.height - height) / 2
    right, bottom = left + width, top + height
    canvas.rectangle(left, top, right, bottom, look.background)
    canvas.rectangle(left, top, right, top + BAR, look.panel)
    canvas.text(left + 3, top + 1.5, kind.capitalize(), look.text, 5)
    icon = min(width, height) * dice.uniform(0.17, 0.24)
    x, y = left + width * 0.06 + icon, top + height * 0.5
    _dialog_icon(canvas, kind, x, y, icon)
    for line in range(dice.randint(2, 3)):
        canvas.text(x + icon + 6, y - 10 + line * 8, canvas.words(3), look.text, 6)
    canvas.rectangle(right - 30, bottom - 12, right - 5, bottom - 4, look.panel, outline=look.text)
    canvas.text(right - 21, bottom - 11, "OK", look.text, 5)


def _dialog_icon(canvas: Canvas, kind: str, x: float, y: float, size: float) -> None:
    def mark(*points: tuple[float, float], ink: Colour = WHITE) -> None:
        canvas.line([(x + size * dx, y + size * dy) for dx, dy in points], ink, size * 0.18)

    if kind == "warning":
        corners = [(x, y - size), (x - size, y + size * 0.8), (x + size, y + size * 0.8)]
        canvas.polygon(corners, canvas.colour("yellow"))
        mark((0, -0.4), (0, 0.35), ink=(0, 0, 0))
        return
    fill = {"error": "red", "info": "blue", "success": "green"}[kind]
    canvas.ellipse(x, y, size, canvas.colour(fill))
    if kind == "error":
        mark((-0.45, -0.45), (0.45, 0.45))
        mark((-0.45, 0.45), (0.45, -0.45))
    elif kind == "info":
        mark((0, -0.1), (0, 0.55))
        mark((0, -0.55), (0, -0.35))
    else:
        mark((-0.5, 0), (-0.1, 0.4), (0.5, -0.4))


def draw_login(canvas: Canvas, colour: str, theme: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    canvas.fill(look.background)
    width = canvas.width * dice.uniform(0.42, 0.62)
    step = canvas.height * 0.19
    left, top = (canvas.width - width) / 2, canvas.height * dice.uniform(0.06, 0.12)
    canvas.text(left, top, "Sign in", look.text, min(11, step * 0.6))
    for field, name in enumerate(("User name", "Password"), start=1):
        y = top + field * step
        canvas.text(left, y, name, look.text, 5)
        canvas.rectangle(
            left, y + 6.5, left + width, y + step * 0.85, look.panel, outline=look.text
        )
    y = top + 3.2 * step
    canvas.rectangle(left, y, left + width, y + step * 0.8, canvas.colour(colour), radius=1.5)
    canvas.text(left + width / 2 - 7, y + step * 0.4 - 4, "Login", WHITE, 6)


def draw_settings(canvas: Canvas, colour: str, theme: str) -> None:
    dice, look = canvas.dice, canvas.theme(theme)
    canvas.fill(look.background)
    y, row, on = 4.0, dice.uniform(13, 18), canvas.colour(colour)
    if dice.random() < 0.5:
        y += title_bar(canvas, look)
    width, right = row * 1.5, canvas.width - 6
    while y < canvas.height - row * 0.7:
        canvas.text(6, y + row * 0.12, canvas.words(2).capitalize(), look.text, 6.5)
        active, tall = dice.random() < 0.75, row * 0.66
        fill = on if active else (150, 150, 150)
        canvas.rectangle(right - width, y, right, y + tall, fill, radius=tall / 2)
        knob = right - tall / 2 if active else right - width + tall / 2
        canvas.ellipse(knob, y + tall / 2, tall * 0.4, WHITE)
        canvas.line([(4, y + row * 0.83), (right, y + row * 0.83)], look.panel, 0.6)
        y += row


def title_bar(canvas: Canvas, look: Theme) -> float:
    """Draw a bar over the whole width and return its height."""
    canvas.rectangle(0, 0, canvas.width, BAR, look.panel)
    window_buttons(canvas)
    return BAR


def window_buttons(canvas: Canvas) -> None:
    for index, name in enumerate(("red", "yellow", "green")):
        canvas.ellipse(5 + index * 5.5, BAR / 2, 1.8, COLOURS[name])
