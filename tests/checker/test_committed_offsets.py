"""Test committed offsets as registers, and owners of partitions, case by case (I17)."""

from __future__ import annotations

import pytest

from tests.checker.judging import verdict_on
from tidelog.history.events import Event
from tidelog.history.group_operations import Assigned, CommitFailed, CommitInvoked, CommitOk, CommittedOk, CommitUnknown
from tidelog.model import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def says(*entries: Event) -> list[str]:
    return [each.says for each in verdict_on(entries, "I17").findings]


def commit(offset: int, t0: int, t1: int, generation: int = -1) -> CommitOk:
    return CommitOk("g", TP, offset, t0, t1, generation)


def committed(offset: int, t0: int, t1: int, tp: TopicPartition = TP, group: str = "g") -> CommittedOk:
    return CommittedOk(group, tp, offset, t0, t1)


@pytest.mark.parametrize("read", [5, -1])
def test_fetch_returns_at_least_the_value_committed_before_it(read: int) -> None:
    entries = [commit(5, 1, 2), commit(7, 3, 4)]
    assert says(*entries, committed(read, 5, 6)) == [
        f"the committed offset of group g was read as {read}, after 7 was committed"
    ]
    assert not says(*entries, committed(7, 5, 6))


def test_fetch_may_or_may_not_see_a_concurrent_commit() -> None:
    entries = [commit(5, 1, 2), commit(7, 3, 6)]
    for read in (5, 7):
        assert not says(*entries, committed(read, 5, 8))
        assert not says(*entries, committed(read, 6, 8))


def test_fetch_returns_at_least_the_value_of_an_earlier_fetch() -> None:
    asked = [CommitInvoked("g", TP, 5, 1), CommitUnknown("g", TP, 7, "TIMEOUT", 2, 3)]
    assert says(*asked, committed(7, 4, 5), committed(5, 6, 7)) == [
        "the committed offset of group g was read as 5, after 7 was read"
    ]
    assert not says(*asked, committed(7, 4, 6), committed(5, 5, 7)), "both were asked for at once"


def test_groups_and_partitions_have_separate_offsets() -> None:
    assert not says(commit(5, 1, 2), committed(-1, 3, 4, OTHER), committed(-1, 3, 4, TP, "another"))


def test_no_fetch_returns_a_value_that_was_refused_or_never_committed() -> None:
    assert says(committed(5, 1, 2)) == ["the committed offset of group g was read as 5, but no client had committed it"]
    assert says(CommitFailed("g", TP, 5, "ILLEGAL_GENERATION", 1, 2), committed(5, 3, 4))
    assert says(committed(5, 1, 2), commit(5, 3, 4)), "it was committed later"
    assert not says(commit(5, 2, 4), committed(5, 1, 3))


def test_commit_of_an_old_generation_must_be_refused() -> None:
    first, second = Assigned("g", "m", 1, [TP], 1), Assigned("g", "m", 2, [TP], 5)
    assert says(first, second, commit(9, 6, 7, generation=1)) == ["g: 9 of generation 1 was accepted in generation 2"]
    assert not says(first, second, commit(9, 6, 7, generation=2))
    assert not says(first, second, commit(9, 4, 7, generation=1)), "it was begun before"
    assert not says(first, second, commit(9, 6, 7)), "who is no member names none"
    assert not says(first, second, CommitFailed("g", TP, 9, "ILLEGAL_GENERATION", 6, 7, 1))


def test_partition_has_one_owner_per_generation() -> None:
    first = Assigned("g", "m", 1, [TP], 1)
    assert says(first, Assigned("g", "n", 1, [TP, OTHER], 2)) == ["g: m and n own it in generation 1"]
    assert not says(first, Assigned("g", "m", 1, [TP], 2))
    assert not says(first, Assigned("g", "n", 2, [TP], 2))
    assert not says(first, Assigned("g", "n", 1, [OTHER], 2))
    assert not says(first, Assigned("another", "n", 1, [TP], 2))
