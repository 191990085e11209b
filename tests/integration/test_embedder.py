"""The embedder on real, small CLIP models."""

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from benchmarks.random_clip import build
from tests.pictures import drawing, encoded
from tests.support import TINY_CLIP
from vision_worker.embedder import ClipEmbedder, padded
from vision_worker.errors import InvalidArgument, ModelUnusable, VisionError
from vision_worker.images import frame
from vision_worker.types import EMBEDDING_DIM

DEADLINE = 60
SAME = 1 - 1e-6
"""Cosine from which two float32 vectors count as the same."""


@pytest.fixture(scope="module")
def embedder() -> ClipEmbedder:
    return ClipEmbedder(str(TINY_CLIP), "cpu")


def squares(embedder: ClipEmbedder, *pictures: Image.Image) -> list[list[bytes]]:
    size = embedder.input_size
    return [
        [square.tobytes() for square in frame(picture, embedder.framing, size)]
        for picture in pictures
    ]


def cosine(one: object, other: object) -> float:
    a, b = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def reference_text(folder: Path, text: str) -> NDArray[np.float64]:
    """What transformers itself says of a sentence."""
    import torch
    from transformers import AutoTokenizer, CLIPModel

    model = CLIPModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = AutoTokenizer.from_pretrained(folder)([text], return_tensors="pt", truncation=True)
    with torch.no_grad():
        features = model.get_text_features(**tokens)
    return np.asarray(getattr(features, "pooler_output", features)[0], dtype=np.float64)


def unusable(model: str, device: str = "cpu") -> str:
    with pytest.raises(ModelUnusable) as caught:
        ClipEmbedder(model, device).get_model()
    return str(caught.value)


# --- vectors ------------------------------------------------------------------------------------


def test_vectors_are_unit_and_padded_with_zeros(embedder: ClipEmbedder) -> None:
    native = embedder.native_dim
    for vector in (embedder.encode_text("a login form"), embedder.encode_image(drawing(160, 90))):
        assert len(vector) == EMBEDDING_DIM == embedder.model_dim
        assert abs(np.linalg.norm(vector) - 1) < 1e-6
        assert vector[native:] == [0.0] * (EMBEDDING_DIM - native)
        assert any(vector[:native])


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 5), st.integers(1, EMBEDDING_DIM), st.integers(0, 2**32 - 1))
def test_padding_changes_no_distance(count: int, width: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    wide = padded(vectors)
    assert wide.shape == (count, EMBEDDING_DIM)
    assert wide.dtype == np.float32
    assert (wide[:, :width] == vectors).all()
    assert not wide[:, width:].any()
    assert np.allclose(wide @ wide.T, vectors @ vectors.T, rtol=1e-5, atol=1e-5)


def test_encoding_twice_gives_the_same_vector(embedder: ClipEmbedder) -> None:
    assert embedder.encode_image(drawing()) == embedder.encode_image(drawing())
    assert embedder.encode_text("a chart") == embedder.encode_text("a chart")


def test_a_batch_gives_each_picture_the_vector_it_has_alone(embedder: ClipEmbedder) -> None:
    pictures = [drawing(80 + 7 * index, 60 + index).rotate(20 * index) for index in range(17)]
    batch = embedder.encode_squares(squares(embedder, *pictures))
    assert (batch.shape, batch.dtype) == ((17, EMBEDDING_DIM), np.float32)
    for picture, vector in zip(pictures, batch, strict=True):
        assert cosine(vector, embedder.encode_image(picture)) >= SAME


def test_the_vector_of_several_squares_is_the_unit_mean_of_theirs() -> None:
    tiles = ClipEmbedder(str(TINY_CLIP), "cpu", framing="tiles")
    wide, tall, square = drawing(300, 100), drawing(100, 180), drawing(64, 64)
    batch = tiles.encode_squares(squares(tiles, wide, tall, square))
    for picture, vector in zip((wide, tall, square), batch, strict=True):
        (parts,) = squares(tiles, picture)
        single = tiles.encode_squares([[part] for part in parts])
        assert cosine(vector, single.mean(axis=0)) >= SAME
        assert abs(np.linalg.norm(vector) - 1) < 1e-6


def test_no_pictures_are_no_vectors(embedder: ClipEmbedder) -> None:
    assert embedder.encode_squares([]).shape == (0, EMBEDDING_DIM)


def test_a_picture_in_memory_and_in_a_file_have_the_same_vector(
    embedder: ClipEmbedder, tmp_path: Path
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "a.png"
    path.write_bytes(encoded(drawing().convert("RGBA"), "PNG", exif=exif))
    upright = drawing().transpose(Image.Transpose.ROTATE_270)
    with Image.open(path) as opened:
        vectors = [embedder.encode_image(source) for source in (path, str(path), opened, upright)]
    assert all(vector == vectors[0] for vector in vectors)


def test_a_bad_file_is_told_by_its_code(embedder: ClipEmbedder, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_bytes(b"only text")
    codes = []
    for path in (tmp_path / "text.png", tmp_path / "absent.png", tmp_path):
        with pytest.raises(VisionError) as caught:
            embedder.encode_image(path)
        codes.append(caught.value.code)
    assert codes == ["not_an_image", "file_not_found", "not_a_file"]


def test_threads_that_encode_at_once_get_what_they_would_get_alone(embedder: ClipEmbedder) -> None:
    texts = [f"sentence {'word ' * (index % 7)}{index}" for index in range(24)]
    alone = [embedder.encode_text(text) for text in texts]
    picture = embedder.encode_image(drawing())
    with ThreadPoolExecutor(6) as pool:
        together = pool.map(embedder.encode_text, texts * 4)
        pictures = [pool.submit(embedder.encode_image, drawing()) for _ in range(8)]
        assert all(cosine(a, b) >= SAME for a, b in zip(together, alone * 4, strict=True))
        assert all(cosine(future.result(DEADLINE), picture) >= SAME for future in pictures)


def test_threads_that_ask_at_once_load_the_model_once() -> None:
    fresh, gate = ClipEmbedder(str(TINY_CLIP), "cpu"), threading.Barrier(4)

    def ask() -> int:
        gate.wait(DEADLINE)
        return id(fresh.get_model())

    with ThreadPoolExecutor(4) as pool:
        assert len({future.result(DEADLINE) for future in [pool.submit(ask) for _ in "1234"]}) == 1
    fresh.unload()
    assert fresh.encode_text("again")


# --- sentences are sentences --------------------------------------------------------------------


@pytest.fixture
def web() -> Iterator[tuple[str, list[str]]]:
    """A web server with a picture, and the requests it has seen."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(encoded(drawing(), "PNG"))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()
        thread.join()


def test_a_sentence_that_names_a_picture_is_never_opened(
    embedder: ClipEmbedder, tmp_path: Path, web: tuple[str, list[str]]
) -> None:
    address, seen = web
    path = tmp_path / "image.png"
    path.write_bytes(encoded(drawing(), "PNG"))
    picture = embedder.encode_image(path)
    texts = [
        str(path),
        f"file://{path}",
        f"{address}/image.png",
        f"{address}/sound.wav",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    ]
    for text in texts:
        vector = embedder.encode_text(text)
        assert cosine(vector[: embedder.native_dim], reference_text(TINY_CLIP, text)) >= SAME
        assert cosine(vector, picture) < 0.99
    assert seen == []


@pytest.mark.parametrize("text", ["", " ", "x" * 100_000, "日本語 🦆 \u202e", "{text}", "\n\n"])
def test_any_text_is_a_sentence(embedder: ClipEmbedder, text: str) -> None:
    assert abs(np.linalg.norm(embedder.encode_text(text)) - 1) < 1e-6


# --- models -------------------------------------------------------------------------------------


def test_the_key_names_model_revision_and_framing() -> None:
    letterbox, tiles = (
        ClipEmbedder(str(TINY_CLIP), "cpu", framing=framing) for framing in ("letterbox", "tiles")
    )
    name, _, rest = letterbox.key.partition("@")
    revision, _, framing = rest.partition("+")
    assert (name, len(revision), framing) == ("tiny-clip", 12, "letterbox")
    assert tiles.key == f"tiny-clip@{revision}+tiles"


def test_the_key_changes_with_one_byte_of_the_weights(tmp_path: Path) -> None:
    copy = tmp_path / "tiny-clip"
    shutil.copytree(TINY_CLIP, copy)
    assert ClipEmbedder(str(copy)).key == ClipEmbedder(str(TINY_CLIP)).key
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert ClipEmbedder(str(copy)).key != ClipEmbedder(str(TINY_CLIP)).key


def test_half_precision_weights_are_computed_in_full_on_the_cpu(embedder: ClipEmbedder) -> None:
    import torch
    from safetensors.torch import load_file

    stored = {tensor.dtype for tensor in load_file(TINY_CLIP / "model.safetensors").values()}
    assert torch.float16 in stored
    loaded = {parameter.dtype for parameter in embedder.get_model().parameters()}
    assert loaded == {torch.float32}


@pytest.mark.parametrize("layout", ["hf", "st", "legacy"])
def test_every_published_layout_of_a_clip_model_works(tmp_path: Path, layout: str) -> None:
    folder = build(tmp_path / "random", "tiny", layout)  # type: ignore[arg-type]
    embedder = ClipEmbedder(str(folder), "cpu")
    assert (embedder.native_dim, embedder.input_size) == (512, 224)
    weights = folder / "0_CLIPModel" if layout == "legacy" else folder
    text = embedder.encode_text("a red car")
    assert cosine(text[:512], reference_text(weights, "a red car")) >= SAME
    assert abs(np.linalg.norm(embedder.encode_image(drawing(300, 200))) - 1) < 1e-6


def test_a_model_wider_than_the_column_is_unusable(tmp_path: Path) -> None:
    folder = build(tmp_path / "wide", "wide")
    assert unusable(str(folder)) == (
        f"The model {folder} cannot be used: its vectors have 1024 dimensions, more than 768"
    )


def test_a_model_of_text_alone_is_unusable(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path / "text-only"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"]
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=2,
        num_hidden_layers=1,
    )
    BertModel(config).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(words)}
    BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    assert unusable(str(folder)) == (f"The model {folder} cannot be used: it takes no pictures")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(b"not weights"),
        lambda folder: (folder / "config.json").write_text("{"),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "preprocessor_config.json").unlink(),
    ],
    ids=["weights", "config", "no-config", "no-processor"],
)
def test_a_damaged_model_is_unusable(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = tmp_path / "tiny-clip"
    shutil.copytree(TINY_CLIP, folder)
    damage(folder)
    assert unusable(str(folder)).startswith(f"The model {folder} cannot be used: ")


def test_a_device_that_is_not_there_is_said_so() -> None:
    assert "cannot be used" in unusable(str(TINY_CLIP), "cuda:99")
    assert "cannot be used" in unusable(str(TINY_CLIP), "abacus")


def test_an_unknown_framing_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        ClipEmbedder(str(TINY_CLIP), framing="stretch")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "framing is not usable: it must be one of tiles, letterbox, centre-crop"
    )
