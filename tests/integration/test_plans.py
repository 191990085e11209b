"""What PostgreSQL reads to answer the statements of the library, among thousands of rows."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import pytest
from pgvector import Vector

from tests.rows import MODEL, padded
from vision_worker import query as module
from vision_worker.database import Database
from vision_worker.decoders import DecoderPool
from vision_worker.encoder import QueryEncoder
from vision_worker.index import LIVE_SECONDS, ImageIndex
from vision_worker.query import WINDOWS, ImageQuery
from vision_worker.statements import statement
from vision_worker.types import ImageFilter

TABLE = "memories_image"
TOKEN = uuid4()
NO_FILTER = ("default", None, None, None, None)


@dataclass(frozen=True)
class Plan:
    """The nodes of a plan that read the table of images, and the indexes they use."""

    scans: set[str]
    indexes: set[str]


def read_plan(text: str) -> Plan:
    nodes = list(_nodes(json.loads(text)[0]["Plan"]))
    scans = {n["Node Type"] for n in nodes if n.get("Relation Name") == TABLE}
    return Plan(
        scans - {"ModifyTable"},
        {node["Index Name"] for node in nodes if "Index Name" in node},
    )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def explained(name: str) -> str:
    return f"EXPLAIN (FORMAT JSON) {statement(name)}"


Explain = Callable[..., Any]


@pytest.fixture
def explain(crowd: Database) -> Explain:
    """The plan of a statement with these arguments, in a session like all of ours."""

    async def explain(name: str, *arguments: object) -> Plan:
        return read_plan(await crowd.fetchval(explained(name), *arguments))

    return explain


async def test_a_search_among_thousands_goes_through_the_graph(
    crowd: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, decoders = cast(QueryEncoder, None), cast(DecoderPool, None)
    query = ImageQuery(encoder, ImageIndex(crowd), decoders, cast(Any, None))
    for where in (ImageFilter(), ImageFilter(source_type="file")):
        ranking = await query._ranking(where)
        arguments = (*ranking.arguments, json.dumps(padded([1.0, 0.5])), 10, 0)
        with monkeypatch.context() as patch:
            patch.setattr(module, "statement", explained)
            (row,) = await query._scan(arguments, WINDOWS[0])
        plan = read_plan(row[0])
        assert "idx_memories_image_embedding" in plan.indexes
        assert "Seq Scan" not in plan.scans


async def test_a_search_by_a_rare_tag_compares_the_rows_with_that_tag(explain: Explain) -> None:
    where = ("default", '["thousandth"]', None, None, None)
    plan = await explain("nearest_exact", *where, [MODEL], None, str(padded([1])), 10, 0)
    assert "memories_image_tags" in plan.indexes
    assert "Seq Scan" not in plan.scans


@pytest.mark.parametrize("order", ["newest", "oldest"])
async def test_a_page_of_a_listing_starts_where_the_one_before_ended(
    explain: Explain, crowd: Database, order: str
) -> None:
    first = await explain(f"list_{order}", *NO_FILTER, None, None, 21)
    assert first == Plan({"Index Scan"}, {"memories_image_newest", "memories_pkey"})
    deep = await crowd.fetchrow(
        "SELECT created_at, id FROM memories_image WHERE file_path = '/pictures/10000'"
    )
    assert deep is not None
    text = await crowd.fetchval(explained(f"list_{order}"), *NO_FILTER, *deep, 21)
    assert read_plan(text) == first
    assert "created_at" in next(
        node["Index Cond"]
        for node in _nodes(json.loads(text)[0]["Plan"])
        if node.get("Index Name") == "memories_image_newest"
    )


async def test_the_counts_beside_a_search_read_no_embedded_row(explain: Explain) -> None:
    plan = await explain("counts", *NO_FILTER, LIVE_SECONDS)
    of_images = {index for index in plan.indexes if index.startswith(TABLE)}
    assert of_images == {"memories_image_claimable", "memories_image_failed"}
    assert "Seq Scan" not in plan.scans


async def test_the_status_reads_embedded_rows_only_in_an_index(explain: Explain) -> None:
    plan = await explain("status", "default", LIVE_SECONDS)
    assert plan.indexes == {
        "memories_image_claimable",
        "memories_image_failed",
        "memories_image_newest",
    }
    assert "Index Only Scan" in plan.scans
    assert "Seq Scan" not in plan.scans


async def test_rows_are_claimed_in_the_order_of_the_partial_index(explain: Explain) -> None:
    assert await explain("claim", TOKEN, 60.0, 32, MODEL) == Plan(
        {"Index Scan"}, {"memories_image_claimable", "memories_image_pkey"}
    )


BY_KEY = {
    "renew": ([TOKEN], 60.0),
    "complete": (TOKEN, MODEL, [uuid4() for _ in range(32)], [Vector(padded([1]))] * 32),
    "fail": (TOKEN, uuid4(), "why", "undecodable", None),
    "release": (TOKEN, [uuid4() for _ in range(32)]),
    "due": (),
    "failures": ("default",),
    "retry": ("default", "undecodable"),
    "get": ("default", uuid4(), uuid4()),
    "delete": ("default", uuid4(), uuid4()),
    "is_referenced": ("1" * 64,),
    "embedding_of": ("default", uuid4()),
    "text_state": (),
    "text_pick": (32, 20_000),
    "text_write_named": (
        "text@1",
        [uuid4() for _ in range(32)],
        *[[Vector([1.0] * 384)] * 32] * 2,
        "text",
    ),
}


@pytest.mark.parametrize(("name", "arguments"), BY_KEY.items(), ids=BY_KEY)
async def test_no_statement_about_a_few_rows_reads_the_whole_table(
    explain: Explain, name: str, arguments: tuple[object, ...]
) -> None:
    plan = await explain(name, *arguments)
    assert plan.indexes
    assert "Seq Scan" not in plan.scans
