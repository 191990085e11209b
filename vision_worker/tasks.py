"""The tasks of a Celery worker, and the process around them."""

import base64
import json
import logging
import warnings
from typing import Any

from celery import Celery, signals
from celery.exceptions import SecurityWarning
from redis import Redis

from vision_worker.app import celery_app
from vision_worker.broker import REPLY_SECONDS, redis_url
from vision_worker.config import VisionConfig
from vision_worker.errors import EncoderError, VisionError
from vision_worker.message import EMBED_TASK, ENCODE_SQUARES_TASK, ENCODE_TEXT_TASK
from vision_worker.worker import EmbeddingWorker

QUERY_THREADS = 4

logger = logging.getLogger(__name__)


def register_tasks(app: Celery, worker: EmbeddingWorker) -> None:
    """Give the app its three tasks: the bell, and the encoding of sentences and pictures."""
    replies = Redis.from_url(redis_url(app.conf.broker_url), socket_timeout=5)

    def reply(reply_to: str, model: str, encode: Any) -> None:
        answer: dict[str, object]
        try:
            answer = {"model": model, "vector": encode(worker.embedder_for(model))}
        except VisionError as error:
            answer = {"code": error.code, "message": str(error)}
        except Exception as error:
            logger.exception("a query could not be encoded")
            failure = EncoderError(reason=type(error).__name__)
            answer = {"code": failure.code, "message": str(failure)}
        with replies.pipeline() as pipeline:
            pipeline.lpush(reply_to, json.dumps(answer))
            pipeline.expire(reply_to, REPLY_SECONDS)
            pipeline.execute()

    @app.task(name=EMBED_TASK, ignore_result=True)  # type: ignore[untyped-decorator]
    def embed() -> None:
        worker.ring()

    @app.task(name=ENCODE_TEXT_TASK, ignore_result=True)  # type: ignore[untyped-decorator]
    def encode_text(text: str, model: str, reply_to: str) -> None:
        reply(reply_to, model, lambda embedder: embedder.encode_text(text))

    @app.task(name=ENCODE_SQUARES_TASK, ignore_result=True)  # type: ignore[untyped-decorator]
    def encode_squares(squares: list[str], model: str, reply_to: str) -> None:
        decoded = [base64.b64decode(square) for square in squares]
        reply(reply_to, model, lambda embedder: embedder.encode_squares([decoded])[0].tolist())


def run_worker(
    config: VisionConfig, database_url: str, broker_url: str, *, queues: tuple[str, ...], pool: str
) -> int:
    """Run a Celery worker with the embedding worker beside it until it is told to stop."""
    app = celery_app(broker_url)
    worker = EmbeddingWorker(config, database_url, queues=queues)
    register_tasks(app, worker)

    # worker_init, not worker_ready: rows are embedded even while the broker cannot be reached.
    @signals.worker_init.connect(weak=False)  # type: ignore[untyped-decorator]
    def start(**_: object) -> None:
        worker.start()

    @signals.worker_shutting_down.connect(weak=False)  # type: ignore[untyped-decorator]
    @signals.worker_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
    def stop(**_: object) -> None:
        worker.stop()

    # Celery warns of root because of pickle, which is never accepted here.
    warnings.simplefilter("ignore", SecurityWarning)
    process = app.Worker(
        pool=pool,
        concurrency=QUERY_THREADS,
        queues=",".join(queues),
        loglevel="INFO",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
    )
    process.start()
    return int(process.exitcode or 0)
