"""memini-ai by its own code: does the given steps, ``[name, *arguments]``, one after the other.

Prints the list of what they returned, as JSON.
"""

import asyncio
import hashlib
import json
import math
import sys
import time
from importlib.metadata import version
from pathlib import Path

from memini_ai.memory.schema import MemoryEntry, MemorySourceType
from memini_ai.memory.system import MemorySystem
from memini_ai.postgres import schema


def vector(seed: object, width: int) -> list[float]:
    """A direction of its own for each seed, of length 1."""
    start = int(hashlib.sha256(str(seed).encode()).hexdigest()[:8], 16)
    values = [math.sin(start + step * step) for step in range(width)]
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def wait_until_gone(file: Path) -> None:
    while file.exists():
        time.sleep(0.02)


class Memini:
    """memini-ai, started; its steps by name."""

    def __init__(self) -> None:
        self.system = MemorySystem()
        self.database = self.system._db

    async def start(self) -> str:
        """Create or complete its schema, as each of its starts does; its version."""
        await self.system.initialize()
        return version("memini-ai-dev")

    async def fail(self) -> str:
        """The reason for which it does not start."""
        try:
            return await self.start()
        except RuntimeError as error:
            return str(error)

    async def add(self, *texts: str) -> list[str]:
        """Text memories, each with the vector of its text model."""
        return [await self.system.add_memory_by_text(text) for text in texts]

    async def keep(self, *texts: str) -> list[str]:
        """Text memories with vectors of no model."""
        entries = [
            MemoryEntry(
                text=text, sourceType=MemorySourceType.session, vector=vector(f"text {text}", 384)
            )
            for text in texts
        ]
        return [entry.id for entry in await self.database.add_memories(entries)]

    async def images(self, numbers: list[int], sha256s: int) -> list[str]:
        """An image memory each, old shape; only so many different pictures, so that some repeat."""
        memory_ids = await self.keep(*(f"picture {number}" for number in numbers))
        for number, memory_id in zip(numbers, memory_ids, strict=True):
            await self.database.insert_image_memory(
                memory_id=memory_id,
                embedding=[0.0] * 768 if number % 50 == 7 else vector(number % sha256s, 768),
                image_path=f"/pictures/{number % sha256s}.png",
                image_sha256=f"{number % sha256s:064x}",
                mime_type="image/png",
                embedding_model="placeholder-768" if number % 50 == 7 else "clip-ViT-B-32",
                width=640,
                height=480,
                caption=f"caption {number}",
                file_size_bytes=1000 + number,
                trust_score=number % 10 / 10,
            )
        return memory_ids

    async def trust(self, memory_id: str, score: float, archived: bool) -> None:
        await self.database.update_trust_fields(memory_id, score, archived)

    async def get(self, memory_id: str) -> str | None:
        """The text of a memory."""
        memory = await self.system.get_memory(memory_id)
        return memory.text if memory else None

    async def query(self, question: str) -> list[str]:
        """The texts that it finds, best first."""
        return [memory.text for memory in await self.system.query_memories(question)]

    async def picture(self, sha256: str) -> str | None:
        """The path that it has for the digest."""
        found = await self.database.get_image_by_sha256(sha256)
        return found["image_path"] if found else None

    async def pause(self, name: str) -> None:
        """Say that it is here, by a file of this name, and go on when that is gone."""
        Path(name).touch()
        await asyncio.to_thread(wait_until_gone, Path(name))

    async def become_older(self) -> None:
        """What the database was before it knew images, with the check of that time."""
        pool = await self.database._get_pool()
        await pool.execute("DROP TABLE memories_image")
        await pool.execute(schema.SQL_UPDATE_MEMORIES_SOURCE_TYPE_CHECK)


async def main() -> None:
    memini = Memini()
    results = [await getattr(memini, name)(*arguments) for name, *arguments in GIVEN]
    await memini.system.close()
    print(json.dumps(results))


GIVEN = json.loads(sys.argv[1])
asyncio.run(main())
