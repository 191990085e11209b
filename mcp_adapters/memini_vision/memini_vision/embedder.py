"""CLIP without the waiting: sentences are encoded by a worker, pictures later."""

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from memini_vision.config import EMBEDDING_DIM
from vision_worker.config import VisionConfig
from vision_worker.errors import BackendError, EncoderUnavailable
from vision_worker.front import Front
from vision_worker.runtime import current

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from vision_worker.embedder import ClipEmbedder as LocalEmbedder

NATIVE_DIMS = {"clip-ViT-B-16": 512, "clip-ViT-B-32": 512, "clip-ViT-L-14": 768}

_locals: dict[tuple[str, str], "LocalEmbedder"] = {}
_lock = threading.Lock()


class ClipEmbedder:
    """Free to make: all of them share a worker, the query vectors it gave, and one local model.

    A local model is loaded only by ``get_model``, and by ``encode_text`` where no worker answers
    and MEMINI_IMAGE_LOCAL_ENCODER allows it.
    """

    def __init__(self, model_name: str = "clip-ViT-B-32", device: str = "auto") -> None:
        self.model_name = model_name
        self.device = device

    @property
    def native_dim(self) -> int:
        """Width of the model's own vectors; an unknown model is loaded to tell."""
        return NATIVE_DIMS.get(self.model_name) or self._local().native_dim

    @property
    def model_dim(self) -> int:
        return self.native_dim

    def get_model(self) -> "SentenceTransformer":
        """The model, loaded in this process. Raises ModelUnavailable or ModelUnusable."""
        return self._local().get_model()

    def encode_image(self, image: Image.Image | str | Path) -> list[float]:
        """768 zeros: the picture is encoded later.

        ``ImageIndex.insert`` takes them as the request to have the picture encoded by a worker.
        For the vector itself, now and in this process: ``vision_worker.ClipEmbedder``.
        """
        if not isinstance(image, Image.Image | str | Path):
            raise TypeError(f"expected a PIL image or a path, got {type(image).__name__}")
        return [0.0] * EMBEDDING_DIM

    def encode_text(self, text: str) -> list[float]:
        """The vector of a sentence, 768 floats, by the model that the images are embedded with.

        From a cache, else from a worker, else from a model in this process. Blocks meanwhile.
        Raises EncoderError.
        """
        shared = current()
        if shared is None:
            return self._encode_locally(text)
        try:
            return shared.call(lambda front: self._encode(front, text))
        except BackendError:
            return self._encode_locally(text)

    def unload(self) -> None:
        """Let the local model go; it is loaded again when it is needed."""
        self._local().unload()

    async def _encode(self, front: Front, text: str) -> list[float]:
        backlog = await front.index.backlog()
        if backlog.model is None:
            return await asyncio.to_thread(self._encode_locally, text)
        return await front.encoder.encode_text(
            text, model=backlog.model, worker_alive=backlog.encoder_alive
        )

    def _encode_locally(self, text: str) -> list[float]:
        if not VisionConfig().local_encoder:
            raise EncoderUnavailable(reason="no worker is running")
        return self._local().encode_text(text)

    def _local(self) -> "LocalEmbedder":
        from vision_worker.embedder import ClipEmbedder as LocalEmbedder

        with _lock:
            key = (self.model_name, self.device)
            if key not in _locals:
                _locals[key] = LocalEmbedder(self.model_name, self.device)
            return _locals[key]
