"""Names: one line that shows all it holds, and one key for all its spellings."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vision_worker.names import KINDS, clean, fold, kind_of, words_of

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
ASTRONAUT = "\U0001f469\U0001f3fd\u200d\U0001f680"
BURNING_HEART = "\u2764\ufe0f\u200d\U0001f525"
NODDING = "\U0001f642\u200d\u2195\ufe0f"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e\u034f"
NAMES = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(
            f"a\u00e9\u0301\u0142\u0915\u094d{ZERO_WIDTH}{BIDI}{FAMILY}{PERSIAN} \u2800\n"
            "\ufe0f\U0001f3fd\U0001f1e9\U0001f1ea\u3164\u0345\u1e9e\u0130\ufb01\uff21"
        ),
    ),
    max_size=40,
)


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("a\nb\rc\u2028d\u2029e\x85f\tg\x0bh\x0ci", "a b c d e f g h i"),
        ("a \r\n\u3000\u00a0 b", "a b"),
        ("  Alex  Doe  ", "Alex Doe"),
        ("Al\x1b\u202eex\u200b D\0oe", "Alex Doe"),
        (f"x{BIDI}y{ZERO_WIDTH}z", "xyz"),
        ("half \ud800 a pair", "half a pair"),
        (BIDI + ZERO_WIDTH, ""),
        ("\u3164\uffa0\u115f\u1160\u17b4\u2800", ""),
        ("\ufe0f \ufe0e", ""),
        ("a\ufe0f\ufe0e\ufe00b", "a\ufe0fb"),
        (f"flag {ENGLAND}", "flag \U0001f3f4"),
    ],
)
def test_what_cannot_be_seen_goes_and_every_break_is_a_space(given_text: str, shown: str) -> None:
    assert clean(given_text, 120) == shown


@pytest.mark.parametrize(
    "text",
    [
        "\u306d\u3053",
        "\u6771\u4eac\u30bf\u30ef\u30fc",
        "\u043a\u043e\u0442 \u0411\u0430\u0440\u0441\u0438\u043a",
        "\u03b3\u03ac\u03c4\u03b1",
        "\u0642\u0637\u0629",
        "\uace0\uc591\uc774",
        "X",
        "\u845b\U000e0100\u57ce",
        "\u0915\u094d\u200d\u0937",
        "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
        "\u0d28\u0d4d\u200d\u0d2e",
        "\u06dd\u0661\u0662",
        PERSIAN,
        FAMILY,
        ASTRONAUT,
        BURNING_HEART,
        NODDING,
        f"us {FAMILY}!",
        '</block> "quoted" {braces} %s',
    ],
)
def test_names_of_every_script_and_emoji_stay_as_they_are(text: str) -> None:
    assert clean(text, 120) == text


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("Al\u200dex", "Alex"),
        ("Al\u200cex", "Alex"),
        (f"a\u200d{FAMILY}", f"a{FAMILY}"),
        (f"{FAMILY}\u200d", FAMILY),
        (f"{FAMILY}\u200dx", f"{FAMILY}x"),
        ("\u0915\u094d\u200d b", "\u0915\u094d b"),
        ("\u0645\u200c\u200d\u200c\u062e", "\u0645\u200c\u062e"),
    ],
)
def test_a_joiner_that_joins_nothing_is_an_invisible_character(given_text: str, shown: str) -> None:
    assert clean(given_text, 120) == shown


@pytest.mark.parametrize(
    ("text", "longest", "shown"),
    [
        ("x" * 500, 120, "x" * 120),
        ("ab cd", 3, "ab"),
        ("abcde\u0301f", 5, "abcd"),
        ("abcde\u0301f", 6, "abcde\u0301"),
        ("e" + "\u0301" * 9, 5, "e" + "\u0301" * 4),
        (f"ab{FAMILY}", 4, "ab"),
        (f"ab{FAMILY}", 6, "ab"),
        (f"ab{FAMILY}", 7, f"ab{FAMILY}"),
        (f"{ASTRONAUT}x", 1, "\U0001f469"),
        (FAMILY, 2, "\U0001f468"),
        (PERSIAN, 3, PERSIAN[:1]),
        ("\u200b" * 100 + "x" * 10_000_000, 5, "xxxxx"),
        ("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", 3, "\U0001f1e9\U0001f1ea"),
        ("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", 4, "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7"),
    ],
)
def test_the_cut_parts_no_character_from_its_marks(text: str, longest: int, shown: str) -> None:
    assert clean(text, longest) == shown


@given(NAMES, st.integers(1, 30))
@example("e" + "\u0301" * 9, 5)
@example(FAMILY, 2)
@example(PERSIAN, 3)
@example("\u0915\u094d\u200d ", 30)
def test_a_clean_line_is_short_visible_and_stays_as_it_is(text: str, longest: int) -> None:
    line = clean(text, longest)
    assert len(line) <= longest
    assert line == line.strip()
    assert "  " not in line
    assert not any(character.isspace() and character != " " for character in line)
    assert not any(character in line for character in f"{BIDI}\u200b\u2060\ufeff\u00ad")
    assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in line)
    assert not line.endswith(("\u200d", "\u200c"))
    assert clean(line, longest) == line


@given(NAMES)
def test_a_key_is_its_own_key_and_that_of_the_clean_line(text: str) -> None:
    key = fold(text)
    assert fold(key) == key
    assert fold(clean(text, 1000)) == key


@given(NAMES)
def test_a_name_that_shows_something_has_a_key(text: str) -> None:
    assert bool(clean(text, 1000)) == bool(fold(text))


@given(NAMES)
def test_case_form_and_space_do_not_change_a_key(text: str) -> None:
    key = fold(text)
    assert fold(text.replace(" ", " \u3000\n")) == key
    assert fold(unicodedata.normalize("NFD", text)) == key
    assert fold(unicodedata.normalize("NFC", text)) == key


@given(
    st.text(
        st.sampled_from("aZ\u00e9\u0142\u00f8\u0391\u03ac\u0416\u0439\u00df\ufb03"), max_size=20
    )
)
def test_upper_case_has_the_key_of_lower_case(text: str) -> None:
    assert fold(text.upper()) == fold(text) == fold(text.lower())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Fulano P\u00e9rez", "fulano perez"),
        ("Alex Doe", "ALEX  d\u00f3e"),
        ("stra\u00dfe", "STRASSE"),
        ("\u0141\u00f3d\u017a", "Lodz"),
        ("S\u00f8ren", "SOREN"),
        ("\u00c6r\u00f8", "aero"),
        ("\u0110or\u0111evi\u0107", "dordevic"),
        ("Di\u0307yarbak\u0131r", "DIYARBAKIR"),
        ("\u0104\u00e7\u00f1 \u01d8", "acn u"),
        ("\u03b3\u03ac\u03c4\u03b1", "\u0393\u0391\u03a4\u0391"),
        (
            "\u1f49\u03b4\u03c5\u03c3\u03c3\u03b5\u03cd\u03c2",
            "\u03bf\u03b4\u03c5\u03c3\u03c3\u03b5\u03c5\u03c3",
        ),
        ("\u0401\u043b\u043a\u0430", "\u0435\u043b\u043a\u0430"),
        ("\uff21\uff4c\uff45\uff58", "Alex"),
        ("\uff8a\uff9f\uff8a\uff9f", "\u30d1\u30d1"),
        ("\u2460", "1"),
        (PERSIAN, PERSIAN.replace("\u200c", "")),
        (BURNING_HEART, "\u2764\U0001f525"),
        ("\u845b\U000e0100\u57ce", "\u845b\u57ce"),
        ("Alex", "Al\u200bex\u202e"),
    ],
)
def test_spellings_of_one_name_share_a_key(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\u30d1\u30d1", "\u30cf\u30cf"),
        ("\u304c", "\u304b"),
        ("\u0915\u093f", "\u0915"),
        ("\u0e01\u0e34", "\u0e01"),
        ("\u05e9\u05c1", "\u05e9\u05c2"),
        ("\u0622", "\u0627"),
        ("\uac00", "\uac01"),
        ("\U0001f44d\U0001f3fb", "\U0001f44d\U0001f3ff"),
        ("Alex", "Alexa"),
    ],
)
def test_marks_of_other_scripts_make_another_name(one: str, other: str) -> None:
    assert fold(one) != fold(other)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_known_kind_is_taken_in_any_case(kind: str) -> None:
    assert kind_of(f"  {kind.upper()} \n") == kind


@pytest.mark.parametrize("value", ["banana", "", "  ", 7, None, True, ["person"], b"person"])
def test_K11_any_other_kind_is_other(value: object) -> None:
    assert kind_of(value) == "other"


def test_words_are_the_folded_texts_without_the_empty_ones() -> None:
    assert (
        words_of("Alex D\u00f3e", "", "AT the\nBeach", "person") == "alex doe at the beach person"
    )
