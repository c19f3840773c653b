"""The spread of replicas over brokers, for all numbers of both."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.controller.replicas.placement import (
    Assignment,
    BrokerLoad,
    check_assignment,
    place_more_replicas,
    place_replicas,
)
from tests.cluster.controller_stage import Cluster
from tidelog.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
)
from tidelog.model import TopicPartition


class Fixed(random.Random):
    """A random source that starts at the values that a test gives."""

    def __init__(self, *values: int) -> None:
        super().__init__()
        self._values = list(values)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return self._values.pop(0)


def load_of(topics: Iterable[Assignment]) -> BrokerLoad:
    placed = [replicas for assignment in topics for replicas in assignment.values()]
    return BrokerLoad(Counter(each[0] for each in placed), Counter(broker for each in placed for broker in each))


def spread(counts: Mapping[int, int], brokers: Iterable[int]) -> int:
    """Return the difference between the brokers with most and with least."""
    each = [counts.get(broker, 0) for broker in brokers]
    return max(each) - min(each)


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
    load = load_of([assignment])
    assert spread(load.leaders, brokers) <= 1
    assert spread(load.replicas, brokers) <= 1
    assert all(len(replicas) == factor for replicas in assignment.values())


@pytest.mark.parametrize("partitions", [6000, 6001, 6007, 6011])
def test_twelve_brokers_share_six_thousand_partitions_evenly(partitions: int) -> None:
    brokers = range(1, 13)
    for seed in range(3):
        load = load_of([place_replicas(brokers, partitions, 3, random.Random(seed))])
        assert spread(load.leaders, brokers) == spread(load.replicas, brokers) == min(partitions % 12, 1)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_brokers_stay_even_over_many_topics_of_any_size(factor: int) -> None:
    """A broker has at most one leader, and two replicas, more than any other after each of the new topics."""
    brokers = range(1, 13)
    for seed in range(5):
        source, topics = random.Random(seed), list[Assignment]()
        while len(topics) < 60:
            partitions = source.choice([1, 2, 3, 5, 7, 50, 100])
            topics.append(place_replicas(brokers, partitions, factor, source, load_of(topics)))
            load = load_of(topics)
            assert spread(load.leaders, brokers) <= 1
            assert spread(load.replicas, brokers) <= 2


def test_new_topic_is_even_itself_and_gives_the_rest_to_an_empty_broker() -> None:
    """Broker 4 has just been added. The new topic's load is that of its records, which are not concentrated on it."""
    load = load_of([place_replicas([1, 2, 3], 300, 3, random.Random(0))])
    for seed in range(5):
        placed = load_of([place_replicas([1, 2, 3, 4], 101, 3, random.Random(seed), load)])
        assert (placed.leaders[4], spread(placed.leaders, range(1, 5))) == (26, 1)
        assert (placed.replicas[4], spread(placed.replicas, range(1, 5))) == (76, 1)


def test_partitions_that_are_added_one_by_one_keep_a_topic_even() -> None:
    brokers = range(1, 6)
    topic = place_replicas(brokers, 1, 2, random.Random(0))
    for total in range(2, 31):
        topic |= place_more_replicas(brokers, topic, total, 2, load_of([topic]))
        load = load_of([topic])
        assert spread(load.leaders, brokers) <= 1
        assert spread(load.replicas, brokers) <= 1


def test_round_that_begins_amid_another_one_adds_the_same_to_each_broker() -> None:
    """Partitions 7 to 16 are two rounds of five brokers, and no multiple of five begins one of them."""
    brokers = range(1, 6)
    topic = place_replicas(brokers, 7, 3, random.Random(0))
    added = load_of([place_more_replicas(brokers, topic, 17, 3)])
    assert spread(added.leaders, brokers) == spread(added.replicas, brokers) == 0


def test_controller_knows_the_load_after_each_change_of_a_topic() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("kept", (1, 2), (2, 3))
    cluster.create("deleted", (3, 1))
    cluster.settle()
    assert cluster.context.load() == BrokerLoad({1: 1, 2: 1, 3: 1}, {1: 2, 2: 2, 3: 2})
    cluster.reassign(TopicPartition("kept", 0), 3, 2)
    assert cluster.context.preferred == {1: 0, 2: 1, 3: 2}, "the target counts while the partition moves"
    cluster.settle()
    assert cluster.context.preferred == {1: 0, 2: 1, 3: 2}
    list(cluster.context.forget("deleted"))
    assert cluster.context.preferred == {1: 0, 2: 1, 3: 1}
    cluster.begin_term(2)
    assert cluster.context.preferred == {2: 1, 3: 2}, "ZooKeeper still has the topic"


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
