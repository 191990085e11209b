"""The Celery app: queues, JSON only, no results, bounded retries."""

import ssl

from celery import Celery
from kombu import Exchange, Queue

from vision_worker.message import EMBED_QUEUE, KEY_PREFIX, QUERY_QUEUE, ROUTES

SOCKET_SECONDS = 0.5


def celery_app(broker_url: str) -> Celery:
    """An app on this broker; it connects when something is sent or a worker starts."""
    app = Celery("vision_worker", broker=broker_url, set_as_current=False)
    if broker_url.startswith("rediss://"):
        # Celery's own default encrypts without looking at the certificate.
        app.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    app.conf.update(
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "global_keyprefix": KEY_PREFIX,
            "max_retries": 0,
            "socket_connect_timeout": SOCKET_SECONDS,
            "socket_keepalive": True,
            "visibility_timeout": 3600,
        },
        result_backend=None,
        task_acks_late=False,
        task_create_missing_queues=False,
        task_default_queue=EMBED_QUEUE,
        task_ignore_result=True,
        task_publish_retry=False,
        task_queues=[_queue(EMBED_QUEUE), _queue(QUERY_QUEUE)],
        task_routes={task: {"queue": queue} for task, queue in ROUTES.items()},
        task_serializer="json",
        worker_enable_remote_control=True,
        worker_hijack_root_logger=False,
        worker_prefetch_multiplier=1,
        worker_redirect_stdouts=False,
    )
    return app


def _queue(name: str) -> Queue:
    return Queue(name, Exchange(name), routing_key=name)
