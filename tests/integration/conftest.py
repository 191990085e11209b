"""What only tests against real tables need."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.rows import CROWD_SQL, Rows
from tests.support import execute, with_database
from vision_worker import local
from vision_worker.database import Database
from vision_worker.front import Front


@pytest.fixture
def rows(front: Front) -> Rows:
    return Rows(front.database)


@pytest.fixture(scope="session")
def crowd_url(backend: local.Urls) -> Iterator[str]:
    """A database with thousands of images, to be read only."""
    asyncio.run(execute(backend.db_url, "CREATE DATABASE crowd TEMPLATE template_vision"))
    url = with_database(backend.db_url, "crowd")
    asyncio.run(execute(url, CROWD_SQL))
    asyncio.run(execute(url, "VACUUM ANALYZE"))
    yield url
    asyncio.run(execute(backend.db_url, "DROP DATABASE crowd WITH (FORCE)"))


@pytest.fixture
async def crowd(crowd_url: str) -> AsyncIterator[Database]:
    database = Database(crowd_url, pool_size=2)
    yield database
    await database.close()
