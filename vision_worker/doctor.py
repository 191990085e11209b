"""Examines every part of an installation and says what to do about what is wrong."""

import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from vision_worker import local, migrate
from vision_worker.broker import Broker
from vision_worker.config import VisionConfig
from vision_worker.database import Database
from vision_worker.errors import VisionError
from vision_worker.index import ImageIndex

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
    """Look at settings, disk, servers, schema, model and workers; starts nothing."""
    try:
        config = VisionConfig()
    except VisionError as error:
        return [Check("settings", "broken", str(error), "Correct this variable.")]
    checks = [_gate(config), _pictures(config)]
    running = local.running(config)
    checks += [_server(name, alive) for name, alive in running.items()]
    if all(running.values()):
        backend = local.urls(config)
        checks.append(await _broker(Broker(backend.broker_url)))
        checks += await _database(config, backend.db_url)
    checks.append(_model(config))
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
    if not os.access(place, os.W_OK | os.X_OK):
        advice = "Set MEMINI_IMAGE_DIR to a folder that this user can write."
        return Check("pictures", "broken", f"{folder} cannot be written", advice)
    free = shutil.disk_usage(place).free
    detail = f"{folder}, {free / (1 << 30):.1f} GiB free"
    if free < FEW_BYTES:
        return Check("pictures", "warning", detail, "Make room: saves fail on a full disk.")
    return Check("pictures", "ok", detail)


def _server(name: str, alive: bool) -> Check:
    if alive:
        return Check(name, "ok", "the embedded server answers")
    return Check(name, "warning", "the embedded server is not running", "Run 'vision-worker up'.")


async def _broker(broker: Broker) -> Check:
    try:
        await broker.ping()
    except VisionError as error:
        return Check(
            "broker", "broken", str(error), "Start it, or correct MEMINI_IMAGE_BROKER_URL."
        )
    return Check("broker", "ok", "answers")


async def _database(config: VisionConfig, url: str) -> list[Check]:
    try:
        missing = await migrate.pending(url)
    except VisionError as error:
        return [Check("database", "broken", str(error), "Correct MEMINI_IMAGE_DB_URL or start it.")]
    if missing:
        detail = f"reachable, but {len(missing)} migrations are missing"
        return [Check("database", "broken", detail, "Run 'vision-worker migrate'.")]
    database = Database(url, pool_size=1)
    try:
        index = ImageIndex(database, namespace=config.namespace)
        status, workers = (
            await index.status(ready_seconds=config.ready_seconds),
            await index.workers(),
        )
    except VisionError as error:
        return [Check("database", "broken", str(error), "Run 'vision-worker migrate'.")]
    finally:
        await database.close()
    counts = f"{status.embedded} embedded, {status.pending} pending, {status.failed} failed"
    checks = [Check("database", "ok", f"reachable, schema up to date; {counts}")]
    for worker in workers:
        where = f"worker {worker['hostname']}:{worker['pid']}"
        if worker["state"] == "ready":
            checks.append(Check(where, "ok", f"{worker['model_key']} on {worker['device']}"))
        else:
            detail = f"{worker['state']} {worker['detail'] or ''}".strip()
            advice = "" if worker["state"] == "loading" else "Follow what it says, then restart it."
            checks.append(Check(where, "warning", detail, advice))
    if not workers:
        advice = "Start 'vision-worker worker' on the host with the model."
        checks.append(Check("workers", "warning", "none is alive: nothing is embedded", advice))
    if not status.ready:
        advice = "Start another worker, or see why the one there does not keep up."
        checks.append(Check("backlog", "broken", "images wait longer than they should", advice))
    if status.failed:
        advice = "See 'vision-worker status', then 'vision-worker retry'."
        checks.append(Check("failures", "warning", f"{status.failed} images failed", advice))
    return checks


def _model(config: VisionConfig) -> Check:
    if find_spec("sentence_transformers") is None:
        detail = "this machine has no encoder installed; a worker elsewhere must have one"
        return Check("model", "ok", detail)
    from vision_worker.models import find_model

    try:
        source = find_model(config.clip_model)
    except VisionError as error:
        advice = "A worker on this machine could not embed; one elsewhere may."
        return Check("model", "warning", str(error), advice)
    return Check("model", "ok", f"{source.name}@{source.revision}")
