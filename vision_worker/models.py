"""Where a CLIP model comes from: a folder, the local hub cache, or the hub itself."""

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from vision_worker.errors import ModelUnavailable, ModelUnusable

PROBE_SECONDS = 1.5
REMEMBER_SECONDS = 60.0
WEIGHTS = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")

_failures: dict[str, tuple[float, str]] = {}


@dataclass(frozen=True)
class ModelSource:
    """A model on this machine. ``revision`` changes when the model does."""

    name: str
    revision: str
    path: Path


def find_model(name: str) -> ModelSource:
    """The model of that name or folder, fetched from the hub if need be.

    Raises ModelUnavailable within about two seconds where the hub cannot be reached, and
    remembers that for a minute; ModelUnusable for a folder that holds no model.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return ModelSource(folder.resolve().name, _digest(folder), folder.resolve())
    if os.sep in name and (folder.is_absolute() or name.startswith((".", "~"))):
        raise ModelUnavailable(model=name, reason="there is no such folder")
    failed_at, reason = _failures.get(name, (0.0, ""))
    if reason and time.monotonic() - failed_at < REMEMBER_SECONDS:
        raise ModelUnavailable(model=name, reason=reason)
    try:
        path = _from_hub(name if "/" in name else f"sentence-transformers/{name}", name)
    except ModelUnavailable as error:
        _failures[name] = (time.monotonic(), str(error.details["reason"]))
        raise
    return ModelSource(name, path.name[:12], path)


def _from_hub(repository: str, name: str) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, local_files_only=True))
    except (LocalEntryNotFoundError, OSError):
        if constants.is_offline_mode():
            raise ModelUnavailable(
                model=name, reason="it is not in the local cache and HF_HUB_OFFLINE is set"
            ) from None
    _probe(repository, name)
    try:
        return Path(snapshot_download(repository))
    except (HfHubHTTPError, OSError) as error:
        raise ModelUnavailable(model=name, reason=_first_line(error)) from None


def _probe(repository: str, name: str) -> None:
    """Ask the hub for the model in a bounded time: its own client would try for over a minute."""
    from huggingface_hub import HfApi

    failure: list[str] = ["the model hub does not answer"]

    def ask() -> None:
        try:
            HfApi().model_info(repository, timeout=PROBE_SECONDS)
            failure.clear()
        except Exception as error:
            failure[0] = _first_line(error)

    # In a thread, since a name lookup that hangs obeys no time-out.
    thread = threading.Thread(target=ask, name="hub-probe", daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS + 0.3)
    if failure:
        raise ModelUnavailable(model=name, reason=failure[0])


def _digest(folder: Path) -> str:
    files = sorted({file for pattern in WEIGHTS for file in folder.rglob(pattern)})
    if not any(file.suffix in (".safetensors", ".bin") for file in files):
        raise ModelUnusable(model=folder, reason="the folder holds no weights")
    digest = hashlib.sha256()
    for file in files:
        if file.name == "results.json":
            continue
        digest.update(str(file.relative_to(folder)).encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:12]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
