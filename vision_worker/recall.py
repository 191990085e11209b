"""Recall: keepsakes by name, by words and by look, and an honest miss where nothing fits."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence

import asyncpg

from vision_worker.encoder import QueryEncoder
from vision_worker.errors import EncoderError, InvalidArgument
from vision_worker.fusion import fuse
from vision_worker.index import ImageIndex, check_limit
from vision_worker.keepsakes import keepsake_of
from vision_worker.names import fold
from vision_worker.statements import statement
from vision_worker.types import Keepsake, Match, Recalled, RecallPage
from vision_worker.words import Question, likeness

MAX_QUERY = 1_000
MARGIN = 0.02
"""How much nearer to a picture, in cosine distance, a query is than every neutral sentence.

Measured with the tiny CLIP on 50 screens that it was not trained on: 72 % of the right captions
pass, 0.8 % of the wrong ones, and 2.7 % of neutral sentences, each beside the other 23."""
NEUTRAL = (
    "a dog running on the grass",
    "a plate of food on a table",
    "two people shaking hands",
    "a mountain lake in winter",
    "an old car in a garage",
    "the inside of a church",
    "a bowl of fruit",
    "a child riding a bicycle",
    "a train at a station",
    "a bird on a branch",
    "a city street at night",
    "a woman reading a book",
    "a boat on the sea",
    "a vase with flowers",
    "a football match",
    "a cup of coffee",
    "a map of a country",
    "a page of handwriting",
    "an empty room",
    "a wooden door",
    "a group of friends",
    "a bridge over a river",
    "a field of wheat",
    "a pair of shoes",
)
"""What most pictures are not of. A query says something about a picture only if it fits better."""


class Recall:
    """Finds the keepsakes of one namespace; what lies in the trash is not found.

    A name that is said outranks any number of words of notes. Pictures are found by look only where
    the query fits them better than sentences about anything else do. No model is loaded for it.
    """

    def __init__(self, index: ImageIndex, encoder: QueryEncoder) -> None:
        self._index = index
        self._encoder = encoder

    async def recall(self, query: str, limit: int = 8) -> RecallPage:
        """Keepsakes for a query, best first; none rather than some that do not fit.

        Raises InvalidArgument or BackendError; without an encoder only words are looked at.
        """
        check_limit(limit)
        asked = fold(query[:MAX_QUERY])
        if not asked:
            problem = "it is empty; say whom or what to bring back"
            raise InvalidArgument(name="query", problem=problem)
        rows = await self._index.database.fetch(statement("recall_words"), self._index.namespace)
        question = Question(asked)
        names = _by_name(question, rows)
        words = _by_words(question, rows)
        looks = await self._by_look(query[:MAX_QUERY])
        found = [names, words, list(looks or {})]
        order = [identifier for identifier, _ in fuse(found)]
        order.sort(key=lambda identifier: identifier not in names)
        chosen = order[:limit]
        kept = await self._keepsakes(chosen)
        return RecallPage(
            [
                Recalled(
                    kept[identifier],
                    _matched(identifier, names, words, looks or {}),
                    (looks or {}).get(identifier),
                )
                for identifier in chosen
                if identifier in kept
            ],
            words_only=looks is None,
        )

    async def _keepsakes(self, identifiers: Sequence[str]) -> dict[str, Keepsake]:
        rows = await self._index.database.fetch(
            statement("keepsakes_by_id"), self._index.namespace, list(identifiers)
        )
        return {str(row["id"]): keepsake_of(row) for row in rows if not row["trashed_at"]}

    async def _by_look(self, query: str) -> dict[str, float] | None:
        """Cosine distances of what the query fits, nearest first; None without an encoder."""
        backlog = await self._index.backlog()
        if backlog.model is None:
            return None
        try:
            asked, *neutral = await asyncio.gather(
                *(
                    self._encoder.encode_text(
                        text, model=backlog.model, worker_alive=backlog.encoder_alive, load=False
                    )
                    for text in (query, *NEUTRAL)
                )
            )
        except EncoderError:
            return None
        rows = await self._index.database.fetch(
            statement("recall_looks"),
            self._index.namespace,
            list(backlog.models),
            json.dumps(asked),
            [json.dumps(vector) for vector in neutral],
            MARGIN,
        )
        return {str(row["id"]): float(row["distance"]) for row in rows}


def _by_name(question: Question, rows: Iterable[asyncpg.Record]) -> list[str]:
    """Keepsakes whose name is said, the best fit first."""
    ranks = {str(row["id"]): question.name_rank(row["about_key"]) for row in rows}
    said = [(rank, identifier) for identifier, rank in ranks.items() if rank is not None]
    return [identifier for _, identifier in sorted(said, key=lambda pair: pair[0])]


def _by_words(question: Question, rows: Sequence[asyncpg.Record]) -> list[str]:
    """Keepsakes by how surely they hold the words of the question, rare ones counting more."""
    sure = {term: [likeness(term, row["words"]) for row in rows] for term in question.terms}
    scores = [0.0] * len(rows)
    admitted = [False] * len(rows)
    for term, values in sure.items():
        weight = 1.0 / (1 + sum(value > 0 for value in values))
        for place, value in enumerate(values):
            scores[place] += weight * value
            admitted[place] = admitted[place] or (value > 0 and question.admits(term))
    found = [
        (score, str(row["id"]))
        for score, row, fits in zip(scores, rows, admitted, strict=True)
        if fits
    ]
    return [identifier for _, identifier in sorted(found, key=lambda pair: -pair[0])]


def _matched(
    identifier: str,
    names: Sequence[str],
    words: Sequence[str],
    looks: Mapping[str, float],
) -> tuple[Match, ...]:
    how: list[Match] = []
    if identifier in names:
        how.append("name")
    if identifier in words:
        how.append("words")
    if identifier in looks:
        how.append("look")
    return tuple(how)
