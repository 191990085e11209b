"""Recalling keepsakes: by name, by words, by look, and honest misses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pictures import drawing, encoded
from tests.support import Process, drained
from vision_worker.config import VisionConfig
from vision_worker.demo.screens import held_out_screens
from vision_worker.errors import InvalidArgument
from vision_worker.front import Front

SAID = ("ねこ", "東京タワー", "кот Барсик", "γάτα", "قطة", "고양이", "X")


async def keep(front: Front, about: str, note: str = "", kind: str = "other") -> str:
    """A keepsake with a picture of its own; its id."""
    size = 20 + sum(map(ord, about + note)) % 4000
    picture = encoded(drawing(size, 16), "PNG")
    kept = await front.keepsakes.remember(about, picture, source="test", note=note, kind=kind)
    return kept.keepsake.id


async def found(front: Front, query: str) -> list[tuple[str, tuple[str, ...]]]:
    page = await front.recall.recall(query)
    return [(hit.keepsake.about, hit.matched) for hit in page.hits]


@pytest.mark.parametrize("name", [pytest.param(name, id=f"R01-{name}") for name in SAID])
async def test_an_exact_name_of_any_script_comes_first(front: Front, name: str) -> None:
    for about in SAID:
        await keep(front, about, note=f"with {name}" if about != name else "")
    first, *_ = await found(front, name)
    assert first == (name, ("name", "words"))


async def test_R03_what_is_not_kept_is_not_found(front: Front) -> None:
    await keep(front, "Mochi", note="the cat of the neighbours", kind="other")
    await keep(front, "headphones", note="the ones on my desk", kind="product")
    assert await found(front, "the dog") == []
    assert await found(front, "of the") == []
    assert await found(front, "犬") == []


async def test_R04_R10_without_a_worker_a_name_is_found_at_once_and_it_says_words_only(
    front: Front,
) -> None:
    await keep(front, "Alex Doe", kind="person")
    page = await front.recall.recall("Alex Doe")
    assert page.words_only
    assert [(hit.keepsake.about, hit.keepsake.status, hit.distance) for hit in page.hits] == [
        ("Alex Doe", "pending", None)
    ]


async def test_a_name_that_is_said_outranks_any_number_of_words(front: Front) -> None:
    await keep(front, "Beach", note="the beach at Alex's place, beach, sand and the beach again")
    await keep(front, "The dunes", note="a walk at the beach")
    await keep(front, "Alex", kind="person")
    await keep(front, "Alex Doe", kind="person")
    names = [about for about, _ in await found(front, "Alex at the beach")]
    assert names[:2] == ["Beach", "Alex"] or names[:2] == ["Alex", "Beach"]
    assert names.index("Alex") < names.index("The dunes")
    assert [about for about, _ in await found(front, "alex")][:2] == ["Alex", "Alex Doe"]


@pytest.mark.parametrize(
    ("query", "about"),
    [
        ("Fulano Perez", "Fulano Pérez"),
        ("FULANO", "Fulano Pérez"),
        ("Fluano", "Fulano Pérez"),
        ("strasse", "Straße nach Łódź"),
        ("lodz", "Straße nach Łódź"),
        ("ねこの写真", "ねこ"),
        ("東京タワーを見せて", "東京タワー"),
        ("a picture of Барсик", "кот Барсик"),
        ("the one with the red umbrella", "rainy day"),
        ("umbrela", "rainy day"),
        ("person", "Fulano Pérez"),
    ],
)
async def test_words_are_found_in_whatever_way_they_are_written(
    front: Front, query: str, about: str
) -> None:
    await keep(front, "Fulano Pérez", kind="person")
    await keep(front, "Straße nach Łódź", kind="place")
    await keep(front, "ねこ")
    await keep(front, "東京タワー", kind="place")
    await keep(front, "кот Барсик")
    await keep(front, "rainy day", note="she holds a red umbrella", kind="scene")
    assert [name for name, _ in await found(front, query)] == [about]


async def test_pa_pa_is_not_ha_ha_and_one_letter_is_not_part_of_a_word(front: Front) -> None:
    await keep(front, "ハハ")
    await keep(front, "Alexandra")
    assert await found(front, "パパ") == []
    assert await found(front, "a") == []
    assert await found(front, "Alex") == []


async def test_the_trash_and_other_namespaces_are_not_searched(
    front: Front, config: VisionConfig
) -> None:
    kept = await keep(front, "Alex")
    async with await Front.open(config.model_copy(update={"namespace": "other"})) as other:
        assert await found(other, "Alex") == []
        assert (await other.keepsakes.entities()) == ([], 0)
    await front.keepsakes.forget(kept)
    assert await found(front, "Alex") == []


async def test_no_more_than_the_limit_come_back(front: Front) -> None:
    for number in range(9):
        await keep(front, f"Alex {number}")
    assert len(await found(front, "Alex")) == 8
    assert len((await front.recall.recall("Alex", limit=3)).hits) == 3
    for limit in (0, 1001):
        with pytest.raises(InvalidArgument):
            await front.recall.recall("Alex", limit=limit)
    with pytest.raises(InvalidArgument, match="it is empty"):
        await front.recall.recall(" \u200b ")


async def test_a_picture_is_found_by_what_it_shows_and_not_by_what_it_does_not(
    front: Front, start_worker: Callable[..., Process], tmp_path: Path
) -> None:
    captions = {}
    for name, caption, picture in held_out_screens(50, seed=1):
        kind = name.partition("-")[0]
        if kind in ("login", "calendar", "editor", "chart") and kind not in captions:
            captions[kind] = caption
            picture.resize((640, 640 * picture.height // picture.width)).save(tmp_path / name)
            await front.keepsakes.remember(f"note {kind[::-1]}", tmp_path / name, source="test")
    start_worker()
    await drained(front)
    page = await front.recall.recall(captions["login"])
    assert not page.words_only
    assert [(hit.keepsake.about, hit.matched) for hit in page.hits] == [("note nigol", ("look",))]
    assert page.hits[0].distance == pytest.approx(page.hits[0].distance or -1)
    for query in ("the dog", "a cat on the sofa", "headphones"):
        assert await found(front, query) == []
