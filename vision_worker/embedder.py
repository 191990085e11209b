"""CLIP on sentence-transformers: pictures and sentences to vectors. Imports torch at first use."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from PIL import Image

from vision_worker.config import Framing
from vision_worker.errors import EmbeddingInvalid, InvalidArgument, ModelUnusable
from vision_worker.images import MAX_PIXELS, decode, frame, open_image, shown, upright_rgb
from vision_worker.models import LOADING, ModelSource, find_model
from vision_worker.types import EMBEDDING_DIM

MAX_FILE_SIZE = 100 << 20

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer


class ClipEmbedder:
    """One CLIP model, loaded at first use and once, whatever number of threads ask for it.

    Vectors are float32, of unit length, zero-padded to 768. fp32 on the CPU, fp16 on CUDA.
    Raises ModelUnavailable where the model cannot be had and ModelUnusable where its vectors do
    not fit.
    """

    def __init__(
        self,
        model_name: str = "clip-ViT-B-32",
        device: str = "auto",
        *,
        framing: Framing = "tiles",
    ) -> None:
        if framing not in get_args(Framing):
            known = ", ".join(get_args(Framing))
            raise InvalidArgument(name="framing", problem=f"it must be one of {known}")
        self.model_name = model_name
        self.framing: Framing = framing
        self._wanted_device = device
        self._lock = threading.Lock()
        self._source: ModelSource | None = None
        self._model: SentenceTransformer | None = None
        self._native_dim = 0
        self._input_size = 0

    @property
    def device(self) -> str:
        """The device in use, or the one that ``auto`` means here."""
        if self._wanted_device != "auto":
            return self._wanted_device
        import torch

        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"

    @property
    def native_dim(self) -> int:
        """Width of the model's own vectors."""
        self.get_model()
        return self._native_dim

    @property
    def model_dim(self) -> int:
        """Width of what the encode methods return: always 768."""
        return EMBEDDING_DIM

    @property
    def input_size(self) -> int:
        """Side of the squares the vision tower sees, in pixels."""
        self.get_model()
        return self._input_size

    @property
    def key(self) -> str:
        """What made a vector: ``name@revision+framing``."""
        source = self.source
        return f"{source.name}@{source.revision}+{self.framing}"

    @property
    def source(self) -> ModelSource:
        if self._source is None:
            self._source = find_model(self.model_name)
        return self._source

    def get_model(self) -> "SentenceTransformer":
        """The loaded model."""
        with self._lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    def unload(self) -> None:
        with self._lock:
            self._model = None

    def encode_image(self, image: Image.Image | str | Path) -> list[float]:
        """The vector of one picture, 768 floats. Raises ImageError for a bad file."""
        if isinstance(image, Image.Image):
            picture = upright_rgb(image)
        else:
            with open_image(Path(image), max_file_size=MAX_FILE_SIZE) as file:
                picture = decode(file, shown(image), max_pixels=MAX_PIXELS)
        squares = [square.tobytes() for square in frame(picture, self.framing, self.input_size)]
        vector: list[float] = self.encode_squares([squares])[0].tolist()
        return vector

    def encode_squares(self, pictures: Sequence[Sequence[bytes]]) -> "NDArray[np.float32]":
        """Vectors of pictures that are framed already, as float32 (n, 768).

        Each picture is one or more squares of ``input_size * input_size * 3`` RGB bytes; the
        vector of several is the mean of their unit vectors, made unit again.
        """
        import numpy as np

        if not pictures:
            return np.empty((0, EMBEDDING_DIM), np.float32)
        model, side = self.get_model(), self._input_size
        squares = [
            Image.frombytes("RGB", (side, side), square)
            for picture in pictures
            for square in picture
        ]
        encoded = _unit(self._encode(model, squares))
        ends = np.cumsum([len(picture) for picture in pictures])
        means = [part.mean(axis=0) for part in np.split(encoded, ends[:-1])]
        return padded(_unit(np.stack(means)))

    def encode_text(self, text: str) -> list[float]:
        """The vector of one sentence, 768 floats."""
        # As a dict: a bare string that looks like a path or an address would be opened.
        encoded = self._encode(self.get_model(), [{"text": text}])
        vector: list[float] = padded(_unit(encoded))[0].tolist()
        return vector

    def _encode(self, model: "SentenceTransformer", inputs: list[Any]) -> "NDArray[np.float32]":
        import numpy as np

        encoded = model.encode(inputs, batch_size=max(1, len(inputs)), show_progress_bar=False)
        vectors = np.asarray(encoded, dtype=np.float32)
        if not np.isfinite(vectors).all():
            raise EmbeddingInvalid(path="a picture or sentence")
        return vectors

    def _load(self) -> "SentenceTransformer":
        source = self.source
        with LOADING:
            return self._load_alone(source)

    def _load_alone(self, source: ModelSource) -> "SentenceTransformer":
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]

        device = self.device
        dtype = torch.float16 if device.startswith("cuda") else torch.float32
        try:
            model = SentenceTransformer(
                str(source.path),
                device=device,
                local_files_only=True,
                model_kwargs={"dtype": dtype},
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise ModelUnusable(model=self.model_name, reason=reason) from error
        model.eval()
        self._input_size = _input_size(model, self.model_name)
        blank = Image.new("RGB", (self._input_size, self._input_size))
        self._native_dim = int(self._encode(model, [blank]).shape[1])
        if self._native_dim > EMBEDDING_DIM:
            reason = f"its vectors have {self._native_dim} dimensions, more than {EMBEDDING_DIM}"
            raise ModelUnusable(model=self.model_name, reason=reason)
        return model


def padded(vectors: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Rows of at most 768 numbers with zeros behind them: (n, 768); cosines stay what they are."""
    import numpy as np

    return np.pad(vectors, ((0, 0), (0, EMBEDDING_DIM - vectors.shape[1])))


def _unit(vectors: "NDArray[np.float32]") -> "NDArray[np.float32]":
    import numpy as np

    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(vectors, norms, out=vectors.copy(), where=norms > 0)
    return unit


def _input_size(model: "SentenceTransformer", name: str) -> int:
    processor = getattr(getattr(model[0], "processor", None), "image_processor", None)
    if processor is None:
        raise ModelUnusable(model=name, reason="it takes no pictures")
    size = getattr(processor, "crop_size", None) or processor.size
    return int(size["height"] if "height" in size else size["shortest_edge"])
