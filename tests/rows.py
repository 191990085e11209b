"""Rows written by hand: memories and images with vectors of the test's own choosing."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from vision_worker.database import Database

MODEL = "clip@1+letterbox"
CROWD = 20_000
WAITING = 2_000
FAILED = 200

CROWD_SQL = f"""
SELECT setseed(0.5);
INSERT INTO vision_models (key, name, source, framing, native_dim, input_size, active)
VALUES ('{MODEL}', 'clip', 'clip', 'letterbox', 512, 64, true);
DROP INDEX idx_memories_image_embedding;
CREATE TEMP TABLE parts AS
SELECT part, (
    SELECT array_agg((random() - 0.5) * CASE WHEN part < 40 THEN 1 ELSE 0.2 END + 0 * dim)
    FROM generate_series(1, 768) AS dim
)::real[]::vector(768) AS vector
FROM generate_series(0, 139) AS part;
INSERT INTO memories (id, text, source_type)
SELECT md5('memory ' || n)::uuid, 'picture ' || n, CASE
    WHEN n % 1000 = 0 THEN 'github' WHEN n % 100 = 0 THEN 'web' ELSE 'file'
END
FROM generate_series(1, {CROWD + WAITING + FAILED}) AS n;
INSERT INTO memories_image (
    id, memory_id, file_path, sha256, mime_type, tags, created_at,
    embedding, embedding_model, embedded_at
)
SELECT
    md5('image ' || n)::uuid, md5('memory ' || n)::uuid, '/pictures/' || n, repeat('0', 64),
    'image/png', CASE
        WHEN n % 1000 = 0 THEN '["hundredth", "thousandth"]'::jsonb
        WHEN n % 100 = 0 THEN '["hundredth"]' ELSE '[]'
    END, '2026-01-01Z'::timestamptz + n * '1 min'::interval,
    screen.vector + one.vector + two.vector + three.vector, '{MODEL}', now()
FROM generate_series(1, {CROWD}) AS n
JOIN parts AS screen ON screen.part = n * 17 % 40
JOIN parts AS one ON one.part = 40 + n % 100
JOIN parts AS two ON two.part = 40 + n / 100 % 100
JOIN parts AS three ON three.part = 40 + n * 7 / 13 % 100;
INSERT INTO memories_image (
    id, memory_id, file_path, sha256, mime_type, created_at, next_attempt_at,
    embedding_error, embedding_error_code
)
SELECT
    md5('image ' || n)::uuid, md5('memory ' || n)::uuid, '/pictures/' || n, repeat('0', 64),
    'image/png', '2026-03-01Z'::timestamptz + n * '1 min'::interval,
    CASE WHEN n <= {CROWD + WAITING} THEN now() END,
    CASE WHEN n > {CROWD + WAITING} THEN 'it is damaged' END,
    CASE WHEN n > {CROWD + WAITING} THEN 'undecodable' END
FROM generate_series({CROWD + 1}, {CROWD + WAITING + FAILED}) AS n;
SET max_parallel_maintenance_workers = 0;
CREATE INDEX idx_memories_image_embedding ON memories_image
    USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64);
"""
"""20,000 embedded images in 40 clusters, with 2,000 pending and 200 failed ones; a hundredth and a
thousandth of the embedded ones can be told apart by tag and by source type."""


def padded(vector: Sequence[float]) -> list[float]:
    return [*vector, *[0.0] * (768 - len(vector))]


class Rows:
    """Writes memories and images straight into the tables."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def model(
        self, key: str = MODEL, *, name: str = "clip", framing: str = "letterbox"
    ) -> None:
        """Make this the active model."""
        await self.database.fetch("UPDATE vision_models SET active = false")
        await self.database.fetch(
            "INSERT INTO vision_models (key, name, source, framing, native_dim, input_size, active)"
            " VALUES ($1, $2, $2, $3, 512, 64, true)",
            key,
            name,
            framing,
        )

    async def image(
        self,
        vector: Sequence[float] | None = None,
        *,
        model: str = MODEL,
        text: str = "a picture",
        source_type: str = "file",
        archived: bool = False,
        error: str | None = None,
        created_at: datetime | None = None,
        tags: Sequence[str] = (),
        **columns: Any,
    ) -> str:
        """One image with that vector; without one it is pending, or failed with that error code."""
        memory, image = uuid4(), uuid4()
        await self.database.fetch(
            "INSERT INTO memories (id, text, source_type, is_archived) VALUES ($1, $2, $3, $4)",
            memory,
            text,
            source_type,
            archived,
        )
        values: dict[str, Any] = {
            "id": image,
            "memory_id": memory,
            "file_path": f"/pictures/{image}.png",
            "sha256": "0" * 64,
            "mime_type": "image/png",
            "tags": json.dumps(list(tags)),
            **columns,
        }
        if created_at is not None:
            values["created_at"] = created_at
        if vector is not None:
            values |= {"embedding": padded(vector), "embedding_model": model}
        if error is not None:
            values |= {
                "embedding_error": f"it is {error}",
                "embedding_error_code": error,
                "next_attempt_at": None,
            }
        places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
        await self.database.fetch(
            f"INSERT INTO memories_image ({', '.join(values)}) VALUES ({places})", *values.values()
        )
        return str(image)

    async def worker(self, state: str = "ready", *, queues: Sequence[str] = ("query",)) -> UUID:
        """A worker that gave a sign of life just now."""
        worker = uuid4()
        await self.database.fetch(
            "INSERT INTO vision_workers (id, hostname, pid, queues, state, detail)"
            " VALUES ($1, 'host', 1, $2, $3, 'out of memory')",
            worker,
            list(queues),
            state,
        )
        return worker


class Sentences:
    """A text encoder: ``"1 0.5"`` becomes the vector that begins so; ``asked`` keeps the texts."""

    def __init__(self, key: str = MODEL) -> None:
        self.key = key
        self.asked: list[str] = []

    def encode_text(self, text: str) -> list[float]:
        self.asked.append(text)
        return padded([float(number) for number in text.split()])
