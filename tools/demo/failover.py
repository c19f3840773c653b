"""Chooses the victim, kills it, and measures the gap.

The gap of a partition lasts from the SIGKILL to the first acknowledgement of a record that was sent to it after the
SIGKILL. The failover gap is the longest over the partitions that the victim led.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog import Admin, PartitionDescription
from tidelog.local.processes.process import Process
from tidelog.model import NO_LEADER
from tools.demo.feed.line_producer import LineProducer


@dataclass(frozen=True, slots=True)
class TopicState:
    """The leaders (−1 for none), leader epochs, ISRs and replicas of a topic at one time, by partition."""

    leaders: Mapping[int, int]
    epochs: Mapping[int, int]
    in_sync: Mapping[int, tuple[int, ...]]
    replicas: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(cls, partitions: Iterable[PartitionDescription]) -> TopicState:
        known = list(partitions)
        return cls(
            {p.partition: p.leader for p in known},
            {p.partition: p.leader_epoch for p in known},
            {p.partition: p.isr for p in known},
            {p.partition: p.replicas for p in known},
        )

    def led_by(self, broker: int) -> list[int]:
        return sorted(partition for partition, leader in self.leaders.items() if leader == broker)

    @property
    def all_in_sync(self) -> bool:
        """Return whether every partition has a leader and every replica is in sync."""
        return NO_LEADER not in self.leaders.values() and all(
            set(self.in_sync[partition]) == set(replicas) for partition, replicas in self.replicas.items()
        )

    def changes(self, later: TopicState) -> list[str]:
        """Return one line of text for each partition that has another leader in the state `later`, by partition."""
        return [
            f"partition {partition}: leader {leader} → {later.leaders[partition]} "
            f"(epoch {self.epochs[partition]} → {later.epochs[partition]}), "
            f"ISR {_ids(self.in_sync[partition])} → {_ids(later.in_sync[partition])}"
            for partition, leader in sorted(self.leaders.items())
            if later.leaders.get(partition, leader) != leader
        ]


def read_topic_state(admin: Admin, topic: str) -> TopicState:
    """Return the topic's current state as the brokers describe it. Raises the errors of `describe_topics`."""
    return TopicState.of(admin.describe_topics([topic], timeout_ms=10_000)[0].partitions)


def choose_victim(leaders: Mapping[int, int], controller: int) -> int | None:
    """Return the broker that leads the most partitions and is not the controller, or None if there is none.

    Among several, return the one with the lowest id. `leaders` are by partition.
    """
    led = Counter(leader for leader in leaders.values() if leader not in (controller, NO_LEADER))
    return max(led, key=lambda broker: (led[broker], -broker)) if led else None


class Kill:
    """One SIGKILL of a broker's process, and what the producer notices of it.

    The constructor raises ProcessLookupError if the process does not run. `execute` sends the SIGKILL, and must run on
    the producer's sending thread (`LineProducer.between_records`).

    partitions                 the partitions that the victim led
    killed_ns, killed_at_ms    the time of the SIGKILL by the monotonic and by the wall clock; 0 before it
    unacknowledged             records of these partitions that were in flight at the SIGKILL
    acks_in_second_before      acknowledgements of all partitions in the last second before the SIGKILL
    """

    def __init__(self, victim: int, state_before: TopicState, process: Process, feed: LineProducer) -> None:
        self.victim = victim
        self.state_before = state_before
        self.partitions = state_before.led_by(victim)
        self.killed_ns = 0
        self.killed_at_ms = 0
        self.unacknowledged = 0
        self.acks_in_second_before = 0
        self._feed = feed
        self._sent_before = list(feed.sent_by_partition)
        # The descriptor identifies the process beforehand, so that the kill itself is a single call.
        self._descriptor = os.pidfd_open(process.pid)
        if not process.running:
            raise ProcessLookupError(f"the broker's process {process.pid} has ended by itself")

    def execute(self) -> None:
        self.killed_ns = time.monotonic_ns()
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        self.unacknowledged = sum(map(self._feed.unacknowledged, self.partitions))
        self._sent_before = list(self._feed.sent_by_partition)
        self._feed.acks.watch(self.killed_ns)
        self._feed.send_next_to(self.partitions)
        self.killed_at_ms = time.time_ns() // 1_000_000
        self.acks_in_second_before = self._feed.acks.in_second_before(self.killed_ns)
        os.close(self._descriptor)

    def unreached(self) -> list[int]:
        """Return the victim's partitions to which no record was sent since the kill."""
        sent = self._feed.sent_by_partition
        return [partition for partition in self.partitions if sent[partition] == self._sent_before[partition]]

    def gaps_s(self) -> dict[int, float]:
        """Return the gap (s) of each of the victim's partitions that has acknowledged a record sent after the kill."""
        answered = {partition: self._feed.acks.first_after_ns(partition) for partition in self.partitions}
        return {p: (first_ns - self.killed_ns) / 1e9 for p, first_ns in answered.items() if first_ns is not None}

    @property
    def over(self) -> bool:
        """Return whether every partition of the victim has acknowledged a record that was sent after the kill."""
        return len(self.gaps_s()) == len(self.partitions)


def _ids(brokers: Iterable[int]) -> str:
    return "{" + ", ".join(map(str, sorted(brokers))) + "}"
