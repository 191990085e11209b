"""The messages that fronts push are those that Celery would have sent."""

import base64
import json
from typing import Any

import pytest
from redis import Redis

from vision_worker.app import celery_app
from vision_worker.broker import Broker, redis_url
from vision_worker.errors import BrokerUnavailable, EncoderUnavailable
from vision_worker.message import EMBED_TASK, ENCODE_TEXT_TASK, ROUTES, task_message

OWN = ("id", "root_id", "correlation_id", "delivery_tag", "expires")
"""What differs from message to message."""


def told(message: dict[str, Any]) -> dict[str, Any]:
    """The parts of a message that say what to do with it."""
    parts = {**message["headers"], **message["properties"]}
    body = json.loads(base64.b64decode(message["body"]))
    known = {name: parts[name] for name in parts if name not in OWN}
    return {**known, "body": body, "type": message["content-type"]}


@pytest.mark.parametrize(
    ("task", "arguments"),
    [(EMBED_TASK, {}), (ENCODE_TEXT_TASK, {"text": "é", "model": "m", "reply_to": "r"})],
)
def test_a_message_is_the_one_that_celery_sends(
    task: str, arguments: dict[str, object], broker_url: str
) -> None:
    celery_app(broker_url).send_task(task, kwargs=arguments, expires=60, retry=False)
    key, ours = task_message(task, arguments, seconds=60)
    with Redis.from_url(redis_url(broker_url)) as client:
        sent = client.lindex(key, 0)
    assert isinstance(sent, bytes)
    theirs, made = told(json.loads(sent)), told(json.loads(ours))
    assert {name: theirs[name] for name in made} == made
    # What Celery adds is for its own tools; the question itself must not stand in there.
    assert set(theirs) - set(made) <= {
        "argsrepr",
        "expiration",
        "group_index",
        "ignore_result",
        "kwargsrepr",
        "origin",
        "replaced_task_nesting",
        "reply_to",
        "shadow",
        "stamped_headers",
        "stamps",
    }


def test_every_task_has_a_queue_that_the_workers_know(broker_url: str) -> None:
    assert {queue.name for queue in celery_app(broker_url).conf.task_queues} == set(ROUTES.values())


async def test_without_a_broker_every_call_says_so() -> None:
    broker = Broker("")
    with pytest.raises(BrokerUnavailable, match="there is none"):
        broker.ring()
    with pytest.raises(BrokerUnavailable, match="there is none"):
        await broker.ping()
    with pytest.raises(EncoderUnavailable, match="no broker"):
        await broker.encode_text("x", model="m", seconds=1)
