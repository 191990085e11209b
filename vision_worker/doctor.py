"""Examines every part of an installation and says what to do about what is wrong."""

import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from vision_worker.broker import Broker
from vision_worker.config import VisionConfig
from vision_worker.database import Database
from vision_worker.errors import DatabaseUnavailable, VisionError
from vision_worker.index import ImageIndex
from vision_worker.local import running, urls
from vision_worker.migrate import pending
from vision_worker.statements import statement

FEW_BYTES = 1 << 30

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
    checks.append(_model(config))
    return checks


async def _servers(config: VisionConfig) -> list[Check]:
    embedded = {} if config.resolved_db_url and config.broker_url else running(config)
    db_url, broker_url = config.resolved_db_url, config.broker_url
    checks = []
    if not db_url:
        checks.append(_embedded("postgres", embedded["postgres"]))
    if not broker_url:
        checks.append(_embedded("valkey", embedded["valkey"]))
    # Asking for the URL of an embedded server starts it, so only one that runs is asked.
    if not broker_url and embedded["valkey"]:
        broker_url = urls(config.model_copy(update={"db_url": "-"})).broker_url
    if not db_url and embedded["postgres"]:
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


def _embedded(name: str, alive: bool) -> Check:
    if alive:
        return Check(name, "ok", "the embedded server answers")
    return Check(name, "warning", "the embedded server is not running", "Run 'vision-worker up'.")


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
        strays = await database.fetchval(statement("strays"))
    except DatabaseUnavailable as error:
        detail = f"cannot be reached: {error.details['reason']}"
        advice = "Start it, or correct MEMINI_IMAGE_DB_URL (or MEMINI_DB_URL)."
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
    if status.failed:
        advice = "See 'vision-worker status', then 'vision-worker retry'."
        checks.append(Check("failures", "warning", f"{status.failed} images failed", advice))
    return checks


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
