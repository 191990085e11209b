"""Hosts pin SDKs and Pythons of their own: the adapters work on each in an environment apart."""

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.environments import ROOT, clean_variables, make_environment, require_registry, run
from tests.pictures import drawing

pytestmark = pytest.mark.timeout(600)

SDKS = {
    # mcp 1.10 uses a part of pydantic that 2.12 no longer has; whoever pins one pins the other.
    "oldest": ("mcp==1.10.0", "pydantic<2.12"),
    "newest 1.x": ("mcp<2",),
}
HOST = """
import asyncio, json
from mcp.server.fastmcp import FastMCP
from mcp.shared.memory import create_connected_server_and_client_session as connected
import mcp_adapters.sdk, mcp_adapters.server
from mcp_adapters.tools import register_tools
from vision_worker.errors import BackendError, InvalidArgument

async def open_front():
    raise InvalidArgument(name="limit", problem="it must lie between 1 and 1000")

async def main():
    host = FastMCP("host")
    register_tools(host, open_front)
    async with connected(host._mcp_server) as client:
        tools = (await client.list_tools()).tools
        refused = await client.call_tool("query_images", {"query": "x", "limit": 0})
        print(json.dumps({
            "major": mcp_adapters.sdk.MAJOR,
            "tools": {tool.name: sorted(tool.outputSchema["properties"]) for tool in tools},
            "error": refused.isError,
            "text": [block.text for block in refused.content],
        }))

asyncio.run(main())
"""
ANSWERS = {
    "save_image_memory": ["duplicate", "file_path", "image_id", "memory_id", "sha256", "status"],
    "query_images": ["failed", "pending", "result"],
    "find_similar_images": ["failed", "pending", "result"],
    "list_images": ["cursor", "result"],
    "delete_image": ["deleted", "image_id"],
}
TOOLS = {*ANSWERS, "get_image", "image_index_status"}
LIGHT_TESTS = ("test_fusion.py", "test_queue.py", "test_errors.py", "test_config.py")
IMPORTS = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
"""
LIGHT_MODULES = [
    f"{package}.{path.stem}"
    for package, heavy in (("vision_worker", {"embedder"}), ("mcp_adapters", set()))
    for path in sorted((ROOT / package).glob("*.py"))
    if path.stem not in heavy
]


@pytest.fixture(scope="module", params=SDKS)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment with the core and one version of the SDK."""
    require_registry()
    folder = tmp_path_factory.mktemp("sdk") / "environment"
    return make_environment(folder, str(ROOT), *SDKS[request.param])


def test_a_1x_host_registers_the_seven_tools_and_gets_an_error_as_a_sentence(
    host: Path, tmp_path: Path
) -> None:
    seen = json.loads(run(host / "python", "-c", HOST, cwd=tmp_path))
    assert seen["major"] == 1
    assert set(seen["tools"]) == TOOLS
    assert {name: seen["tools"][name] for name in ANSWERS} == ANSWERS
    assert seen["error"] is True
    sentence = "invalid_argument: limit is not usable: it must lie between 1 and 1000"
    assert seen["text"] == [f"Error executing tool query_images: {sentence}"]


async def test_a_server_on_1x_gives_the_same_answers_as_one_on_2x(
    host: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    picture = tmp_path / "drawing.png"
    drawing(400, 300).save(picture)
    server = StdioServerParameters(
        command=str(host / "python"),
        args=["-m", "vision_worker.cli", "mcp"],
        env=environment,
        cwd=str(tmp_path),
    )
    async with Client(server) as client:
        arguments = {"image_path": str(picture), "text": "a drawing"}
        saved = (await client.call_tool("save_image_memory", arguments)).structured_content
        assert saved is not None
        assert (saved["status"], saved["duplicate"]) == ("pending", False)
        found = await client.call_tool("query_images", {"query": "a drawing"})
        assert found.structured_content == {"result": [], "pending": 1, "failed": 0}
        assert [block.text for block in found.content if block.type == "text"] == [
            "[]",
            "1 matching images are still pending, 0 failed.",
        ]
        look = {"image_id": saved["image_id"], "view": "thumbnail"}
        seen = await client.call_tool("get_image", look)
        assert seen.structured_content is not None
        assert seen.structured_content["sha256"] == saved["sha256"]
        assert [block.type for block in seen.content] == ["text", "image"]
        assert seen.content[1].type == "image"
        assert base64.b64decode(seen.content[1].data).startswith(b"\xff\xd8")
        missing = await client.call_tool("get_image", {"image_id": saved["sha256"]})
        assert missing.is_error
        assert missing.content[0].type == "text"
        assert "invalid_argument: image_id is not usable" in missing.content[0].text


def interpreters(version: str) -> Iterator[Path]:
    """Where a Python of this version may be; the one on the path may be a shim that cannot run."""
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    yield from sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))


def usable(interpreter: Path) -> bool:
    command = [str(interpreter), "-c", "import ssl, venv"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_core_imports_and_its_own_tests_pass_on_a_newer_python(
    version: str, tmp_path: Path
) -> None:
    python = next(filter(usable, interpreters(version)), None)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    require_registry()
    constraints = ("-c", str(ROOT / "constraints.txt"))
    needed = ("mcp", "hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
    binaries = make_environment(
        tmp_path / "environment", *constraints, str(ROOT), *needed, python=python
    )
    variables = clean_variables(PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="error")
    run(binaries / "python", "-c", IMPORTS, *LIGHT_MODULES, cwd=tmp_path, variables=variables)
    tests = [ROOT / "tests" / "unit" / name for name in LIGHT_TESTS]
    project = ("--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"))
    told = run(
        binaries / "python",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *project,
        *tests,
        cwd=ROOT,
        variables=variables,
    )
    assert " passed" in told
    assert "skipped" not in told
