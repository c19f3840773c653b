"""The controller's work for a change of one partition does not depend on how many other partitions there are.

The work is counted in lines of Python that are executed, and in loops over `ControllerContext.partitions`, which run
inside the interpreter. Both counts are exact, so that the number of lines must be the same for 100 partitions and for
10,000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.controller_stage import TP, Cluster
from tests.executed_lines import executed_lines
from tidelog.model import TopicPartition

FEW, MANY = 100, 10_000
#: A partition of the wide topic.
WIDE = TopicPartition("wide", 50)


class CountedDict(dict[Any, Any]):
    """A dict that counts the loops over it."""

    loops = 0

    def __iter__(self) -> Iterator[Any]:
        self.loops += 1
        return super().__iter__()

    def keys(self) -> Any:
        self.loops += 1
        return super().keys()

    def values(self) -> Any:
        self.loops += 1
        return super().values()

    def items(self) -> Any:
        self.loops += 1
        return super().items()


def cluster_of(partitions: int) -> Cluster:
    """Return three brokers with a topic of so many partitions, and a topic "t" of one partition."""
    cluster = Cluster(1, 2, 3)
    cluster.create("wide", *[(1 + n % 3, 1 + (n + 1) % 3, 1 + (n + 2) % 3) for n in range(partitions)])
    cluster.settle()
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    return cluster


def creating(partitions: int) -> Cluster:
    """Return a cluster in which the first states of so many partitions are being written."""
    cluster = cluster_of(FEW)
    cluster.create("fresh", *[(1, 2, 3)] * partitions)
    assert len(cluster.waiting) == partitions
    return cluster


def moving(partitions: int) -> Cluster:
    """Return a cluster in which so many partitions are being reassigned, and one of them has taken its first step."""
    cluster = cluster_of(partitions)
    assignment = cluster.context.topics["wide"]
    cluster.assign(assignment.reassigned({n: assignment.assigned(n).toward((2, 3)) for n in range(partitions)}))
    assert len(cluster.waiting) == partitions
    write_one(cluster)
    return cluster


def deleting(partitions: int) -> Cluster:
    """Return a cluster in which the replicas of so many partitions are being deleted."""
    cluster = cluster_of(partitions)
    cluster.play(cluster.controller.deletions_wanted(["wide"]))
    return cluster


def write_one(cluster: Cluster) -> None:
    """Let ZooKeeper answer one write."""
    cluster.play(cluster.controller.states_written([cluster.answer(cluster.waiting.pop(0))]))


def change_isr(cluster: Cluster) -> None:
    cluster.leader_changes_isr(TP, 1)


def change_isr_of_the_wide_topic(cluster: Cluster) -> None:
    cluster.leader_changes_isr(WIDE, 3)


def elect_another_leader(cluster: Cluster) -> None:
    cluster.leader_changes_isr(TP, 1, 2)
    cluster.play(cluster.controller.elections_wanted([TP]))
    cluster.settle()


def fail_a_disk(cluster: Cluster) -> None:
    cluster.play(cluster.controller.replicas_answered(1, [], [TP]))
    cluster.settle()


def report_an_online_replica(cluster: Cluster) -> None:
    cluster.play(cluster.controller.replicas_answered(2, [WIDE], []))


def create_a_topic(cluster: Cluster) -> None:
    cluster.create("small", (1, 2))


def create_a_topic_and_elect(cluster: Cluster) -> None:
    cluster.create("small", (1, 2))
    cluster.settle()


def delete_a_topic(cluster: Cluster) -> None:
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.answer_stops()
    cluster.play(cluster.controller.topic_removed("t"))


def move_a_replica(cluster: Cluster) -> None:
    cluster.reassign(TP, 2, 3)
    cluster.settle()
    cluster.answer_stops()
    cluster.settle()


def delete_one_replica(cluster: Cluster) -> None:
    broker_id, tps = cluster.stops.pop(0)
    cluster.play(cluster.controller.replicas_stopped(broker_id, tps[:1]))


def let_five_seconds_pass(cluster: Cluster) -> None:
    cluster.play(cluster.controller.time_passed(5_000))


CHANGES = [
    pytest.param(cluster_of, change_isr, id="the ISR of a small topic"),
    pytest.param(cluster_of, change_isr_of_the_wide_topic, id="the ISR of one partition of the wide topic"),
    pytest.param(cluster_of, elect_another_leader, id="an election"),
    pytest.param(cluster_of, fail_a_disk, id="a replica on a failed disk"),
    pytest.param(cluster_of, report_an_online_replica, id="an answer that changes nothing"),
    pytest.param(cluster_of, create_a_topic_and_elect, id="a new topic"),
    pytest.param(cluster_of, delete_a_topic, id="a deletion"),
    pytest.param(cluster_of, move_a_replica, id="a reassignment"),
    pytest.param(cluster_of, let_five_seconds_pass, id="five seconds in which nothing happens"),
    pytest.param(creating, write_one, id="one of many writes in flight"),
    pytest.param(creating, change_isr, id="the ISR of a small topic while many states are written"),
    pytest.param(creating, create_a_topic, id="a new topic while many states are written"),
    pytest.param(creating, let_five_seconds_pass, id="five seconds in which many states are written"),
    pytest.param(moving, write_one, id="one step of one of many reassignments"),
    pytest.param(moving, let_five_seconds_pass, id="five seconds in which many partitions are reassigned"),
    pytest.param(deleting, delete_one_replica, id="one of many deletions"),
    pytest.param(deleting, change_isr, id="the ISR of a small topic while a wide one is deleted"),
]


@pytest.mark.parametrize(("given", "change"), CHANGES)
def test_change_of_one_partition_costs_the_same_among_many(
    given: Callable[[int], Cluster], change: Callable[[Cluster], None]
) -> None:
    lines = []
    for partitions in (FEW, MANY):
        cluster = given(partitions)
        counted = cluster.context.partitions = CountedDict(cluster.context.partitions)
        lines.append(executed_lines(lambda cluster=cluster: change(cluster)))  # type: ignore[misc]
        assert counted.loops == 0
    assert lines[0] == lines[1]
    assert lines[0] > 20
