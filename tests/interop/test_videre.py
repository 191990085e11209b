"""videre-mcp's server with the image tools of this project on it, driven by a real client."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
from mcp import Client, StdioServerParameters
from PIL import Image

from tests.interop.conftest import SCRIPTS, variables_for
from tests.interop.display import Display
from tests.interop.environments import Environment
from tests.pictures import drawing
from tests.support import DEADLINE, Process, call, drained, eventually
from vision_worker.front import Front

THEIRS = {
    "take_screenshot",
    "describe_image",
    "describe_screenshot",
    "ocr_image",
    "ocr_paddle",
    "parse_document",
}
OURS = {
    "save_image_memory",
    "query_images",
    "find_similar_images",
    "get_image",
    "list_images",
    "delete_image",
    "image_index_status",
}
EnvironmentOf = Callable[[str], Environment]


@asynccontextmanager
async def videre(
    where: Environment, environment: dict[str, str], module: str = "mcp_adapters.videre"
) -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=str(where.python), args=["-m", module], env=variables_for(where, environment)
    )
    async with Client(server) as client:
        yield client


@pytest.fixture
def where(environment_of: EnvironmentOf) -> Environment:
    return environment_of("videre")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "shot.png"
    drawing(200, 100).save(path)
    return path


async def test_the_six_tools_stay_as_they_are_and_ours_stand_beside_them(
    where: Environment, environment: dict[str, str], front: Front, tmp_path: Path
) -> None:
    async with videre(where, environment) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == THEIRS | OURS
    off = environment | {"MEMINI_IMAGE_SEARCH_ENABLED": "false"}
    async with videre(where, off) as client:
        alone = {tool.name: tool for tool in (await client.list_tools()).tools}
        sessions = await front.database.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        )
    async with videre(where, off, "videre_mcp") as client:
        published = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert alone == published == {name: tools[name] for name in THEIRS}
    assert sessions == 1
    assert not (tmp_path / "images").exists()


async def test_a_picture_is_saved_found_shown_and_deleted(
    where: Environment,
    environment: dict[str, str],
    front: Front,
    start_worker: Callable[..., Process],
    picture: Path,
) -> None:
    async with videre(where, environment) as client:
        saved = await call(
            client, "save_image_memory", image_path=str(picture), text="shapes", tags=["site:a"]
        )
        assert (saved["status"], saved["duplicate"]) == ("pending", False)
        start_worker()
        await drained(front)
        found = await call(client, "query_images", query="a red circle")
        assert [hit["image_id"] for hit in found["result"]] == [saved["image_id"]]
        image = await call(client, "get_image", image_id=saved["image_id"])
        assert image["status"] == "embedded"
        await call(client, "delete_image", image_id=saved["image_id"])
        assert (await call(client, "list_images"))["result"] == []
        refused = await client.call_tool(
            "save_image_memory", {"image_path": "/none.png", "text": "x"}
        )
        assert refused.is_error
        assert "file_not_found: There is no file at /none.png" in refused.content[0].text


async def test_a_prompt_that_asks_for_the_newest_first_gets_the_same_hits_by_time(
    where: Environment,
    environment: dict[str, str],
    front: Front,
    start_worker: Callable[..., Process],
    tmp_path: Path,
) -> None:
    start_worker()
    async with videre(where, environment) as client:
        ids = []
        for width in (200, 400, 300):
            path = tmp_path / f"{width}.png"
            drawing(width, 150).save(path)
            saved = await call(client, "save_image_memory", image_path=str(path), text="shapes")
            ids.append(saved["image_id"])
        await drained(front)
        nearest = (await call(client, "query_images", query="a red circle"))["result"]
        newest = (await call(client, "query_images", query="a red circle", order="time"))["result"]
        assert [hit["image_id"] for hit in newest] == ids[::-1]
        assert nearest == sorted(newest, key=lambda hit: float(hit["distance"]))


async def test_a_question_that_no_worker_encodes_loads_no_model_into_the_server(
    where: Environment,
    environment: dict[str, str],
    front: Front,
    start_worker: Callable[..., Process],
    picture: Path,
) -> None:
    worker = start_worker()
    async with videre(where, environment) as client:
        await call(client, "save_image_memory", image_path=str(picture), text="shapes")
        await drained(front)
        worker.kill(signal.SIGTERM)
        assert worker.wait() == 0
        result = await client.call_tool("query_images", {"query": "a red circle"})
        assert result.is_error
        assert "encoder_unavailable: " in result.content[0].text


async def test_what_was_saved_survives_a_killed_server(
    where: Environment, environment: dict[str, str], front: Front, picture: Path
) -> None:
    async with videre(where, environment) as client:
        saved = await call(client, "save_image_memory", image_path=str(picture), text="kept")
        for child in psutil.Process().children(recursive=True):
            if "mcp_adapters.videre" in child.cmdline():
                child.send_signal(signal.SIGKILL)
    async with videre(where, environment) as client:
        listed = await call(client, "list_images")
        assert [image["image_id"] for image in listed["result"]] == [saved["image_id"]]
        again = await call(client, "save_image_memory", image_path=str(picture), text="kept")
        assert (again["image_id"], again["duplicate"]) == (saved["image_id"], True)


@pytest.mark.filterwarnings("ignore:ping is removed")
async def test_a_ping_is_answered_while_a_save_is_going_on(
    where: Environment, environment: dict[str, str], front: Front, picture: Path
) -> None:
    holder = await asyncpg.connect(environment["MEMINI_IMAGE_DB_URL"])
    waiting = (
        "SELECT count(*) > 0 FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )

    async def save_waits() -> bool:
        return bool(await front.database.fetchval(waiting))

    try:
        async with videre(where, environment) as client:
            await call(client, "image_index_status")
            async with holder.transaction():
                await holder.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
                save = asyncio.create_task(
                    call(client, "save_image_memory", image_path=str(picture), text="shapes")
                )
                await eventually(save_waits, "the save has come to the table")
                await client.send_ping()
                assert not save.done()
            assert (await save)["status"] == "pending"
    finally:
        await holder.close()


async def test_a_screenshot_of_a_display_is_saved_and_found(
    where: Environment,
    environment: dict[str, str],
    display: Display,
    front: Front,
    start_worker: Callable[..., Process],
    tmp_path: Path,
) -> None:
    start_worker()
    display.paint(drawing(1280, 720))
    shot = tmp_path / "display.png"
    async with videre(where, environment | {"DISPLAY": display.name}) as client:
        taken = await call(
            client, "take_screenshot", output_path=str(shot), monitor=1, describe=False
        )
        assert taken == {"path": str(shot), "width": 1280, "height": 720, "monitor": 1}
        saved = await call(client, "save_image_memory", image_path=str(shot), text="the display")
        await drained(front)
        (hit,) = (await call(client, "query_images", query="a red rectangle"))["result"]
        assert hit["image_id"] == saved["image_id"]
        with Image.open(hit["file_path"]) as kept:
            assert kept.convert("RGB").tobytes() == drawing(1280, 720).tobytes()


def test_without_videre_one_sentence_says_what_to_install(
    environment_of: EnvironmentOf, environment: dict[str, str]
) -> None:
    where = environment_of("memini")
    done = subprocess.run(
        [where.python, "-m", "mcp_adapters.videre"],
        env=variables_for(where, environment),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "videre-mcp cannot be imported (No module named 'videre_mcp'). Run this with the Python"
        " that it is installed for: pip install videre-mcp 'vision-worker[mcp]'"
    )


def test_a_gate_that_is_neither_on_nor_off_is_one_sentence(
    where: Environment, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [where.python, "-m", "mcp_adapters.videre"],
        env=variables_for(where, environment, MEMINI_IMAGE_SEARCH_ENABLED="perhaps"),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("config_invalid: MEMINI_IMAGE_SEARCH_ENABLED is not usable:")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("major", [1, 2])
def test_any_server_object_gets_our_tools_beside_its_own(
    where: Environment, environment: dict[str, str], major: int
) -> None:
    done = subprocess.run(
        [where.python if major == 1 else sys.executable, SCRIPTS / "videre_register.py"],
        env=variables_for(where, environment),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("major") == major
    assert told.pop("names") == told.pop("again") == told["tools"][1:]
    assert set(told.pop("tools")) == {"greet"} | OURS
    status = told.pop("status")
    assert (status["pending"], status["embedded"], status["workers"]) == (0, 0, 0)
    texts = told.pop("texts")
    assert texts["greet"] == "hello"
    assert "image_not_found: " in texts["get_image"]
    refused = {
        "query_images": "tag is not usable: the tool takes query, limit, tags, source_type,"
        " created_after, created_before, order",
        "save_image_memory": "text is not usable: it has to be given",
        "list_images": "limit is not usable: input should be a valid integer, unable to parse"
        " string as an integer",
        "find_similar_images": "tags.1 is not usable: input should be a valid string",
    }
    for tool, sentence in refused.items():
        assert texts[tool].endswith(f"invalid_argument: {sentence}")
    assert told == {
        "closed": [],
        "untouched": True,
        "same": ["greet"],
        "resources": 1,
        "errors": ["get_image", *refused],
    }


@pytest.mark.parametrize("by", ["a closed stdin", "SIGTERM"])
def test_the_server_ends_without_a_word_and_leaves_no_process(
    where: Environment, environment: dict[str, str], front: Front, picture: Path, by: str
) -> None:
    with subprocess.Popen(
        [where.python, "-m", "mcp_adapters.videre"],
        env=variables_for(where, environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        say(
            server,
            id=1,
            method="initialize",
            params={
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "tests", "version": "1"},
            },
        )
        say(server, method="notifications/initialized")
        save = {"image_path": str(picture), "text": "shapes"}
        saved = say(
            server,
            id=2,
            method="tools/call",
            params={"name": "save_image_memory", "arguments": save},
        )
        look = {"image_id": saved["structuredContent"]["image_id"], "view": "thumbnail"}
        say(server, id=3, method="tools/call", params={"name": "get_image", "arguments": look})
        (decoder,) = psutil.Process(server.pid).children(recursive=True)
        if by == "SIGTERM":
            server.send_signal(signal.SIGTERM)
        else:
            server.stdin.close()
        assert server.wait(DEADLINE) == (-signal.SIGTERM if by == "SIGTERM" else 0)
        assert psutil.wait_procs([decoder], DEADLINE)[1] == []
        assert server.stdout.read() == ""
        assert server.stderr.read() == ""


def say(server: subprocess.Popen[str], **message: Any) -> Any:
    """Send a message as JSON-RPC; the result of a request."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())["result"] if "id" in message else None
