"""Reciprocal rank fusion: one ranking out of several, without comparing their scores."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

K = 60
T = TypeVar("T", bound=Hashable)


def fuse(
    rankings: Iterable[Sequence[T]], k: int = K, limit: int | None = None
) -> list[tuple[T, float]]:
    """Items with their scores, best first.

    ``score = Σ 1 / (k + rank)`` with rank from 0 in each ranking (Cormack, Clarke and Büttcher,
    SIGIR 2009, count from 1). An item that a ranking names twice counts at its first place; ties
    keep the order of first appearance.
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(dict.fromkeys(ranking)):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return sorted(scores.items(), key=lambda pair: -pair[1])[:limit]
