import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from vision_worker.demo.kinds import KINDS
from vision_worker.demo.screens import (
    DEMO_QUERIES,
    Composition,
    captions,
    compositions,
    describe,
    held_out_screens,
    render,
    split,
    vocabulary,
)
from vision_worker.demo.wording import words_of


def test_every_screen_draws_the_same_pixels_again() -> None:
    for composition in compositions()[::7]:
        first, again = render(composition, 3, 320), render(composition, 3, 320)
        assert (first.mode, first.size) == ("RGB", again.size)
        assert first.tobytes() == again.tobytes()


def test_another_seed_draws_another_picture() -> None:
    for kind in KINDS:
        composition = next(known for known in compositions() if known.kind == kind)
        pixels = {render(composition, seed, 160, 100).tobytes() for seed in range(5)}
        assert len(pixels) == 5


@pytest.mark.parametrize("size", [(64, 64), (160, 90), (90, 160), (1280, 720), (750, 1334)])
def test_every_kind_fits_any_size(size: tuple[int, int]) -> None:
    for kind in KINDS:
        composition = next(known for known in compositions() if known.kind == kind)
        picture = render(composition, 1, *size)
        assert picture.size == size
        assert len(picture.getcolors(size[0] * size[1]) or ()) > 1


def test_without_a_height_pictures_have_wide_square_and_tall_shapes() -> None:
    composition = compositions()[0]
    sizes = [render(composition, seed, 320).size for seed in range(40)]
    assert {width for width, _ in sizes} == {320}
    assert {(320, 180), (320, 240), (320, 320), (320, 569)} <= set(sizes)


def test_the_split_is_complete_and_disjoint_and_holds_a_fifth_of_every_kind_out() -> None:
    training, held_out = split()
    assert Counter(training + held_out) == Counter(compositions())
    assert split() == (training, held_out)
    total = Counter(composition.kind for composition in compositions())
    out = Counter(composition.kind for composition in held_out)
    assert out == {kind: round(0.2 * count) for kind, count in total.items()}


def test_every_value_of_a_held_out_screen_occurs_in_training() -> None:
    training, held_out = split()

    def facts(screens: list[Composition]) -> set[tuple[str, str, str]]:
        return {
            (screen.kind, name, value)
            for screen in screens
            for name, value in screen.attributes.items()
        }

    assert facts(held_out) <= facts(training)


def test_first_captions_tell_all_screens_apart() -> None:
    first = [captions(composition)[0] for composition in compositions()]
    assert len(set(first)) == len(first)
    assert "a light error dialog on a gray desktop" in first
    assert "an orange circle on a white background" in first


def test_descriptions_use_known_words_and_are_true_of_their_screen() -> None:
    dice, known = Random(5), set(vocabulary())
    for composition in compositions():
        assert all(words_of(text) <= known for text in captions(composition))
        for _ in range(20):
            caption = describe(composition, dice)
            assert words_of(caption.text) <= known, caption
            assert composition.agrees_with(composition.kind, caption)


def test_a_partial_description_is_true_of_several_screens_and_not_of_others() -> None:
    dice = Random(1)
    composition = Composition("login", ("red", "dark"))
    caption = next(
        caption
        for caption in (describe(composition, dice) for _ in range(1000))
        if caption.stated == {"theme": "dark"}
    )
    true = {known for known in compositions() if known.agrees_with("login", caption)}
    assert true == {
        Composition("login", (colour, "dark"))
        for colour in ("red", "green", "blue", "orange", "purple")
    }


def test_held_out_screens_are_distinct_screens_in_screen_sizes() -> None:
    screens = held_out_screens(24, seed=1)
    names, texts, pictures = zip(*screens, strict=True)
    assert len(set(names)) == len(set(texts)) == 24
    assert all(name.endswith(".png") and " " not in name for name in names)
    _, held_out = split()
    assert set(texts) <= {captions(composition)[0] for composition in held_out}
    assert {name.split("-")[0] for name in names} == set(KINDS)
    assert min(max(picture.size) for picture in pictures) >= 1080
    assert any(picture.height > picture.width for picture in pictures)
    assert {name for _, name in DEMO_QUERIES} <= set(names)


def test_held_out_screens_are_the_same_for_the_same_seed_and_end_where_they_end() -> None:
    few, again = held_out_screens(3, seed=2), held_out_screens(3, seed=2)
    assert [(name, text) for name, text, _ in few] == [(name, text) for name, text, _ in again]
    assert [picture.tobytes() for *_, picture in few] == [p.tobytes() for *_, p in again]
    with pytest.raises(ValueError, match="held-out screens, not 1000"):
        held_out_screens(1000, seed=1)


def test_drawing_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from vision_worker.demo.screens import held_out_screens;"
        "held_out_screens(2, 1); print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
