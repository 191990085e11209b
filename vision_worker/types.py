"""What the image memory hands out: frozen dataclasses, no behaviour."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

EMBEDDING_DIM = 768
"""Width of the vector column; shorter embeddings are zero-padded to it."""

Status = Literal["pending", "embedded", "failed"]
KeptCode = Literal["kept", "already_kept", "healed"]
Match = Literal["name", "words", "look"]


@dataclass(frozen=True)
class SaveResult:
    """A stored blob. ``dimensions`` is (width, height) in pixels, of the first frame."""

    sha256: str
    file_path: Path
    mime_type: str
    file_size_bytes: int
    dimensions: tuple[int, int] | None


@dataclass(frozen=True)
class ImageRecord:
    """One row of ``memories_image``. ``embedding``, where loaded, has 768 floats."""

    id: str
    memory_id: str
    file_path: str
    sha256: str
    mime_type: str
    embedding: list[float] | None = None
    width: int | None = None
    height: int | None = None
    file_size_bytes: int | None = None
    caption: str | None = None
    embedding_model: str | None = None
    tags: list[str] = field(default_factory=list)
    created_at: str | None = None
    text: str | None = None
    source_type: str | None = None
    source_tool: str | None = None
    namespace: str = "default"
    status: Status = "pending"
    error: str | None = None
    error_code: str | None = None
    attempts: int = 0
    embedded_at: str | None = None


@dataclass(frozen=True)
class SavedImage:
    """The answer to a save. ``status`` is ``embedded`` at once where the blob already was."""

    memory_id: str
    image_id: str
    sha256: str
    file_path: str
    status: Status
    duplicate: bool


@dataclass(frozen=True)
class SearchResult:
    """One hit. ``distance`` is the cosine distance to the query, 0 (same) to 2."""

    memory_id: str
    image_id: str
    file_path: str
    sha256: str
    caption: str | None
    distance: float
    text: str | None = None
    created_at: str | None = None
    tags: list[str] = field(default_factory=list)
    source_type: str | None = None


@dataclass(frozen=True)
class SearchPage:
    """Hits, nearest first, and how many images under the same filter cannot be ranked yet."""

    hits: list[SearchResult]
    pending: int
    failed: int


@dataclass(frozen=True)
class ImageList:
    """One page of a listing; ``cursor`` asks for the next one, None at the end."""

    images: list[ImageRecord]
    cursor: str | None


@dataclass(frozen=True)
class ImageFilter:
    """Which images a search, a listing or a count is about; everything given must hold."""

    tags: tuple[str, ...] = ()
    source_type: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True)
class QueryVector:
    """An encoded query: 768 floats and the key of the model that made them."""

    model: str
    vector: list[float]


@dataclass(frozen=True)
class IndexStatus:
    """How far embedding has come in one namespace. ``model`` is the active model key."""

    namespace: str
    model: str | None
    pending: int
    embedded: int
    failed: int
    oldest_pending_seconds: float | None
    workers: int
    ready: bool


@dataclass(frozen=True)
class Keepsake:
    """A picture kept under a name, with the image row it stands on. Times are ISO 8601.

    ``trashed_at`` is set while it lies in the trash.
    """

    id: str
    namespace: str
    about: str
    note: str
    kind: str
    source: str
    created_at: str
    image_id: str
    memory_id: str
    file_path: str
    sha256: str
    mime_type: str
    width: int | None
    height: int | None
    file_size_bytes: int | None
    status: Status
    pinned: bool
    recalled_at: str | None
    trashed_at: str | None


@dataclass(frozen=True)
class Kept:
    """The answer to keeping a picture. ``evicted`` went to the trash to make room for it."""

    code: KeptCode
    keepsake: Keepsake
    evicted: list[Keepsake]


@dataclass(frozen=True)
class KeepsakeList:
    """One page of keepsakes; ``cursor`` asks for the next one, None at the end."""

    keepsakes: list[Keepsake]
    cursor: str | None


@dataclass(frozen=True)
class Recalled:
    """One keepsake that was found: how it matched, and its cosine distance where by look."""

    keepsake: Keepsake
    matched: tuple[Match, ...]
    distance: float | None


@dataclass(frozen=True)
class RecallPage:
    """Keepsakes that were found, best first. ``words_only``: no encoder answered."""

    hits: list[Recalled]
    words_only: bool


@dataclass(frozen=True)
class Entity:
    """A name, in its first spelling, and how many keepsakes have it."""

    about: str
    count: int
