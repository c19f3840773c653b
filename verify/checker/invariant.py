"""Define the base class of invariants."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, PartitionFacts
from verify.checker.findings import Finding, Tally
from verify.checker.inputs.logs import READ, FinalLog

T = TypeVar("T")

#: Takes a source and an event of the class for which it is registered.
Handler = Callable[[Any, Any], None]


@frozen
class Window:
    """A fault, for the invariant of availability. Times are in ns.

    row                the name of the fault
    injected, whole    from the injection until all replicas are in sync again; `healed` is in between
    most_gap_ns        the longest permitted time without an acknowledged produce request on a partition; None:
                       unlimited
    least_operations   the least sum of acknowledged records and of reads that return records, from `injected` to
                       `healed`, or to a second after `most_gap_ns` from `injected`, whichever is later. The next fault
                       ends the time, unless that fault precedes `healed`
    most_healing_ns    the longest permitted time from `healed` to `whole`; None: unlimited
    broke              another bound of the fault that was exceeded; empty: none
    """

    row: str
    injected: int
    healed: int
    whole: int
    most_gap_ns: int | None = None
    least_operations: int = 0
    most_healing_ns: int | None = None
    broke: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """The facts at the end of a run.

    logs        each partition's logs: those of the replicas, and the leader's as a client read it
    windows     the injected faults
    compacted   topics whose logs may have gaps, at offsets that may differ between replicas
    """

    logs: Mapping[TopicPartition, Sequence[FinalLog]] = field(default_factory=dict)
    windows: Sequence[Window] = ()
    compacted: frozenset[str] = frozenset()

    def replicas(self, tp: TopicPartition) -> Sequence[FinalLog]:
        """Return the partition's logs that were read from replicas, without the one that a client read."""
        return [log for log in self.logs.get(tp, ()) if log.broker != READ]

    def may_lack(self, log: FinalLog, offset: int, trimmed_to: int) -> bool:
        """Return whether a log may have no record at an offset.

        A record below the log start may be missing if the offset is below `trimmed_to`, the highest trim request. A
        record from the log start to the log end may be missing if the topic is compacted. No other record may.
        """
        if offset < log.log_start:
            return offset < trimmed_to
        return offset < log.leo and log.tp.topic in self.compacted

    def log(self, tp: TopicPartition) -> FinalLog | None:
        """Return the log that a client read, if any, otherwise the replica's log with the highest log end; None without
        logs.
        """
        logs = self.logs.get(tp, ())
        read = [log for log in logs if log.broker == READ]
        return max(read or logs, key=lambda log: log.leo, default=None)


class Invariant(ABC):
    """One of the invariants I1–I23. It takes events, and evaluates them at once, or when `examine` or `conclude` is
    called.

    The events of one name must come in the order of that client's or broker's histories. Events of different names may
    come in any order if `examine` is not called before the last event. Otherwise all events must come in the order of
    their ends.

    key    for example "I1"
    name   the invariant in a few words
    """

    key: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.tally = Tally()
        #: The number of seen elements of each sequence, by identity: the sequences belong to the facts and exist as
        #: long.
        self._seen: dict[int, int] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """Return the handlers of the event classes that the invariant needs. `facts` takes each event before them."""
        return {}

    def examine(self) -> None:  # noqa: B027 - invariants that decide at once, or only at the end, have nothing to do
        """Evaluate the new events, as far as that is possible before the end."""

    def conclude(self, ending: Ending) -> None:
        """Evaluate everything else. No event may follow."""
        self.examine()

    def violated(self, tp: TopicPartition | None, t: int, says: str, *operations: str) -> None:
        """Count a violation, and store its finding if fewer than MOST_DESCRIBED are stored."""
        self.tally.add(Finding(self.key, tp, t, says, operations))

    def only_counted(self) -> bool:
        """If violations are only counted from now on, count one and return True, so that the caller can skip its
        evidence.
        """
        if self.tally.is_full:
            self.tally.violations += 1
        return self.tally.is_full

    def new_in(self, grown: Sequence[T]) -> Sequence[T]:
        """Return the elements that were added to a sequence since the last call with it. The sequence only grows."""
        seen = self._seen.get(id(grown), 0)
        if seen == len(grown):
            return ()
        self._seen[id(grown)] = len(grown)
        return grown[seen:]

    def partitions(self) -> Iterable[PartitionFacts]:
        return self.facts.partitions.values()
