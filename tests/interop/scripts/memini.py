"""Real memini-ai, driven by a list of steps; prints one JSON list with an answer to each.

``["add", text]`` → id; ``["query", question, limit]`` → ids, best first; ``["dump", question,
limit]`` → the entries whole; ``["queries", question, times]`` → open connections before and after,
seconds of each; ``["modules", prefix]`` → loaded modules whose names begin so;
``["local_models"]`` → the CLIP models loaded there; ``["start"]`` → the start-up hook;
``["own_search"]`` → whether its search for images is there; ``["mended"]`` → that, and whether we
went around it, in a memini-ai without the fault.
"""

import asyncio
import json
import sys
import time
from typing import Any

import asyncpg
from memini_ai.config import get_config
from memini_ai.memory.schema import MemoryEntry, SearchOptions
from memini_ai.memory.system import MemorySystem
from memini_ai.postgres.database import PostgresDatabase


async def main(steps: list[list[Any]]) -> list[Any]:
    system = MemorySystem()
    await system.initialize()
    try:
        return [await globals()[f"do_{name}"](system, *arguments) for name, *arguments in steps]
    finally:
        await system.close()


async def do_add(system: MemorySystem, text: str) -> str:
    return await system.add_memory_by_text(text) or ""


async def do_query(system: MemorySystem, question: str, limit: int) -> list[str]:
    entries = await system.query_memories(question, SearchOptions(topK=limit))
    return [entry.id for entry in entries]


async def do_dump(system: MemorySystem, question: str, limit: int) -> list[dict[str, Any]]:
    entries: list[MemoryEntry] = await system.query_memories(question, SearchOptions(topK=limit))
    # The timestamp is the moment of reading.
    return [json.loads(entry.model_dump_json(exclude={"timestamp"})) for entry in entries]


async def do_queries(system: MemorySystem, question: str, times: int) -> dict[str, Any]:
    await do_query(system, question, 5)
    before, seconds = await _connections(), []
    for number in range(times):
        begun = time.perf_counter()
        await do_query(system, f"{question} {number}", 5)
        seconds.append(time.perf_counter() - begun)
    return {"before": before, "after": await _connections(), "seconds": seconds}


async def do_modules(system: MemorySystem, *prefixes: str) -> list[str]:
    return sorted(name for name in sys.modules if name.startswith(prefixes))


async def do_local_models(system: MemorySystem) -> list[str]:
    from memini_vision import embedder

    return [name for name, _ in embedder._locals]


async def do_mended(system: MemorySystem) -> dict[str, bool]:
    """As if a later release read its own rows."""
    from mcp_adapters.memini import route_around

    broken = PostgresDatabase._row_to_memory
    PostgresDatabase._row_to_memory = lambda *arguments, **named: None
    gone_around = route_around()
    PostgresDatabase._row_to_memory = broken
    return {"gone_around": gone_around, "own_search": await do_own_search(system)}


async def do_own_search(system: MemorySystem) -> bool:
    return PostgresDatabase.search_image_memories is not None


async def do_start(system: MemorySystem) -> bool:
    from mcp_adapters.memini import start

    return await start()


async def _connections() -> int:
    connection = await asyncpg.connect(get_config().db_url)
    try:
        return await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        )
    finally:
        await connection.close()


print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
