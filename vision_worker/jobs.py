"""The work on pending rows as a worker sees it: claim, renew, complete, fail, release."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import asyncpg
from pgvector import Vector

from vision_worker.database import Database
from vision_worker.errors import Poison, VisionError
from vision_worker.statements import statement

FIRST_RETRY_SECONDS = 2.0
LONGEST_RETRY_SECONDS = 600.0
MAX_ERROR = 1000


@dataclass(frozen=True)
class Job:
    """One claimed row."""

    id: UUID
    file_path: str
    sha256: str
    attempts: int


@dataclass(frozen=True)
class Claim:
    """Rows that are ours until the lease runs out; ``token`` is the proof."""

    token: UUID
    jobs: list[Job]


class Jobs:
    """Every change is bound to the lease token: after it went to another worker, nothing lands.

    Nothing is claimed or completed unless ``model`` is the active one.
    """

    def __init__(
        self, database: Database, model: str, *, lease_seconds: float, max_attempts: int
    ) -> None:
        self.database = database
        self.model = model
        self.lease_seconds = lease_seconds
        self.max_attempts = max_attempts

    async def claim(self, limit: int) -> Claim:
        """Lease up to ``limit`` of the oldest claimable rows; the attempt is counted now.

        Rows that were begun too often without coming to an end are failed on the way.
        """
        token = uuid4()
        rows = await self._fetch("claim", token, self.lease_seconds, limit, self.model)
        claim = Claim(token, [Job(**row) for row in rows])
        spent = [job for job in claim.jobs if job.attempts > self.max_attempts]
        for job in spent:
            await self.fail(claim, job, Poison(attempts=job.attempts - 1))
        return Claim(token, [job for job in claim.jobs if job not in spent])

    async def renew(self, tokens: Sequence[UUID]) -> None:
        """Push the expiry of these claims ``lease_seconds`` into the future."""
        await self._fetch("renew", list(tokens), self.lease_seconds)

    async def complete(self, claim: Claim, embeddings: dict[UUID, list[float]]) -> set[UUID]:
        """Write vectors of 768 floats; the rows that took them, those still leased to us."""
        rows = await self._fetch(
            "complete",
            claim.token,
            self.model,
            list(embeddings),
            [Vector(vector) for vector in embeddings.values()],
        )
        return {row["id"] for row in rows}

    async def fail(self, claim: Claim, job: Job, error: VisionError) -> bool:
        """Note why; transient errors are tried again later, until the attempts are spent."""
        delay = None
        if error.transient and job.attempts < self.max_attempts:
            delay = retry_delay(job.attempts)
        message = str(error).replace("\0", "")[:MAX_ERROR]
        rows = await self._fetch("fail", claim.token, job.id, message, error.code, delay)
        return bool(rows)

    async def release(self, claim: Claim, jobs: Sequence[Job]) -> None:
        """Give rows back as if they had never been claimed."""
        await self._fetch("release", claim.token, [job.id for job in jobs])

    async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        return await self.database.fetch(statement(name), *arguments)


def retry_delay(attempts: int) -> float:
    """Seconds until the next attempt: exponential back-off with full jitter in its upper half."""
    longest = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** (attempts - 1))
    return random.uniform(longest / 2, longest)
