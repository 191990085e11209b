"""What is taken for an image, how it is opened, and what its pixels become."""

import os
import random
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from PIL import Image

from tests.pictures import animated_webp, bomb, chunk, drawing, encoded, ordinary_user, png
from vision_worker.errors import ImageError, VisionError
from vision_worker.images import ImageInfo, decode, describe, open_image, shown, sniff, upright_rgb

LIMIT = 10_000_000
PIXELS = 178_000_000

# Pillow warns of what is broken in a broken file.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def described(data: bytes, max_pixels: int = PIXELS) -> ImageInfo:
    return describe(BytesIO(data), "/a/picture", max_pixels=max_pixels)


def decoded(data: bytes, max_pixels: int = PIXELS) -> Image.Image:
    return decode(BytesIO(data), "/a/picture", max_pixels=max_pixels)


def pixels(data: bytes) -> list[tuple[int, ...]]:
    raw = decoded(data).tobytes()
    return [tuple(raw[start : start + 3]) for start in range(0, len(raw), 3)]


def code_of(call: Callable[[], object]) -> str:
    try:
        call()
    except VisionError as error:
        return error.code
    return "fine"


def opened(path: Path, **options: object) -> str:
    """The stable code that opening a path comes to, with a deadline against whatever blocks."""
    outcome: list[str] = []

    def attempt() -> None:
        options.setdefault("max_file_size", LIMIT)
        outcome.append(code_of(lambda: open_image(path, **options).close()))  # type: ignore[arg-type]

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(30)
    assert outcome, f"opening {path} blocks"
    return outcome[0]


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that an ordinary user can get to even where root runs the tests."""
    with TemporaryDirectory(prefix="vision-worker-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


# --- formats ------------------------------------------------------------------------------------

FRAMES = [drawing(), Image.new("RGB", (40, 24), "lime")]
FORMATS = {
    "png": (encoded(drawing(), "PNG"), "image/png"),
    "png-1-bit": (encoded(drawing().convert("1"), "PNG"), "image/png"),
    "png-16-bit": (encoded(Image.new("I;16", (40, 24), 300), "PNG"), "image/png"),
    "png-palette": (encoded(drawing().quantize(16), "PNG"), "image/png"),
    "png-la": (encoded(drawing().convert("LA"), "PNG"), "image/png"),
    "png-rgba": (encoded(drawing().convert("RGBA"), "PNG"), "image/png"),
    "apng": (encoded(FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:]), "image/png"),
    "jpeg": (encoded(drawing(), "JPEG"), "image/jpeg"),
    "jpeg-progressive": (encoded(drawing(), "JPEG", progressive=True), "image/jpeg"),
    "jpeg-grey": (encoded(drawing().convert("L"), "JPEG"), "image/jpeg"),
    "jpeg-cmyk": (encoded(drawing().convert("CMYK"), "JPEG"), "image/jpeg"),
    "webp": (encoded(drawing(), "WEBP"), "image/webp"),
    "webp-lossless": (encoded(drawing(), "WEBP", lossless=True), "image/webp"),
    "webp-alpha": (encoded(drawing().convert("RGBA"), "WEBP"), "image/webp"),
    "webp-animated": (
        encoded(FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:]),
        "image/webp",
    ),
    "gif": (encoded(drawing(), "GIF"), "image/gif"),
    "gif-animated": (
        encoded(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]),
        "image/gif",
    ),
    "bmp": (encoded(drawing(), "BMP"), "image/bmp"),
    "bmp-palette": (encoded(drawing().quantize(16), "BMP"), "image/bmp"),
    "tiff": (encoded(drawing(), "TIFF"), "image/tiff"),
    "tiff-deflate": (encoded(drawing(), "TIFF", compression="tiff_deflate"), "image/tiff"),
    "tiff-pages": (
        encoded(FRAMES[0], "TIFF", save_all=True, append_images=FRAMES[1:]),
        "image/tiff",
    ),
    "tiff-16-bit": (encoded(Image.new("I;16", (40, 24), 300), "TIFF"), "image/tiff"),
    "tiff-float": (encoded(drawing().convert("F"), "TIFF"), "image/tiff"),
    "tiff-cmyk": (encoded(drawing().convert("CMYK"), "TIFF"), "image/tiff"),
    "big-tiff": (encoded(drawing(), "TIFF", big_tiff=True), "image/tiff"),
    "avif": (encoded(drawing(), "AVIF", speed=10), "image/avif"),
}
EVERY = pytest.mark.parametrize("name", FORMATS)


@EVERY
def test_every_format_is_described_by_its_content(name: str) -> None:
    data, mime_type = FORMATS[name]
    assert described(data) == ImageInfo(mime_type, 40, 24)


@EVERY
def test_every_format_becomes_eight_bit_rgb(name: str) -> None:
    picture = decoded(FORMATS[name][0])
    assert (picture.mode, picture.size) == ("RGB", (40, 24))


@EVERY
def test_decoding_the_same_bytes_twice_gives_the_same_pixels(name: str) -> None:
    data = FORMATS[name][0]
    assert decoded(data).tobytes() == decoded(data).tobytes()


@pytest.mark.parametrize("name", ["apng", "gif-animated", "webp-animated", "tiff-pages"])
def test_the_first_frame_counts(name: str) -> None:
    first = decoded(FORMATS[name][0])
    still = {"apng": "png", "gif-animated": "gif", "webp-animated": "webp", "tiff-pages": "tiff"}
    assert distance(first, decoded(FORMATS[still[name]][0])) < 4
    assert distance(first, FRAMES[1]) > 40


@EVERY
def test_a_file_cut_anywhere_has_a_stable_outcome(name: str) -> None:
    data = FORMATS[name][0]
    for cut in {*range(min(len(data), 64)), *range(64, len(data), max(1, len(data) // 40))}:
        seen = code_of(lambda cut=cut: described(data[:cut], 10_000))  # type: ignore[misc]
        then = code_of(lambda cut=cut: decoded(data[:cut], 10_000))  # type: ignore[misc]
        assert {seen, then} <= {"fine", "not_an_image", "undecodable", "too_many_pixels"}
        assert seen == "fine" or then != "fine"


@EVERY
def test_a_file_with_any_bytes_overwritten_has_a_stable_outcome(name: str) -> None:
    dice = random.Random(name)
    for _ in range(60):
        data = bytearray(FORMATS[name][0])
        for _ in range(dice.randint(1, 8)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        outcomes = {
            code_of(lambda data=data: described(bytes(data), 10_000)),  # type: ignore[misc]
            code_of(lambda data=data: decoded(bytes(data), 10_000)),  # type: ignore[misc]
        }
        assert outcomes <= {"fine", "not_an_image", "undecodable", "too_many_pixels"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 64,
        b"<!DOCTYPE html><html><img src='x.png'></html>",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7\n",
        b"PK\x03\x04" + b"\0" * 60,
        b"just text that somebody named screenshot.png",
        b"BMW is a maker of cars and of motor cycles",
        b"RIFF\x24\0\0\0WAVEfmt " + b"\0" * 32,
        b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + b"\0" * 16,
        b"%PDF-1.7\n" + FORMATS["png"][0],
        b"\n" + FORMATS["png"][0],
        b"MZ" + b"\0" * 62,
        b"II*",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_image_is_refused_by_its_content(data: bytes) -> None:
    assert code_of(lambda: described(data)) == "not_an_image"


@pytest.mark.parametrize("tail", [b"PK\x03\x04 an archive", b"<script>alert(1)</script>"])
def test_a_picture_with_something_behind_it_is_a_picture(tail: bytes) -> None:
    assert described(FORMATS["gif"][0] + tail) == ImageInfo("image/gif", 40, 24)
    assert pixels(FORMATS["gif"][0] + tail) == pixels(FORMATS["gif"][0])


@pytest.mark.parametrize(
    "head",
    [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"II*\0", b"MM\0*", b"RIFF    WEBP"],
)
def test_a_bare_signature_is_undecodable(head: bytes) -> None:
    assert sniff(head) is not None
    assert code_of(lambda: described(head)) == "undecodable"


def test_a_huge_compressed_text_chunk_is_refused_without_unpacking_it() -> None:
    text = chunk(b"zTXt", b"comment\0\0" + zlib.compress(b"a" * 50_000_000))
    assert code_of(lambda: described(png(1, 1, 8, 0, b"\x80", extra=text))) == "undecodable"


def test_a_decompression_bomb_is_refused_from_its_header() -> None:
    data = bomb()
    assert len(data) < 40_000
    with pytest.raises(ImageError) as caught:
        described(data, 176_000_000)
    assert (caught.value.code, str(caught.value)) == (
        "too_many_pixels",
        "/a/picture has 13300 x 13300 pixels, more than the 176000000 that "
        "MEMINI_IMAGE_MAX_PIXELS allows. Save a smaller version.",
    )
    assert described(data) == ImageInfo("image/png", 13300, 13300)


@pytest.mark.parametrize(
    "data",
    [
        animated_webp(16383, 16383),
        encoded(Image.new("RGB", (1001, 1000)), "WEBP"),
        encoded(Image.new("RGB", (1001, 1000)), "WEBP", lossless=True),
        encoded(Image.new("RGBA", (1001, 1000)), "WEBP"),
        b"GIF89a" + struct.pack("<HH", 65535, 65535) + FORMATS["gif"][0][10:],
        encoded(Image.new("L", (1001, 1000)), "AVIF", speed=10),
        encoded(Image.new("1", (1001, 1000)), "TIFF", compression="group4"),
        encoded(Image.new("1", (1001, 1000)), "BMP"),
        encoded(Image.new("L", (1001, 1000)), "JPEG"),
    ],
    ids=["webp-canvas", "vp8", "vp8l", "vp8x", "gif", "avif", "tiff", "bmp", "jpeg"],
)
def test_the_pixel_bound_holds_for_every_format(data: bytes) -> None:
    assert code_of(lambda: described(data, 1_000_000)) == "too_many_pixels"
    assert code_of(lambda: decoded(data, 1_000_000)) == "too_many_pixels"


def test_a_picture_of_exactly_the_bound_is_taken() -> None:
    assert described(FORMATS["png"][0], 40 * 24).width == 40
    assert code_of(lambda: described(FORMATS["png"][0], 40 * 24 - 1)) == "too_many_pixels"


@pytest.mark.parametrize("size", [(1, 1), (1, 60000), (60000, 1)])
def test_extreme_shapes_are_kept(size: tuple[int, int]) -> None:
    data = encoded(Image.new("L", size, 7), "PNG")
    assert described(data) == ImageInfo("image/png", *size)
    assert decoded(data).size == size


# --- pixels -------------------------------------------------------------------------------------


def distance(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of two pictures' samples, 0 to 255."""
    pairs = zip(one.tobytes(), other.convert("RGB").tobytes(), strict=True)
    return sum(abs(a - b) for a, b in pairs) / len(one.tobytes())


def test_sixteen_bit_grey_keeps_its_high_byte() -> None:
    ramp = [level * 257 for level in range(256)]
    grey = [(level, level, level) for level in range(256)]
    assert pixels(png(256, 1, 16, 0, struct.pack(">256H", *ramp))) == grey
    for mode, order in (("I;16", "<"), ("I;16B", ">")):
        image = Image.frombytes(mode, (256, 1), struct.pack(f"{order}256H", *ramp))
        assert pixels(encoded(image, "TIFF")) == grey


def test_sixteen_bit_colour_and_grey_agree() -> None:
    levels = [0, 255, 256, 0x1234, 0x80FF, 65535]
    grey = png(6, 1, 16, 0, struct.pack(">6H", *levels))
    colour = png(6, 1, 16, 2, b"".join(struct.pack(">3H", *[level] * 3) for level in levels))
    assert pixels(grey) == pixels(colour) == [(level >> 8,) * 3 for level in levels]


def test_floats_are_stretched_between_their_extremes() -> None:
    image = Image.new("F", (5, 1))
    image.putdata([-1.0, -0.5, 0.0, 0.5, 1.0])
    assert pixels(encoded(image, "TIFF")) == [
        (0,) * 3,
        (64,) * 3,
        (128,) * 3,
        (191,) * 3,
        (255,) * 3,
    ]


def test_integers_beyond_sixteen_bits_are_stretched() -> None:
    image = Image.new("I", (3, 1))
    image.putdata([-1_000_000, 0, 1_000_000])
    assert pixels(encoded(image, "TIFF")) == [(0,) * 3, (128,) * 3, (255,) * 3]


def test_a_flat_float_picture_is_black() -> None:
    assert pixels(encoded(Image.new("F", (1, 1), 7.0), "TIFF")) == [(0, 0, 0)]


def test_transparency_lies_on_white() -> None:
    assert pixels(png(3, 1, 8, 6, bytes((255, 0, 0, 255, 255, 0, 0, 0, 255, 0, 0, 51)))) == [
        (255, 0, 0),
        (255, 255, 255),
        (255, 204, 204),
    ]
    assert pixels(png(2, 1, 8, 4, bytes((0, 255, 0, 0)))) == [(0, 0, 0), (255, 255, 255)]


def test_every_alpha_mixes_as_the_formula_says() -> None:
    samples = b"".join(bytes((40, 90, 200, alpha)) for alpha in range(256))
    for alpha, pixel in enumerate(pixels(png(256, 1, 8, 6, samples))):
        for value, mixed in zip((40, 90, 200), pixel, strict=True):
            assert abs(mixed - (value * alpha + 255 * (255 - alpha)) / 255) <= 1


def test_transparent_palettes_and_colour_keys_lie_on_white() -> None:
    colours = chunk(b"PLTE", bytes((255, 0, 0, 0, 0, 255)))
    several = png(2, 1, 8, 3, b"\0\1", extra=colours + chunk(b"tRNS", b"\0\x80"))
    single = png(2, 1, 8, 3, b"\0\1", extra=colours + chunk(b"tRNS", b"\0"))
    keyed = png(2, 1, 8, 2, bytes((1, 2, 3, 9, 9, 9)), extra=chunk(b"tRNS", b"\0\1\0\2\0\3"))
    assert pixels(several) == [(255, 255, 255), (127, 127, 255)]
    assert pixels(single) == [(255, 255, 255), (0, 0, 255)]
    assert pixels(keyed) == [(255, 255, 255), (9, 9, 9)]
    gif = Image.new("P", (2, 1), 1)
    gif.putpalette([255, 0, 0, 0, 0, 255])
    gif.putpixel((0, 0), 0)
    assert pixels(encoded(gif, "GIF", transparency=0)) == [(255, 255, 255), (0, 0, 255)]


def test_one_bit_is_black_and_white() -> None:
    assert pixels(png(2, 1, 1, 0, b"\x40")) == [(0, 0, 0), (255, 255, 255)]


def test_cmyk_and_ycck_come_out_in_their_colours() -> None:
    red = Image.new("RGB", (16, 16), (250, 10, 10))
    cmyk = encoded(red.convert("CMYK"), "JPEG", quality=95)
    # YCCK is the YCC of what CMYK inverts; one byte of Adobe's marker says which of them it is.
    inverse = Image.new("RGB", (16, 16), (5, 245, 245)).convert("YCbCr")
    inks = [band.point(lambda value: 255 - value) for band in inverse.split()]
    ycck = bytearray(
        encoded(Image.merge("CMYK", (*inks, Image.new("L", (16, 16)))), "JPEG", quality=95)
    )
    transform = ycck.index(b"Adobe") + 11
    assert ycck[transform] == 0
    ycck[transform] = 2
    assert distance(decoded(cmyk), red) < 3
    assert distance(decoded(bytes(ycck)), red) < 3


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_exif_orientation_is_applied(format_name: str, orientation: int) -> None:
    """The same drawing, turned in each of the eight ways a camera may store it, comes upright."""
    turned = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    upright = drawing(160, 96)
    stored = upright if turned is None else upright.transpose(turned)
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = decoded(encoded(stored, format_name, exif=exif, quality=90))
    assert picture.size == upright.size
    assert distance(picture, upright) < 6


def test_an_opened_file_and_its_bytes_come_upright_alike(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for format_name in ("PNG", "TIFF", "JPEG"):
        data = encoded(drawing(), format_name, exif=exif)
        with Image.open(BytesIO(data)) as lazy:
            assert upright_rgb(lazy).tobytes() == decoded(data).tobytes()


@pytest.mark.parametrize(
    "exif", [b"junk", b"MM\0*\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff", b"II*\0\x08\0\0\0\1\0"]
)
def test_a_picture_with_damaged_exif_is_still_a_picture(exif: bytes) -> None:
    assert pixels(png(1, 1, 8, 0, b"\x80", extra=chunk(b"eXIf", exif))) == [(128, 128, 128)]
    data = encoded(drawing(), "JPEG", exif=b"Exif\0\0" + exif)
    assert decoded(data).tobytes() == decoded(encoded(drawing(), "JPEG")).tobytes()


# --- opening ------------------------------------------------------------------------------------


def test_the_name_does_not_matter(tmp_path: Path) -> None:
    for name in ("a.txt", "b", "line\nbreak.png", "o" * 251 + ".png", b"\xff\xfe.png"):
        path = tmp_path / os.fsdecode(name)
        path.write_bytes(FORMATS["webp"][0])
        with open_image(path, max_file_size=LIMIT) as file:
            assert describe(file, shown(path), max_pixels=PIXELS).mime_type == "image/webp"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link-to-fifo").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        places = [tmp_path, tmp_path / "fifo", tmp_path / "link-to-fifo", tmp_path / "socket"]
        places += [Path("/dev/zero"), Path("/dev/tty"), Path("/")]
        assert [opened(place) for place in places] == ["not_a_file"] * 7


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "dangling").symlink_to("nowhere")
    names = ["absent", "absent/deeper", "file/deeper", "dangling", "nul\0byte", "\ud800"]
    assert [opened(tmp_path / name) for name in names] == ["file_not_found"] * 6


def test_a_loop_of_links_and_a_name_too_long_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert opened(tmp_path / "one") == "file_unreadable"
    assert opened(tmp_path / ("o" * 256)) == "file_unreadable"


def test_a_file_without_read_permission_cannot_be_read(reachable: Path) -> None:
    secret, closed = reachable / "secret.png", reachable / "closed"
    secret.write_bytes(FORMATS["png"][0])
    secret.chmod(0)
    closed.mkdir()
    (closed / "inner.png").write_bytes(FORMATS["png"][0])
    closed.chmod(0)
    with ordinary_user():
        assert opened(secret) == "file_unreadable"
        assert opened(closed / "inner.png") == "file_unreadable"
    closed.chmod(0o700)


def test_a_folder_that_may_only_be_passed_through_is_no_obstacle(reachable: Path) -> None:
    passage = reachable / "passage"
    passage.mkdir()
    (passage / "a.png").write_bytes(FORMATS["png"][0])
    (passage / "a.png").chmod(0o644)
    passage.chmod(0o111)
    with ordinary_user():
        assert opened(passage / "a.png", roots=(reachable,)) == "fine"
    passage.chmod(0o700)


def test_size_is_bounded_from_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"")
    assert opened(path) == "empty_file"
    path.write_bytes(b"x" * 100)
    assert opened(path, max_file_size=100) == "fine"
    assert opened(path, max_file_size=99) == "too_big"


def test_roots_hold_for_what_a_path_really_is(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.png").write_bytes(FORMATS["png"][0])
    (inside / "out.png").symlink_to(outside / "a.png")
    (inside / "out").symlink_to(outside)
    (outside / "in.png").symlink_to(inside / "a.png")
    (inside / "dangling").symlink_to(outside / "absent")
    (tmp_path / "root").symlink_to(inside)
    (tmp_path / "insider").mkdir()
    (tmp_path / "insider" / "a.png").write_bytes(FORMATS["png"][0])
    outcomes = {
        "inside/a.png": "fine",
        "inside/../inside/a.png": "fine",
        "outside/in.png": "fine",
        "root/a.png": "fine",
        "inside/absent.png": "file_not_found",
        "inside/../outside/a.png": "outside_allowed_roots",
        "inside/out.png": "outside_allowed_roots",
        "inside/out/a.png": "outside_allowed_roots",
        "inside/dangling": "outside_allowed_roots",
        "insider/a.png": "outside_allowed_roots",
        "outside/a.png": "outside_allowed_roots",
        "outside/absent.png": "outside_allowed_roots",
    }
    for roots in ((inside,), (tmp_path / "root", Path("/nowhere"))):
        assert {name: opened(tmp_path / name, roots=roots) for name in outcomes} == outcomes


def test_a_link_that_changes_during_the_check_never_leads_outside(tmp_path: Path) -> None:
    inside, outside, door = tmp_path / "inside", tmp_path / "outside", tmp_path / "inside" / "door"
    (inside / "real").mkdir(parents=True)
    outside.mkdir()
    (inside / "real" / "a.png").write_bytes(b"inside")
    (outside / "a.png").write_bytes(b"outside")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for target in ("real", outside):
                (inside / "new").symlink_to(target)
                (inside / "new").rename(door)

    def swap_folder() -> None:
        while not done.is_set():
            (inside / "plain").symlink_to(outside)
            (inside / "plain").unlink()
            (inside / "real").rename(inside / "plain")
            (inside / "plain").rename(inside / "real")

    for swapper, name in ((swap, "door"), (swap_folder, "plain")):
        done.clear()
        thread = threading.Thread(target=swapper)
        thread.start()
        try:
            for _ in range(2000):
                try:
                    with open_image(
                        inside / name / "a.png", max_file_size=LIMIT, roots=(inside,)
                    ) as file:
                        assert file.read() == b"inside"
                except ImageError:
                    continue
        finally:
            done.set()
            thread.join()


def test_a_path_is_printed_without_what_a_terminal_would_obey() -> None:
    assert shown(Path("/pictures/übung 1.png")) == "/pictures/übung 1.png"
    assert shown(Path("/a\n\x1b[31mb")) == "/a\\n\\x1b[31mb"
    assert shown(os.fsdecode(b"/\xff")) == "/\\udcff"
