"""The published names of memini-vision, on real tables, with a real worker."""

import asyncio
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import memini_vision
import pytest
from memini_vision import (
    ClipEmbedder,
    ImageIndex,
    ImageQuery,
    ImageRecord,
    ImageStore,
    VisionConfig,
)
from memini_vision.store import mime_for_ext
from PIL import Image

from tests.pictures import drawing, encoded
from tests.rows import MODEL, Rows, padded
from tests.support import TINY_CLIP, Process, drained, execute, with_database
from vision_worker.errors import ConfigError, EncoderUnavailable, InvalidArgument, SchemaOutdated
from vision_worker.front import Front
from vision_worker.migrate import migrate, migrations
from vision_worker.runtime import runtime

SHA = hashlib.sha256(b"picture").hexdigest()
StartWorker = Callable[..., Process]


@pytest.fixture
def index(
    database_url: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ImageIndex]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield ImageIndex(database_url)
    runtime(database_url).close()


@pytest.fixture
def rows(front: Front) -> Rows:
    return Rows(front.database)


async def memory(front: Front, text: str = "a memory") -> str:
    identifier = uuid4()
    await front.database.fetch(
        "INSERT INTO memories (id, text, source_type) VALUES ($1, $2, 'session')", identifier, text
    )
    return str(identifier)


async def insert(index: ImageIndex, front: Front, **columns: object) -> str:
    given = {
        "memory_id": await memory(front),
        "file_path": "/pictures/one.png",
        "sha256": SHA,
        "mime_type": "image/png",
        "embedding": ClipEmbedder().encode_image("/pictures/one.png"),
        **columns,
    }
    image_id, created_at = await index.insert(**given)
    assert created_at is not None
    return image_id


def test_every_published_name_is_there() -> None:
    assert {name: getattr(memini_vision, name) for name in memini_vision.__all__} | {
        "EMBEDDING_DIM": 768
    } == {name: getattr(memini_vision, name) for name in memini_vision.__all__}
    assert sorted(memini_vision.__all__) == [
        "ALLOWED_CLIP_MODELS",
        "ClipEmbedder",
        "EMBEDDING_DIM",
        "ImageIndex",
        "ImageQuery",
        "ImageRecord",
        "ImageStore",
        "SaveResult",
        "SearchResult",
        "VisionConfig",
    ]
    assert list(inspect.signature(ClipEmbedder).parameters) == ["model_name", "device"]
    assert list(inspect.signature(ImageQuery).parameters) == ["embedder", "index"]
    keywords = inspect.signature(ImageIndex.insert).parameters
    assert [name for name, each in keywords.items() if each.kind is each.KEYWORD_ONLY] == [
        "memory_id",
        "file_path",
        "sha256",
        "mime_type",
        "embedding",
        "width",
        "height",
        "file_size_bytes",
        "caption",
        "source_tool",
        "tags",
        "embedding_model",
    ]


async def test_a_placeholder_becomes_a_pending_row_and_its_memory_leads_to_the_picture(
    index: ImageIndex, front: Front
) -> None:
    image_id = await insert(
        index, front, width=4, height=3, file_size_bytes=7, caption="c", tags=["a"]
    )
    image = await index.get_by_id(image_id)
    assert image == await index.get_by_memory_id(image.memory_id)
    assert image == await index.get_by_sha256(SHA)
    assert image == ImageRecord(
        id=image_id,
        memory_id=image.memory_id,
        file_path="/pictures/one.png",
        sha256=SHA,
        mime_type="image/png",
        width=4,
        height=3,
        file_size_bytes=7,
        caption="c",
        tags=["a"],
        created_at=image.created_at,
        text="a memory",
        source_type="session",
        status="pending",
    )
    metadata = await front.database.fetchval(
        "SELECT metadata::text FROM memories WHERE id = $1::text::uuid", image.memory_id
    )
    assert json.loads(metadata) == {
        "image_id": image_id,
        "image_path": "/pictures/one.png",
        "image_sha256": SHA,
    }


async def test_a_finished_vector_is_kept_as_one_of_its_model(
    index: ImageIndex, front: Front, rows: Rows
) -> None:
    vector = padded([0.6, 0.8])
    image_id = await insert(index, front, embedding=vector)
    kept = await front.database.fetchrow(
        "SELECT embedding::text AS vector, embedding_model, embedded_at IS NULL AS undated"
        " FROM memories_image WHERE id = $1::text::uuid",
        image_id,
    )
    assert kept is not None
    assert json.loads(kept["vector"]) == pytest.approx(vector)
    assert (kept["embedding_model"], kept["undated"]) == ("clip-ViT-B-32", False)


async def test_a_picture_that_is_embedded_already_gives_the_new_row_its_vector(
    index: ImageIndex, front: Front, rows: Rows
) -> None:
    await rows.model()
    await rows.image([1.0], sha256=SHA)
    image = await index.get_by_id(await insert(index, front))
    assert image is not None
    assert (image.status, image.embedding_model) == ("embedded", MODEL)


async def test_a_record_can_be_inserted_as_it_is(index: ImageIndex, front: Front) -> None:
    given = ImageRecord(
        id="", memory_id=await memory(front), file_path="/p.png", sha256=SHA, mime_type="image/png"
    )
    image_id = await index.insert(given)
    image = await index.get_by_id(image_id)
    assert image is not None
    assert (image.memory_id, image.status) == (given.memory_id, "pending")


async def test_what_cannot_be_inserted_is_told_in_a_sentence(
    index: ImageIndex, front: Front
) -> None:
    with pytest.raises(InvalidArgument, match="3 numbers, not 768"):
        await insert(index, front, embedding=[1.0, 2.0, 3.0])
    nobody = str(uuid4())
    with pytest.raises(InvalidArgument, match=f"{nobody} is no memory"):
        await insert(index, front, memory_id=nobody)
    with pytest.raises(InvalidArgument, match="'x' is not a uuid"):
        await insert(index, front, memory_id="x")
    taken = await memory(front)
    await insert(index, front, memory_id=taken)
    with pytest.raises(InvalidArgument, match="has a picture already"):
        await insert(index, front, memory_id=taken)


async def test_a_picture_of_an_archived_memory_can_be_saved_again(
    index: ImageIndex, front: Front
) -> None:
    image_id = await insert(index, front)
    await front.database.fetch("UPDATE memories SET is_archived = true")
    assert await index.get_by_sha256(SHA) is None
    assert await index.get_by_id(image_id) is not None


async def test_delete_takes_the_row_and_leaves_the_memory(index: ImageIndex, front: Front) -> None:
    image_id = await insert(index, front)
    assert await index.delete(image_id) is True
    assert await index.delete(image_id) is False
    assert await front.database.fetchval("SELECT count(*) FROM memories") == 1


async def test_foreign_statements_see_only_what_a_search_may_rank(
    index: ImageIndex, front: Front, rows: Rows
) -> None:
    await rows.model()
    one = await rows.image([1.0], tags=["a"])
    await rows.image(tags=["a"])
    await rows.image(error="undecodable", tags=["a"])
    await rows.image([1.0], model="clip@2+letterbox", tags=["a"])
    await rows.image([1.0], namespace="other", tags=["a"])
    pool = await index._get_pool()
    for _ in range(3):  # the same connection again, as the pool has reset it
        async with pool.acquire() as connection:
            found = await connection.fetch(
                "SELECT mi.id, mi.image_path, mi.image_sha256, mi.tags,"
                " mi.embedding <=> $1::vector AS distance"
                " FROM memories_image mi JOIN memories m ON m.id = mi.memory_id"
                " WHERE mi.tags @> $2::jsonb ORDER BY mi.embedding <=> $1::vector LIMIT $3",
                padded([1.0]),
                json.dumps(["a"]),
                10,
            )
        assert [dict(row) for row in found] == [
            {
                "id": found[0]["id"],
                "image_path": f"/pictures/{one}.png",
                "image_sha256": "0" * 64,
                "tags": ["a"],
                "distance": 0.0,
            }
        ]
    await index.close()


async def test_rows_of_a_bare_model_name_show_while_its_centre_crop_is_active(
    index: ImageIndex, front: Front, rows: Rows
) -> None:
    await rows.model("clip@1+centre-crop", framing="centre-crop")
    await rows.image([1.0], model="clip")
    pool = await index._get_pool()
    assert await pool.fetchval("SELECT count(*) FROM memories_image") == 1
    await rows.model()
    assert await pool.fetchval("SELECT count(*) FROM memories_image") == 0
    await index.close()


async def test_without_the_right_to_make_schemas_foreign_statements_get_no_connection(
    index: ImageIndex, front: Front
) -> None:
    await front.database.fetch("DROP SCHEMA vision_worker CASCADE")
    with pytest.raises(SchemaOutdated, match="may not create schemas"):
        await index._get_pool()
    assert await insert(index, front)


async def test_all_indexes_of_a_database_share_their_connections_on_any_loop(
    index: ImageIndex, front: Front, database_url: str
) -> None:
    image_id = await insert(index, front)
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    before = await front.database.fetchval(count)

    def elsewhere() -> bool:
        return asyncio.run(ImageIndex(database_url).get_by_id(image_id)) is not None

    assert all([await asyncio.to_thread(elsewhere) for _ in range(10)])
    assert await front.database.fetchval(count) == before


async def test_an_empty_database_gets_its_tables_and_an_old_one_a_sentence(
    index: ImageIndex, front: Front, database_url: str
) -> None:
    name = f"test_{uuid4().hex[:12]}"
    await front.database.fetch(f"CREATE DATABASE {name}")
    url = with_database(database_url, name)
    try:
        await ImageIndex(url).initialize()
        fresh = await asyncpg.connect(url)
        applied = await fresh.fetchval("SELECT count(*) FROM vision_migrations")
        await fresh.close()
        assert applied == len(migrations())
        runtime(url).close()
        await migrate(url, to=5)
        await ImageIndex(url).initialize()
        await migrate(url, to=0)
        await execute(url, "CREATE TABLE memories_image (id uuid)")
        with pytest.raises(SchemaOutdated, match="vision-worker migrate"):
            await ImageIndex(url).initialize()
    finally:
        runtime(url).close()
        await front.database.fetch(f"DROP DATABASE {name} WITH (FORCE)")


async def test_an_index_of_no_database_says_which_variable_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MEMINI_IMAGE_DB_URL", raising=False)
    index = ImageIndex("")
    with pytest.raises(ConfigError, match="MEMINI_IMAGE_DB_URL"):
        await index.get_by_id(str(uuid4()))


async def test_without_a_worker_a_search_says_so_and_loads_no_model(
    index: ImageIndex, rows: Rows
) -> None:
    await rows.model()
    await rows.image([1.0])
    with pytest.raises(EncoderUnavailable, match="no worker is running"):
        await ImageQuery(ClipEmbedder(), index).search_by_text("1 0")


async def test_a_worker_that_does_not_answer_is_waited_for_once(
    index: ImageIndex, rows: Rows
) -> None:
    await rows.model()
    await rows.image([1.0])
    await rows.worker()
    query = ImageQuery(ClipEmbedder(), index)
    with pytest.raises(EncoderUnavailable, match="answered within"):
        await query.search_by_text("1 0")
    with pytest.raises(EncoderUnavailable, match="no worker is running"):
        await query.search_by_text("1 0")


async def test_a_picture_saved_by_published_calls_is_embedded_and_found_by_words_and_by_look(
    index: ImageIndex, front: Front, start_worker: StartWorker, tmp_path: Path
) -> None:
    start_worker()
    picture = drawing(200, 100)
    source = tmp_path / "shot.png"
    picture.save(source)
    config = VisionConfig()
    store = ImageStore(config.resolved_image_dir, max_file_size=config.max_file_size)
    saved = store.store(str(source), "image/png")
    embedder = ClipEmbedder(config.clip_model, config.clip_device)
    image_id = await insert(
        index,
        front,
        file_path=str(saved.file_path),
        sha256=saved.sha256,
        embedding=embedder.encode_image(picture),
    )
    await drained(front)
    for query in (ImageQuery(embedder, index), ImageQuery(await front.database.pool())):
        for found in (
            await query.search_by_text("a red circle"),
            await query.search_by_image(picture),
            await query.search_by_image(str(source), limit=1),
        ):
            assert [(hit.image_id, hit.file_path) for hit in found] == [
                (image_id, str(saved.file_path))
            ]
        assert found[0].distance < 1e-5
    vector = await asyncio.to_thread(embedder.encode_text, "a red circle")
    assert vector == await asyncio.to_thread(ClipEmbedder().encode_text, "a red circle")
    pool = await index._get_pool()
    (distance,) = await pool.fetchrow(
        "SELECT embedding <=> $1::vector FROM memories_image WHERE id = $2::text::uuid",
        vector,
        image_id,
    )
    (hit,) = await ImageQuery(embedder, index).search_by_text("a red circle")
    assert hit.distance == pytest.approx(distance)
    await index.close()


def test_a_sentence_is_encoded_here_where_there_is_no_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MEMINI_IMAGE_DB_URL", raising=False)
    monkeypatch.setattr("vision_worker.runtime._latest", [])
    embedder = ClipEmbedder(str(TINY_CLIP))
    assert (embedder.model_name, embedder.native_dim) == (str(TINY_CLIP), embedder.model_dim)
    vector = embedder.encode_text("a red circle")
    assert sum(number * number for number in vector) == pytest.approx(1.0)
    monkeypatch.setenv("MEMINI_IMAGE_LOCAL_ENCODER", "false")
    with pytest.raises(EncoderUnavailable):
        embedder.encode_text("a blue circle")


def test_making_things_is_free_and_the_placeholder_is_all_zeros() -> None:
    embedder = ClipEmbedder()
    assert (embedder.native_dim, embedder.model_dim, embedder.device) == (512, 512, "auto")
    assert ClipEmbedder("clip-ViT-L-14").native_dim == 768
    assert embedder.encode_image(Image.new("RGB", (2, 2))) == [0.0] * 768
    with pytest.raises(TypeError, match="a PIL image or a path"):
        embedder.encode_image(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="an embedder and an index"):
        ImageQuery(embedder)


def test_the_store_refuses_with_the_published_errors(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images", max_file_size=2000)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        store.store(tmp_path / "none.png", "image/png")
    with pytest.raises(ValueError, match="is not an image"):
        store.store_bytes(b"x" * 30, "image/png")
    path = tmp_path / "one.png"
    path.write_bytes(encoded(drawing(30, 20), "PNG"))
    assert store.store(str(path), "image/jpeg").mime_type == "image/png"
    assert ImageStore.dimensions_of(str(path)) == (30, 20)
    assert ImageStore.dimensions_of(tmp_path / "none.png") is None
    assert [mime_for_ext(end) for end in (".PNG", "jpeg", ".tif", ".xyz")] == [
        "image/png",
        "image/jpeg",
        "image/tiff",
        "image/png",
    ]
    assert ImageStore.mime_type_of("a.webp") == "image/webp"


def test_the_settings_fall_back_to_memini_s_url_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MEMINI_IMAGE_DB_URL", raising=False)
    config = VisionConfig(image_dir="~/kept")
    monkeypatch.setenv("MEMINI_DB_URL", "postgresql://memini@db/memini")
    assert config.resolved_db_url == "postgresql://memini@db/memini"
    assert config.resolved_image_dir == Path.home() / "kept"


def test_with_no_url_the_embedded_server_is_the_database(
    environment: dict[str, str],
    backend: object,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MEMINI_IMAGE_DB_URL")
    monkeypatch.setenv("MEMINI_IMAGE_STATE_DIR", str(state_dir))
    url = VisionConfig().resolved_db_url
    try:
        assert asyncio.run(ImageIndex(url).get_by_id(str(uuid4()))) is None
        assert runtime(url) is runtime()
    finally:
        runtime().close()
