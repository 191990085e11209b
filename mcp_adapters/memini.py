"""The image arm of memini-ai's fusion, and what its own arm needs to work."""

import logging
import re
import sys
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

from vision_worker import fusion
from vision_worker.errors import VisionError
from vision_worker.runtime import runtime

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Hashable)
FARTHEST = 0.9
"""Cosine distance from which on memini-ai counts a picture as no match at all."""


async def image_arm(question: str, limit: int = 10) -> list[str]:
    """Ids of the memories whose pictures look like the question, best first, to be fused.

    Empty with MEMINI_IMAGE_SEARCH_ENABLED off, and where no worker encodes the question: an arm
    must not stop the others, so why it is empty goes to the log. Never loads a model. Raises
    ConfigError for settings that cannot be used.
    """
    shared = runtime()
    if not shared.config.search_enabled:
        return []
    try:
        page = await shared.search_by_text(question, limit)
    except VisionError:
        return []
    return [hit.memory_id for hit in page.hits if hit.distance < FARTHEST]


def fuse(lists: Iterable[Sequence[T]], k: int = fusion.K, limit: int | None = None) -> list[T]:
    """Items of several rankings in one, best first; see ``vision_worker.fuse`` for the scores."""
    return [item for item, _ in fusion.fuse(lists, k, limit)]


async def start() -> bool:
    """Call this once at the start of a process that runs memini-ai: the first query is as fast as
    the others then. Opens the connections, and repairs memini-ai's image arm; False with the gate
    closed. Raises VisionError where the database cannot be used.
    """
    shared = runtime()
    if not shared.config.search_enabled:
        return False
    route_around()
    await shared.run(lambda front: front.index.backlog())
    return True


def route_around() -> bool:
    """Make memini-ai rank pictures although its own search for them fails; whether it was so.

    In the published releases ``PostgresDatabase.search_image_memories`` fails on every row that it
    finds, since it reads columns that it has not selected, and the image arm drops out without a
    word. Without that method memini-ai looks up each hit of ``ImageQuery`` by its id instead. So
    it is taken away in this process, if memini-ai is loaded and broken in just this way.
    """
    module: Any = sys.modules.get("memini_ai.postgres.database")
    database = getattr(module, "PostgresDatabase", None)
    if database is None:
        return False
    if getattr(database, "search_image_memories", None) is None:
        return True
    if not _fails_on_its_rows(module, database):
        return False
    database.search_image_memories = None
    logger.info("memini-ai's search_image_memories fails on its own rows; going around it")
    return True


def readable() -> frozenset[str] | None:
    """The source types that the memini-ai of this process can read; None without one.

    0.8.2 fails on a memory of type ``image``, although its table takes it.
    """
    kinds = getattr(sys.modules.get("memini_ai.memory.schema"), "MemorySourceType", None)
    return None if kinds is None else frozenset(str(kind.value) for kind in kinds)


def _fails_on_its_rows(module: Any, database: Any) -> bool:
    """Give its reader of rows one with exactly the columns that its statement selects."""
    try:
        selected = re.search(r"SELECT(.*?)\bFROM\b", module.SEARCH_MEMORIES_IMAGE, re.S | re.I)
        assert selected is not None
        columns = re.findall(r"(\w+)\s*(?:,|$)", selected[1].strip())
        row = dict.fromkeys(columns) | _EXAMPLE
        database._row_to_memory(
            object.__new__(database), {name: row[name] for name in columns}, score=0.0
        )
    except KeyError:
        return True
    except Exception as error:
        logger.debug("memini-ai's search for images is left as it is: %r", error)
    return False


_EXAMPLE: dict[str, Any] = {
    "id": "00000000-0000-0000-0000-000000000000",
    "memory_id": "00000000-0000-0000-0000-000000000000",
    "text": "",
    "source_type": "image",
    "trust_score": 0.5,
    "retrieval_count": 0,
    "is_archived": False,
    "metadata": {},
    "distance": 0.0,
}
