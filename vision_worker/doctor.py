"""Examines every part of an installation and says what to do about what is wrong."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Literal

from vision_worker import neighbour
from vision_worker.broker import Broker
from vision_worker.config import VisionConfig
from vision_worker.database import Database
from vision_worker.errors import (
    DatabaseUnavailable,
    DecoderCrashed,
    EmbeddingInvalid,
    NotAnImage,
    TooManyPixels,
    Undecodable,
    VisionError,
)
from vision_worker.index import ImageIndex
from vision_worker.local import servers, urls
from vision_worker.local_server import Answer, Server
from vision_worker.migrate import pending
from vision_worker.statements import statement

FEW_BYTES = 1 << 30
LASTING = {
    kind.code for kind in (DecoderCrashed, EmbeddingInvalid, NotAnImage, TooManyPixels, Undecodable)
}
"""What is wrong with the picture itself, so that no retry helps."""

State = Literal["ok", "warning", "broken"]


@dataclass(frozen=True)
class Check:
    """One examined part; ``advice`` says what to do unless the state is ok."""

    name: str
    state: State
    detail: str
    advice: str = ""


async def examine() -> list[Check]:
    """Look at settings, disk, servers, schema, workers and model; starts no server."""
    try:
        config = VisionConfig()
    except VisionError as error:
        return [Check("settings", "broken", str(error), "Correct this variable.")]
    checks = [_gate(config), _pictures(config)]
    try:
        checks += await _servers(config)
    except VisionError as error:
        checks.append(Check("servers", "broken", str(error), "Correct what it names."))
    checks += [_model(config), *_device(config)]
    checks += [*_namesake(), *await _neighbour(config)]
    return checks


async def _servers(config: VisionConfig) -> list[Check]:
    db_url, broker_url = config.resolved_db_url, config.broker_url
    checks = []
    if not (db_url and broker_url):
        postgres, valkey = servers(config)
        if not db_url:
            checks.append(_embedded(postgres, lost=postgres.data.exists()))
        if not broker_url:
            checks.append(_embedded(valkey, lost=False))
        # Asking for the URL of an embedded server starts it, so only one that runs is asked.
        if not broker_url and valkey.running:
            broker_url = urls(config.model_copy(update={"db_url": "-"})).broker_url
        if not db_url and postgres.running:
            db_url = urls(config.model_copy(update={"broker_url": "-"})).db_url
    if broker_url:
        checks.append(await _broker(Broker(broker_url)))
    if db_url:
        checks += await _database(config, db_url)
    return checks


def _gate(config: VisionConfig) -> Check:
    if config.search_enabled:
        return Check("gate", "ok", "the image tools are on")
    return Check(
        "gate",
        "warning",
        "the image tools are off",
        "Set MEMINI_IMAGE_SEARCH_ENABLED=true where the agent's server is configured.",
    )


def _pictures(config: VisionConfig) -> Check:
    folder = config.resolved_image_dir
    place = folder
    while not place.exists():
        place = place.parent
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        advice = "Set MEMINI_IMAGE_DIR to a folder that this user can write."
        return Check("pictures", "broken", f"{folder} cannot be written", advice)
    free = shutil.disk_usage(place).free
    detail = f"{folder}, {free / (1 << 30):.1f} GiB free"
    if free < FEW_BYTES:
        return Check("pictures", "warning", detail, "Make room: saves fail on a full disk.")
    return Check("pictures", "ok", detail)


def _embedded(server: Server, *, lost: bool) -> Check:
    """``lost`` says whether nothing works as long as it does not run."""
    answer = server.answer
    if answer is Answer.READY:
        return Check(server.name, "ok", "the embedded server answers")
    if answer is Answer.BUSY:
        detail = "the embedded server is there, but does not answer"
        advice = (
            f"It may be recovering: wait, and look into {server.log}. If it stays so, run"
            " 'vision-worker down', then 'vision-worker up'."
        )
        return Check(server.name, "broken", detail, advice)
    detail = "the embedded server is not running"
    if lost:
        detail += ", so no image can be saved or found"
    return Check(server.name, "broken" if lost else "warning", detail, "Run 'vision-worker up'.")


async def _broker(broker: Broker) -> Check:
    try:
        await broker.ping()
    except VisionError as error:
        advice = "Start it, or correct MEMINI_IMAGE_BROKER_URL."
        return Check("broker", "broken", str(error), advice)
    return Check("broker", "ok", "answers")


async def _database(config: VisionConfig, url: str) -> list[Check]:
    database = Database(url, pool_size=1)
    try:
        if missing := await pending(url):
            detail = f"reachable, but {len(missing)} migrations are missing"
            return [Check("database", "broken", detail, "Run 'vision-worker migrate'.")]
        index = ImageIndex(database, namespace=config.namespace)
        status = await index.status(ready_seconds=config.ready_seconds)
        workers = await index.workers()
        failures = await index.failures()
        strays = await database.fetchval(statement("strays"))
        texts = await _text_model(config, database)
    except DatabaseUnavailable as error:
        detail = f"cannot be reached: {error.details['reason']}"
        advice = "Start it, or correct MEMINI_IMAGE_DB_URL (or MEMINI_DB_URL)."
        if neighbour.serves(url):
            advice = "It is memini-ai's own, which ends with it: start memini-ai."
        return [Check("database", "broken", detail, advice)]
    except VisionError as error:
        return [Check("database", "broken", str(error), "Do what it says.")]
    finally:
        await database.close()
    counts = f"{status.embedded} embedded, {status.pending} pending, {status.failed} failed"
    checks = [Check("database", "ok", f"reachable, schema up to date; {counts}")]
    checks += [_worker(worker) for worker in workers]
    if not workers:
        advice = "Start 'vision-worker worker' on the host with the model."
        checks.append(Check("workers", "warning", "none is alive: nothing is embedded", advice))
    if not status.ready:
        advice = "Start another worker, or see why the one there does not keep up."
        checks.append(Check("backlog", "broken", "images wait longer than they should", advice))
    if strays:
        detail = f"{strays} images are embedded by another model, so no search finds them"
        checks.append(Check("vectors", "warning", detail, "Run 'vision-worker reembed'."))
    checks += texts
    if failures:
        checks.append(_failures(failures))
    return checks


def _failures(failures: Sequence[dict[str, Any]]) -> Check:
    detail = f"{sum(failure['images'] for failure in failures)} images failed"
    codes = sorted(failure["code"] for failure in failures)
    advice = "See 'vision-worker status'."
    if again := [code for code in codes if code not in LASTING]:
        retries = " and ".join(f"'vision-worker retry --code {code}'" for code in again)
        advice += f" {retries} may help."
    if lasting := [code for code in codes if code in LASTING]:
        advice += (
            f" No retry helps against {', '.join(lasting)}: delete those pictures with"
            " 'vision-worker delete', or save better ones."
        )
    return Check("failures", "warning", detail, advice)


def _worker(worker: dict[str, Any]) -> Check:
    name = f"worker {worker['hostname']}:{worker['pid']}"
    if worker["state"] == "reembedding":
        return Check(name, "ok", f"embeds everything anew with {worker['model_key']}")
    if worker["state"] == "ready":
        return Check(name, "ok", f"{worker['model_key']} on {worker['device']}")
    if worker["state"] in ("starting", "loading"):
        return Check(name, "warning", "it has not got its model yet", "Wait a moment.")
    detail = f"{worker['state']}: {worker['detail'] or 'see its log'}"
    return Check(name, "broken", detail, "Do what it says; the worker goes on by itself.")


def _model(config: VisionConfig) -> Check:
    if find_spec("sentence_transformers") is None:
        detail = "this machine has no encoder installed; a worker elsewhere must have one"
        return Check("model", "ok", detail)
    from vision_worker.models import find_model

    try:
        source = find_model(config.clip_model, fetch=False)
    except VisionError as error:
        advice = "A worker on this machine could not embed; one elsewhere may."
        return Check("model", "warning", str(error), advice)
    return Check("model", "ok", f"{source.name}@{source.revision}")


def _device(config: VisionConfig) -> list[Check]:
    """Whether a device that was asked for by name is there."""
    if config.clip_device == "auto" or find_spec("torch") is None:
        return []
    import torch

    try:
        torch.empty(1, device=config.clip_device)
    except (RuntimeError, AssertionError) as error:
        detail = f"MEMINI_IMAGE_CLIP_DEVICE is {config.clip_device}: {str(error).splitlines()[0]}"
        advice = "Set it to auto, cpu, mps, cuda or cuda:1 where a worker of this machine uses it."
        return [Check("device", "warning", detail, advice)]
    return [Check("device", "ok", config.clip_device)]


def _namesake() -> list[Check]:
    """Another program that installs itself over memini-ai-dev."""
    try:
        found = version("memini-ai")
    except PackageNotFoundError:
        return []
    detail = (
        f"the package memini-ai {found} is installed here. It is another program than"
        " memini-ai-dev, with the same module name and tables that cannot be shared"
    )
    advice = "Run 'pip uninstall memini-ai', then 'pip install --force-reinstall memini-ai-dev'."
    return [Check("memini-ai package", "warning", detail, advice)]


async def _neighbour(config: VisionConfig) -> list[Check]:
    """Whether a memini-ai with an embedded PostgreSQL and we use the same database."""
    shared = await neighbour.running()
    if shared is None:
        return []
    used = neighbour.serves(config.resolved_db_url or "")
    backend = os.environ.get("MEMINI_VECTOR_BACKEND")
    refused = bool(os.environ.get("MEMINI_DB_URL")) and not backend
    if used and not refused:
        return [Check("memini-ai", "ok", "the images are in its embedded PostgreSQL")]
    if backend == "postgres-external":
        return []
    advice = f"Set MEMINI_IMAGE_DB_URL='{shared}' for the agent's server, the worker and memini-ai"
    if refused:
        detail = "in its embedded mode it does not start with MEMINI_DB_URL set"
        advice += ", and unset MEMINI_DB_URL."
    else:
        detail = "its embedded PostgreSQL runs, but the images are in another database"
        advice += (
            " to share it. It ends with memini-ai; for one that stays, 'vision-worker up --env'"
            " prints how memini-ai uses ours."
        )
    return [Check("memini-ai", "warning", detail, advice)]


async def _text_model(config: VisionConfig, database: Database) -> list[Check]:
    """Whether the model of memini-ai's text vectors is there, if they are wanted."""
    state = await database.fetchrow(statement("text_state"))
    assert state is not None
    automatic = config.text_model == "auto"
    if config.text_model == "off" or (automatic and not state["memini_ai"]):
        return []
    if find_spec("sentence_transformers") is None:
        detail = "this machine has no encoder installed; a worker elsewhere must have one"
        return [Check("text model", "ok", detail)]
    from vision_worker.models import MINILM, find_model

    name = MINILM if automatic else config.text_model
    try:
        source = find_model(name, fetch=False)
    except VisionError as error:
        detail = f"{name}: {error.details['reason']}; memini-ai finds no picture by its text"
        advice = (
            "Run 'pip install \"vision-worker[text]\"' where the worker is, let it fetch the model"
            " once, or set MEMINI_IMAGE_TEXT_MODEL to a folder or to off."
        )
        return [Check("text model", "warning", detail, advice)]
    return [Check("text model", "ok", f"{source.name}@{source.revision}")]
