"""What the tools answer, as the schemas that clients see."""

from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, Field

from mcp_adapters.sdk import Answer
from vision_worker.types import ImageList, ImageRecord, IndexStatus, SavedImage, SearchPage

Status = Literal["pending", "embedded", "failed"]


class Saved(Answer):
    """A picture that is durably kept."""

    memory_id: str
    image_id: str
    sha256: str = Field(description="sha256 of the picture's bytes")
    file_path: str = Field(description="absolute path of the kept copy")
    status: Status = Field(description="'embedded' is searchable now, 'pending' soon")
    duplicate: bool = Field(description="whether exactly this was saved before")

    @classmethod
    def of(cls, saved: SavedImage) -> "Saved":
        return cls(**asdict(saved))


class Hit(BaseModel):
    """One found picture."""

    memory_id: str
    text: str | None
    image_id: str
    file_path: str = Field(description="absolute path of the picture; open it to look at it")
    sha256: str
    caption: str | None
    distance: float = Field(description="cosine distance to the query: smaller is more alike")
    created_at: str | None
    tags: list[str]


class Hits(Answer):
    """Found pictures, nearest first, and how many could not be ranked."""

    result: list[Hit]
    pending: int = Field(description="matching pictures that no worker has embedded yet")
    failed: int = Field(description="matching pictures that could not be embedded")

    @classmethod
    def of(cls, page: SearchPage) -> "Hits":
        hits = [Hit(**asdict(hit)) for hit in page.hits]
        return cls(result=hits, pending=page.pending, failed=page.failed)


class ImageDetails(Answer):
    """Everything known about one kept picture."""

    image_id: str
    memory_id: str
    file_path: str
    mime_type: str
    width: int | None
    height: int | None
    file_size_bytes: int | None
    sha256: str
    caption: str | None
    text: str | None
    tags: list[str]
    source_type: str | None
    created_at: str | None
    status: Status
    error: str | None = Field(description="why it could not be embedded, if so")
    error_code: str | None
    embedding_model: str | None

    @classmethod
    def of(cls, image: ImageRecord) -> "ImageDetails":
        values: dict[str, Any] = asdict(image)
        return cls(image_id=values.pop("id"), **{k: values[k] for k in values if k in cls.fields()})

    @classmethod
    def fields(cls) -> set[str]:
        return set(cls.model_fields)


class Listing(Answer):
    """One page of kept pictures in order of time."""

    result: list[ImageDetails]
    cursor: str | None = Field(description="give it back to get the next page; null at the end")

    @classmethod
    def of(cls, page: ImageList) -> "Listing":
        return cls(result=[ImageDetails.of(image) for image in page.images], cursor=page.cursor)


class Deleted(Answer):
    """A picture that is gone, with its memory."""

    image_id: str
    deleted: bool


class IndexState(Answer):
    """How far embedding has come."""

    namespace: str
    model: str | None
    pending: int
    embedded: int
    failed: int
    oldest_pending_seconds: float | None
    workers: int = Field(description="workers that are alive; with 0 nothing is embedded")
    ready: bool

    @classmethod
    def of(cls, status: IndexStatus) -> "IndexState":
        return cls(**asdict(status))
