"""What the image memory hands out: vision-worker's own records, which hold the published fields."""

from vision_worker.types import ImageRecord, SaveResult, SearchResult

__all__ = ["ImageRecord", "SaveResult", "SearchResult"]
