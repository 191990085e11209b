"""How a picture of any shape becomes the squares that the encoder sees."""

import math

import numpy as np
import pytest
from PIL import Image

from tests.pictures import drawing
from vision_worker.images import CLIP_MEAN_COLOUR, frame, thumbnail

SHAPES = [(400, 300), (300, 400), (1920, 1080), (224, 224), (50, 20), (1, 1), (223, 225), (900, 31)]


def cubic(distance: float) -> float:
    """The bicubic kernel with a = -0.5."""
    x = abs(distance)
    if x < 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def resampled(samples: np.ndarray, length: int) -> np.ndarray:
    """Resize the first axis, one output at a time: a weighted mean under a stretched kernel."""
    ratio = len(samples) / length
    stretch = max(ratio, 1.0)
    lines = []
    for index in range(length):
        centre = (index + 0.5) * ratio
        first = max(0, int(centre - 2 * stretch + 0.5))
        last = min(len(samples), int(centre + 2 * stretch + 0.5))
        weights = [cubic((place + 0.5 - centre) / stretch) for place in range(first, last)]
        lines.append(np.tensordot(weights, samples[first:last], 1) / sum(weights))
    return np.clip(np.round(np.stack(lines)), 0, 255)


def letterboxed(picture: Image.Image, size: int) -> np.ndarray:
    """An obvious, slow letterbox."""
    longest = max(picture.size)
    width, height = (max(1, round(side * size / longest)) for side in picture.size)
    samples = np.asarray(picture, dtype=np.float64)
    across = resampled(samples.transpose(1, 0, 2), width).transpose(1, 0, 2)
    canvas = np.tile(np.array(CLIP_MEAN_COLOUR, dtype=np.float64), (size, size, 1))
    left, top = (size - width) // 2, (size - height) // 2
    canvas[top : top + height, left : left + width] = resampled(across, height)
    return canvas


@pytest.mark.parametrize("shape", SHAPES)
def test_letterbox_is_the_whole_picture_between_bars_of_the_mean_colour(
    shape: tuple[int, int],
) -> None:
    picture = drawing(*shape)
    (square,) = frame(picture, "letterbox", 64)
    assert (square.mode, square.size) == ("RGB", (64, 64))
    assert np.abs(np.asarray(square, dtype=np.float64) - letterboxed(picture, 64)).max() <= 1


def test_bars_are_nothing_to_the_encoder() -> None:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    (square,) = frame(Image.new("RGB", (448, 2), "white"), "letterbox", 224)
    (values,) = CLIPImageProcessorPil()(square, return_tensors="np")["pixel_values"]
    assert np.abs(values[:, :100]).max() < 0.01
    assert np.abs(values[:, 111:112]).min() > 1


@pytest.mark.parametrize("shape", [*SHAPES[:5], (225, 224), (641, 480), (333, 777)])
def test_centre_crop_is_what_clip_published(shape: tuple[int, int]) -> None:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    processor = CLIPImageProcessorPil(
        size={"shortest_edge": 224}, crop_size={"height": 224, "width": 224}
    )
    picture = drawing(*shape)
    (square,) = frame(picture, "centre-crop", 224)
    (ours,) = processor(square, return_tensors="np")["pixel_values"]
    (theirs,) = processor(picture, return_tensors="np")["pixel_values"]
    cosine = (ours * theirs).sum() / (np.linalg.norm(ours) * np.linalg.norm(theirs))
    assert cosine >= 0.9999


def test_centre_crop_of_a_sliver_never_grows_it() -> None:
    (square,) = frame(Image.new("RGB", (1, 60_000), (9, 8, 7)), "centre-crop", 224)
    assert square.tobytes() == bytes((9, 8, 7)) * 224 * 224


@pytest.mark.parametrize(
    ("shape", "count"),
    [((100, 100), 1), ((101, 100), 3), ((1920, 1080), 3), ((100, 350), 5), ((1, 60_000), 7)],
)
def test_tiles_are_the_letterbox_and_squares_that_cover_the_longer_side(
    shape: tuple[int, int], count: int
) -> None:
    picture = drawing(*shape)
    squares = frame(picture, "tiles", 32)
    assert [square.size for square in squares] == [(32, 32)] * count
    assert squares[0].tobytes() == frame(picture, "letterbox", 32)[0].tobytes()
    if count > 1:
        short, long = sorted(shape)
        for index, square in enumerate(squares[1:]):
            start = (long - short) * index / (count - 2)
            left, top = (start, 0.0) if shape[0] > shape[1] else (0.0, start)
            box = (math.floor(left), math.floor(top))
            cut = picture.crop((*box, box[0] + short, box[1] + short))
            expected = np.asarray(cut.resize((32, 32), Image.Resampling.BICUBIC), dtype=int)
            assert np.abs(np.asarray(square, dtype=int) - expected).mean() < 6


def test_the_first_and_last_tile_reach_the_edges() -> None:
    picture = Image.new("RGB", (300, 100))
    picture.paste((255, 0, 0), (0, 0, 100, 100))
    picture.paste((0, 0, 255), (200, 0, 300, 100))
    squares = frame(picture, "tiles", 8)
    assert [square.getpixel((4, 4)) for square in squares[1:]] == [
        (255, 0, 0),
        (0, 0, 0),
        (0, 0, 255),
    ]


@pytest.mark.parametrize("framing", ["letterbox", "centre-crop", "tiles"])
def test_framing_is_deterministic_and_leaves_the_picture_alone(framing: str) -> None:
    picture = drawing(301, 157)
    before = picture.tobytes()
    runs = [[square.tobytes() for square in frame(picture, framing, 64)] for _ in range(2)]  # type: ignore[arg-type]
    assert runs[0] == runs[1]
    assert picture.tobytes() == before


@pytest.mark.parametrize(
    ("shape", "shrunk"),
    [
        ((40, 24), (40, 24)),
        ((512, 512), (512, 512)),
        ((1920, 1080), (512, 288)),
        ((1080, 1920), (288, 512)),
        ((1, 60_000), (1, 512)),
        ((60_000, 1), (512, 1)),
    ],
)
def test_a_thumbnail_shrinks_and_never_grows(
    shape: tuple[int, int], shrunk: tuple[int, int]
) -> None:
    assert thumbnail(Image.new("RGB", shape), 512).size == shrunk
