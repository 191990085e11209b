"""Query vectors: from a cache, else from a worker, else from a model in this process."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

from vision_worker.broker import Broker
from vision_worker.errors import EncoderUnavailable
from vision_worker.types import QueryVector

CACHE_SIZE = 1024


class LocalEncoder(Protocol):
    """What ClipEmbedder offers here."""

    @property
    def key(self) -> str: ...
    def encode_text(self, text: str) -> list[float]: ...


class QueryEncoder:
    """Encodes queries with the model that the index is searched by.

    ``local`` builds a ClipEmbedder in this process; it is called only if no worker answers.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        seconds: float,
        local: Callable[[], LocalEncoder] | None = None,
    ) -> None:
        self._broker = broker
        self._seconds = seconds
        self._make_local = local
        self._local: LocalEncoder | None = None
        self._loading = Lock()
        self._cache: OrderedDict[tuple[str, str], list[float]] = OrderedDict()

    async def encode_text(
        self, text: str, *, model: str, worker_alive: bool, load: bool = True
    ) -> list[float]:
        """768 floats for a sentence; without ``load``, a model that this process has not loaded yet
        is left alone. Raises EncoderUnavailable or another EncoderError."""
        if (known := self._cache.get((model, text))) is not None:
            self._cache.move_to_end((model, text))
            return known
        vector = await self._encode_text(text, model, worker_alive, load)
        self._cache[model, text] = vector
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return vector

    async def encode_squares(
        self, squares: Sequence[bytes], *, model: str, worker_alive: bool
    ) -> list[float]:
        """768 floats for a framed picture; a worker has to be there."""
        if not worker_alive:
            raise EncoderUnavailable(reason="no worker is running")
        answer = await self._broker.encode_squares(squares, model=model, seconds=self._seconds)
        return _of(model, answer)

    async def _encode_text(
        self, text: str, model: str, worker_alive: bool, load: bool
    ) -> list[float]:
        reason = "no worker is running"
        if worker_alive:
            try:
                return _of(
                    model,
                    await self._broker.encode_text(text, model=model, seconds=self._seconds),
                )
            except EncoderUnavailable as error:
                reason = str(error.details.get("reason", error))
        if self._make_local is None or (self._local is None and not load):
            raise EncoderUnavailable(reason=reason)
        try:
            return _of(model, await asyncio.to_thread(self._encode_locally, text))
        except ImportError:
            raise EncoderUnavailable(
                reason=f"{reason}, and this machine has no 'vision-worker[worker]' installed"
            ) from None

    def _encode_locally(self, text: str) -> QueryVector:
        with self._loading:
            local = self._local
            if local is None:
                assert self._make_local is not None
                local = self._make_local()
            vector = local.encode_text(text)
            self._local = local
        return QueryVector(local.key, vector)


def _of(model: str, answer: QueryVector) -> list[float]:
    if answer.model != model:
        raise EncoderUnavailable(
            reason=f"the index is searched by {model}, the encoder at hand has {answer.model}"
        )
    return answer.vector
