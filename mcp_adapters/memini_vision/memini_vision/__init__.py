"""The names of the published memini-vision on vision-worker: saves never wait for a model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memini_vision.config import ALLOWED_CLIP_MODELS, EMBEDDING_DIM, VisionConfig
    from memini_vision.embedder import ClipEmbedder
    from memini_vision.index import ImageIndex
    from memini_vision.query import ImageQuery
    from memini_vision.store import ImageStore
    from memini_vision.types import ImageRecord, SaveResult, SearchResult

__all__ = [
    "ALLOWED_CLIP_MODELS",
    "EMBEDDING_DIM",
    "ClipEmbedder",
    "ImageIndex",
    "ImageQuery",
    "ImageRecord",
    "ImageStore",
    "SaveResult",
    "SearchResult",
    "VisionConfig",
]

_MODULES = {
    "config": ("ALLOWED_CLIP_MODELS", "EMBEDDING_DIM", "VisionConfig"),
    "embedder": ("ClipEmbedder",),
    "index": ("ImageIndex",),
    "query": ("ImageQuery",),
    "store": ("ImageStore",),
    "types": ("ImageRecord", "SaveResult", "SearchResult"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import at first use: videre-mcp imports this package even with its image tools off."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
