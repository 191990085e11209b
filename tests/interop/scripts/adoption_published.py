"""The published memini-vision by its own code: creates or completes its table, inserts images.

Given are the ids of memories; prints what it reads of each image that it has made, as JSON.
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict

from memini_vision import ImageIndex


async def main(memory_ids: list[str]) -> None:
    index = ImageIndex(os.environ["MEMINI_IMAGE_DB_URL"])
    await index.initialize()
    read = []
    for number, memory_id in enumerate(memory_ids):
        image_id, _ = await index.insert(
            memory_id=memory_id,
            file_path=f"/published/{number}.png",
            sha256=f"{number:064x}",
            mime_type="image/png",
            embedding=[1.0] + [0.0] * 767,
            width=640,
            height=480,
            file_size_bytes=1000,
            caption=f"published {number}",
            source_tool="videre",
            tags=["site:a", "stage:before"],
        )
        read.append(asdict(await index.get_by_id(image_id)))
    await index.close()
    print(json.dumps(read))


asyncio.run(main(json.loads(sys.argv[1])))
