"""Brings the database to the schema of this version, or back, by the SQL files of migrations/."""

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import asyncpg

from vision_worker.database import BROKEN, REFUSED
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

CONNECT_SECONDS = 10.0
LOCK_SECONDS = 10
PGVECTOR = (0, 8)
ADVISORY_LOCK = 0x76_69_73_69_6F_6E
"""One migration at a time in a database: ``vision``, read as a number."""


@dataclass(frozen=True)
class Migration:
    """One step: the text of its two files; ``checksum`` is the sha256 of ``up``, in hex."""

    version: int
    name: str
    up: str
    down: str
    checksum: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations of this version, oldest first."""
    inside = Path(__file__).parent / "migrations"
    folder = inside if inside.is_dir() else Path(__file__).parent.parent / "migrations"
    found = []
    for path in sorted(folder.glob("*.up.sql")):
        name = path.name.removesuffix(".up.sql")
        up = path.read_text(encoding="utf-8")
        down = path.with_name(f"{name}.down.sql").read_text(encoding="utf-8")
        checksum = hashlib.sha256(up.encode()).hexdigest()
        found.append(Migration(int(name.split("_")[0]), name, up, down, checksum))
    return tuple(found)


async def migrate(url: str, *, to: int | None = None) -> list[str]:
    """Bring the database to version ``to``, up or down; the newest where it is None, 0 for none.

    The names of the migrations that were applied or taken back, in that order. Each has its own
    transaction, so an error leaves those before it in place. Raises InvalidArgument for a version
    that does not exist, otherwise a BackendError.
    """
    newest = migrations()[-1].version
    target = newest if to is None else to
    if not 0 <= target <= newest:
        raise InvalidArgument(name="to", problem=f"it must lie between 0 and {newest}")
    done: list[str] = []
    async with _connect(url) as connection:
        while (name := await _step(connection, target)) is not None:
            done.append(name)
    return done


async def current(url: str) -> int:
    """The version the database is at, 0 before the first migration."""
    async with _connect(url) as connection:
        return max(await _applied(connection), default=0)


async def pending(url: str) -> list[str]:
    """Names of the migrations that ``migrate`` would apply. Raises MigrationConflict."""
    async with _connect(url) as connection:
        applied = await _applied(connection)
        _check(applied)
        return [step.name for step in migrations() if step.version not in applied]


async def is_fresh(url: str) -> bool:
    """Whether nobody has made a table of images there yet."""
    async with _connect(url) as connection:
        return bool(await connection.fetchval("SELECT to_regclass('memories_image') IS NULL"))


async def _step(connection: asyncpg.Connection, target: int) -> str | None:
    """Do the next migration towards ``target``; None where there is none left."""
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
            await connection.execute("SELECT pg_advisory_xact_lock($1)", ADVISORY_LOCK)
            await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            applied = await _applied(connection)
            _check(applied)
            version = max(applied, default=0)
            if version == target:
                return None
            await _find_pgvector(connection)
            if version < target:
                return await _up(connection, migrations()[version])
            return await _down(connection, migrations()[version - 1])
    except asyncpg.LockNotAvailableError as error:
        raise TablesBusy(holders=await _holders(connection)) from error


async def _up(connection: asyncpg.Connection, migration: Migration) -> str:
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS vision_migrations (version int PRIMARY KEY, name text NOT NULL,"
        " checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    await connection.execute(migration.up)
    await connection.execute(
        "INSERT INTO vision_migrations (version, name, checksum) VALUES ($1, $2, $3)",
        migration.version,
        migration.name,
        migration.checksum,
    )
    return migration.name


async def _down(connection: asyncpg.Connection, migration: Migration) -> str:
    await connection.execute(migration.down)
    if migration.version == 1:
        await connection.execute("DROP TABLE vision_migrations")
    else:
        await connection.execute(
            "DELETE FROM vision_migrations WHERE version = $1", migration.version
        )
    return migration.name


async def _applied(connection: asyncpg.Connection) -> dict[int, asyncpg.Record]:
    if not await connection.fetchval("SELECT to_regclass('vision_migrations') IS NOT NULL"):
        return {}
    rows = await connection.fetch("SELECT version, name, checksum FROM vision_migrations")
    return {row["version"]: row for row in rows}


def _check(applied: dict[int, asyncpg.Record]) -> None:
    known = {migration.version: migration for migration in migrations()}
    for version, row in sorted(applied.items()):
        if version not in known:
            raise MigrationConflict(
                reason=f"the database is at {row['name']}, newer than {known[max(known)].name},"
                " the last one here. Update vision-worker."
            )
        if row["checksum"] != known[version].checksum:
            raise MigrationConflict(
                reason=f"{row['name']} is not the one that was applied. Install the version of"
                " vision-worker that applied it, or restore the file."
            )


async def _find_pgvector(connection: asyncpg.Connection) -> None:
    """See to it that pgvector is there and new enough, and its type visible in this transaction."""
    database = await connection.fetchval("SELECT current_database()")
    offered = await connection.fetchval(
        "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
    )
    installed = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    version = await connection.fetchval(installed)
    if version is None and offered is None:
        raise ExtensionUnavailable()
    if version is None:
        try:
            await connection.execute("CREATE EXTENSION vector")
        except asyncpg.InsufficientPrivilegeError:
            raise ExtensionMissing(database=database) from None
        version = await connection.fetchval(installed)
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < PGVECTOR:
        raise ExtensionOutdated(version=version, database=database)
    await connection.execute(
        "SELECT set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'),"
        " ''), quote_ident(nspname)), true) FROM pg_extension JOIN pg_namespace"
        " ON pg_namespace.oid = extnamespace WHERE extname = 'vector'"
    )


async def _holders(connection: asyncpg.Connection) -> str:
    rows = await connection.fetch(
        "SELECT DISTINCT pid, usename, application_name"
        " FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE granted AND pid <> pg_backend_pid() AND relation = ANY(ARRAY["
        " to_regclass('memories'), to_regclass('memories_image')]::oid[]) ORDER BY pid"
    )
    sessions = [
        f"pid {row['pid']} of {row['usename']}"
        + (f" ({row['application_name']})" if row["application_name"] else "")
        for row in rows
    ]
    return ", ".join(sessions) or "a session that has ended since"


@asynccontextmanager
async def _connect(url: str) -> AsyncIterator[asyncpg.Connection]:
    try:
        connection = await asyncpg.connect(
            url,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0,
            server_settings={"application_name": "vision-worker migrate"},
        )
    except ValueError:
        # Its text may quote the URL, and with it the password.
        raise DatabaseUnavailable(reason="its URL cannot be understood") from None
    except (*REFUSED, TimeoutError) as error:
        raise DatabaseUnavailable(reason=_reason(error)) from error
    try:
        yield connection
    except asyncpg.ObjectNotInPrerequisiteStateError as error:
        raise ForeignTable(reason=await _namesake(connection) or str(error)) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise RoleUnprivileged(reason=str(error)) from error
    except BROKEN as error:
        # Leaving a transaction on a closed connection hides the error that closed it.
        raise OutcomeUnknown(reason=_reason(error.__context__ or error)) from error
    except asyncpg.PostgresError as error:
        raise BackendError(reason=f"a migration was refused, {_reason(error)}") from error
    finally:
        await connection.close()


async def _namesake(connection: asyncpg.Connection) -> str | None:
    """What to say of the tables of memini-ai on PyPI, if these are its."""
    its_own = await connection.fetchval(
        "SELECT count(*) = 3 FROM pg_attribute WHERE attrelid = to_regclass('memories')"
        " AND attname IN ('kind', 'tsv', 'chain_id') AND NOT attisdropped"
    )
    if not its_own:
        return None
    return (
        "its table memories is that of the package memini-ai, which is another program than"
        " memini-ai-dev"
    )


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
