"""videre-mcp as it is published, with nothing of ours but the package ``memini_vision``."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.interop.conftest import variables_for
from tests.interop.environments import Environment
from tests.pictures import drawing
from tests.support import Process, drained, eventually
from vision_worker.front import Front

THEIRS = {
    "take_screenshot",
    "describe_image",
    "describe_screenshot",
    "ocr_image",
    "ocr_paddle",
    "parse_document",
    "save_image_memory",
    "query_images",
    "list_images",
    "get_image",
}


@asynccontextmanager
async def videre(where: Environment, environment: dict[str, str]) -> AsyncIterator[Client]:
    settings = variables_for(where, environment, MEMINI_IMAGE_CLIP_MODEL="clip-ViT-B-32")
    server = StdioServerParameters(
        command=str(where.python), args=["-m", "videre_mcp"], env=settings
    )
    async with Client(server) as client:
        yield client


async def call(client: Client, tool: str, **arguments: object) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    answer = json.loads(result.content[0].text) if result.content else []
    return (result.structured_content or {}).get("result", answer)


async def test_published_videre_saves_at_once_and_finds_what_a_worker_has_embedded(
    environment_of: Callable[[str], Environment],
    environment: dict[str, str],
    front: Front,
    start_worker: Callable[..., Process],
    tmp_path: Path,
) -> None:
    where = environment_of("videre")
    picture = tmp_path / "shot.png"
    drawing(200, 100).save(picture)
    async with videre(where, environment) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == THEIRS
        saved = await call(
            client,
            "save_image_memory",
            image_path=str(picture),
            text="the first draft",
            caption="shapes",
            tags=["site:a"],
        )
        assert saved == {
            "memory_id": saved["memory_id"],
            "image_id": saved["image_id"],
            "sha256": saved["sha256"],
            "file_path": saved["file_path"],
            "text_embedded": False,
            "tags": ["site:a"],
        }
        again = await call(client, "save_image_memory", image_path=str(picture), text="again")
        assert again["duplicate"] is True
        assert again["image_id"] == saved["image_id"]
        assert await call(client, "list_images") == []

        start_worker(MEMINI_IMAGE_TEXT_MODEL="all-MiniLM-L6-v2")
        await drained(front)
        (hit,) = await call(client, "query_images", query="a red circle", tags=["site:a"])
        assert hit == {
            "memory_id": saved["memory_id"],
            "text": "the first draft",
            "image_id": saved["image_id"],
            "file_path": saved["file_path"],
            "sha256": saved["sha256"],
            "caption": "shapes",
            "distance": hit["distance"],
            "created_at": hit["created_at"],
            "tags": ["site:a"],
        }
        assert await call(client, "list_images") == [hit | {"distance": None}]
        image = await call(client, "get_image", image_id=saved["image_id"])
        assert (image["file_path"], image["width"], image["height"]) == (
            saved["file_path"],
            200,
            100,
        )

    async def said_in_words() -> bool:
        return bool(
            await front.database.fetchval("SELECT vector_norm(embedding) > 0.99 FROM memories")
        )

    await eventually(said_in_words, "zeros replaced by the vector of the text")


async def test_with_the_gate_off_published_videre_has_its_six_tools_and_opens_nothing(
    environment_of: Callable[[str], Environment],
    environment: dict[str, str],
    front: Front,
    tmp_path: Path,
) -> None:
    settings = environment | {"MEMINI_IMAGE_SEARCH_ENABLED": "false"}
    async with videre(environment_of("videre"), settings) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        sessions = await front.database.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        )
    assert len(names) == 6
    assert names < THEIRS
    assert sessions == 1
    assert not (tmp_path / "images").exists()
