"""Keepsakes: pictures kept under a name, with a bound on how many, and a trash."""

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import asyncpg

from vision_worker.database import Database
from vision_worker.decoders import DecoderPool
from vision_worker.errors import (
    AboutEmpty,
    BackendError,
    Busy,
    KeepsakeNotFound,
    NameTaken,
    OutcomeUnknown,
    Quota,
    VisionError,
)
from vision_worker.images import shown
from vision_worker.index import ImageIndex, check_limit, decode_cursor, encode_cursor
from vision_worker.intake import Intake
from vision_worker.memory import remove_unreferenced
from vision_worker.names import clean, fold, kind_of, words_of
from vision_worker.queue import Doorbell
from vision_worker.statements import statement
from vision_worker.store import ImageStore
from vision_worker.types import Entity, Keepsake, KeepsakeList, Kept, KeptCode

MAX_ABOUT = 120
MAX_NOTE = 300
MAX_SOURCE = 2_000
LOCK_SECONDS = 20.0
PURGE_SECONDS = 3_600.0
T = TypeVar("T")


@dataclass(frozen=True)
class NewKeepsake:
    """What keeping a picture inserts: a memory, its image and the keepsake, in one statement."""

    id: str
    image_id: str
    memory_id: str
    namespace: str
    about: str
    about_key: str
    note: str
    kind: str
    source: str
    words: str
    text: str
    sha256: str
    file_path: str
    mime_type: str
    width: int | None
    height: int | None
    file_size_bytes: int


class Keepsakes:
    """The keepsakes of one namespace.

    One is a namespace, a folded name and the bytes of a picture. At most ``cap`` of them are kept,
    and ``cap_bytes`` bytes of their pictures: what was least recently recalled makes room, first
    among those that are not pinned, and lies in the trash for ``trash_days``. The store's own
    bound on the size of a file is what a picture may have. All methods raise VisionError.
    """

    def __init__(
        self,
        store: ImageStore,
        index: ImageIndex,
        doorbell: Doorbell,
        decoders: DecoderPool,
        *,
        cap: int = 300,
        cap_bytes: int = 2_000_000_000,
        trash_days: int = 30,
    ) -> None:
        self.store = store
        self.index = index
        self._doorbell = doorbell
        self._intake = Intake(store, decoders)
        self._cap = cap
        self._cap_bytes = cap_bytes
        self._trash_days = trash_days
        self._turns = asyncio.Lock()
        self._purged_at = -PURGE_SECONDS

    async def remember(
        self,
        about: str,
        picture: Path | bytes,
        *,
        source: str,
        note: str | None = None,
        kind: object = None,
    ) -> Kept:
        """Keep a picture under a name; durable when it returns.

        The same picture under the same name is kept once: a repeat answers ``already_kept``, or
        ``healed`` where its file had been lost, and takes over a note or a kind that is given.

        Raises AboutEmpty, ImageError, StoreError, Quota or Busy: then nothing was saved.
        """
        about = clean(about, MAX_ABOUT)
        if not about:
            raise AboutEmpty()
        note = clean(note or "", MAX_NOTE)
        async with self._intake.turn():
            kept = await self._remember(about, picture, clean(source, MAX_SOURCE), note, kind)
        if kept.keepsake.status == "pending":
            self._doorbell.ring()
        if time.monotonic() - self._purged_at >= PURGE_SECONDS:
            with suppress(VisionError):
                await self.purge()
        return kept

    async def get(self, identifier: str, *, trashed: bool = False) -> Keepsake:
        """The keepsake with this id; one in the trash only if ``trashed``.

        Raises KeepsakeNotFound, the same whether the id is unknown, malformed or of another
        namespace.
        """
        rows = await self.index.database.fetch(
            statement("keepsakes_by_id"), self.index.namespace, [_uuid(identifier)]
        )
        return _one(rows, identifier, trashed=trashed)

    async def page(
        self, *, limit: int = 20, cursor: str | None = None, trashed: bool = False
    ) -> KeepsakeList:
        """Keepsakes, newest first, continued by ``cursor``; or what lies in the trash."""
        check_limit(limit)
        after = decode_cursor(cursor) if cursor else (None, None)
        if trashed:
            await self.purge()
        rows = await self.index.database.fetch(
            statement("keepsake_page"), self.index.namespace, trashed, *after, limit + 1
        )
        more = encode_cursor(rows[limit - 1]) if len(rows) > limit else None
        return KeepsakeList([keepsake_of(row) for row in rows[:limit]], more)

    async def entities(self, limit: int = 12) -> tuple[list[Entity], int]:
        """The names that are kept, those with the most pictures first, and how many more."""
        check_limit(limit)
        rows = await self.index.database.fetch(
            statement("keepsake_entities"), self.index.namespace, limit
        )
        names = [Entity(row["about"], row["pictures"]) for row in rows]
        return names, rows[0]["names"] - len(names) if rows else 0

    async def update(
        self,
        identifier: str,
        *,
        about: str | None = None,
        note: str | None = None,
        kind: object = None,
    ) -> Keepsake:
        """Change what is given. Raises KeepsakeNotFound, AboutEmpty or NameTaken."""
        uuid = _uuid(identifier)

        async def change(connection: asyncpg.Connection) -> Keepsake:
            known = await self._held(connection, uuid)
            new_about = known.about if about is None else clean(about, MAX_ABOUT)
            if not new_about:
                raise AboutEmpty()
            twin = await self._known(connection, fold(new_about), known.sha256)
            if twin is not None and twin.id != known.id:
                raise NameTaken(about=twin.about, id=twin.id)
            new_note = known.note if note is None else clean(note, MAX_NOTE)
            new_kind = known.kind if kind is None else kind_of(kind)
            await self._write(connection, known, new_about, new_note, new_kind)
            return await self._held(connection, uuid)

        return await self._in_turn(change)

    async def pin(self, identifier: str, pinned: bool) -> Keepsake:
        """Have a keepsake stay whatever has to make room, or no longer."""
        uuid = _uuid(identifier)
        await self.index.database.fetch(
            statement("keepsake_pin"), self.index.namespace, uuid, pinned
        )
        return await self.get(identifier)

    async def restore(self, identifier: str) -> Kept:
        """Bring a keepsake back from the trash; others may have to make room for it.

        Raises KeepsakeNotFound or Quota.
        """
        uuid = _uuid(identifier)
        await self.purge()

        async def bring_back(connection: asyncpg.Connection) -> Kept:
            known = await self._held(connection, uuid, trashed=True)
            if known.trashed_at is None:
                return Kept("already_kept", known, [])
            await connection.execute(statement("keepsake_restore"), self.index.namespace, uuid)
            evicted = await self._make_room(connection, uuid)
            return Kept("kept", await self._held(connection, uuid), evicted)

        return await self._in_turn(bring_back)

    async def forget(self, identifier: str) -> None:
        """Delete a keepsake for good, in the trash or not; its file goes with its last row."""
        if not await self._delete([_uuid(identifier)]):
            raise KeepsakeNotFound(id=_shown(identifier))

    async def touch(self, identifiers: Iterable[str]) -> None:
        """Note that these were recalled just now."""
        await self.index.database.fetch(
            statement("keepsake_touch"),
            self.index.namespace,
            [_uuid(identifier) for identifier in identifiers],
        )

    async def purge(self) -> int:
        """Delete what has lain in the trash too long; how many."""
        self._purged_at = time.monotonic()
        rows = await self.index.database.fetch(
            statement("keepsakes_expired"), self.index.namespace, self._trash_days
        )
        return await self._delete([row["id"] for row in rows], since_days=self._trash_days)

    async def _remember(
        self, about: str, picture: Path | bytes, source: str, note: str, kind: object
    ) -> Kept:
        taken = await self._intake.take(picture)
        known = await self._known(self.index.database, fold(about), taken.sha256)
        lost = known is not None and not await asyncio.to_thread(_is_intact, known)
        with await self._intake.place(taken) as blob:
            stored = blob.result
            new = NewKeepsake(
                id=str(uuid4()),
                image_id=str(uuid4()),
                memory_id=str(uuid4()),
                namespace=self.index.namespace,
                about=about,
                about_key=fold(about),
                note=note,
                kind=kind_of(kind),
                source=source,
                words=words_of(about, note, kind_of(kind)),
                text=_text(about, note),
                sha256=stored.sha256,
                file_path=str(stored.file_path),
                mime_type=stored.mime_type,
                width=stored.dimensions[0] if stored.dimensions else None,
                height=stored.dimensions[1] if stored.dimensions else None,
                file_size_bytes=stored.file_size_bytes,
            )
            try:
                return await self._in_turn(
                    lambda connection: self._keep(connection, new, lost, kind_is_given=_said(kind))
                )
            except OutcomeUnknown:
                raise
            except VisionError:
                blob.retract()
                raise

    async def _keep(
        self, connection: asyncpg.Connection, new: NewKeepsake, lost: bool, *, kind_is_given: bool
    ) -> Kept:
        code: KeptCode = "kept"
        evicted: list[Keepsake] = []
        known = await self._add(connection, new)
        uuid = UUID(known.id)
        if known.id != new.id:
            kind = new.kind if kind_is_given else known.kind
            await self._write(connection, known, known.about, new.note or known.note, kind)
            if known.trashed_at is None:
                code = "healed" if lost else "already_kept"
            else:
                await connection.execute(statement("keepsake_restore"), self.index.namespace, uuid)
        if code == "kept":
            evicted = await self._make_room(connection, uuid)
        await connection.execute(
            statement("keepsake_heal"), new.sha256, new.file_path, known.image_id if lost else None
        )
        return Kept(code, await self._held(connection, uuid), evicted)

    async def _add(self, connection: asyncpg.Connection, new: NewKeepsake) -> Keepsake:
        """The keepsake of this name and picture: the new one, or the one that was there."""
        while True:
            await connection.execute(statement("keepsake_insert"), json.dumps(asdict(new)))
            known = await self._known(connection, new.about_key, new.sha256)
            # Who deletes its image waits for no turn: then it has gone since.
            if known is not None and await self._hold(connection, [UUID(known.id)]):
                return known

    async def _make_room(self, connection: asyncpg.Connection, saved: UUID) -> list[Keepsake]:
        """Put into the trash what exceeds the caps, but never ``saved``. Raises Quota."""
        namespace = self.index.namespace
        rows = await connection.fetch(
            statement("keepsake_excess"), namespace, saved, self._cap, self._cap_bytes
        )
        excess = rows[0]
        ids = [row["id"] for row in rows if row["id"] is not None]
        freed = sum(row["bytes"] for row in rows)
        if len(ids) < excess["excess_pictures"] or freed < excess["excess_bytes"]:
            raise Quota(pictures=self._cap, bytes=self._cap_bytes)
        if not ids:
            return []
        await self._hold(connection, ids)
        await connection.execute(statement("keepsake_evict"), namespace, ids)
        rows = await connection.fetch(statement("keepsakes_by_id"), namespace, ids)
        return sorted(map(keepsake_of, rows), key=lambda evicted: ids.index(UUID(evicted.id)))

    async def _write(
        self,
        connection: asyncpg.Connection,
        known: Keepsake,
        about: str,
        note: str,
        kind: str,
    ) -> None:
        if (about, note, kind) == (known.about, known.note, known.kind):
            return
        namespace, uuid = self.index.namespace, UUID(known.id)
        words = words_of(about, note, kind)
        await connection.execute(
            statement("keepsake_write"), namespace, uuid, about, fold(about), note, kind, words
        )
        if _text(about, note) != _text(known.about, known.note):
            await connection.execute(
                statement("keepsake_text"), namespace, uuid, _text(about, note)
            )

    async def _known(
        self, database: Database | asyncpg.Connection, about_key: str, sha256: str
    ) -> Keepsake | None:
        row = await database.fetchrow(
            statement("keepsake_by_identity"), self.index.namespace, about_key, sha256
        )
        return keepsake_of(row) if row else None

    async def _held(
        self, connection: asyncpg.Connection, uuid: UUID, *, trashed: bool = False
    ) -> Keepsake:
        """A keepsake that nobody else changes or deletes before this turn ends."""
        await self._hold(connection, [uuid])
        rows = await connection.fetch(statement("keepsakes_by_id"), self.index.namespace, [uuid])
        return _one(rows, str(uuid), trashed=trashed)

    async def _hold(self, connection: asyncpg.Connection, ids: Sequence[UUID]) -> bool:
        """Whether any of them is there; if so nobody deletes it before this turn ends."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                async with connection.transaction():
                    rows = await connection.fetch(
                        statement("keepsake_hold"), self.index.namespace, ids
                    )
                return bool(rows)
            except asyncpg.LockNotAvailableError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.01)

    async def _delete(self, ids: Sequence[UUID], *, since_days: int | None = None) -> int:
        """Delete keepsakes with their memories; with ``since_days`` only those in the trash."""
        if not ids:
            return 0

        async def delete(connection: asyncpg.Connection) -> list[asyncpg.Record]:
            await self._hold(connection, ids)
            rows: list[asyncpg.Record] = await connection.fetch(
                statement("keepsake_delete"), self.index.namespace, ids, since_days
            )
            return rows

        rows = await self._in_turn(delete)
        for sha256 in {row["sha256"] for row in rows}:
            await remove_unreferenced(self.store, self.index, sha256)
        return len(rows)

    async def _in_turn(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Do ``work`` in a transaction while nobody else changes keepsakes of this namespace.

        It counts what is there, so it has to see all of it.
        """

        async def turn(connection: asyncpg.Connection) -> T:
            async with connection.transaction():
                await connection.execute(statement("keepsake_turn"), self.index.namespace)
                return await work(connection)

        try:
            # One connection waits; the others of the pool stay free for those who only read.
            async with self._turns:
                return await self.index.database.run(turn)
        except BackendError as error:
            if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                raise Busy() from error
            raise


def keepsake_of(row: asyncpg.Record) -> Keepsake:
    """From the columns of the statement ``keepsake_columns``."""
    times = {name: row[name] for name in ("created_at", "recalled_at", "trashed_at")}
    told = {name: time.isoformat() if time else None for name, time in times.items()}
    ids = {name: str(row[name]) for name in ("id", "image_id", "memory_id")}
    return Keepsake(**{**row, **ids, **told})


def _one(rows: Sequence[asyncpg.Record], identifier: str, *, trashed: bool) -> Keepsake:
    if not rows or (rows[0]["trashed_at"] and not trashed):
        raise KeepsakeNotFound(id=_shown(identifier))
    return keepsake_of(rows[0])


def _uuid(identifier: str) -> UUID:
    try:
        return UUID(identifier)
    except (ValueError, AttributeError, TypeError):
        raise KeepsakeNotFound(id=_shown(identifier)) from None


def _shown(identifier: object) -> str:
    return shown(str(identifier)[:64])


def _said(kind: object) -> bool:
    """Whether a kind is given at all; on a repeat none leaves the one that is known."""
    return kind is not None and kind != ""


def _text(about: str, note: str) -> str:
    return f"{about}: {note}" if note else about


def _is_intact(keepsake: Keepsake) -> bool:
    """Whether the kept file still has the bytes that were saved."""
    try:
        with Path(keepsake.file_path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == keepsake.sha256
    except OSError:
        return False
