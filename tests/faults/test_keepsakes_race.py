"""Processes that keep the same pictures at the same moment."""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.pictures import drawing, encoded, files_below
from tests.support import DEADLINE
from vision_worker.config import VisionConfig
from vision_worker.front import Front

SAVER = """
import asyncio, json, sys
from pathlib import Path
from vision_worker.errors import VisionError
from vision_worker.front import Front

async def answer(front, about, path):
    try:
        kept = await front.keepsakes.remember(about, Path(path), source="race")
    except VisionError as error:
        return [error.code, about, "", []]
    return [kept.code, about, kept.keepsake.id, [gone.id for gone in kept.evicted]]

async def main():
    calls = json.loads(sys.stdin.readline())
    async with await Front.open() as front:
        print("ready", flush=True)
        sys.stdin.readline()
        answers = await asyncio.gather(*(answer(front, *call) for call in calls))
    print(json.dumps(answers), flush=True)

asyncio.run(main())
"""


async def race(
    environment: dict[str, str], calls: list[list[tuple[str, str]]], **variables: str
) -> list[list[Any]]:
    """One process for each list of calls, all calls at once; the answers of all processes.

    An answer is its code, the name, the id of the keepsake, and the ids of what was evicted.
    """
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SAVER),
            env=environment | variables,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in calls
    ]
    try:
        for process, given in zip(processes, calls, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps(given).encode() + b"\n")
        for process in processes:
            assert process.stdout is not None
            assert await asyncio.wait_for(process.stdout.readline(), DEADLINE) == b"ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
        outputs = await asyncio.gather(*(process.communicate() for process in processes))
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return [answer for output, _ in outputs for answer in json.loads(output)]


@pytest.fixture
def pictures(tmp_path: Path) -> list[str]:
    paths = []
    for number in range(60):
        drawn = drawing(16, 12)
        drawn.putpixel((0, 0), (number, 0, 77))
        path = tmp_path / f"{number}.png"
        path.write_bytes(encoded(drawn, "PNG"))
        paths.append(str(path))
    return paths


async def test_K06_two_processes_that_save_the_same_forty_keep_forty(
    front: Front, environment: dict[str, str], pictures: list[str]
) -> None:
    pairs = [(f"name {number % 7}", pictures[number]) for number in range(40)]
    answers = await race(environment, [pairs, pairs[::-1]])
    assert Counter(code for code, *_ in answers) == {"kept": 40, "already_kept": 40}
    assert len({identifier for _, _, identifier, _ in answers}) == 40
    assert len((await front.keepsakes.page(limit=100)).keepsakes) == 40


async def test_two_processes_with_two_hundred_saves_each_keep_exactly_the_distinct_ones(
    front: Front, environment: dict[str, str], pictures: list[str]
) -> None:
    names = ["Alex Doe", "ALEX  d\u00f3e", "the beach", "\u306d\u3053", "\u043a\u043e\u0442"]
    first = [(names[n % 5], pictures[n % 37]) for n in range(200)]
    second = [(names[n % 5], pictures[23 + n % 37]) for n in range(200)]
    distinct = {(name.replace(names[1], names[0]), path) for name, path in first + second}
    answers = await race(environment, [first, second])
    codes = Counter(code for code, *_ in answers)
    assert codes == {"kept": len(distinct), "already_kept": 400 - len(distinct)}
    kept = [identifier for code, _, identifier, _ in answers if code == "kept"]
    assert len(set(kept)) == len(kept)
    assert {identifier for _, _, identifier, _ in answers} == set(kept)
    everything = (await front.keepsakes.page(limit=1000)).keepsakes
    assert {keepsake.id for keepsake in everything} == set(kept)
    for table in ("keepsakes", "memories_image", "memories"):
        rows = await front.database.fetchval(f"SELECT count(*) FROM {table}")
        assert rows == len(distinct)
    assert len(files_below(front.keepsakes.store.root)) == 60
    for keepsake in everything:
        assert Path(keepsake.file_path).exists()


async def test_two_processes_never_exceed_the_cap_and_name_each_eviction_once(
    config: VisionConfig, environment: dict[str, str], pictures: list[str]
) -> None:
    calls = [[(f"{side}", path) for path in pictures[:30]] for side in ("left", "right")]
    answers = await race(environment, calls, MEMINI_IMAGE_KEEPSAKE_CAP="10")
    assert Counter(code for code, *_ in answers) == {"kept": 60}
    evicted = [gone for _, _, _, going in answers for gone in going]
    assert len(evicted) == len(set(evicted)) == 50
    async with await Front.open(config) as front:
        live = {keepsake.id for keepsake in (await front.keepsakes.page(limit=100)).keepsakes}
        gone = await front.keepsakes.page(limit=100, trashed=True)
    assert live == {identifier for _, _, identifier, _ in answers} - set(evicted)
    assert {keepsake.id for keepsake in gone.keepsakes} == set(evicted)
