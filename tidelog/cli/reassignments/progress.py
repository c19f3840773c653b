"""How far reassignments are: what the new replicas still have to copy, and how long that takes."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cli.terminal.long_tables import Kind, Row
from tidelog.cli.terminal.table import Quantity
from tidelog.model import TopicPartition
from tidelog.quantities import format_duration, format_size, format_size_rate

if TYPE_CHECKING:
    from tidelog.client.admin.admin_results import PartitionDescription
    from tidelog.protocol.admin_messages import LogDir
    from tidelog.protocol.partition_messages import PartitionReassignment

#: The bytes of each replica on disk, by broker and partition.
Sizes = Mapping[tuple[int, TopicPartition], int]

_COPYING, _COPIED = "with records to copy", "that only wait for the controller"
IN_PROGRESS = Kind(
    ("partition", "isr", "adding", "removing", "still to copy", "bytes"), (_COPYING, _COPIED), noun="partition"
)
NOT_KNOWN = "not known, because a broker does not answer, or does not know the topic"
#: The rate of the copying is that of this time.
_TREND_MS = 30_000


@dataclass(frozen=True, slots=True)
class Progress:
    """The reassignment in progress of one partition.

    leader       −1: no leader, or not known
    isr          None: not known, because the broker that was asked does not know the topic
    lag          the number of records that each new replica still has to copy; None: not known
    left_bytes   the bytes that each new replica still has to copy, by the sizes of the logs; None: not known
    """

    partition: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...] | None
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    lag: Mapping[int, int | None]
    left_bytes: Mapping[int, int | None]

    @classmethod
    def of(
        cls, tp: TopicPartition, moving: PartitionReassignment, described: PartitionDescription | None, sizes: Sizes
    ) -> Progress:
        adding = tuple(replica for replica in moving.adding_replicas if replica not in moving.removing_replicas)
        leader, isr = (described.leader, described.isr) if described else (-1, None)
        lag, whole = (described and described.lag) or {}, sizes.get((leader, tp))
        left_bytes = {
            replica: None if whole is None else max(0, whole - sizes.get((replica, tp), 0)) for replica in adding
        }
        return cls(
            tp,
            leader,
            moving.replicas,
            isr,
            adding,
            moving.removing_replicas,
            {replica: lag.get(replica) for replica in adding},
            left_bytes | dict.fromkeys(set(adding) & set(isr or ()), 0),
        )

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "replicas": list(self.replicas),
            "isr": None if self.isr is None else list(self.isr),
            "adding": list(self.adding),
            "removing": list(self.removing),
            "lag": {str(replica): lag for replica, lag in self.lag.items()},
            "left_bytes": {str(replica): left for replica, left in self.left_bytes.items()},
        }

    def as_row(self, *, names_topic: bool) -> Row:
        lags = " ".join(f"{replica}:{'?' if lag is None else lag}" for replica, lag in self.lag.items())
        ids = (ids_text(replicas or ()) or None for replicas in (self.isr, self.adding, self.removing))
        left = sum(math.inf if lag is None else lag for lag in self.lag.values())
        left_bytes = total_left([self])
        size = None if left_bytes is None else Quantity(format_size(left_bytes))
        name, number = (name_of(self.partition), None) if names_topic else (self.partition.partition,) * 2
        return Row((name, *ids, lags or None, size), _COPYING if left else _COPIED, left, number)


def total_left(progress: Iterable[Progress]) -> int | None:
    """Return the bytes that all new replicas together still have to copy; None if those of one are not known."""
    total = 0
    for each in progress:
        for left in each.left_bytes.values():
            if left is None:
                return None
            total += left
    return total


def least_ms(progress: Iterable[Progress], rate: int) -> float:
    """Return how long the copying takes at least if no broker sends or receives more than `rate` bytes per second."""
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for each in progress:
        for replica, left in each.left_bytes.items():
            sent[each.leader] += left or 0
            received[replica] += left or 0
    return max([*sent.values(), *received.values()], default=0) * 1000 / rate


class Trend:
    """Estimates when the copying ends, from how many bytes were left in the last half minute. The time is passed in."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()

    def note(self, now_ms: int, left_bytes: int | None) -> None:
        """Note the bytes that are left now. None: they are not known, so that the estimate begins anew."""
        if left_bytes is None:
            self._seen.clear()
            return
        self._seen.append((now_ms, left_bytes))
        while len(self._seen) > 1 and self._seen[1][0] <= now_ms - _TREND_MS:
            self._seen.popleft()

    def sentence(self) -> str:
        """Return how much is left, the rate of the copying, and how long the rest takes."""
        if not self._seen:
            return f"still to copy: {NOT_KNOWN}"
        (began_ms, before), (now_ms, left) = self._seen[0], self._seen[-1]
        copied, took_ms = before - left, now_ms - began_ms
        if copied <= 0:
            return f"{format_size(left)} still to copy, and not becoming less"
        rest = format_duration(left * took_ms / copied)
        return f"{format_size(left)} still to copy at {format_size_rate(copied, took_ms)}, about {rest} left"


def sizes_of(described: Mapping[int, Iterable[LogDir]]) -> Sizes:
    """Return the sizes of all replicas; those that move between the directories of a broker count once."""
    return {
        (broker, TopicPartition(log.topic, log.partition)): log.size_bytes
        for broker, directories in described.items()
        for directory in directories
        for log in directory.replicas
        if not log.is_future
    }


def ids_text(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def name_of(tp: TopicPartition) -> str:
    return f"{tp.topic}/{tp.partition}"
