"""Search: what is ranked, in what order, and what is counted beside it."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from PIL import Image

from tests.rows import CROWD, FAILED, WAITING, Rows, Sentences
from vision_worker import query as module
from vision_worker.broker import Broker
from vision_worker.database import SESSION, Database
from vision_worker.decoders import DecoderPool
from vision_worker.encoder import QueryEncoder
from vision_worker.errors import (
    EncoderUnavailable,
    FileMissing,
    ImageNotFound,
    InvalidArgument,
)
from vision_worker.front import Front
from vision_worker.index import ImageIndex
from vision_worker.query import ImageQuery, Limits
from vision_worker.types import ImageFilter, SearchPage, SearchResult

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
MakeQuery = Callable[..., ImageQuery]


@pytest.fixture
def sentences() -> Sentences:
    return Sentences()


@pytest.fixture
def make_query(sentences: Sentences) -> MakeQuery:
    """An ImageQuery whose sentences are numbers; no worker is there."""

    def make(index: ImageIndex) -> ImageQuery:
        encoder = QueryEncoder(Broker("redis://none"), seconds=1, local=lambda: sentences)
        limits = Limits(max_file_size=1 << 20, max_pixels=1 << 20)
        return ImageQuery(encoder, index, DecoderPool(workers=1, seconds=10), limits)

    return make


@pytest.fixture
def query(front: Front, make_query: MakeQuery) -> ImageQuery:
    return make_query(front.index)


@pytest.fixture
def other(front: Front, make_query: MakeQuery) -> ImageQuery:
    """The same database, another namespace."""
    return make_query(ImageIndex(front.database, namespace="other"))


@pytest.fixture
async def crowd_query(crowd: Database, make_query: MakeQuery) -> ImageQuery:
    return make_query(ImageIndex(crowd))


def ids(page: SearchPage) -> list[str]:
    return [hit.image_id for hit in page.hits]


async def test_a_hit_says_everything_about_its_image(query: ImageQuery, rows: Rows) -> None:
    await rows.model()
    image = await rows.image(
        [0, 1],
        text="the log-in page",
        caption="a form",
        tags=("b", "a"),
        created_at=NOON,
        file_path="/p.png",
    )
    memory = await rows.database.fetchval("SELECT memory_id::text FROM memories_image")
    assert await query.search_by_text("1 0") == SearchPage(
        [
            SearchResult(
                memory_id=memory,
                image_id=image,
                file_path="/p.png",
                sha256="0" * 64,
                caption="a form",
                distance=1.0,
                text="the log-in page",
                created_at=NOON.isoformat(),
                tags=["b", "a"],
                source_type="file",
            )
        ],
        pending=0,
        failed=0,
    )


async def test_hits_come_nearest_first_by_cosine_distance(query: ImageQuery, rows: Rows) -> None:
    await rows.model()
    far = await rows.image([-2, 0])
    near = await rows.image([3, 0.1])
    middle = await rows.image([0, 5])
    page = await query.search_by_text("1 0")
    assert ids(page) == [near, middle, far]
    assert [hit.distance for hit in page.hits] == pytest.approx(
        [1 - 3 / math.hypot(3, 0.1), 1, 2], abs=1e-6
    )


async def test_equal_distances_are_ordered_by_id(query: ImageQuery, rows: Rows) -> None:
    await rows.model()
    images = [await rows.image([1, 1]) for _ in range(8)]
    assert ids(await query.search_by_text("1 0")) == sorted(images)


async def test_a_vector_of_zeros_that_other_software_wrote_is_no_hit(
    query: ImageQuery, rows: Rows
) -> None:
    await rows.model()
    await rows.image([0, 0])
    image = await rows.image([1, 1])
    assert ids(await query.search_by_text("1 0")) == [image]


async def test_only_vectors_of_the_active_model_are_ranked(query: ImageQuery, rows: Rows) -> None:
    await rows.model()
    image = await rows.image([1, 0])
    await rows.image([1, 0], model="clip@2+letterbox")
    await rows.image([1, 0], model="clip")
    assert ids(await query.search_by_text("1 0")) == [image]


async def test_a_bare_model_name_means_the_centre_crop_of_that_model(
    query: ImageQuery, rows: Rows, sentences: Sentences
) -> None:
    sentences.key = "clip@1+centre-crop"
    await rows.model(sentences.key, framing="centre-crop")
    own = await rows.image([1, 0], model=sentences.key)
    bare = await rows.image([1, 0.5], model="clip")
    await rows.image([1, 0], model="clip-large")
    assert ids(await query.search_by_text("1 0")) == [own, bare]


async def test_archived_memories_are_neither_ranked_nor_counted(
    query: ImageQuery, rows: Rows
) -> None:
    await rows.model()
    image = await rows.image([0, 1])
    await rows.image([1, 0], archived=True)
    await rows.image(archived=True)
    await rows.image(error="undecodable", archived=True)
    page = await query.search_by_text("1 0")
    assert (ids(page), page.pending, page.failed) == ([image], 0, 0)


async def test_a_memory_of_which_nobody_said_whether_it_is_archived_is_not(
    query: ImageQuery, rows: Rows
) -> None:
    await rows.model()
    image = await rows.image([0, 1])
    await rows.database.fetch("UPDATE memories SET is_archived = NULL")
    assert ids(await query.search_by_text("1 0")) == [image]


async def test_nothing_is_found_or_counted_across_namespaces(
    query: ImageQuery, other: ImageQuery, rows: Rows
) -> None:
    await rows.model()
    mine = await rows.image([1, 0])
    theirs = await rows.image([1, 0], namespace="other")
    await rows.image(namespace="other")
    page = await query.search_by_text("1 0")
    assert (ids(page), page.pending) == ([mine], 0)
    page = await other.search_by_text("1 0")
    assert (ids(page), page.pending) == ([theirs], 1)
    with pytest.raises(ImageNotFound, match=f"no image {theirs} in namespace default"):
        await query.search_by_id(theirs)


FILTERS = {
    "one tag": (ImageFilter(tags=("a",)), [0, 1, 2]),
    "all of two tags": (ImageFilter(tags=("b", "a")), [1, 2]),
    "an unknown tag": (ImageFilter(tags=("a", "z")), []),
    "source type": (ImageFilter(source_type="web"), [2, 3]),
    "from": (ImageFilter(created_after=NOON + timedelta(hours=1)), [1, 2, 3]),
    "before": (ImageFilter(created_before=NOON + timedelta(hours=1)), [0]),
    "a range": (
        ImageFilter(
            created_after=NOON + timedelta(hours=1), created_before=NOON + timedelta(hours=3)
        ),
        [1, 2],
    ),
    "everything at once": (
        ImageFilter(tags=("a",), source_type="web", created_after=NOON, created_before=None),
        [2],
    ),
    "none": (ImageFilter(), [0, 1, 2, 3]),
}


@pytest.mark.parametrize(("where", "expected"), FILTERS.values(), ids=FILTERS)
async def test_hits_and_counts_obey_exactly_the_same_filter(
    query: ImageQuery, rows: Rows, where: ImageFilter, expected: list[int]
) -> None:
    await rows.model()
    images = []
    for number, (tags, source_type) in enumerate(
        [(("a",), "file"), (("a", "b"), "file"), (("c", "b", "a"), "web"), ((), "web")]
    ):
        at = NOON + timedelta(hours=number)
        kind: dict[str, Any] = {"tags": tags, "source_type": source_type, "created_at": at}
        images.append(await rows.image([1, number], **kind))
        await rows.image(**kind)
        await rows.image(error="undecodable", **kind)
        await rows.image(error="poison", **kind)
    page = await query.search_by_text("1 0", where=where)
    assert (ids(page), page.pending, page.failed) == (
        [images[number] for number in expected],
        len(expected),
        2 * len(expected),
    )


async def test_what_is_pending_or_failed_changes_no_hit(query: ImageQuery, rows: Rows) -> None:
    await rows.model()
    for number in range(5):
        await rows.image([1, number])
    before = await query.search_by_text("1 0")
    for _ in range(3):
        await rows.image()
        await rows.image(error="undecodable")
    after = await query.search_by_text("1 0")
    assert after == replace(before, pending=3, failed=3)
    assert len(before.hits) == 5


async def test_pages_neither_repeat_nor_skip(query: ImageQuery, rows: Rows) -> None:
    await rows.model()
    for number in range(11):
        await rows.image([1, number // 3])
    whole = ids(await query.search_by_text("1 0", 100))
    pages = [ids(await query.search_by_text("1 0", 3, offset=offset)) for offset in range(0, 12, 3)]
    assert [len(page) for page in pages] == [3, 3, 3, 2]
    assert list(chain(*pages)) == whole


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_limit_out_of_bounds_is_refused(crowd_query: ImageQuery, limit: int) -> None:
    with pytest.raises(InvalidArgument, match="limit is not usable: it must lie between 1 and"):
        await crowd_query.search_by_text("1 0", limit)


@pytest.mark.parametrize("offset", [-1, 1 << 31])
async def test_an_offset_out_of_bounds_is_refused(crowd_query: ImageQuery, offset: int) -> None:
    with pytest.raises(InvalidArgument, match="offset is not usable: it must lie between 0 and"):
        await crowd_query.search_by_text("1 0", offset=offset)


@pytest.mark.parametrize("text", ["", " \n\t", "1 " * 2001])
async def test_a_query_that_says_nothing_or_too_much_is_refused(
    crowd_query: ImageQuery, text: str
) -> None:
    with pytest.raises(InvalidArgument, match="query is not usable"):
        await crowd_query.search_by_text(text)


@pytest.mark.parametrize("tag", ["a\0b", "\udc80"])
async def test_a_filter_that_the_database_cannot_hold_is_refused_with_a_sentence(
    crowd_query: ImageQuery, tag: str
) -> None:
    with pytest.raises(InvalidArgument, match="the database cannot take it"):
        await crowd_query.search_by_text("1 0", where=ImageFilter(tags=(tag,)))


async def test_nothing_is_encoded_where_nothing_could_be_found(
    query: ImageQuery, rows: Rows, sentences: Sentences, tmp_path: Path
) -> None:
    picture = tmp_path / "picture.png"
    Image.new("RGB", (8, 8)).save(picture)
    assert await query.search_by_text("1 0") == SearchPage([], 0, 0)
    await rows.model()
    await rows.image()
    await rows.image([1, 0], tags=("a",), model="another@1")
    assert await query.search_by_text("1 0") == SearchPage([], 1, 0)
    assert await query.search_by_text("1 0", where=ImageFilter(tags=("a",))) == SearchPage([], 0, 0)
    assert await query.search_by_image(picture) == SearchPage([], 1, 0)
    assert sentences.asked == []


# --- by picture ---------------------------------------------------------------------------------


async def test_a_kept_image_finds_its_like_and_not_itself(query: ImageQuery, rows: Rows) -> None:
    await rows.model()
    itself = await rows.image([1, 0])
    twins = sorted([await rows.image([2, 0]) for _ in range(4)])
    far = await rows.image([0, 1])
    pages = [ids(await query.search_by_id(itself, 2, offset=offset)) for offset in (0, 2, 4)]
    assert pages == [twins[:2], twins[2:], [far]]
    assert ids(await query.search_by_id(itself, 1000)) == [*twins, far]


async def test_an_image_that_has_no_vector_of_the_active_model_is_like_nothing(
    query: ImageQuery, rows: Rows
) -> None:
    await rows.model()
    await rows.image([1, 0])
    pending = await rows.image()
    failed = await rows.image(error="undecodable")
    foreign = await rows.image([1, 0], model="another@1")
    for image in (pending, failed, foreign):
        assert await query.search_by_id(image) == SearchPage([], 1, 1)


async def test_an_unknown_image_and_a_word_that_is_no_id_are_told_apart(query: ImageQuery) -> None:
    with pytest.raises(ImageNotFound):
        await query.search_by_id("00000000-0000-0000-0000-000000000000")
    with pytest.raises(InvalidArgument, match="'picture' is not a uuid"):
        await query.search_by_id("picture")


async def test_a_search_by_a_picture_needs_the_picture_and_a_worker(
    query: ImageQuery, rows: Rows, tmp_path: Path
) -> None:
    await rows.model()
    await rows.image([1, 0])
    picture = tmp_path / "picture.png"
    with pytest.raises(FileMissing):
        await query.search_by_image(picture)
    Image.new("RGB", (8, 8)).save(picture)
    with pytest.raises(EncoderUnavailable, match="no worker is running"):
        await query.search_by_image(picture)


# --- many rows ----------------------------------------------------------------------------------


def crowd_id(number: int) -> str:
    return str(UUID(hashlib.md5(f"image {number}".encode()).hexdigest()))


SELECTIVE = {
    "a hundredth by tag": (ImageFilter(tags=("hundredth",)), CROWD // 100),
    "a thousandth by tag": (ImageFilter(tags=("thousandth",)), CROWD // 1000),
    "a hundredth by source type": (ImageFilter(source_type="web"), CROWD // 100 - CROWD // 1000),
    "a thousandth by source type": (ImageFilter(source_type="github"), CROWD // 1000),
    "a hundredth by time": (
        ImageFilter(created_before=datetime(2026, 1, 1, 3, 21, tzinfo=UTC)),
        CROWD // 100,
    ),
    "all but none": (ImageFilter(source_type="file"), CROWD - CROWD // 100),
    "nothing": (ImageFilter(), CROWD),
}


@pytest.mark.parametrize("plans", ["every plan", "the graph alone"])
@pytest.mark.parametrize(("where", "count"), SELECTIVE.values(), ids=SELECTIVE)
async def test_a_selective_filter_still_fills_the_page_with_the_nearest(
    crowd_query: ImageQuery,
    monkeypatch: pytest.MonkeyPatch,
    where: ImageFilter,
    count: int,
    plans: str,
) -> None:
    if plans == "the graph alone":
        monkeypatch.setitem(SESSION, "enable_sort", "off")
    image = crowd_id(4321)
    monkeypatch.setattr(module, "EXACT_ROWS", CROWD)
    exact = await crowd_query.search_by_id(image, 10, where=where)
    monkeypatch.setattr(module, "EXACT_ROWS", 0)
    monkeypatch.setattr(module, "MAX_SCAN_TUPLES", 1_000)
    scanned = await crowd_query.search_by_id(image, 10, where=where)
    assert len(exact.hits) == min(10, count)
    assert scanned == exact
    distances = [hit.distance for hit in scanned.hits]
    assert distances == sorted(distances)


async def test_a_scan_of_many_rows_finds_what_comparing_them_all_finds(
    crowd_query: ImageQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = 0
    for number in range(1, CROWD, CROWD // 20):
        page = await crowd_query.search_by_id(crowd_id(number), 50)
        assert (page.pending, page.failed) == (WAITING, FAILED)
        with monkeypatch.context() as patch:
            patch.setattr(module, "EXACT_ROWS", CROWD)
            exact = await crowd_query.search_by_id(crowd_id(number), 50)
        found += len(set(ids(page)) & set(ids(exact)))
    assert found >= 0.98 * 20 * 50


async def test_pages_of_a_scan_neither_repeat_nor_skip(crowd_query: ImageQuery) -> None:
    image = crowd_id(77)
    whole = ids(await crowd_query.search_by_id(image, 100))
    pages = [ids(await crowd_query.search_by_id(image, 10, offset=n)) for n in range(0, 100, 10)]
    assert list(chain(*pages)) == whole
    assert len(set(whole)) == 100
    last = await crowd_query.search_by_id(image, 10, offset=CROWD - 6)
    assert len(last.hits) == 5


async def test_the_largest_page_is_full(crowd_query: ImageQuery) -> None:
    page = await crowd_query.search_by_id(crowd_id(5), 1000)
    assert len(set(ids(page)) - {crowd_id(5)}) == 1000
