"""The blob store, with the published errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vision_worker import store
from vision_worker.errors import FileMissing, ImageError, VisionError
from vision_worker.images import EXTENSIONS, MAX_PIXELS, describe, open_image, shown
from vision_worker.types import SaveResult

__all__ = ["ImageStore", "mime_for_ext"]

_MIME_TYPES = {extension: mime_type for mime_type, extension in EXTENSIONS.items()} | {
    "jpeg": "image/jpeg",
    "tif": "image/tiff",
}
MAX_FILE_SIZE = 100 << 20


def mime_for_ext(ext: str) -> str:
    """The mime type for a file name's ending, ``image/png`` for an unknown one."""
    return _MIME_TYPES.get(ext.lower().lstrip("."), "image/png")


class ImageStore(store.ImageStore):
    """vision-worker's store. What it refuses is a FileNotFoundError or a ValueError here.

    The content decides about the mime type, not the one that is given.
    """

    def store(self, source: str | Path | bytes, mime_type: str | None = None) -> SaveResult:
        with _published_errors():
            return super().store(source, mime_type)

    @staticmethod
    def dimensions_of(path: str | Path) -> tuple[int, int] | None:
        """(width, height) in pixels as shown, None for what is not a picture."""
        try:
            with open_image(Path(path), max_file_size=MAX_FILE_SIZE) as file:
                info = describe(file, shown(Path(path)), max_pixels=MAX_PIXELS)
        except VisionError:
            return None
        return info.width, info.height

    @staticmethod
    def mime_type_of(path: str | Path) -> str:
        return mime_for_ext(Path(path).suffix)


@contextmanager
def _published_errors() -> Iterator[None]:
    try:
        yield
    except FileMissing as error:
        raise FileNotFoundError(str(error)) from error
    except ImageError as error:
        raise ValueError(str(error)) from error
