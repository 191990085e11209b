"""The tiny CLIP as it is shipped, loaded and fed as the product does."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random
from statistics import fmean

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sentence_transformers import SentenceTransformer
from transformers import CLIPModel

from tests.support import TINY_CLIP
from vision_worker.demo.kinds import KINDS
from vision_worker.demo.screens import (
    DEMO_QUERIES,
    captions,
    describe,
    held_out_screens,
    render,
    split,
)
from vision_worker.images import frame

VIEWS = 2
Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def model() -> Iterator[SentenceTransformer]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dtype = {"dtype": torch.float32}
    yield SentenceTransformer(str(TINY_CLIP), device="cpu", model_kwargs=dtype)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def demo(model: SentenceTransformer) -> tuple[list[str], list[str], Vectors]:
    names, texts, pictures = zip(*held_out_screens(24, seed=1), strict=True)
    return list(names), list(texts), seen(model, pictures)


def seen(model: SentenceTransformer, pictures: Sequence[Image.Image]) -> Vectors:
    return encoded(model, [frame(picture, "letterbox", 64)[0] for picture in pictures])


def read(model: SentenceTransformer, texts: Sequence[str]) -> Vectors:
    return encoded(model, [{"text": text} for text in texts])


def encoded(model: SentenceTransformer, inputs: list[object]) -> Vectors:
    vectors = model.encode(inputs, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(vectors, np.float32)


def test_held_out_screens_are_found_by_their_captions(model: SentenceTransformer) -> None:
    _, held_out = split()
    texts = read(model, [captions(screen)[0] for screen in held_out])
    dice = Random(20)
    rates: dict[str, list[float]] = defaultdict(list)
    for view in range(VIEWS):
        pictures = [render(s, 7000 + view, dice.choice((480, 960, 1280))) for s in held_out]
        first = (texts @ seen(model, pictures).T).argmax(1)
        for index, screen in enumerate(held_out):
            rates[screen.kind].append(float(first[index] == index))
    by_kind = {kind: fmean(found) for kind, found in rates.items()}
    assert set(by_kind) == set(KINDS)
    assert fmean(rate for found in rates.values() for rate in found) > 0.7, by_kind
    assert min(by_kind.values()) >= 0.5, by_kind


def test_held_out_screens_are_found_by_free_wording(model: SentenceTransformer) -> None:
    _, held_out = split()
    dice = Random(21)
    asked = [(screen.kind, describe(screen, dice)) for screen in held_out * 3]
    pictures = seen(model, [render(screen, 7100, 640) for screen in held_out])
    first = (read(model, [caption.text for _, caption in asked]) @ pictures.T).argmax(1)
    right = [
        held_out[index].agrees_with(*question) for index, question in zip(first, asked, strict=True)
    ]
    assert fmean(right) > 0.7


def test_each_demo_screen_is_found_first_by_its_caption(
    model: SentenceTransformer, demo: tuple[list[str], list[str], Vectors]
) -> None:
    names, texts, pictures = demo
    first = (read(model, texts) @ pictures.T).argmax(1)
    assert [names[index] for index in first] == names


def test_the_demo_queries_find_their_screens_by_a_clear_margin(
    model: SentenceTransformer, demo: tuple[list[str], list[str], Vectors]
) -> None:
    names, _, pictures = demo
    assert len(DEMO_QUERIES) == 3
    for query, name in DEMO_QUERIES:
        scores = (read(model, [query]) @ pictures.T)[0]
        best, second = np.argsort(-scores)[:2]
        assert names[best] == name, query
        assert scores[best] - scores[second] > 0.1, query


@pytest.mark.parametrize(
    ("query", "start"),
    [
        ("error", "dialog-error"),
        ("the screenshot with a red error dialog", "dialog-error"),
        ("red pie chart", "pie-red"),
        ("green donut", "pie-green-donut"),
        ("a dark login form", "login-purple-dark"),
        ("bars in red", "chart-red-bar-chart"),
        ("where did I put that desert at sunset?", "scene-a-desert-at-sunset"),
        ("Show me the calendar", "calendar"),
        ("the spreadsheet that I sent on Monday", "sheet"),
        ("purple folders", "files-purple"),
        ("map of the streets", "map-orange-street-map"),
        ("source code in two panes", "editor-light-in-two-panes"),
        ("kanban board", "kanban"),
        ("switches in the settings", "settings"),
    ],
)
def test_short_and_chatty_queries_find_what_they_mean(
    query: str,
    start: str,
    model: SentenceTransformer,
    demo: tuple[list[str], list[str], Vectors],
) -> None:
    names, _, pictures = demo
    assert names[int((read(model, [query]) @ pictures.T).argmax())].startswith(start)


def test_mild_wear_of_a_picture_moves_its_vector_little(model: SentenceTransformer) -> None:
    _, held_out = split()
    pictures = [render(screen, 7200, 1280, 720) for screen in held_out[::3]]
    halved = [picture.reduce(2) for picture in pictures]
    cosines = (seen(model, pictures) * seen(model, halved)).sum(1)
    assert float(cosines.min()) > 0.9


def test_the_folder_is_a_small_ordinary_clip_model() -> None:
    assert sum(file.stat().st_size for file in TINY_CLIP.iterdir()) < 2_500_000
    model = CLIPModel.from_pretrained(TINY_CLIP)
    assert model.dtype == torch.float16
    assert model.config.vision_config.image_size == 64
    results = json.loads((TINY_CLIP / "results.json").read_text())
    assert results["text_to_image"] > 0.7
    assert set(results["by_kind"]) == set(KINDS)
