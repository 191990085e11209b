"""The settings, under the published names."""

from vision_worker import config
from vision_worker.config import ALLOWED_CLIP_MODELS
from vision_worker.types import EMBEDDING_DIM

__all__ = ["ALLOWED_CLIP_MODELS", "EMBEDDING_DIM", "VisionConfig"]


class VisionConfig(config.VisionConfig):
    """vision-worker's settings; all of the published ones are among them."""

    @property
    def resolved_db_url(self) -> str:
        """``db_url``, else ``MEMINI_DB_URL`` as it is now, else the embedded server's, started.

        Raises LocalServerError where that cannot be started.
        """
        configured = super().resolved_db_url
        if configured:
            return configured
        from vision_worker.runtime import runtime

        return runtime().call(lambda front: _url_of(front.backend.db_url))


async def _url_of(url: str) -> str:
    return url
