"""The doorbell: wakes a worker through the broker, and never makes the caller wait."""

import logging
import threading
from collections.abc import Callable

from vision_worker.errors import BrokerUnavailable

logger = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 30.0


class Doorbell:
    """Rings from a daemon thread with a one-slot mailbox, so any number of rings is one message.

    ``send`` publishes one bell and raises BrokerUnavailable. While the broker is away the bell is
    kept and rung again with back-off; workers find the rows by themselves meanwhile.
    """

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._quiet = threading.Event()
        self._quiet.set()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def ring(self) -> None:
        """Ask for a worker; returns at once, whatever state the broker is in."""
        self._quiet.clear()
        self._wanted.set()
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="doorbell", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> bool:
        """Wait until every bell asked for so far was rung; False if that took too long."""
        return self._quiet.wait(seconds)

    def close(self) -> None:
        self._stopped.set()
        self._wanted.set()

    def _run(self) -> None:
        backoff = 0.0
        while self._wanted.wait() and not self._stopped.is_set():
            self._wanted.clear()
            try:
                self._send()
            except Exception as error:
                # Whatever it is, the next bell has to be rung: a dead thread would be silent.
                if not isinstance(error, BrokerUnavailable):
                    logger.warning("the bell could not be rung", exc_info=error)
                backoff = min(MAX_BACKOFF_SECONDS, max(0.5, backoff * 2))
                self._wanted.set()
                if self._stopped.wait(backoff):
                    return
                continue
            backoff = 0.0
            if not self._wanted.is_set():
                self._quiet.set()
