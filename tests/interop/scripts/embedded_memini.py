"""memini-ai's database, opened as its server opens it: does what each line of stdin names."""

import asyncio
import json
import sys

from memini_ai.memory.database import create_database
from memini_ai.memory.schema import MemoryEntry, MemorySourceType


async def main() -> None:
    database = None
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answer: object = None
        match name:
            case "start":
                try:
                    database = database or create_database()
                    await database.initialize()
                except RuntimeError as error:
                    answer = str(error)
            case "add":
                entry = MemoryEntry(
                    text=arguments[0],
                    sourceType=MemorySourceType.session,
                    vector=[1.0, *[0.0] * 383],
                )
                await database.add_memory(entry)
            case "texts":
                answer = sorted(entry.text for entry in await database.list_memories())
            case "close":
                await database.close()
        print("answer", json.dumps(answer), flush=True)


asyncio.run(main())
