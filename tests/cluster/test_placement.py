"""The spread of replicas over brokers, for all numbers of both."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.controller.replicas.placement import check_assignment, place_more_replicas, place_replicas
from tidelog.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
)


class Fixed(random.Random):
    """A random source that starts at the values that a test gives."""

    def __init__(self, *values: int) -> None:
        super().__init__()
        self._values = list(values)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return self._values.pop(0)


def test_leaders_go_round_and_the_followers_shift_with_each_round() -> None:
    """The worked example of Kafka's documentation: ten partitions, three replicas, five brokers."""
    assert place_replicas(range(5), 10, 3, Fixed(0, 0)) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


@given(
    brokers=st.sets(st.integers(0, 50), min_size=1, max_size=8),
    partitions=st.integers(1, 40),
    seed=st.integers(),
    data=st.data(),
)
def test_placement_uses_distinct_live_replicas_and_balances_leaders(
    brokers: set[int], partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    assignment = place_replicas(brokers, partitions, factor, random.Random(seed))
    assert assignment == place_replicas(brokers, partitions, factor, random.Random(seed))
    assert check_assignment(assignment, brokers) == assignment
    leaders = Counter(replicas[0] for replicas in assignment.values())
    counts = [leaders[broker] for broker in brokers]
    assert max(counts) - min(counts) <= 1
    assert all(len(replicas) == factor for replicas in assignment.values())


def test_placement_is_refused_without_enough_brokers() -> None:
    source = random.Random(0)
    with pytest.raises(InvalidReplicationFactorError, match="live brokers, 2"):
        place_replicas({1, 2}, 1, 3, source)
    with pytest.raises(InvalidReplicationFactorError):
        place_replicas(set(), 1, 1, source)
    with pytest.raises(InvalidReplicationFactorError):
        place_replicas({1}, 1, 0, source)
    with pytest.raises(InvalidPartitionsError):
        place_replicas({1}, 0, 1, source)


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ({}, "at least one"),
        ({1: (1,)}, "without a gap"),
        ({0: ()}, "no replica"),
        ({0: (1, 1)}, "twice"),
        ({0: (1, 2), 1: (1,)}, "different numbers"),
        ({0: (1, 9)}, r"not alive: \[9\]; the live brokers are \[1, 2, 3\]"),
    ],
)
def test_a_manual_assignment_that_makes_no_sense_is_refused(
    assignment: dict[int, tuple[int, ...]], reason: str
) -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match=reason):
        check_assignment(assignment, {1, 2, 3})


def test_added_partitions_go_on_with_the_round_that_the_first_ones_began() -> None:
    existing = {0: (2, 3), 1: (3, 1), 2: (1, 2)}
    added = place_more_replicas([1, 2, 3], existing, 6, 2)
    assert sorted(added) == [3, 4, 5]
    assert [replicas[0] for replicas in added.values()] == [2, 3, 1]
    assert all(len(set(replicas)) == 2 for replicas in added.values())


@pytest.mark.parametrize("total", [0, 2, 3])
def test_a_topic_never_gets_fewer_partitions(total: int) -> None:
    with pytest.raises(InvalidPartitionsError, match="already has 3 partitions"):
        place_more_replicas([1, 2], {0: (1,), 1: (2,), 2: (1,)}, total, 1)


def test_added_partitions_need_as_many_brokers_as_the_others_have_replicas() -> None:
    with pytest.raises(InvalidReplicationFactorError):
        place_more_replicas([1, 2], {0: (1, 2, 3)}, 2, 3)


def test_an_assignment_of_added_partitions_begins_where_the_others_end() -> None:
    assert check_assignment({3: (1, 2)}, {1, 2}, first=3, factor=2) == {3: (1, 2)}
    for wrong in ({0: (1, 2)}, {4: (1, 2)}, {3: (1,)}, {3: (1, 9)}):
        with pytest.raises(InvalidReplicaAssignmentError):
            check_assignment(wrong, {1, 2}, first=3, factor=2)
