"""The brokers of the random scenarios of registration: their logs, processes and unanswered requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.controller.unclean_recovery import LogEnd
from cluster.state import BrokerRegistration
from tidelog.model import TopicPartition

#: Replicas of each partition. Every two partitions share brokers, so that a write of one delays the other's hosts.
PARTITIONS = {0: (1, 2, 3), 1: (2, 3, 4), 2: (4, 1, 2)}
BROKERS = (1, 2, 3, 4)
OUTSIDER = 9
TIMEOUT_MS = 300_000
UNCLEAN_ELECTION = "unclean.leader.election.enable"

#: A record: the epoch it was written in, and its own number.
Record = tuple[int, int]
Log = tuple[Record, ...]


def reach(log: Log) -> tuple[int, int]:
    """Return the key by which logs are compared: the last epoch, then the log end offset."""
    return (log[-1][0] if log else -1, len(log))


@dataclass(slots=True)
class Process:
    """One process of a broker, from its registration on.

    logs    the logs of the partitions that it hosts, as they are, or were when it died
    short   it registered with the mark of a possibly short log
    lacks   it knows that records below its high watermark are gone
    whole   partitions that it leads, or has copied from their leader, since it registered
    """

    registration: BrokerRegistration
    logs: dict[TopicPartition, Log]
    short: bool
    lacks: bool
    runs: bool = True
    whole: set[TopicPartition] = field(default_factory=set)

    def may_lack(self, tp: TopicPartition) -> bool:
        """Return whether records of this partition may be missing."""
        return (self.short or self.lacks) and tp not in self.whole

    def log_end(self, tp: TopicPartition) -> LogEnd:
        """Return the broker's answer to a request for the end of its log."""
        epochs: dict[int, int] = {}
        for offset, (epoch, _) in enumerate(self.logs[tp]):
            epochs.setdefault(epoch, offset)
        return LogEnd(*reach(self.logs[tp]), self.lacks and tp not in self.whole, tuple(epochs.items()))


@dataclass(slots=True)
class Asked:
    """A request of the controller that is under way to a broker, with the broker's answer if there is one.

    moment    the controller's liveness epoch, which comes back with the answer
    question  the twin's number of the request
    """

    moment: int
    question: int
    tps: tuple[TopicPartition, ...]
    ends: Mapping[TopicPartition, LogEnd] | None = None


@dataclass(slots=True)
class Channel:
    """The controller's channel to one registration."""

    epoch: int
    under_way: list[Asked] = field(default_factory=list)
