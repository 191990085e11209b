"""What a sentence about a screen may say, and which parts of the screen it names."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from string import Formatter

OPENINGS = (
    "show me",
    "show me the screenshot of",
    "find",
    "find me the picture of",
    "find my",
    "where is",
    "where was",
    "i want",
    "i need to see",
    "look for",
    "search for",
    "open",
    "the one with",
    "the image of",
    "an image with",
    "the picture with",
    "the screen with",
    "the screenshot of",
    "the screenshot with",
    "the screenshot that shows",
    "the window with",
    "the page with",
    "the app with",
    "screenshot showing",
    "my screenshot of",
    "which picture has",
    "there was",
    "it was",
)
CLOSINGS = ("please", "in it", "on it", "on the screen", "i saved", "from yesterday", "today")
SEEN_BESIDE = "screenshot picture image window page app screen view computer desktop in is and"


@dataclass(frozen=True)
class Caption:
    """A sentence and the attribute values that it states, by attribute name."""

    text: str
    stated: dict[str, str]


@dataclass(frozen=True)
class Wording:
    """How the screens of one kind are described.

    ``full`` templates name every attribute, ``partial`` ones some; ``nouns`` are the kind in a
    few words; ``synonyms`` are other words for attribute values. The first full template is the
    caption that a screen is saved with.
    """

    full: tuple[str, ...]
    partial: tuple[str, ...]
    nouns: tuple[str, ...]
    synonyms: Mapping[str, tuple[str, ...]]

    def captions(self, values: Mapping[str, str]) -> list[str]:
        return [_sentence(template, values) for template in self.full]

    def describe(self, values: Mapping[str, str], dice: Random) -> Caption:
        """A random sentence: whole or partial, plain or conversational, or only keywords."""
        said = {
            name: dice.choice(self.synonyms.get(value, (value,))) if dice.random() < 0.4 else value
            for name, value in values.items()
        }
        if dice.random() < 0.3:
            text, names = self._keywords(said, dice)
        else:
            template = dice.choice(self.full if dice.random() < 0.7 else self.partial)
            text, names = _sentence(template, said), _names(template)
        if dice.random() < 0.4:
            text = _spoken(text, dice)
        return Caption(text, {name: values[name] for name in values if name in names})

    def vocabulary(self, values: Iterable[str]) -> set[str]:
        texts = [*self.full, *self.partial, *self.nouns, *values]
        texts += [synonym for synonyms in self.synonyms.values() for synonym in synonyms]
        return words_of(re.sub(r"{\w+}", " ", " ".join(texts)))

    def _keywords(self, said: Mapping[str, str], dice: Random) -> tuple[str, set[str]]:
        noun = dice.choice(self.nouns)
        names = _names(noun) | {name for name in said if dice.random() < 0.7}
        parts = [said[name] for name in said if name in names - _names(noun)]
        parts.append(_sentence(noun, said))
        dice.shuffle(parts)
        return " ".join(parts), names


def common_words() -> set[str]:
    """Words that any query may contain, whatever it asks for."""
    return words_of(" ".join([*OPENINGS, *CLOSINGS, SEEN_BESIDE, "a an the of with on"]))


def words_of(text: str) -> set[str]:
    """The words of a text, in lower case and without punctuation."""
    return set(re.findall(r"[a-z]+", text.lower()))


def _spoken(text: str, dice: Random) -> str:
    if dice.random() < 0.4:
        text = re.sub(r"^an? ", "the ", text)
    if dice.random() < 0.85:
        text = f"{dice.choice(OPENINGS)} {text}"
    if dice.random() < 0.25:
        text = f"{text} {dice.choice(CLOSINGS)}"
    if dice.random() < 0.25:
        text = f"{text} {dice.choice(SEEN_BESIDE.split())}"
    return text


def _sentence(template: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\ba (?=[aeiou])", "an ", template.format_map(values))


def _names(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name}
