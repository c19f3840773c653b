"""The choice of the victim, and the figures computed from the acknowledgements around the kill."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

from tidelog import PartitionDescription
from tidelog.local.processes.process import Process
from tools.demo.failover import Kill, TopicState, choose_victim
from tools.demo.feed.acknowledgements import Acknowledgements
from tools.demo.feed.line_producer import LineProducer

SECOND = 1_000_000_000


class Time:
    def __init__(self) -> None:
        self.now_ns = 100 * SECOND

    def __call__(self) -> int:
        return self.now_ns


def topic_state(*partitions: tuple[int, int, tuple[int, ...]]) -> TopicState:
    return TopicState.of(
        PartitionDescription(number, leader, epoch, (1, 2, 3), isr)
        for number, (leader, epoch, isr) in enumerate(partitions)
    )


def test_victim_leads_most_partitions_and_is_not_the_controller() -> None:
    assert choose_victim({0: 1, 1: 1, 2: 1, 3: 2, 4: 3, 5: 3}, controller=1) == 3
    assert choose_victim({0: 2, 1: 3}, controller=1) == 2
    assert choose_victim({0: 1, 1: 1, 2: -1}, controller=1) is None


def test_leader_changes_are_described_partition_by_partition() -> None:
    before = topic_state((1, 0, (1, 2, 3)), (2, 0, (1, 2, 3)))
    after = topic_state((2, 1, (2, 3)), (2, 0, (2, 3)))
    assert before.changes(after) == ["partition 0: leader 1 → 2 (epoch 0 → 1), ISR {1, 2, 3} → {2, 3}"]
    assert before.all_in_sync
    assert not after.all_in_sync
    assert not topic_state((-1, 1, (1, 2, 3))).all_in_sync


def test_acknowledgements_of_the_second_before_the_kill_are_counted() -> None:
    time = Time()
    acks = Acknowledgements(2, time)
    for _ in range(300):  # three seconds, one each 10 ms
        acks.succeeded(0, 0, time.now_ns)
        time.now_ns += SECOND // 100
    assert acks.in_second_before(time.now_ns) == 100
    assert acks.in_second_before(time.now_ns + SECOND // 2) == 50
    assert acks.in_second_before(time.now_ns + 5 * SECOND) == 0


def test_answer_in_flight_at_the_kill_does_not_end_the_gap() -> None:
    time = Time()
    acks = Acknowledgements(2, time)
    sent_before = time.now_ns
    time.now_ns += 10
    acks.watch(time.now_ns)
    time.now_ns += 10
    acks.succeeded(1, 7, sent_before)
    assert acks.first_after_ns(1) is None
    sent_after = time.now_ns
    time.now_ns += SECOND
    acks.succeeded(1, 8, sent_after)
    answered = time.now_ns
    time.now_ns += SECOND
    acks.succeeded(1, 9, time.now_ns)
    assert acks.first_after_ns(1) == answered
    assert acks.first_after_ns(0) is None


def test_acknowledgements_are_counted_in_total_and_by_partition() -> None:
    acks = Acknowledgements(2, Time())
    for offset in (0, 1, 2):
        acks.succeeded(1, offset, 0)
    acks.failed_with(TimeoutError("no outcome"))
    assert (acks.acked, acks.failed, acks.by_partition, acks.ends) == (3, 1, [0, 3], [0, 3])
    assert str(acks.first_error) == "no outcome"


class FakeLineProducer:
    """A line producer that knows records, but sends none."""

    def __init__(self, time: Time) -> None:
        self.sent_by_partition = [5, 5, 5]
        self.acks = Acknowledgements(3, time)

    def unacknowledged(self, partition: int) -> int:
        return self.sent_by_partition[partition] - self.acks.by_partition[partition]

    def send_next_to(self, partitions: Iterable[int]) -> None:
        pass


def test_unreached_partitions_are_not_counted_as_silent_ones() -> None:
    producer = FakeLineProducer(Time())
    with subprocess.Popen(["sleep", "60"]) as victim:
        process = cast(Process, SimpleNamespace(pid=victim.pid, running=True))
        kill = Kill(
            1,
            topic_state((1, 0, (1, 2, 3)), (2, 0, (1, 2, 3)), (1, 0, (1, 2, 3))),
            process,
            cast(LineProducer, producer),
        )
        producer.sent_by_partition = [6, 6, 6]
        kill.execute()
        assert victim.wait(10) == -signal.SIGKILL
    assert kill.unacknowledged == 12
    assert kill.unreached() == [0, 2]
    producer.sent_by_partition[2] += 1
    assert kill.unreached() == [0]
    producer.sent_by_partition[0] += 1
    assert kill.unreached() == []
    assert not kill.over
