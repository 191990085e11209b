"""Claim, decode, embed, complete: overlapped, so that the encoder waits for nobody."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

from vision_worker.decoder import Request
from vision_worker.decoders import DecoderPool
from vision_worker.embedder import ClipEmbedder
from vision_worker.errors import EncoderError, VisionError
from vision_worker.jobs import Claim, Job, Jobs

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """Claimed rows whose pictures are decoded: squares of RGB bytes by job."""

    claim: Claim
    squares: dict[Job, list[bytes]]


class Pipeline:
    """Empties the backlog. While one batch is encoded the next is claimed and decoded.

    ``bell`` wakes it; without a bell it looks for rows every ``sweep_seconds``. With
    ``until_empty`` it ends once there is nothing to claim.
    """

    def __init__(
        self,
        jobs: Jobs,
        decoders: DecoderPool,
        embedder: ClipEmbedder,
        *,
        batch_size: int,
        max_pixels: int,
        sweep_seconds: float,
        until_empty: bool = False,
    ) -> None:
        self._jobs = jobs
        self._decoders = decoders
        self._embedder = embedder
        self._batch_size = batch_size
        self._max_pixels = max_pixels
        self._sweep_seconds = sweep_seconds
        self._until_empty = until_empty
        self.bell = asyncio.Event()
        self._stopping = False
        self._leases: set[UUID] = set()
        self._forward = ThreadPoolExecutor(1, thread_name_prefix="forward")
        self.embedded = 0

    async def run(self) -> None:
        """Work until ``stop``. Raises BackendError where the database fails; safe to run again."""
        batches: asyncio.Queue[Batch | None] = asyncio.Queue(maxsize=1)
        renewing = asyncio.create_task(self._renew())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._claim_and_decode(batches))
                group.create_task(self._embed_and_complete(batches))
        except* VisionError as errors:
            raise errors.exceptions[0] from None
        finally:
            renewing.cancel()
            self._leases.clear()

    def stop(self) -> None:
        """Finish the batch in the encoder, give back what is not begun, then return from run."""
        self._stopping = True
        self.bell.set()

    async def _claim_and_decode(self, batches: "asyncio.Queue[Batch | None]") -> None:
        while not self._stopping:
            self.bell.clear()
            claim = await self._jobs.claim(self._batch_size)
            if not claim.jobs:
                if self._until_empty:
                    break
                await self._wait()
                continue
            self._leases.add(claim.token)
            try:
                batch = await self._decode(claim)
            except BaseException:
                self._leases.discard(claim.token)
                raise
            await batches.put(batch)
        await batches.put(None)

    async def _embed_and_complete(self, batches: "asyncio.Queue[Batch | None]") -> None:
        while (batch := await batches.get()) is not None:
            try:
                if self._stopping:
                    await self._jobs.release(batch.claim, list(batch.squares))
                elif batch.squares:
                    await self._embed(batch.claim, batch.squares)
            finally:
                self._leases.discard(batch.claim.token)

    async def _decode(self, claim: Claim) -> Batch:
        embedder = self._embedder

        async def one(job: Job) -> list[bytes] | VisionError:
            request = Request(
                path=job.file_path,
                sha256=job.sha256,
                framing=embedder.framing,
                size=embedder.input_size,
                max_pixels=self._max_pixels,
            )
            try:
                return [raster.rgb for raster in await self._decoders.decode(request)]
            except VisionError as error:
                return error

        outcomes = await asyncio.gather(*(one(job) for job in claim.jobs))
        squares: dict[Job, list[bytes]] = {}
        for job, outcome in zip(claim.jobs, outcomes, strict=True):
            if isinstance(outcome, VisionError):
                await self._fail(claim, job, outcome)
            else:
                squares[job] = outcome
        return Batch(claim, squares)

    async def _embed(self, claim: Claim, squares: dict[Job, list[bytes]]) -> None:
        """Encode and write; a batch that fails is halved until the guilty row stands alone."""
        jobs = list(squares)
        try:
            vectors = await self._encode([squares[job] for job in jobs])
        except Exception as error:
            if len(jobs) == 1:
                await self._fail(claim, jobs[0], _encoder_error(error))
                return
            logger.warning("batch of %d failed (%s); halving it", len(jobs), error)
            middle = len(jobs) // 2
            for half in (jobs[:middle], jobs[middle:]):
                await self._embed(claim, {job: squares[job] for job in half})
            return
        embeddings = {job.id: vector for job, vector in zip(jobs, vectors, strict=True)}
        written = await self._jobs.complete(claim, embeddings)
        self.embedded += len(written)
        if lost := len(jobs) - len(written):
            logger.warning("%d of %d rows were no longer ours", lost, len(jobs))
        logger.info("embedded images=%d model=%s", len(written), self._embedder.key)

    async def _encode(self, pictures: Sequence[Sequence[bytes]]) -> list[list[float]]:
        loop = asyncio.get_running_loop()
        vectors = await loop.run_in_executor(self._forward, self._embedder.encode_squares, pictures)
        encoded: list[list[float]] = vectors.tolist()
        return encoded

    async def _fail(self, claim: Claim, job: Job, error: VisionError) -> None:
        logger.warning("image=%s attempt=%d code=%s %s", job.id, job.attempts, error.code, error)
        await self._jobs.fail(claim, job, error)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._jobs.lease_seconds / 3)
            if self._leases:
                try:
                    await self._jobs.renew(list(self._leases))
                except VisionError as error:
                    logger.warning("leases not renewed: %s", error)

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self.bell.wait(), self._sweep_seconds)
        except TimeoutError:
            return


def _encoder_error(error: Exception) -> VisionError:
    if isinstance(error, VisionError):
        return error
    return EncoderError(reason=f"{type(error).__name__}: {str(error)[:300]}")
