"""Connections to PostgreSQL; the one edge where its errors become ours."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import asyncpg
from pgvector.asyncpg import register_vector

from vision_worker.errors import (
    BackendError,
    ConfigError,
    DatabaseUnavailable,
    InvalidArgument,
    OutcomeUnknown,
    SchemaOutdated,
    VisionError,
)

CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 30.0
T = TypeVar("T")

# Parameters must not hide partial indexes and filters from the planner.
SESSION = {"application_name": "vision-worker", "plan_cache_mode": "force_custom_plan"}

REFUSED = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
BROKEN = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
STALE = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedObjectError)


class Database:
    """A connection pool per event loop, opened at first use.

    Statements that went to a connection which then broke are sent once more on a fresh one, so
    they must be safe to repeat; all of ours are. ``settings`` are those of the sessions, and
    ``prepare`` is awaited with each new connection. ``revive`` starts a server that has died; it is
    called in a thread when a connection is refused, and may raise VisionError.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        settings: Mapping[str, str] | None = None,
        prepare: Callable[[asyncpg.Connection], Awaitable[object]] | None = None,
        revive: Callable[[], object] | None = None,
    ) -> None:
        self._url = url
        self._settings = {**SESSION, **(settings or {})}
        self._prepare = prepare
        self._revive = revive
        self._pool_size = pool_size
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[asyncpg.Pool]] = (
            WeakKeyDictionary()
        )

    async def pool(self) -> asyncpg.Pool:
        """The pool of the running loop. Raises DatabaseUnavailable or SchemaOutdated."""
        loop = asyncio.get_running_loop()
        task = self._pools.get(loop)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._pools[loop] = loop.create_task(self._open())
        return await asyncio.shield(task)

    async def close(self) -> None:
        task = self._pools.pop(asyncio.get_running_loop(), None)
        if task is not None and task.done() and not task.cancelled() and not task.exception():
            pool = task.result()
            try:
                await asyncio.wait_for(pool.close(), CONNECT_SECONDS)
            except TimeoutError:
                pool.terminate()

    async def fetch(self, sql: str, *arguments: object) -> list[asyncpg.Record]:
        return await self.run(lambda connection: connection.fetch(sql, *arguments))

    async def fetchrow(self, sql: str, *arguments: object) -> asyncpg.Record | None:
        return await self.run(lambda connection: connection.fetchrow(sql, *arguments))

    async def fetchval(self, sql: str, *arguments: object) -> Any:
        return await self.run(lambda connection: connection.fetchval(sql, *arguments))

    async def run(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Do ``work`` on a connection; on one that breaks, do it once more on another.

        Raises DatabaseUnavailable if nothing was sent, OutcomeUnknown if that is uncertain.
        """
        async with self._connection() as connection:
            try:
                return await self._attempt(work, connection)
            except OutcomeUnknown as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise
                broken = error
        try:
            # The others of the pool broke in the same moment, and may not know it yet.
            await (await self.pool()).expire_connections()
            async with self._connection() as connection:
                return await self._attempt(work, connection)
        except DatabaseUnavailable:
            raise broken from None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection inside a transaction, for reads that need settings of their own."""
        async with self._connection() as connection:
            try:
                async with connection.transaction():
                    yield connection
            except STALE as error:
                raise SchemaOutdated(reason=str(error)) from error
            except asyncpg.DataError as error:
                raise _unusable(error) from error
            except (*BROKEN, TimeoutError) as error:
                # Leaving a transaction on a lost connection hides why it was lost.
                raise DatabaseUnavailable(reason=_reason(error.__context__ or error)) from error
            except asyncpg.PostgresError as error:
                raise BackendError(reason=_reason(error)) from error

    @asynccontextmanager
    async def dedicated(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection of one's own, outside the pool: for what has to be heard on it.

        Raises BackendError, also for a statement in the body that fails.
        """
        try:
            connection = await self._connect()
            try:
                yield connection
            finally:
                connection.terminate()
        except STALE as error:
            raise SchemaOutdated(reason=str(error)) from error
        except (*REFUSED, *BROKEN, TimeoutError) as error:
            raise DatabaseUnavailable(reason=_reason(error)) from error
        except asyncpg.PostgresError as error:
            raise BackendError(reason=_reason(error)) from error

    async def _connect(self) -> asyncpg.Connection:
        options = {
            "timeout": CONNECT_SECONDS,
            "command_timeout": COMMAND_SECONDS,
            "server_settings": self._settings,
        }
        try:
            return await asyncpg.connect(self._url, **options)
        except (*REFUSED, TimeoutError):
            if self._revive is None:
                raise
        await asyncio.to_thread(self._revive)
        return await asyncpg.connect(self._url, **options)

    async def _attempt(
        self, work: Callable[[asyncpg.Connection], Awaitable[T]], connection: asyncpg.Connection
    ) -> T:
        try:
            return await work(connection)
        except STALE as error:
            raise SchemaOutdated(reason=str(error)) from error
        except (asyncpg.DataError, asyncpg.CheckViolationError) as error:
            raise _unusable(error) from error
        except asyncpg.InsufficientResourcesError as error:
            raise DatabaseUnavailable(reason=_reason(error)) from error
        except (*BROKEN, TimeoutError) as error:
            if isinstance(error, asyncpg.InterfaceError) and not connection.is_closed():
                raise  # a statement used wrongly, not a connection that broke
            raise OutcomeUnknown(reason=_reason(error)) from error
        except asyncpg.PostgresError as error:
            raise BackendError(reason=_reason(error)) from error

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        pool = await self.pool()
        try:
            connection = await pool.acquire(timeout=CONNECT_SECONDS)
        except (*REFUSED, TimeoutError) as error:
            connection = await self._acquire_revived(pool, error)
        try:
            yield connection
        finally:
            # A connection that is lost at this moment has been taken back already.
            with suppress(asyncpg.InternalClientError):
                await asyncio.shield(pool.release(connection))

    async def _acquire_revived(
        self, pool: asyncpg.Pool, refused: BaseException
    ) -> asyncpg.Connection:
        if self._revive is None:
            raise DatabaseUnavailable(reason=_reason(refused)) from refused
        try:
            await asyncio.to_thread(self._revive)
            return await pool.acquire(timeout=CONNECT_SECONDS)
        except (*REFUSED, TimeoutError, VisionError) as error:
            raise DatabaseUnavailable(reason=_reason(error)) from error

    async def _init(self, connection: asyncpg.Connection) -> None:
        await _register_vector(connection)
        if self._prepare is not None:
            await self._prepare(connection)

    async def _open(self) -> asyncpg.Pool:
        try:
            return await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._pool_size,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                server_settings=self._settings,
                init=self._init,
            )
        except asyncpg.ClientConfigurationError:
            # Its text quotes the URL, password and all.
            problem = "it is not a PostgreSQL URL"
            raise ConfigError(variable="MEMINI_IMAGE_DB_URL", problem=problem) from None
        except (*REFUSED, TimeoutError) as error:
            raise DatabaseUnavailable(reason=_reason(error)) from error


async def _register_vector(connection: asyncpg.Connection) -> None:
    schema = await connection.fetchval(
        "SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace"
        " WHERE extname = 'vector'"
    )
    if schema is None:
        raise SchemaOutdated(reason="the pgvector extension is missing")
    await register_vector(connection, schema=schema)


def _unusable(error: asyncpg.DataError | asyncpg.CheckViolationError) -> InvalidArgument:
    if error.constraint_name == "memories_source_type_check":
        problem = "this database's memini-ai does not know it. Leave it out, or update memini-ai"
        return InvalidArgument(name="source_type", problem=problem)
    # Text with a NUL in it or half a surrogate pair is a string in Python, but not in PostgreSQL.
    return InvalidArgument(name="a value", problem=f"the database cannot take it, {_reason(error)}")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
