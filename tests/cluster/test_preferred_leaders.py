"""When preferred leaders get back the leaderships that others hold."""

from __future__ import annotations

from cluster.controller.preferred_leaders import imbalanced
from tests.cluster.controller_stage import Cluster, broker
from tidelog.model import TopicPartition


def of(*leaders: tuple[int, int]) -> dict[TopicPartition, tuple[int, int]]:
    return {TopicPartition("t", number): each for number, each in enumerate(leaders)}


def test_a_broker_that_lacks_more_than_its_share_gets_all_of_it_back() -> None:
    leaders = of((1, 2), (1, 1), (2, 2), (2, 2))
    assert imbalanced(leaders, 49) == [TopicPartition("t", 0)]
    assert imbalanced(leaders, 50) == [], "as many as allowed"
    assert imbalanced({}, 0) == []


def test_each_broker_is_looked_at_by_itself() -> None:
    leaders = of((1, 2), *[(1, 1)] * 9, (2, 3))
    assert imbalanced(leaders, 10) == [TopicPartition("t", 10)]
    assert imbalanced(leaders, 9) == [TopicPartition("t", 0), TopicPartition("t", 10)]


def test_rebalance_elects_preferred_leaders_that_can_lead() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2), (1, 2), (2, 1))
    cluster.settle()
    cluster.die(1)
    cluster.settle()
    cluster.come(broker(1, 50))
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    cluster.leader_changes_isr(first, 2, 1)
    cluster.play(cluster.controller.elections_wanted(cluster.controller.away_from_preferred(10)))
    cluster.settle()
    assert (cluster.state(first).leader, cluster.state(second).leader) == (1, 2)
    assert not cluster.controller.election_in_progress(second), "a request that cannot be performed is dropped"


def test_an_election_that_is_asked_for_during_a_write_comes_after_it() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    tp = TopicPartition("t", 0)
    cluster.play(cluster.controller.shutdown_wanted(1))
    cluster.settle()
    cluster.come(broker(1, 50))
    cluster.settle()
    cluster.leader_changes_isr(tp, 2, 3, 1)
    cluster.die(3)
    assert cluster.waiting
    cluster.play(cluster.controller.elections_wanted([tp]))
    assert cluster.controller.election_in_progress(tp)
    cluster.settle()
    assert cluster.state(tp).leader == 1


def test_partition_that_is_being_reassigned_is_left_alone() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.settle()
    tp = TopicPartition("t", 0)
    cluster.silent.add(1)
    cluster.reassign(tp, 3, 2)
    cluster.settle()
    assert cluster.assigned(tp).moving and cluster.state(tp).leader == 1
    cluster.leader_changes_isr(tp, 1, 2, 3)
    cluster.play(cluster.controller.elections_wanted(cluster.controller.away_from_preferred(0)))
    assert not cluster.controller.election_in_progress(tp), "broker 3 gets it when the reassignment has come so far"
