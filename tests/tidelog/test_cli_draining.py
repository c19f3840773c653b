"""The brokers that get the replicas of drained brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.reassignments.draining import drain as drain_topics
from tidelog.model import TopicPartition

BROKERS = range(1, 8)
ASSIGNMENTS = st.dictionaries(
    st.integers(0, 11), st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True), max_size=8
)


def drain(
    assignment: Mapping[int, Sequence[int]],
    leaving: Collection[int],
    alive: Collection[int],
    racks: Mapping[int, str] | None = None,
) -> dict[int, tuple[int, ...]]:
    """Drain brokers of the topic t, whose partitions are named by their numbers."""
    of_t = {TopicPartition("t", number): replicas for number, replicas in assignment.items()}
    return {tp.partition: replicas for tp, replicas in drain_topics(of_t, leaving, alive, racks or {}).items()}


def test_drain_moves_a_replica_to_the_broker_with_the_fewest() -> None:
    assignment = {0: (1, 2), 1: (2, 3), 2: (3, 2)}
    assert drain(assignment, [1], [1, 2, 3, 4]) == {0: (4, 2)}
    assert drain(assignment, [3], [1, 2, 3, 4]) == {1: (2, 4), 2: (1, 2)}


def test_drain_of_two_brokers_moves_nothing_onto_either() -> None:
    assert drain({0: (1, 2, 3), 1: (2, 3, 4)}, [1, 2], [1, 2, 3, 4, 5]) == {0: (5, 4, 3), 1: (5, 3, 4)}


def test_drain_keeps_a_drained_leader_in_its_place() -> None:
    assert drain({0: (1, 2)}, [1], [1, 2, 3]) == {0: (3, 2)}


def test_drain_moves_the_replicas_of_a_dead_broker() -> None:
    assert drain({0: (9, 2)}, [9], [1, 2]) == {0: (1, 2)}


def test_drain_prefers_a_rack_without_a_replica_to_a_broker_with_fewer() -> None:
    racks = {1: "a", 2: "b", 3: "b", 4: "a"}
    assignment = {0: (1, 2), 1: (4, 2), 2: (4, 2)}
    assert drain(assignment, [1], [1, 2, 3, 4], racks)[0] == (4, 2)
    assert drain(assignment, [1], [1, 2, 3, 4])[0] == (3, 2)


def test_drain_of_two_brokers_moves_a_partition_into_different_racks() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "c", 5: "d"}
    assert drain({0: (1, 2)}, [1, 2], [1, 2, 3, 4, 5], racks) == {0: (3, 5)}


def test_drain_uses_a_rack_again_if_no_other_has_a_free_broker() -> None:
    racks = {1: "a", 2: "b", 3: "b"}
    assert drain({0: (1, 2)}, [1], [1, 2, 3], racks) == {0: (3, 2)}


def test_drain_counts_a_broker_without_a_rack_as_one_of_its_own() -> None:
    racks = {1: "a", 2: "b", 3: "b"}
    assert drain({0: (1, 2), 1: (4, 1)}, [1], [1, 2, 3, 4], racks)[0] == (4, 2)


def test_drain_spreads_the_replicas_of_many_topics_over_all_brokers() -> None:
    topics = {TopicPartition(name, 0): (1, 2) for name in "abcd"}
    drained = drain_topics(topics, [1], [1, 2, 3, 4, 5])
    assert [replicas for _, replicas in sorted(drained.items())] == [(3, 2), (4, 2), (5, 2), (3, 2)]


def test_drain_prefers_evenness_within_a_topic_to_that_of_all_topics() -> None:
    assignment = {TopicPartition("a", 0): (1,), TopicPartition("a", 1): (2,)}
    others = {TopicPartition("b", number): (3,) for number in range(9)}
    assert drain_topics(assignment | others, [1], [1, 2, 3]) == {TopicPartition("a", 0): (3,)}


def test_drain_changes_nothing_if_the_broker_has_no_replica() -> None:
    assert drain({0: (1, 2)}, [3], [1, 2, 3]) == {}


@pytest.mark.parametrize(
    ("leaving", "alive", "shown"),
    [
        (
            [1],
            [1, 2, 3],
            "t/0 has 3 replicas, and too few other brokers are alive to take the replicas of broker 1",
        ),
        ([1, 2], [1, 2, 3, 4], "to take the replicas of brokers 1, 2: start more brokers, or name fewer replicas with"),
        ([9], [1, 2, 3], "broker 9 is not in the cluster now (there are: 1, 2, 3), and has no replica"),
        ([1, 9], [1, 2, 3, 4], "broker 9 is not in the cluster now"),
    ],
)
def test_drain_refuses_impossible_requests(leaving: list[int], alive: list[int], shown: str) -> None:
    with pytest.raises(ValueError) as refused:
        drain({0: (1, 2, 3)}, leaving, alive)
    assert shown in str(refused.value)


@given(ASSIGNMENTS, st.sets(st.sampled_from(BROKERS), min_size=1, max_size=3))
def test_drain_keeps_factor_and_the_replicas_that_stay(assignment: dict[int, list[int]], leaving: set[int]) -> None:
    try:
        drained = drain(assignment, leaving, BROKERS)
    except ValueError as error:
        assert "too few other brokers" in str(error)
        assert any(len(replicas) > len(BROKERS) - len(leaving) for replicas in assignment.values())
        return
    assert drained.keys() == {number for number, replicas in assignment.items() if leaving & set(replicas)}
    for number, replicas in drained.items():
        assert len(set(replicas)) == len(replicas) == len(assignment[number])
        assert leaving.isdisjoint(replicas)
        for old, new in zip(assignment[number], replicas, strict=True):
            assert new == old or old in leaving
