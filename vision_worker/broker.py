"""The broker as a client sees it: ring the bell, have a query encoded, see whether it answers."""

import asyncio
import base64
import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from vision_worker.errors import BrokerUnavailable, EncoderUnavailable, VisionError
from vision_worker.message import (
    BELL_SECONDS,
    EMBED_TASK,
    ENCODE_SQUARES_TASK,
    ENCODE_TEXT_TASK,
    task_message,
)
from vision_worker.types import QueryVector

if TYPE_CHECKING:
    from redis import Redis
    from redis.asyncio import Redis as AsyncRedis

REPLY_PREFIX = "vision-worker:reply:"
REPLY_SECONDS = 60
CONNECT_SECONDS = 0.5


class Broker:
    """Redis or Valkey with the workers behind it. Connects when something is sent.

    Without a URL nothing can be sent: every call raises as if the broker were away.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @cached_property
    def _publisher(self) -> "Redis":
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        # Once more, since the connection may be one to a broker that has been restarted.
        return Redis.from_url(
            redis_url(self.url),
            socket_timeout=CONNECT_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 1),
        )

    def ring(self) -> None:
        """Publish one bell; blocks for about a second at most. Raises BrokerUnavailable."""
        self._publish(EMBED_TASK, {}, seconds=BELL_SECONDS)

    async def encode_text(self, text: str, *, model: str, seconds: float) -> QueryVector:
        """Have a worker encode a sentence with the model of that key.

        Raises EncoderUnavailable if no worker answers within ``seconds``.
        """
        return await self._ask(ENCODE_TEXT_TASK, {"text": text, "model": model}, seconds)

    async def encode_squares(
        self, squares: Sequence[bytes], *, model: str, seconds: float
    ) -> QueryVector:
        """Have a worker encode a framed picture. Raises EncoderUnavailable."""
        encoded = [base64.b64encode(square).decode() for square in squares]
        return await self._ask(ENCODE_SQUARES_TASK, {"squares": encoded, "model": model}, seconds)

    async def ping(self, seconds: float = 1.0) -> None:
        """Raises BrokerUnavailable unless the broker answers."""
        import redis.exceptions

        if not self.url:
            raise BrokerUnavailable(reason="there is none")
        client = self._client()
        try:
            await asyncio.wait_for(client.ping(), seconds)
        except (redis.exceptions.RedisError, OSError, TimeoutError) as error:
            raise BrokerUnavailable(reason=_reason(error)) from None
        finally:
            await client.aclose()

    async def _ask(self, task: str, question: dict[str, object], seconds: float) -> QueryVector:
        import redis.exceptions

        if not self.url:
            raise EncoderUnavailable(reason="there is no broker to ask a worker through")
        reply_to = f"{REPLY_PREFIX}{uuid4().hex}"
        client = self._client(socket_timeout=seconds + 1)
        try:
            await asyncio.to_thread(
                self._publish, task, {**question, "reply_to": reply_to}, seconds=seconds
            )
            answer = await client.blpop([reply_to], timeout=seconds)
        except (BrokerUnavailable, redis.exceptions.RedisError, OSError) as error:
            reason = error.details["reason"] if isinstance(error, BrokerUnavailable) else error
            raise EncoderUnavailable(reason=f"the broker does not answer: {reason}") from None
        finally:
            await client.aclose()
        if answer is None:
            raise EncoderUnavailable(reason=f"no worker answered within {seconds:g} seconds")
        reply = json.loads(answer[1])
        if "code" in reply:
            raise VisionError.revive(reply["code"], reply["message"])
        return QueryVector(reply["model"], reply["vector"])

    def _publish(self, task: str, arguments: dict[str, object], *, seconds: float) -> None:
        import redis.exceptions

        if not self.url:
            raise BrokerUnavailable(reason="there is none")
        try:
            self._publisher.lpush(*task_message(task, arguments, seconds=seconds))
        except (redis.exceptions.RedisError, OSError) as error:
            raise BrokerUnavailable(reason=_reason(error)) from None

    def _client(self, **options: Any) -> "AsyncRedis":
        from redis.asyncio import Redis

        options = {"socket_connect_timeout": CONNECT_SECONDS, **options}
        return Redis.from_url(redis_url(self.url), **options)


def redis_url(broker_url: str) -> str:
    """What redis-py takes for what Celery takes: ``redis+socket://`` becomes ``unix://``."""
    if not broker_url.startswith("redis+socket://"):
        return broker_url
    return "unix://" + broker_url.removeprefix("redis+socket://").replace("virtual_host=", "db=")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return text or type(error).__name__
