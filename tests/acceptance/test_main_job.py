"""The main job through a real MCP client, real servers and real worker processes."""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import Process, agent, call, drained, eventually
from vision_worker.demo.screens import held_out_screens
from vision_worker.front import Front

KINDS = (
    "chart",
    "pie",
    "editor",
    "files",
    "login",
    "chat",
    "sheet",
    "map",
    "calendar",
    "settings",
)
StartWorker = Callable[..., Process]


def one_of(shots: dict[str, Path], kind: str) -> str:
    """The caption of the first screen of that kind."""
    return next(caption for caption, path in shots.items() if path.name.startswith(f"{kind}-"))


@pytest.fixture
def shots(tmp_path: Path) -> dict[str, Path]:
    """Fifty screens that the tiny CLIP has never seen, by caption."""
    folder = tmp_path / "shots"
    folder.mkdir()
    drawn = {}
    for name, caption, picture in held_out_screens(50, seed=1):
        picture.resize((640, 640 * picture.height // picture.width)).save(folder / name)
        drawn[caption] = folder / name
    return drawn


async def test_fifty_shots_saved_while_no_worker_runs_are_found_once_one_does(
    environment: dict[str, str], shots: dict[str, Path], start_worker: StartWorker, front: Front
) -> None:
    async with agent(environment) as client:
        saved = {
            caption: await call(
                client, "save_image_memory", image_path=str(path), text=caption, caption=caption
            )
            for caption, path in shots.items()
        }
        assert {answer["status"] for answer in saved.values()} == {"pending"}
        status = await call(client, "image_index_status")
        assert (status["pending"], status["embedded"], status["workers"]) == (50, 0, 0)
        found = await call(client, "query_images", query="a red circle")
        assert found == {"result": [], "pending": 50, "failed": 0}

        start_worker()
        await drained(front)
        status = await call(client, "image_index_status")
        assert (status["pending"], status["embedded"], status["failed"]) == (0, 50, 0)
        queries = [one_of(shots, kind) for kind in KINDS]
        first = []
        for query in queries:
            hits = (await call(client, "query_images", query=query, limit=5))["result"]
            distances = [hit["distance"] for hit in hits]
            assert distances == sorted(distances)
            assert len(hits) == 5
            first.append(hits[0]["caption"])
        assert first == queries


async def test_an_agent_saves_finds_looks_at_and_deletes_a_picture(
    environment: dict[str, str], shots: dict[str, Path], start_worker: StartWorker, front: Front
) -> None:
    start_worker()
    caption, path = next(iter(shots.items()))
    async with agent(environment) as client:
        saved = await call(client, "save_image_memory", image_path=str(path), text="mine")
        again = await call(client, "save_image_memory", image_path=str(path), text="mine")
        assert again | {"status": "pending"} == saved | {"duplicate": True}
        await drained(front)
        found = await call(client, "query_images", query=caption)
        assert [hit["image_id"] for hit in found["result"]] == [saved["image_id"]]
        image = await call(client, "get_image", memory_id=saved["memory_id"])
        assert (image["image_id"], image["status"]) == (saved["image_id"], "embedded")
        assert Path(image["file_path"]).read_bytes() == path.read_bytes()

        seen = await client.call_tool(
            "get_image", {"image_id": saved["image_id"], "view": "thumbnail"}
        )
        assert [block.type for block in seen.content] == ["text", "image"]
        resource = await client.read_resource(f"image://{saved['image_id']}")
        assert resource.contents[0].mime_type == "image/jpeg"

        similar = await call(client, "find_similar_images", image_path=str(path))
        assert similar["result"][0]["image_id"] == saved["image_id"]
        assert similar["result"][0]["distance"] < 1e-5
        assert (await call(client, "find_similar_images", image_id=saved["image_id"]))[
            "result"
        ] == []
        listed = await call(client, "list_images", limit=1)
        assert [image["image_id"] for image in listed["result"]] == [saved["image_id"]]

        gone = await call(client, "delete_image", image_id=saved["image_id"])
        assert gone == {"image_id": saved["image_id"], "deleted": True}
        assert not Path(image["file_path"]).exists()
        missing = await client.call_tool("get_image", {"image_id": saved["image_id"]})
        assert missing.is_error
        assert missing.structured_content["error"]["code"] == "image_not_found"


async def test_an_old_client_reads_the_hits_from_the_first_text_block(
    environment: dict[str, str], shots: dict[str, Path], start_worker: StartWorker, front: Front
) -> None:
    start_worker()
    async with agent(environment) as client:
        for caption, path in list(shots.items())[:3]:
            await call(client, "save_image_memory", image_path=str(path), text=caption)
        await drained(front)
        result = await client.call_tool("query_images", {"query": "a red circle", "limit": 2})
        hits = json.loads(result.content[0].text)
        assert hits == result.structured_content["result"]
        assert set(hits[0]) == {
            "memory_id",
            "text",
            "image_id",
            "file_path",
            "sha256",
            "caption",
            "distance",
            "created_at",
            "tags",
        }


REFUSED = [
    ("save_image_memory", {"image_path": "shot.png", "text": "t"}, "path_not_absolute"),
    ("save_image_memory", {"image_path": "", "text": "t"}, "path_not_absolute"),
    ("save_image_memory", {"image_path": "/none/shot.png", "text": "t"}, "file_not_found"),
    ("save_image_memory", {"image_path": "/", "text": "t"}, "not_a_file"),
    ("save_image_memory", {"image_path": "/dev/zero", "text": "t"}, "not_a_file"),
    ("save_image_memory", {"image_path": "/etc/passwd", "text": "t"}, "not_an_image"),
    ("save_image_memory", {"image_path": "/a\0b", "text": "t"}, "invalid_argument"),
    ("query_images", {"query": "  "}, "invalid_argument"),
    ("query_images", {"query": "x", "limit": 0}, "invalid_argument"),
    ("query_images", {"query": "x", "created_after": "2026-01-01"}, "invalid_argument"),
    ("get_image", {}, "invalid_argument"),
    ("get_image", {"image_id": "../../etc/passwd"}, "invalid_argument"),
    ("delete_image", {"image_id": "00000000-0000-0000-0000-000000000000"}, "image_not_found"),
    ("find_similar_images", {}, "invalid_argument"),
    ("find_similar_images", {"image_path": "shot.png"}, "path_not_absolute"),
    ("list_images", {"cursor": "nonsense"}, "invalid_argument"),
    ("list_images", {"limit": "many"}, "invalid_argument"),
    ("list_images", {"tag": ["site:a"]}, "invalid_argument"),
    ("save_image_memory", {"image_path": "/shot.png"}, "invalid_argument"),
]


async def test_what_cannot_be_done_is_a_sentence_with_a_code(environment: dict[str, str]) -> None:
    async with agent(environment) as client:
        for tool, arguments, code in REFUSED:
            result = await client.call_tool(tool, arguments)
            assert result.is_error, (tool, arguments)
            error = result.structured_content["error"]
            assert error["code"] == code, (tool, arguments)
            assert result.content[0].text == f"{code}: {error['message']}"


async def test_with_the_gate_closed_there_are_no_tools_and_the_database_is_not_touched(
    environment: dict[str, str], tmp_path: Path
) -> None:
    closed = environment | {
        "MEMINI_IMAGE_SEARCH_ENABLED": "false",
        "MEMINI_IMAGE_DB_URL": f"postgresql:///none?host={tmp_path}/nowhere",
    }
    async with agent(closed) as client:
        assert (await client.list_tools()).tools == []


async def test_a_ping_answers_while_many_saves_are_under_way(
    environment: dict[str, str], shots: dict[str, Path]
) -> None:
    async with agent(environment) as client:
        saves = [
            asyncio.ensure_future(
                call(client, "save_image_memory", image_path=str(path), text=caption)
            )
            for caption, path in shots.items()
        ]
        await client.list_tools()
        answers = await asyncio.gather(*saves)
        assert len({answer["image_id"] for answer in answers}) == 50


async def test_the_tools_describe_themselves_to_an_agent(environment: dict[str, str]) -> None:
    async with agent(environment) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {
        "save_image_memory",
        "query_images",
        "find_similar_images",
        "get_image",
        "list_images",
        "delete_image",
        "image_index_status",
    }
    for tool in tools.values():
        assert tool.description
        assert tool.title
        assert tool.annotations is not None
        assert tool.output_schema is not None
        for argument in tool.input_schema["properties"].values():
            assert argument["description"]
    destructive = [n for n, t in tools.items() if t.annotations and t.annotations.destructive_hint]
    assert destructive == ["delete_image"]
    read_only = {n for n, t in tools.items() if t.annotations and t.annotations.read_only_hint}
    assert read_only == set(tools) - {"delete_image", "save_image_memory"}


async def test_a_backlog_is_finished_by_another_worker_after_a_kill_in_the_middle(
    environment: dict[str, str], shots: dict[str, Path], start_worker: StartWorker, front: Front
) -> None:
    async with agent(environment) as client:
        for caption, path in shots.items():
            await call(client, "save_image_memory", image_path=str(path), text=caption)
    quick = {"MEMINI_IMAGE_LEASE_SECONDS": "2"}
    first = start_worker("--batch-size", "4", **quick)

    async def begun() -> bool:
        return (await front.index.status()).embedded > 0

    await eventually(begun, "the first batch embedded")
    first.kill(signal.SIGKILL)
    first.wait()
    left = (await front.index.status()).pending
    start_worker("--batch-size", "4", **quick)
    await drained(front)
    status = await front.index.status()
    assert (status.embedded, status.failed) == (50, 0)
    assert left >= 0


async def test_a_worker_told_to_stop_leaves_no_row_leased(
    environment: dict[str, str], shots: dict[str, Path], start_worker: StartWorker, front: Front
) -> None:
    worker = start_worker("--batch-size", "4")
    async with agent(environment) as client:
        for caption, path in shots.items():
            await call(client, "save_image_memory", image_path=str(path), text=caption)

    async def begun() -> bool:
        return (await front.index.status()).embedded > 0

    await eventually(begun, "the first batch embedded")
    worker.kill(signal.SIGTERM)
    assert worker.wait() == 0
    leased = "SELECT count(*) FROM memories_image WHERE lease_token IS NOT NULL"
    assert await front.database.fetchval(leased) == 0
    assert await front.index.workers() == []


async def test_what_is_saved_while_the_broker_is_away_is_embedded(
    environment: dict[str, str],
    shots: dict[str, Path],
    start_worker: StartWorker,
    front: Front,
    tmp_path: Path,
) -> None:
    away = environment | {"MEMINI_IMAGE_BROKER_URL": f"redis+socket://{tmp_path}/none.sock"}
    start_worker(MEMINI_IMAGE_BROKER_URL=away["MEMINI_IMAGE_BROKER_URL"])
    async with agent(away) as client:
        for caption, path in list(shots.items())[:5]:
            await call(client, "save_image_memory", image_path=str(path), text=caption)
    await drained(front)
    assert (await front.index.status()).embedded == 5
