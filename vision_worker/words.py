"""Questions in words: which names and notes they mean, in any script. All text comes folded."""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from vision_worker.stopwords import ASKING, EMPTY, UNSPACED_ASKING

NameRank = tuple[int, int, int]
"""How well a name fits, the best one first when sorted: kind of match, words of it that the
question has (negative), where in the question it begins."""

WHOLE, INSIDE, PART = 0, 1, 2
HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
UNSPACED = re.compile(
    f"[{HAN}]+|[\u3041-\u309f\u30fc]+|[\u30a0-\u30ff]+|[\uac00-\ud7a3]+|[\u0e00-\u0eff]+"
    "|[\u1000-\u109f]+|[\u1780-\u17ff]+"
)
"""Scripts that put no spaces between words, or particles at their ends: Han, kana, Hangul, Thai,
Lao, Burmese and Khmer."""
ONE_HAN = re.compile(f"[{HAN}]")
HIRAGANA = re.compile("[\u3041-\u309f]{3,}")
PARTICLES = "はがのをにでともへやかよね"
ASKED = re.compile(f"({'|'.join(sorted(UNSPACED_ASKING, key=len, reverse=True))})")
SHORTENED = re.compile("(?<=[a-z])(?:n['’]t|['’](?:s|ll|re|ve|d|m))(?![a-z])")
ELIDED = re.compile("(?<![a-z])(?:qu|[cdjlmnst])['’](?=[^\\W\\d_])")
ARABIC_ARTICLE = re.compile("^ال(?=\\w{3})")
HEBREW_PREFIXES = "הבושלכמ"
CYRILLIC_ENDING = re.compile("(?<=[а-яё]{3})[аеёиоуыэюяйь]+$")
FORM, TYPO = 0.9, 0.7


class Question:
    """What is asked for, as words that say something and words that only help to ask."""

    def __init__(self, folded: str) -> None:
        self._text = folded
        self._plain = plain(folded)
        words = tuple(dict.fromkeys(tokens(folded)))
        said = [word for word in words if word not in EMPTY]
        self.terms = tuple(said)
        self._content = frozenset(word for word in said if word not in ASKING) or frozenset(said)
        self._bare = not any(word not in ASKING for word in said)

    @property
    def pieces(self) -> list[str]:
        """Neighbouring letters, of which whatever is found shares at least one."""
        words = self._content or frozenset(tokens(self._text))
        return sorted({piece for word in words for piece in _pieces(word)})

    def name_rank(self, about_key: str) -> NameRank | None:
        """How the question names what is kept under ``about_key``; None if it does not.

        The whole name is the question, or stands in it as whole words; or a word of the question
        is a word of the name.
        """
        name = plain(about_key)
        if about_key == self._text or (name and name == self._plain):
            return WHOLE, 0, 0
        words = tokens(about_key)
        if self._may_name(words) and (place := _place(self._plain, name)) is not None:
            return INSIDE, -sum(word in self._content for word in words), place
        shared = [word for word in self._content if any(_is_part(word, own) for own in words)]
        if not shared:
            return None
        return PART, -len(shared), min(self._plain.find(word) for word in shared)

    def admits(self, term: str) -> bool:
        """Whether a text is found by this term alone; others only add to what is found."""
        return term in self._content

    def _may_name(self, words: tuple[str, ...]) -> bool:
        if self._bare or any(word not in EMPTY | ASKING for word in words):
            return bool(words)
        # A name of small words alone, such as The Who.
        return len(words) > 1 and EMPTY.issuperset(words)


@lru_cache(32_768)
def tokens(folded: str) -> tuple[str, ...]:
    """The words of a text, without articles and endings that are written onto them.

    What scripts without spaces write in one run is parted where the script changes.
    """
    return tuple(_tokens(ELIDED.sub(" ", SHORTENED.sub("", folded))))


@lru_cache(32_768)
def plain(folded: str) -> str:
    """The words of a text with single spaces between them."""
    return " ".join(tokens(folded))


def likeness(term: str, folded: str) -> float:
    """How surely ``term`` stands in a text: 1 as it is, less in another form or mistyped, 0 not."""
    if UNSPACED.match(term):
        return _unspaced_likeness(term, plain(folded))
    return max((kinship(term, word) for word in tokens(folded)), default=0.0)


def kinship(one: str, other: str) -> float:
    """1 for the same word, less for a form of it or one slip of the keyboard, else 0."""
    if one == other:
        return 1.0
    if _is_form(one, other):
        return FORM
    return TYPO if _is_typo(one, other) else 0.0


def _tokens(text: str) -> Iterator[str]:
    for run in "".join(map(_separated, text)).split():
        for part in ASKED.split(run):
            at = 0
            for unspaced in UNSPACED.finditer(part):
                yield from filter(None, (part[at : unspaced.start()], unspaced[0]))
                at = unspaced.end()
            if at < len(part):
                yield ARABIC_ARTICLE.sub("", part[at:])


def _separated(character: str) -> str:
    kind = unicodedata.category(character)
    if kind[0] in "LMN":
        return character
    # An emoji is a word; the tones of its skin are not.
    return f" {character} " if kind == "So" else " "


def _place(question: str, name: str) -> int | None:
    """Where the name stands in the question as whole words."""
    at = question.find(name)
    while at >= 0:
        before, after = question[at - 1 : at], question[at + len(name) : at + len(name) + 1]
        if _parts(before, name[0], name) and _parts(after, name[-1], name):
            return at
        at = question.find(name, at + 1)
    return None


def _parts(neighbour: str, edge: str, name: str) -> bool:
    """Whether a word can end between the two. Inside a run one character can be anything."""
    if neighbour.strip() == "":
        return True
    return len(name) > 1 and UNSPACED.match(edge) is not None


def _is_part(term: str, word: str) -> bool:
    if len(term) > 1 and UNSPACED.match(term):
        return term in word
    return term == word or _is_form(term, word)


def _unspaced_likeness(term: str, text: str) -> float:
    if len(term) == 1:
        return float(term in (text if ONE_HAN.match(term) else text.split()))
    if HIRAGANA.fullmatch(term) and term[-1] in PARTICLES and term[:-1] in text:
        return 1.0
    pairs = _pieces(term)
    share = sum(pair in text for pair in pairs) / len(pairs)
    return share if share > 0.5 else 0.0


def _pieces(word: str) -> list[str]:
    return ["".join(pair) for pair in pairwise(word)] or [word]


def _is_form(one: str, other: str) -> bool:
    """Plurals in s, Slavic cases, Hebrew prefixes: of words of at least three letters."""
    short, long = sorted((one, other), key=len)
    if len(short) < 3 or one == other:
        return False
    if long in (f"{short}s", f"{short}es", f"{short}σ") or long == f"{short[:-1]}ies":
        return True
    if long[1:] == short and long[0] in HEBREW_PREFIXES:
        return True
    return CYRILLIC_ENDING.sub("", one) == CYRILLIC_ENDING.sub("", other)


def _is_typo(one: str, other: str) -> bool:
    """One slip: neighbouring letters swapped, or in a long word one letter too many, too few or
    wrong. Its first and last letter are trusted, since other words differ there: Daniel, Daniela.
    """
    short, long = sorted((one, other), key=len)
    if len(short) < 4 or not one.isalpha() or not other.isalpha():
        return False
    head = _shared(one, other)
    tail = min(_shared(one[::-1], other[::-1]), len(short) - head)
    left, right = short[head : len(short) - tail], long[head : len(long) - tail]
    if len(left) == len(right) == 2:
        return left == right[::-1]
    if not head or not tail or len(right) != 1:
        return False
    return len(short) >= (7 if left else 5)


def _shared(one: str, other: str) -> int:
    """How many letters both begin with."""
    pairs = zip(one, other, strict=False)
    return next(
        (place for place, (left, right) in enumerate(pairs) if left != right),
        len(min(one, other, key=len)),
    )
