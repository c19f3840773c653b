"""Consumers of one group in one program, over real brokers: sharing, handing over, coming back."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.coordinators import coordinator
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer, ConsumerRebalanceListener, NewPartitions, Producer, TopicPartition

# The group does not wait for more members than it has.
pytestmark = pytest.mark.parametrize("cluster", [{"group_initial_rebalance_delay_ms": 0}], indirect=True)

GROUP = "g"
SESSION_TIMEOUT_MS = 6_000


class Member(ConsumerRebalanceListener):
    """A consumer with a thread of its own; `seen` in the order in which it was given it."""

    def __init__(self, cluster: RunningCluster, **options: Any) -> None:
        options = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
        } | options
        self.consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers, **options)
        self.owned: set[TopicPartition] = set()
        self.seen: list[tuple[TopicPartition, int]] = []
        self.called_in: set[threading.Thread] = set()
        self.errors: list[Exception] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def begin(self, *topics: str, pattern: str | None = None) -> Member:
        self.consumer.subscribe(topics, pattern=pattern, listener=self)
        self._thread.start()
        return self

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.called_in.add(threading.current_thread())
        self.owned |= set(assigned)
        assert self.consumer.assignment() == self.owned

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.called_in.add(threading.current_thread())
        self.consumer.commit()
        self.owned -= set(revoked)

    def _read(self) -> None:
        while not self._stopping.is_set():
            try:
                polled = self.consumer.poll(200)
            except Exception as error:
                self.errors.append(error)
                return
            self.seen += [(tp, record.offset) for tp, records in polled.items() for record in records]
        self.consumer.close()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive() and self.errors == []
        assert self.called_in <= {self._thread}


@contextmanager
def members(*all_: Member) -> Iterator[None]:
    try:
        yield
    finally:
        for each in all_:
            each.consumer.close(autocommit=False, timeout_ms=1000)


def write(cluster: RunningCluster, tps: list[TopicPartition], count: int) -> None:
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(count):
            for tp in tps:
                producer.send(tp.topic, b"%d" % number, partition=tp.partition)
        producer.flush(30)


def wait_shared(tps: Collection[TopicPartition], *all_: Member) -> None:
    def shared() -> bool:
        owned = [tp for each in all_ for tp in set(each.owned)]
        return sorted(owned) == sorted(tps) and all(each.owned for each in all_)

    wait_for("the partitions to be shared", shared, 60)


def wait_seen(tps: Collection[TopicPartition], count: int, *all_: Member) -> None:
    expected = sorted((tp, offset) for tp in tps for offset in range(count))
    wait_for("everything to be read", lambda: sum(len(each.seen) for each in all_) >= len(expected), 60)
    assert sorted(record for each in all_ for record in each.seen) == expected


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_remaining_member_gets_all_partitions_when_the_other_closes(cluster: RunningCluster, strategy: str) -> None:
    tps = cluster.create_topic("t", partitions=6)
    first, second = (Member(cluster, partition_assignment_strategy=strategy) for _ in range(2))
    with members(first, second):
        first.begin("t")
        wait_shared(tps, first)
        write(cluster, tps, 50)
        second.begin("t")
        wait_shared(tps, first, second)
        write(cluster, tps, 50)
        wait_seen(tps, 100, first, second)
        began = time.monotonic()
        first.close()
        wait_shared(tps, second)
        assert time.monotonic() - began < SESSION_TIMEOUT_MS / 1000 + 5
        write(cluster, tps, 50)
        wait_seen(tps, 150, first, second)
        second.close()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP) as consumer:
        assert {tp: at and at.offset for tp, at in consumer.committed(tps).items()} == dict.fromkeys(tps, 150)


def test_restarted_static_member_keeps_partitions_without_a_rebalance(
    cluster: RunningCluster,
) -> None:
    tps = cluster.create_topic("t", partitions=4)
    patient = {"session_timeout_ms": 60_000}  # so that no member is removed during the restart
    one, two = (Member(cluster, group_instance_id=name, **patient) for name in ("one", "two"))
    again = Member(cluster, group_instance_id="one", **patient)
    with members(one, two, again):
        one.begin("t")
        two.begin("t")
        wait_shared(tps, one, two)
        write(cluster, tps, 20)
        wait_seen(tps, 20, one, two)
        before, generation = set(one.owned), two.consumer.group_metadata().generation_id
        one.close()
        write(cluster, tps, 20)
        again.begin("t")
        wait_for("the static member to have its partitions again", lambda: again.owned == before, 30)
        wait_seen(tps, 40, one, two, again)
        assert two.consumer.group_metadata().generation_id == generation
        again.close()
        two.close()


def test_pattern_follows_topics_and_partitions_created_later(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("log-a", partitions=2)
    cluster.create_topic("other")
    member = Member(cluster, metadata_max_age_ms=1000)
    with members(member):
        member.begin(pattern="log-.*")
        wait_shared(tps, member)
        tps += cluster.create_topic("log-b", partitions=1)
        wait_shared(tps, member)
        cluster.admin.create_partitions([NewPartitions("log-b", 2)])
        tps.append(TopicPartition("log-b", 1))
        wait_shared(tps, member)
        write(cluster, tps, 10)
        wait_seen(tps, 10, member)
        assert member.consumer.subscription() == {"log-a", "log-b"}
        member.close()


def test_group_survives_its_coordinator(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=4)
    first, second = Member(cluster), Member(cluster)
    with members(first, second):
        first.begin("t")
        second.begin("t")
        wait_shared(tps, first, second)
        write(cluster, tps, 20)
        wait_seen(tps, 20, first, second)
        cluster.kill(coordinator(cluster, GROUP))
        write(cluster, tps, 20)
        wait_seen(tps, 40, first, second)
        first.close()
        wait_shared(tps, second)
        second.close()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP) as consumer:
        assert {tp: at and at.offset for tp, at in consumer.committed(tps).items()} == dict.fromkeys(tps, 40)
