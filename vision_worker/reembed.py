"""A change of model: new vectors gather beside the old ones and replace them in one transaction."""

from dataclasses import dataclass

import asyncpg

from vision_worker.database import Database
from vision_worker.errors import InvalidArgument
from vision_worker.jobs import Jobs
from vision_worker.statements import statement

SWITCH_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Progress:
    """How many images have their vector of the next model, or have failed for good."""

    done: int
    total: int


class Reembedding(Jobs):
    """The work of one model change, for the same pipeline: every image, whatever its state."""

    async def enlist(self) -> None:
        """Make a job of every image that has none yet."""
        await self.database.fetch(statement("reembed_enlist"), self.model)

    async def switch(self) -> bool:
        """Put all new vectors in place and make their model the active one.

        False, and nothing changed, while an image still lacks its vector.
        """
        progress = await reembedding_progress(self.database, self.model)
        if progress.done < progress.total:
            return False
        async with self.database.transaction() as connection:
            if not await connection.fetch(statement("reembed_lock"), self.model):
                return False
            # Minutes for a large table: the vectors are indexed anew on the way.
            await connection.execute("SET LOCAL statement_timeout = 0")
            await connection.execute(statement("reembed_deactivate"))
            for name in ("activate", "move", "rest", "clear"):
                await connection.execute(
                    statement(f"reembed_{name}"), self.model, timeout=SWITCH_SECONDS
                )
        return True

    async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        return await super()._fetch(f"reembed_{name}", *arguments)


async def aim(database: Database, model: str | None) -> tuple[str, int]:
    """Ask for vectors of the model of that key; without one, of the only other one known.

    Vectors that no search finds, since they are neither of the active model nor of one that may
    replace it (of an adopted database, say), are made again by the active model first of all. The
    key that is worked towards, and how many images wait for it. Raises InvalidArgument where no
    worker with that model has ever started.
    """
    rows = await database.fetch(statement("models"))
    active = next((str(row["key"]) for row in rows if row["active"]), None)
    others = [str(row["key"]) for row in rows if not row["active"]]
    strays = int(await database.fetchval(statement("strays")))
    if active is not None and strays and model in (None, active):
        await database.fetch(statement("reembed_rest"), active)
        return active, strays
    if model is None and len(others) == 1:
        model = others[0]
    if model is None or model not in others:
        known = ", ".join(others) or "none: start a worker with the new model first"
        raise InvalidArgument(name="--to", problem=f"the models to change to are {known}")
    await database.fetch(statement("aim"), model)
    progress = await reembedding_progress(database, model)
    return model, progress.total - progress.done


async def reembedding_progress(database: Database, model: str) -> Progress:
    row = await database.fetchrow(statement("reembed_progress"), model)
    assert row is not None
    return Progress(row["done"], row["total"])
