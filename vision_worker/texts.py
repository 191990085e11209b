"""The text side: vectors of memories and captions, so that memini-ai's own search finds them."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
from pgvector import Vector

from vision_worker.database import Database
from vision_worker.errors import EncoderError, ModelUnusable, VisionError
from vision_worker.models import LOADING, MINILM, ModelSource, find_model
from vision_worker.statements import statement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

TEXT_DIM = 384
BATCH = 32
CHARACTERS = 20_000
"""Of longer texts only the beginning is read; the model itself sees 256 tokens."""
RETRY_SECONDS = 2.0
LOOK_AGAIN_SECONDS = 60.0
STUCK_AFTER = "5min"
ADVISORY_LOCK = 0x74_65_78_74_73
"""One worker at a time: ``texts``, read as a number."""
T = TypeVar("T")


class TextEmbedder:
    """One sentence model, loaded at first use and once. Vectors are float32, of unit length.

    Raises ModelUnavailable where the model cannot be had, ModelUnusable where its vectors do not
    have 384 numbers, and EncoderError where it fails.
    """

    def __init__(self, model_name: str = MINILM, device: str = "auto") -> None:
        self.model_name = model_name
        self._device = None if device == "auto" else device
        self._lock = threading.Lock()
        self._source: ModelSource | None = None
        self._model: SentenceTransformer | None = None

    @property
    def source(self) -> ModelSource:
        if self._source is None:
            self._source = find_model(self.model_name)
        return self._source

    @property
    def key(self) -> str:
        """What made a vector: ``name@revision``."""
        return f"{self.source.name}@{self.source.revision}"

    def get_model(self) -> "SentenceTransformer":
        """The loaded model."""
        with self._lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    def encode(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Vectors of texts, as float32 (n, 384); one that the model cannot give is not finite."""
        import numpy as np

        if not texts:
            return np.empty((0, TEXT_DIM), np.float32)
        model = self.get_model()
        try:
            return _encode(model, texts)
        except Exception as error:
            raise EncoderError(reason=_reason(error)) from error

    def _load(self) -> "SentenceTransformer":
        source = self.source
        try:
            with LOADING:
                from sentence_transformers import SentenceTransformer
                from transformers.utils import logging as transformers_logging

                transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
                model = SentenceTransformer(
                    str(source.path), device=self._device, local_files_only=True
                )
            model.eval()
            probe = _encode(model, ["a sentence"])
        except Exception as error:
            self._source = None
            raise ModelUnusable(model=self.model_name, reason=_reason(error)) from error
        if probe.shape[1] != TEXT_DIM or not math.isfinite(float(probe.sum())):
            self._source = None
            reason = f"it does not give vectors of {TEXT_DIM} numbers"
            raise ModelUnusable(model=self.model_name, reason=reason)
        return model


class Texts:
    """Fills ``memories.embedding`` and ``memories_image.caption_embedding``, whatever becomes of
    the pictures.

    ``model`` is a hub name or folder, or ``auto``: MiniLM in a database where memini-ai lives, else
    nothing. A batch is encoded inside the transaction that writes it, so a worker that dies leaves
    its rows as they were.
    """

    def __init__(
        self,
        database: Database,
        model: str = "auto",
        *,
        device: str = "auto",
        sweep_seconds: float = 5.0,
        look_again_seconds: float = LOOK_AGAIN_SECONDS,
    ) -> None:
        self.embedder = TextEmbedder(MINILM if model == "auto" else model, device)
        self.bell = asyncio.Event()
        self._database = database
        self._automatic = model == "auto"
        self._sweep_seconds = sweep_seconds
        self._look_again_seconds = look_again_seconds
        self._stopping = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="texts")
        self._told = ""

    async def run(self) -> None:
        """Work until ``stop``; whatever fails is told once and tried again later."""
        while not self._stopping.is_set():
            self.bell.clear()
            try:
                if await self.fill():
                    self._told = ""
                    continue
            except EncoderError as error:
                reason = error.details.get("reason", error)
                self._tell(f"texts wait for their vectors, {self.embedder.model_name}: {reason}")
                await _until(self._stopping, self._look_again_seconds)
            except VisionError as error:
                self._tell(str(error))
                await _until(self._stopping, RETRY_SECONDS)
            except Exception:
                logger.exception("unexpected; texts are tried again later")
                await _until(self._stopping, self._look_again_seconds)
            else:
                await _until(self.bell, self._sweep_seconds)

    def stop(self) -> None:
        """Finish the batch in hand, then return from ``run``."""
        self._stopping.set()
        self.bell.set()

    async def fill(self, limit: int = BATCH) -> int:
        """Give up to ``limit`` of the oldest wanting rows their vectors; how many were done.

        None where another worker is at it. Raises EncoderError without a model that works, or
        BackendError.
        """
        state = await self._database.fetchrow(statement("text_state"))
        assert state is not None
        if not state["wanted"] or (self._automatic and not state["memini_ai"]):
            return 0
        await self._in_thread(self.embedder.get_model)
        async with self._database.transaction() as connection:
            if not await connection.fetchval(statement("text_lock"), ADVISORY_LOCK, STUCK_AFTER):
                return 0
            rows = await connection.fetch(statement("text_pick"), limit, CHARACTERS)
            if not rows:
                return 0
            texts = [row["text"] if row["bare"] and state["fits"] else None for row in rows]
            captions = [row["caption"] if (row["caption"] or "").strip() else None for row in rows]
            vectors = await self._vectors([*texts, *captions])
            written = await self._write(
                connection,
                [row["id"] for row in rows],
                vectors[: len(rows)],
                vectors[len(rows) :],
                named=state["named"],
            )
        if written:
            logger.info("texts=%d model=%s", written, self.embedder.key)
        return written

    async def _write(
        self,
        connection: asyncpg.Connection,
        ids: list[Any],
        texts: list[Vector | None],
        captions: list[Vector | None],
        *,
        named: bool,
    ) -> int:
        values: list[object] = [self.embedder.key, ids, texts, captions]
        if named:
            # The bare name, as memini-ai's own migration gives it to such vectors.
            values.append(self.embedder.source.name)
        name = "text_write_named" if named else "text_write"
        return int(await connection.fetchval(statement(name), *values))

    async def _vectors(self, texts: Sequence[str | None]) -> list[Vector | None]:
        """A vector for each text that is one, unless the model gives none for it."""
        given = [text for text in texts if text is not None]
        encoded = await self._in_thread(lambda: self.embedder.encode(given).tolist())
        finite = iter([_finite(vector) for vector in encoded])
        return [None if text is None else next(finite) for text in texts]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _tell(self, sentence: str) -> None:
        if self._told != sentence:
            logger.warning("%s", sentence)
        self._told = sentence


def _encode(model: "SentenceTransformer", texts: Sequence[str]) -> "NDArray[np.float32]":
    import numpy as np

    # As dicts: a bare string that looks like a path or an address would be opened.
    inputs: list[Any] = [{"text": text} for text in texts]
    encoded = model.encode(inputs, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(encoded, dtype=np.float32)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _finite(vector: list[float]) -> Vector | None:
    if all(math.isfinite(number) for number in vector):
        return Vector(vector)
    logger.warning("the model gave no finite vector for a text; it is left without")
    return None


async def _until(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
