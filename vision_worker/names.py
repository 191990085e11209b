"""Names and notes of keepsakes: one visible line each, and the key that spellings share."""

import re
import unicodedata
from functools import lru_cache

KINDS = frozenset({"person", "self", "product", "post", "place", "scene", "other"})

ZWNJ, ZWJ = "\u200c", "\u200d"
JOINERS = re.compile(f"[{ZWNJ}{ZWJ}]+")
SELECTORS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors: they choose between shapes of the character before them."""
UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0]")
"""Letters and marks that show nothing: a name of Hangul fillers looks empty."""
SIGNS = re.compile("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]")
"""Format characters that are seen: they enclose or lead the digits after them."""
BLANK = "\u2800"
TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
SHAPES = f"{TONES}\ufe0f"
PICTOGRAPH = re.compile("[\u2190-\u2bff\U0001f000-\U0001faff]")
VIRAMA = 9
REACH = 8
"""How many characters before a joiner are looked at: a letter and its marks."""
FAR = 50
"""How many times the characters that are kept are looked at, of a text without end."""
LETTERS = {"æ": "ae", "œ": "oe", "\u0131": "i", "ð": "d", "þ": "th"}


def clean(text: str, longest: int) -> str:
    """One line of at most ``longest`` characters that shows all it holds.

    White space of every kind becomes single spaces; control, bidi and zero-width characters go,
    except joiners where a script or an emoji needs them. The cut never parts a character from its
    marks, and never ends in a space.
    """
    text = _visible(text[: FAR * longest])
    return text[: _end(text, longest)].rstrip(f" {ZWNJ}{ZWJ}")


def fold(text: str) -> str:
    """The key of a name: the same for all its spellings.

    Compatibility forms, case, joiners and shapes do not count, nor do accents and strokes of
    Latin, Greek and Cyrillic letters; other scripts keep their marks.
    """
    text = JOINERS.sub("", SELECTORS.sub("", _visible(text)))
    text = unicodedata.normalize("NFD", text).casefold()
    text = unicodedata.normalize("NFKC", text).casefold()
    letters: list[str] = []
    plain = False
    for character in unicodedata.normalize("NFKD", text):
        if plain and unicodedata.category(character) == "Mn":
            continue
        plain = _is_plain(character)
        letters.append(_letter(character))
    return " ".join(unicodedata.normalize("NFC", "".join(letters)).split())


def words_of(*texts: str) -> str:
    """What the words of a keepsake are looked up in."""
    return " ".join(filter(None, map(fold, texts)))


def kind_of(value: object) -> str:
    """One of ``KINDS``, whatever is given."""
    kind = value.strip().lower() if isinstance(value, str) else ""
    return kind if kind in KINDS else "other"


def _visible(text: str) -> str:
    """One line without what cannot be seen."""
    shown: list[str] = []
    for character in UNSEEN.sub("", text.replace(BLANK, " ")):
        if SELECTORS.match(character):
            # One shapes what is before it. More would be a way to write what nobody sees.
            kept = bool(shown) and not (shown[-1].isspace() or SELECTORS.match(shown[-1]))
        else:
            kept = character.isspace() or not _is_hidden(character)
        if kept:
            shown.append(character)
    line = " ".join("".join(shown).split())

    def joined(found: re.Match[str]) -> str:
        joiner, after = found[0][0], line[found.end() : found.end() + 1]
        before = line[max(0, found.start() - REACH) : found.start()]
        return joiner if _joins(joiner, before, after) else ""

    return " ".join(JOINERS.sub(joined, line).split())


def _is_hidden(character: str) -> bool:
    category = unicodedata.category(character)
    seen = SIGNS.match(character) or JOINERS.match(character)
    return category in ("Cc", "Cs") or (category == "Cf" and not seen)


def _joins(joiner: str, before: str, after: str) -> bool:
    """Whether a joiner changes how its neighbours look, by RFC 5892's rules and for emoji."""
    if not before or not after or after.isspace():
        return False
    if unicodedata.combining(before[-1]) == VIRAMA:
        return True
    if joiner == ZWJ and PICTOGRAPH.match(before.rstrip(SHAPES)[-1:]):
        return PICTOGRAPH.match(after) is not None
    letter = next((mark for mark in reversed(before) if not unicodedata.combining(mark)), "")
    return _is_cursive(letter) and _is_cursive(after)


def _is_cursive(character: str) -> bool:
    return bool(character) and unicodedata.bidirectional(character) == "AL"


def _end(text: str, longest: int) -> int:
    """Where to cut, at ``longest`` or before what would lose its marks."""
    end = longest
    while 0 < end < len(text) and _belongs(text, end):
        end -= 1
    return end or longest


def _belongs(text: str, index: int) -> bool:
    """Whether the character at ``index`` is part of the one before it."""
    character = text[index]
    if _is_flag(character):
        pairs = re.search(r"[\U0001f1e6-\U0001f1ff]*$", text[:index])
        return pairs is not None and len(pairs[0]) % 2 == 1
    return (
        JOINERS.match(character) is not None
        or JOINERS.match(text[index - 1]) is not None
        or character in TONES
        or unicodedata.category(character).startswith("M")
    )


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


@lru_cache(4096)
def _name(character: str) -> str:
    return unicodedata.name(character, "")


def _is_plain(character: str) -> bool:
    return _name(character).startswith(("LATIN ", "GREEK ", "CYRILLIC "))


@lru_cache(4096)
def _letter(character: str) -> str:
    """A Latin letter without strokes and hooks, which are not marks of their own in Unicode."""
    if character in LETTERS:
        return LETTERS[character]
    base, struck, _ = _name(character).partition(" WITH ")
    if not struck or not base.startswith("LATIN SMALL LETTER "):
        return character
    try:
        return unicodedata.lookup(base)
    except KeyError:
        return character
