"""Events of a conversation: kept in PostgreSQL, replayed, and followed live by any number."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import asyncpg

from vision_worker.database import Database
from vision_worker.errors import BackendError, InvalidArgument
from vision_worker.statements import statement

logger = logging.getLogger(__name__)

KEPT = 200
"""The newest events of a conversation that are kept for replay."""
MAX_EVENT = 16_000
MAX_CONVERSATION = 200
CHANNEL = "vision_worker_events"
LOOK_UP_SECONDS = 30.0
RETRY_SECONDS = 0.5
HIGHEST_ID = 2**63 - 1

Event = dict[str, Any]


@dataclass(eq=False)
class _Tail:
    """The kept events of a conversation that somebody follows, as JSON, oldest first."""

    events: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=KEPT))
    newest: int = 0
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    followers: int = 0

    def add(self, identifier: int, text: str) -> None:
        self.events.append((identifier, text))
        self.newest = identifier

    def tell(self) -> None:
        told, self.grown = self.grown, asyncio.Event()
        told.set()


class Events:
    """The events of one namespace.

    Any process emits; one that has followers, however many, holds one connection that listens.
    Nothing is pushed to a follower: each reads at its own pace from what is kept. All subscriptions
    belong to one event loop.
    """

    def __init__(self, database: Database, *, namespace: str = "default") -> None:
        self._database = database
        self._namespace = namespace
        self._tails: dict[str, _Tail] = {}
        self._behind: set[str] = set()
        self._wake = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    async def emit(self, conversation: str, event: Mapping[str, Any]) -> int:
        """Keep an event, durably, and tell every follower; its id, which only grows.

        Raises InvalidArgument for what is no JSON object of at most 16,000 bytes, and BackendError.
        """
        check_conversation(conversation)
        text = _dumped(event)
        key = uuid4()

        async def work(connection: asyncpg.Connection) -> int:
            async with connection.transaction():
                await connection.execute(statement("event_turn"), self._namespace, conversation)
                return int(
                    await connection.fetchval(
                        statement("event_emit"), self._namespace, conversation, text, key, KEPT
                    )
                )

        return await self._database.run(work)

    async def since(self, conversation: str, last_id: int | None = None) -> list[tuple[int, Event]]:
        """The kept events after that id, oldest first; without an id all that are kept.

        Raises InvalidArgument or BackendError.
        """
        check_conversation(conversation)
        after = max(0, min(last_id or 0, HIGHEST_ID))
        rows = await self._database.fetch(
            statement("events_after"), self._namespace, [conversation], [after], KEPT
        )
        return [(row["id"], json.loads(row["event"])) for row in rows]

    async def subscribe(
        self, conversation: str, last_id: int | None = None
    ) -> AsyncGenerator[tuple[int, Event]]:
        """What ``since`` gives, then every event as it is emitted, each once, until ``close``.

        Waits while the database is away. A follower that falls behind by more than is kept goes on
        with what is kept. Raises InvalidArgument.
        """
        check_conversation(conversation)
        seen = last_id or 0
        tail = self._follow(conversation)
        try:
            while not self._closed:
                grown = tail.grown
                for identifier, text in tuple(tail.events):
                    if identifier > seen:
                        seen = identifier
                        yield identifier, json.loads(text)
                await grown.wait()
        finally:
            self._leave(conversation, tail)

    async def close(self) -> None:
        """End all subscriptions and stop listening."""
        self._closed = True
        for tail in self._tails.values():
            tail.tell()
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    def _follow(self, conversation: str) -> _Tail:
        tail = self._tails.setdefault(conversation, _Tail())
        tail.followers += 1
        if tail.followers == 1:
            self._heard(conversation)
        if self._listening is None and not self._closed:
            self._listening = asyncio.create_task(self._listen())
        return tail

    def _leave(self, conversation: str, tail: _Tail) -> None:
        tail.followers -= 1
        if not tail.followers:
            del self._tails[conversation]

    def _heard(self, conversation: str) -> None:
        self._behind.add(conversation)
        self._wake.set()

    def _notified(self, *notification: Any) -> None:
        namespace, _, conversation = notification[-1].partition("\n")
        if namespace == self._namespace and conversation in self._tails:
            self._heard(conversation)

    async def _listen(self) -> None:
        told = ""
        while True:
            try:
                async with self._database.dedicated() as connection:
                    connection.add_termination_listener(lambda _: self._wake.set())
                    await connection.add_listener(CHANNEL, self._notified)
                    told = ""
                    while not connection.is_closed():
                        # What was emitted while nobody listened; at times, in case a bell was lost.
                        self._behind.update(self._tails)
                        await self._follow_bells(connection)
            except BackendError as error:
                if told != str(error):
                    logger.warning("no live events: %s", error)
                told = str(error)
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow_bells(self, connection: asyncpg.Connection) -> None:
        """Read what is new at every bell, until there was none for a while."""
        while not connection.is_closed():
            self._wake.clear()
            await self._catch_up(connection)
            try:
                await asyncio.wait_for(self._wake.wait(), LOOK_UP_SECONDS)
            except TimeoutError:
                return

    async def _catch_up(self, connection: asyncpg.Connection) -> None:
        behind, self._behind = self._behind, set()
        tails = {name: self._tails[name] for name in behind if name in self._tails}
        if not tails:
            return
        rows = await connection.fetch(
            statement("events_after"),
            self._namespace,
            list(tails),
            [tail.newest for tail in tails.values()],
            KEPT,
        )
        for row in rows:
            tails[row["conversation"]].add(row["id"], row["event"])
        for name in {row["conversation"] for row in rows}:
            tails[name].tell()


def check_conversation(conversation: str) -> None:
    """Raises InvalidArgument for what cannot name a conversation."""
    if not 1 <= len(conversation) <= MAX_CONVERSATION or not conversation.isprintable():
        problem = f"it must have 1 to {MAX_CONVERSATION} printable characters"
        raise InvalidArgument(name="conversation", problem=problem)


def _dumped(event: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(dict(event), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(name="event", problem=f"it is no JSON object, {error}") from None
    if len(text) > MAX_EVENT:
        raise InvalidArgument(name="event", problem=f"it has more than {MAX_EVENT} bytes")
    return text
