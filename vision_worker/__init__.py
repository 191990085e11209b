"""Image memory for AI agents: save now, embed after, rank only what is embedded."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vision_worker.config import ALLOWED_CLIP_MODELS, VisionConfig
    from vision_worker.embedder import ClipEmbedder
    from vision_worker.errors import VisionError
    from vision_worker.front import Front
    from vision_worker.fusion import fuse
    from vision_worker.index import ImageIndex
    from vision_worker.memory import ImageMemory, Picture
    from vision_worker.query import ImageQuery
    from vision_worker.store import ImageStore
    from vision_worker.types import (
        EMBEDDING_DIM,
        ImageFilter,
        ImageList,
        ImageRecord,
        IndexStatus,
        SavedImage,
        SaveResult,
        SearchPage,
        SearchResult,
    )

__all__ = [
    "ALLOWED_CLIP_MODELS",
    "EMBEDDING_DIM",
    "ClipEmbedder",
    "Front",
    "ImageFilter",
    "ImageIndex",
    "ImageList",
    "ImageMemory",
    "ImageQuery",
    "ImageRecord",
    "ImageStore",
    "IndexStatus",
    "Picture",
    "SaveResult",
    "SavedImage",
    "SearchPage",
    "SearchResult",
    "VisionConfig",
    "VisionError",
    "fuse",
]

_MODULES = {
    "config": ("ALLOWED_CLIP_MODELS", "VisionConfig"),
    "embedder": ("ClipEmbedder",),
    "errors": ("VisionError",),
    "front": ("Front",),
    "fusion": ("fuse",),
    "index": ("ImageIndex",),
    "memory": ("ImageMemory", "Picture"),
    "query": ("ImageQuery",),
    "store": ("ImageStore",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import at first use, so that a process pays only for what it needs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'types')}"), name)
