"""The spread of replicas over racks, while leaders and replicas stay even over brokers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.controller.replicas.placement import Assignment, place_more_replicas, place_replicas
from tests.cluster.controller_stage import Cluster
from tests.cluster.controller_stage import broker as registration
from tests.cluster.test_placement import Fixed, load_of, spread
from tidelog.errors import InvalidReplicationFactorError

#: The example of Kafka's tests: two brokers in each of three racks.
KAFKA_RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def racks_of(sizes: Iterable[int], source: random.Random) -> dict[int, str]:
    """Return racks of these sizes, whose brokers have ids in no order."""
    names = [f"r{number}" for number, size in enumerate(sizes) for _ in range(size)]
    source.shuffle(names)
    return dict(enumerate(names, 1))


def require_spread_over_racks(placed: Assignment, racks: Mapping[int, str]) -> None:
    """No rack has two replicas more than a rack with a free broker, so no two while such a rack has none."""
    sizes = Counter(racks.values())
    for replicas in placed.values():
        assert len(set(replicas)) == len(replicas)
        used = Counter(racks[broker] for broker in replicas)
        assert max(used.values()) <= 1 + min((used[r] for r in sizes if used[r] < sizes[r]), default=len(replicas))


@given(
    rack_count=st.integers(1, 5),
    size=st.integers(1, 4),
    partitions=st.integers(1, 60),
    seed=st.integers(),
    data=st.data(),
)
def test_equal_racks_keep_leaders_and_replicas_even(
    rack_count: int, size: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    source = random.Random(seed)
    racks = racks_of([size] * rack_count, source)
    factor = data.draw(st.integers(1, len(racks)))
    # Other topics make any brokers the least loaded ones, so that any brokers lead the last partitions.
    others = {number: tuple(source.sample(sorted(racks), 1)) for number in range(source.randrange(30))}
    load, start = load_of([others]), source.randrange(1 << 30)
    placed = place_replicas(racks, partitions, factor, random.Random(start), load, racks)
    assert placed == place_replicas(racks, partitions, factor, random.Random(start), load, racks)
    assert [*placed] == [*range(partitions)]
    assert {len(replicas) for replicas in placed.values()} == {factor}
    require_spread_over_racks(placed, racks)
    topic = load_of([placed])
    assert spread(topic.leaders, racks) <= 1
    assert spread(topic.replicas, racks) <= 1


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    partitions=st.integers(1, 60),
    seed=st.integers(),
    data=st.data(),
)
def test_unequal_racks_have_no_second_replica_before_each_has_one(
    sizes: list[int], partitions: int, seed: int, data: st.DataObject
) -> None:
    source = random.Random(seed)
    racks = racks_of(sizes, source)
    factor = data.draw(st.integers(1, len(racks)))
    placed = place_replicas(racks, partitions, factor, source, racks=racks)
    require_spread_over_racks(placed, racks)
    assert spread(load_of([placed]).leaders, racks) <= 1


@given(
    sizes=st.sampled_from([(1, 1), (2, 1), (2, 2), (3, 2), (2, 2, 2), (3, 2, 1)]),
    partitions=st.integers(1, 7),
    seed=st.integers(),
)
def test_followers_are_as_even_as_any_choice_after_the_leaders(
    sizes: tuple[int, ...], partitions: int, seed: int
) -> None:
    """The dumb twin tries all followers of each partition, which are in other racks than the leader."""
    source = random.Random(seed)
    racks = racks_of(sizes, source)
    factor = min(2, len(sizes))
    placed = place_replicas(racks, min(partitions, len(racks) - 1), factor, source, racks=racks)
    held = Counter(dict.fromkeys(racks, 0))
    held.update(replicas[0] for replicas in placed.values())
    reachable = {tuple(held[broker] for broker in sorted(racks))}
    order = sorted(racks)
    for replicas in placed.values():
        choices = [
            followers
            for followers in combinations(order, factor - 1)
            if len({racks[broker] for broker in (replicas[0], *followers)}) == factor
        ]
        reachable = {
            tuple(count + (broker in followers) for broker, count in zip(order, counts, strict=True))
            for counts in reachable
            for followers in choices
        }
    assert max(load_of([placed]).replicas.values()) == min(max(counts) for counts in reachable)


def test_rounds_are_those_of_kafka() -> None:
    """The expected assignment of Kafka's AdminRackAwareTest, and the alternation of racks behind it."""
    assert place_replicas(KAFKA_RACKS, 6, 3, Fixed(0, 0), racks=KAFKA_RACKS) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
    }
    second = place_replicas(KAFKA_RACKS, 12, 3, Fixed(0, 0), racks=KAFKA_RACKS)
    assert second[6] == (0, 4, 2), "the followers shift by the number of racks"


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_brokers_of_equal_racks_stay_even_over_many_topics(factor: int) -> None:
    racks = {broker: f"r{broker % 3}" for broker in range(1, 13)}
    for seed in range(5):
        source, topics = random.Random(seed), list[Assignment]()
        while len(topics) < 60:
            partitions = source.choice([1, 2, 3, 5, 7, 50, 100])
            topics.append(place_replicas(racks, partitions, factor, source, load_of(topics), racks))
            require_spread_over_racks(topics[-1], racks)
            load = load_of(topics)
            assert spread(load.leaders, racks) <= 1
            assert spread(load.replicas, racks) <= 2


def test_brokers_of_a_larger_rack_share_what_the_smaller_rack_cannot_hold() -> None:
    """Each partition has one replica on broker 1, which is alone in its rack; the other two brokers share the rest."""
    racks = {1: "small", 2: "large", 3: "large"}
    placed = load_of([place_replicas(racks, 300, 2, random.Random(0), racks=racks)])
    assert placed.replicas == {1: 300, 2: 150, 3: 150}
    assert spread(placed.leaders, racks) == 0


def test_leaders_of_unequal_racks_get_other_followers_each_round() -> None:
    racks = {1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    placed = place_replicas(racks, 50, 2, random.Random(0), racks=racks)
    for leader in racks:
        assert len({replicas[1] for replicas in placed.values() if replicas[0] == leader}) > 1


def test_more_replicas_than_racks_are_shared_by_the_racks() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "b"}
    for partitions in (1, 6, 10):
        for replicas in place_replicas(racks, partitions, 4, random.Random(0), racks=racks).values():
            assert Counter(racks[broker] for broker in replicas) == {"a": 2, "b": 2}


def test_added_partitions_keep_racks_apart_and_the_topic_even() -> None:
    racks = {broker: f"r{broker % 3}" for broker in range(1, 7)}
    topic = place_replicas(racks, 1, 3, random.Random(0), racks=racks)
    for total in [*range(2, 20), 40]:
        topic |= place_more_replicas(racks, topic, total, 3, load_of([topic]), racks)
        require_spread_over_racks(topic, racks)
        assert spread(load_of([topic]).leaders, racks) <= 1
        assert spread(load_of([topic]).replicas, racks) <= 1


def test_added_partitions_begin_at_any_broker_if_the_first_leader_is_gone() -> None:
    racks = {1: "a", 2: "b", 3: "c"}
    added = place_more_replicas(racks, {0: (9, 2)}, 4, 2, racks=racks)
    assert [replicas[0] for replicas in added.values()] == [2, 3, 1]


def test_one_rack_for_all_brokers_changes_no_counts() -> None:
    racks = dict.fromkeys([1, 2, 3], "a")
    placed = load_of([place_replicas(racks, 7, 2, random.Random(0), racks=racks)])
    assert (spread(placed.leaders, racks), spread(placed.replicas, racks)) == (1, 1)


def test_racks_of_other_brokers_change_nothing() -> None:
    for seed in range(5):
        without = place_replicas([1, 2, 3], 7, 2, random.Random(seed))
        assert place_replicas([1, 2, 3], 7, 2, random.Random(seed), racks={7: "a"}) == without


def test_brokers_without_a_rack_among_others_are_refused() -> None:
    racks = {1: "a", 3: "b", 9: "of a dead broker"}
    shown = r"^not all brokers have a rack \(without one: 2, 4; with one: 1, 3\); set broker_rack on each broker or on "
    with pytest.raises(InvalidReplicationFactorError, match=shown):
        place_replicas([1, 2, 3, 4], 1, 1, random.Random(0), racks=racks)
    with pytest.raises(InvalidReplicationFactorError, match=shown):
        place_more_replicas([1, 2, 3, 4], {0: (1,)}, 2, 1, racks=racks)
    assert place_replicas([1, 3], 1, 2, Fixed(0, 0), racks=racks) == {0: (1, 3)}


def test_controller_knows_and_sends_the_racks_of_online_brokers() -> None:
    cluster = Cluster(1, 2)
    assert cluster.context.racks() == {}
    cluster.come(replace(registration(2, epoch=21), rack="a"), replace(registration(3), rack="b"))
    cluster.settle()
    assert cluster.context.racks() == {2: "a", 3: "b"}
    assert {info.broker_id: info.rack for info in cluster.context.live_brokers()} == {1: None, 2: "a", 3: "b"}
    cluster.die(3)
    assert cluster.context.racks() == {2: "a"}
