"""Events of a conversation: kept, replayed, and told to every follower once."""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from tests.support import DEADLINE, execute
from vision_worker.database import Database
from vision_worker.errors import InvalidArgument
from vision_worker.events import KEPT, Events

Numbered = tuple[int, dict[str, Any]]
EMITTER = """
import asyncio, sys
from vision_worker.database import Database
from vision_worker.events import Events

async def main():
    database = Database(sys.argv[1])
    for number in range(int(sys.argv[3])):
        await Events(database).emit("talk", {"from": sys.argv[2], "number": number})
    await database.close()

asyncio.run(main())
"""


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, pool_size=4)
    yield database
    await database.close()


@pytest.fixture
async def events(database: Database) -> AsyncIterator[Events]:
    events = Events(database)
    yield events
    await events.close()


async def take(stream: AsyncGenerator[Numbered], count: int) -> list[Numbered]:
    async with asyncio.timeout(DEADLINE):
        return [await anext(stream) for _ in range(count)]


async def listeners(database: Database) -> int:
    """Sessions of this database whose last statement was about following events."""
    return int(
        await database.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND query ~* '^(listen|select wanted)'"
        )
    )


async def cut(database: Database) -> None:
    """End every other session of this database, as a restart does."""
    await database.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def test_what_was_emitted_is_given_since_an_id(events: Events) -> None:
    first = await events.emit("talk", {"kind": "recalled_image", "id": "a", "about": "Zoë 猫"})
    second = await events.emit("talk", {"number": 2})
    assert first < second
    assert await events.since("talk") == [
        (first, {"kind": "recalled_image", "id": "a", "about": "Zoë 猫"}),
        (second, {"number": 2}),
    ]
    assert await events.since("talk", first) == [(second, {"number": 2})]
    assert await events.since("talk", second) == []
    assert await events.since("talk", 2**80) == []
    assert len(await events.since("talk", -5)) == 2


async def test_conversations_and_namespaces_are_apart(database: Database, events: Events) -> None:
    other = Events(database, namespace="other")
    await other.emit("talk", {"of": "other"})
    await events.emit("talk ", {"of": "another talk"})
    mine = await events.emit("talk", {"of": "mine"})
    assert await events.since("talk") == [(mine, {"of": "mine"})]
    assert await take(events.subscribe("talk"), 1) == [(mine, {"of": "mine"})]


async def test_the_newest_are_kept(database: Database, events: Events) -> None:
    ids = [await events.emit("talk", {"number": number}) for number in range(KEPT + 5)]
    elsewhere = await events.emit("elsewhere", {"number": 0})
    assert [identifier for identifier, _ in await events.since("talk", ids[0])] == ids[5:]
    assert await database.fetchval("SELECT count(*) FROM vision_events") == KEPT + 1
    assert await events.since("elsewhere") == [(elsewhere, {"number": 0})]


async def test_no_more_are_kept_however_many_emit_at_once(
    database: Database, events: Events
) -> None:
    numbers = range(KEPT + 40)
    ids = await asyncio.gather(*(events.emit("talk", {"number": n}) for n in numbers))
    kept = await events.since("talk")
    assert [identifier for identifier, _ in kept] == sorted(ids)[40:]
    assert await database.fetchval("SELECT count(*) FROM vision_events") == KEPT


async def test_a_follower_gets_what_was_kept_and_then_what_comes(events: Events) -> None:
    ids = [await events.emit("talk", {"number": number}) for number in range(3)]
    stream = events.subscribe("talk", ids[0])
    assert await take(stream, 2) == [(ids[1], {"number": 1}), (ids[2], {"number": 2})]
    waiting = asyncio.create_task(take(stream, 2))
    later = [await events.emit("talk", {"number": number}) for number in (3, 4)]
    assert await waiting == [(later[0], {"number": 3}), (later[1], {"number": 4})]


async def test_a_hundred_followers_get_all_of_it_over_one_connection(
    database: Database, events: Events
) -> None:
    kept = await events.emit("talk", {"number": 0})
    streams = [events.subscribe("talk") for _ in range(100)]
    assert (
        await asyncio.gather(*(take(stream, 1) for stream in streams))
        == [[(kept, {"number": 0})]] * 100
    )
    waiting = [asyncio.create_task(take(stream, 5)) for stream in streams]
    sent = [(await events.emit("talk", {"number": n}), {"number": n}) for n in range(1, 6)]
    assert await asyncio.gather(*waiting) == [sent] * 100
    assert await listeners(database) == 1


async def test_a_follower_that_does_not_read_holds_nobody_up(events: Events) -> None:
    await events.emit("talk", {"number": 0})
    slow, quick = events.subscribe("talk"), events.subscribe("talk")
    await take(slow, 1)
    await take(quick, 1)
    waiting = asyncio.create_task(take(quick, KEPT + 10))
    for number in range(1, KEPT + 11):
        await events.emit("talk", {"number": number})
    assert [event["number"] for _, event in await waiting] == list(range(1, KEPT + 11))
    # What is kept no longer is lost to it; the rest it gets.
    assert [event["number"] for _, event in await take(slow, KEPT)] == list(range(11, KEPT + 11))


async def test_two_processes_emit_and_two_follow(database: Database, database_url: str) -> None:
    mine, theirs = Events(database), Events(Database(database_url))
    streams = [mine.subscribe("talk"), theirs.subscribe("talk")]
    waiting = [asyncio.create_task(take(stream, 60)) for stream in streams]
    emitters = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", EMITTER, database_url, name, "30"
        )
        for name in ("one", "two")
    ]
    assert [await emitter.wait() for emitter in emitters] == [0, 0]
    one, two = await asyncio.gather(*waiting)
    assert one == two == await mine.since("talk")
    for name in ("one", "two"):
        assert [e["number"] for _, e in one if e["from"] == name] == list(range(30))
    await mine.close()
    await theirs.close()


async def test_a_lost_connection_loses_and_doubles_nothing(
    database: Database, database_url: str, events: Events
) -> None:
    stream = events.subscribe("talk")
    waiting = asyncio.create_task(take(stream, 41))
    sent = [await events.emit("talk", {"number": 0})]
    killer = Database(database_url, pool_size=1)
    for number in range(1, 41):
        if number % 10 == 5:
            await cut(killer)
        sent.append(await events.emit("talk", {"number": number}))
    assert await waiting == [(identifier, {"number": n}) for n, identifier in enumerate(sent)]
    assert await events.since("talk") == [(i, {"number": n}) for n, i in enumerate(sent)]
    await killer.close()


async def test_what_was_emitted_while_nobody_listened_is_caught_up(
    database: Database, database_url: str, events: Events
) -> None:
    first = await events.emit("talk", {"number": 0})
    stream = events.subscribe("talk")
    assert await take(stream, 1) == [(first, {"number": 0})]
    # Written past emit and without a bell, as if the bell had rung while the connection was down.
    await database.fetch(
        "INSERT INTO vision_events (namespace, conversation, event)"
        " VALUES ('default', 'talk', '{\"number\": 1}')"
    )
    killer = Database(database_url, pool_size=1)
    await cut(killer)
    ((_, event),) = await take(stream, 1)
    assert event == {"number": 1}
    await killer.close()


async def test_a_connection_that_breaks_while_it_commits_doubles_nothing(
    database_url: str, database: Database
) -> None:
    events = Events(database)
    await execute(
        database_url,
        """
        CREATE TABLE cuts (done boolean);
        CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_terminate_backend(pg_backend_pid());
            RETURN NULL;
        END $$;
        """,
    )
    # The first emit is cut off before it is committed; its repeat must be the only one.
    await execute(
        database_url,
        "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON vision_events"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id = 1) EXECUTE FUNCTION cut()",
    )
    identifier = await events.emit("talk", {"number": 0})
    assert await events.since("talk") == [(identifier, {"number": 0})]
    assert identifier > 1


async def test_who_comes_back_goes_on_from_its_last_event(
    database: Database, events: Events
) -> None:
    first = await events.emit("talk", {"number": 0})
    assert await listeners(database) == 0
    stream = events.subscribe("talk")
    assert await take(stream, 1) == [(first, {"number": 0})]
    await stream.aclose()
    second = await events.emit("talk", {"number": 1})
    assert await take(events.subscribe("talk", first), 1) == [(second, {"number": 1})]
    assert await listeners(database) == 1


async def test_close_ends_the_streams(events: Events) -> None:
    await events.emit("talk", {"number": 0})
    stream = events.subscribe("talk")
    await take(stream, 1)
    waiting = asyncio.create_task(anext(stream, None))
    await asyncio.sleep(0)
    await events.close()
    async with asyncio.timeout(DEADLINE):
        assert await waiting is None
        assert [item async for item in events.subscribe("talk")] == []


@pytest.mark.parametrize("conversation", ["", "x" * 201, "a\nb", "a\0b"])
async def test_a_conversation_needs_a_plain_name(events: Events, conversation: str) -> None:
    with pytest.raises(InvalidArgument, match="conversation"):
        await events.emit(conversation, {})
    with pytest.raises(InvalidArgument, match="conversation"):
        await events.since(conversation)
    with pytest.raises(InvalidArgument, match="conversation"):
        await anext(events.subscribe(conversation))


@pytest.mark.parametrize("event", [{"a": float("nan")}, {"a": b""}, {"a": "x" * 16_000}])
async def test_an_event_is_json_and_small(events: Events, event: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="event"):
        await events.emit("talk", event)
    assert await events.since("talk") == []


async def test_text_that_the_database_cannot_take_is_refused(events: Events) -> None:
    with pytest.raises(InvalidArgument):
        await events.emit("talk", {"about": "a\0b"})
    assert await events.since("talk") == []
