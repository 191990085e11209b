from hypothesis import given
from hypothesis import strategies as st

from vision_worker.fusion import fuse

rankings = st.lists(st.lists(st.integers(0, 30), unique=True, max_size=20), max_size=5)


def test_two_rankings_are_fused_by_hand() -> None:
    assert fuse([["a", "b", "c"], ["c", "a"]]) == [
        ("a", 1 / 60 + 1 / 61),
        ("c", 1 / 62 + 1 / 60),
        ("b", 1 / 61),
    ]


def test_ties_keep_the_order_of_first_appearance() -> None:
    assert [item for item, _ in fuse([["x", "y"], ["y", "x"]])] == ["x", "y"]


def test_nothing_fused_is_nothing() -> None:
    assert fuse([]) == []
    assert fuse([[], []]) == []


def test_an_item_named_twice_counts_at_its_first_place() -> None:
    assert fuse([["a", "b", "a"]]) == fuse([["a", "b"]])


@given(rankings)
def test_every_item_appears_once_with_the_sum_of_its_reciprocal_ranks(
    lists: list[list[int]],
) -> None:
    expected = {
        item: sum(1 / (60 + ranking.index(item)) for ranking in lists if item in ranking)
        for item in {item for ranking in lists for item in ranking}
    }
    fused = fuse(lists)
    assert len(fused) == len(expected)
    assert {item: round(score, 12) for item, score in fused} == {
        item: round(score, 12) for item, score in expected.items()
    }


@given(rankings)
def test_scores_never_rise_along_the_fused_ranking(lists: list[list[int]]) -> None:
    scores = [score for _, score in fuse(lists)]
    assert scores == sorted(scores, reverse=True)


@given(st.lists(st.integers(), unique=True))
def test_one_ranking_comes_back_unchanged(ranking: list[int]) -> None:
    assert [item for item, _ in fuse([ranking])] == ranking


@given(rankings, st.integers(0, 10))
def test_a_limit_cuts_the_tail_only(lists: list[list[int]], limit: int) -> None:
    assert fuse(lists, limit=limit) == fuse(lists)[:limit]


@given(rankings)
def test_a_ranking_added_at_the_end_never_lowers_what_it_names_first(
    lists: list[list[int]],
) -> None:
    before = dict(fuse(lists))
    after = dict(fuse([*lists, [0]]))
    assert after[0] > before.get(0, 0.0)
