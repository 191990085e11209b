"""The table of images as its readers see it: listing, looking up, deleting, counting."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.rows import MODEL, Rows
from vision_worker.errors import InvalidArgument
from vision_worker.front import Front
from vision_worker.index import Backlog, ImageIndex
from vision_worker.types import ImageFilter, ImageList, ImageRecord, IndexStatus

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
def index(front: Front) -> ImageIndex:
    return front.index


@pytest.fixture
def other(front: Front) -> ImageIndex:
    """The same database, another namespace."""
    return ImageIndex(front.database, namespace="other")


def ids(page: ImageList) -> list[str]:
    return [image.id for image in page.images]


async def test_an_image_is_got_by_its_own_id_or_its_memorys(index: ImageIndex, rows: Rows) -> None:
    image = await rows.image(
        error="undecodable",
        text="the log-in page",
        source_type="web",
        caption="a form",
        width=640,
        height=480,
        file_size_bytes=12_345,
        source_tool="browser",
        attempts=3,
        tags=("b", "a"),
        created_at=NOON,
        file_path="/p.png",
    )
    memory = await rows.database.fetchval("SELECT memory_id::text FROM memories_image")
    expected = ImageRecord(
        id=image,
        memory_id=memory,
        file_path="/p.png",
        sha256="0" * 64,
        mime_type="image/png",
        width=640,
        height=480,
        file_size_bytes=12_345,
        caption="a form",
        tags=["b", "a"],
        created_at=NOON.isoformat(),
        text="the log-in page",
        source_type="web",
        source_tool="browser",
        namespace="default",
        status="failed",
        error="it is undecodable",
        error_code="undecodable",
        attempts=3,
    )
    assert await index.get(image) == await index.get(memory) == expected


async def test_a_deleted_image_takes_its_memory_with_it(index: ImageIndex, rows: Rows) -> None:
    first, second = await rows.image(), await rows.image(sha256="1" * 64)
    memory = await rows.database.fetchval(
        "SELECT memory_id::text FROM memories_image WHERE sha256 = $1", "1" * 64
    )
    assert await index.is_referenced("1" * 64)
    assert await index.delete(memory) == "1" * 64
    assert await index.delete(memory) is None
    assert not await index.is_referenced("1" * 64)
    assert ids(await index.page()) == [first]
    assert await index.get(second) is None
    assert await rows.database.fetchval("SELECT count(*) FROM memories") == 1


async def test_nothing_is_seen_or_touched_across_namespaces(
    index: ImageIndex, other: ImageIndex, rows: Rows
) -> None:
    theirs = await rows.image(namespace="other")
    failed = await rows.image(namespace="other", error="undecodable")
    assert (await index.page()).images == []
    assert await index.get(theirs) is None
    assert await index.delete(theirs) is None
    assert await index.failures() == []
    assert await index.retry() == 0
    assert (await index.status()).pending == 0
    assert (await index.backlog()).failed == 0
    assert ids(await other.page()) == [failed, theirs]
    assert (await other.status()).failed == 1
    assert await other.retry() == 1


@pytest.mark.parametrize("size", [1, 3, 7])
async def test_pages_of_a_listing_neither_repeat_nor_skip(
    index: ImageIndex, rows: Rows, size: int
) -> None:
    # Several were saved in the same moment.
    images = [
        (
            NOON + timedelta(minutes=number // 3),
            await rows.image(created_at=NOON + timedelta(minutes=number // 3)),
        )
        for number in range(7)
    ]
    newest = [image for _, image in sorted(images, key=lambda one: (-one[0].timestamp(), one[1]))]
    for order, expected in (("newest", newest), ("oldest", newest[::-1])):
        listed: list[str] = []
        cursor = None
        while True:
            page = await index.page(limit=size, order=order, cursor=cursor)  # type: ignore[arg-type]
            listed += ids(page)
            cursor = page.cursor
            if cursor is None:
                break
            assert len(page.images) == size
        assert listed == expected


async def test_a_listing_obeys_its_filter_and_leaves_archived_memories_out(
    index: ImageIndex, rows: Rows
) -> None:
    await rows.image(archived=True)
    plain = await rows.image(created_at=NOON)
    tagged = await rows.image(created_at=NOON + timedelta(hours=1), tags=("a", "b"))
    web = await rows.image(created_at=NOON + timedelta(hours=2), tags=("a",), source_type="web")
    for where, expected in (
        (ImageFilter(), [web, tagged, plain]),
        (ImageFilter(tags=("a",)), [web, tagged]),
        (ImageFilter(tags=("a", "b")), [tagged]),
        (ImageFilter(source_type="web"), [web]),
        (ImageFilter(created_before=NOON + timedelta(hours=1)), [plain]),
        (ImageFilter(tags=("a",), created_after=NOON + timedelta(hours=2)), [web]),
    ):
        assert ids(await index.page(where)) == expected


async def test_arguments_that_make_no_sense_are_refused_with_a_sentence(index: ImageIndex) -> None:
    for cursor in ("!", "bm90IG9uZQ==", "é"):
        with pytest.raises(InvalidArgument, match="cursor is not usable: it is not one that an"):
            await index.page(cursor=cursor)
    with pytest.raises(InvalidArgument, match="order is not usable"):
        await index.page(order="best")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="limit is not usable"):
        await index.page(limit=0)
    with pytest.raises(InvalidArgument, match="'x' is not a uuid"):
        await index.get("x")
    with pytest.raises(InvalidArgument, match="'x' is not a uuid"):
        await index.delete("x")


async def test_the_status_counts_each_image_once(index: ImageIndex, rows: Rows) -> None:
    assert await index.status() == IndexStatus("default", None, 0, 0, 0, None, 0, ready=True)
    await rows.model()
    for _ in range(3):
        await rows.image([1, 0])
    await rows.image(error="undecodable")
    await rows.image(created_at=datetime.now(UTC) - timedelta(seconds=90))
    await rows.image()
    await rows.worker()
    status = await index.status()
    assert (status.model, status.pending, status.embedded, status.failed) == (MODEL, 2, 3, 1)
    assert (status.workers, status.ready) == (1, True)
    assert status.oldest_pending_seconds == pytest.approx(90, abs=30)


async def test_only_workers_that_are_ready_and_alive_count(index: ImageIndex, rows: Rows) -> None:
    await rows.worker("loading")
    await rows.worker(queues=("embed",))
    gone = await rows.worker()
    await rows.database.fetch(
        "UPDATE vision_workers SET last_seen_at = now() - '1 min'::interval WHERE id = $1", gone
    )
    assert (await index.status()).workers == 1
    assert (await index.backlog()).encoder_alive is False
    assert {worker["state"] for worker in await index.workers()} == {"loading", "ready"}
    await rows.worker()
    assert (await index.backlog()).encoder_alive is True


async def test_the_index_is_not_ready_while_an_image_that_could_be_claimed_waits_too_long(
    index: ImageIndex, rows: Rows
) -> None:
    now = datetime.now(UTC)
    hours = timedelta(hours=2)
    # One backs off and one is being worked on: neither of them could be claimed.
    await rows.image(created_at=now - hours, next_attempt_at=now + hours)
    await rows.image(created_at=now - hours, lease_expires_at=now + hours)
    assert (await index.status(ready_seconds=60)).ready
    await rows.image(created_at=now - hours, next_attempt_at=now - hours)
    assert not (await index.status(ready_seconds=60)).ready
    assert (await index.status(ready_seconds=3 * 3600)).ready
    assert await index.due() == 1


async def test_the_backlog_names_the_model_and_how_pictures_are_framed(
    index: ImageIndex, rows: Rows
) -> None:
    assert await index.backlog() == Backlog(
        model=None,
        models=(),
        framing="tiles",
        input_size=0,
        pending=0,
        failed=0,
        encoder_alive=False,
    )
    await rows.model("clip@1+centre-crop", name="clip", framing="centre-crop")
    await rows.image()
    await rows.image(archived=True)
    await rows.image(error="poison")
    await rows.worker()
    assert await index.backlog() == Backlog(
        model="clip@1+centre-crop",
        models=("clip@1+centre-crop", "clip"),
        framing="centre-crop",
        input_size=64,
        pending=1,
        failed=1,
        encoder_alive=True,
    )


async def test_failures_are_grouped_and_tried_again_by_code(index: ImageIndex, rows: Rows) -> None:
    await rows.image(error="undecodable")
    await rows.image(error="undecodable")
    await rows.image(error="poison", attempts=5)
    await rows.image()
    assert await index.failures() == [
        {"code": "undecodable", "images": 2, "example": "it is undecodable"},
        {"code": "poison", "images": 1, "example": "it is poison"},
    ]
    assert await index.retry("poison") == 1
    assert await index.retry("poison") == 0
    status = await index.status()
    assert (status.pending, status.failed) == (2, 2)
    assert await index.retry() == 2
    assert (await index.status()).pending == 4
