"""What all invariants have in common."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, PartitionFacts
from verify.checker.findings import Finding, Tally
from verify.checker.logs import READ, FinalLog

T = TypeVar("T")

#: Takes a source and an event of the class that it is registered for.
Handler = Callable[[Any, Any], None]


@frozen
class Window:
    """A fault, as far as availability goes.

    injected, whole   from the injection until all partitions are whole again; `healed` between them; all in ns
    most_gap_ns       the longest time without an acknowledged produce on a partition; None: as long as it lasts
    least_operations  so many must succeed from `injected` to `healed`, or to a second after `most_gap_ns` is over,
                      whichever is later
    most_healing_ns   the longest time from `healed` to `whole`; None: unbounded
    broke             what else the fault was to leave alone, or to be over within, and was not; empty: nothing
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
    """What is known when all is over.

    logs         each partition's logs: of the replicas, and what a client read of the leader's
    windows      the faults that there were
    compacted    topics whose logs may have gaps, on each replica others
    """

    logs: Mapping[TopicPartition, Sequence[FinalLog]] = field(default_factory=dict)
    windows: Sequence[Window] = ()
    compacted: frozenset[str] = frozenset()

    def replicas(self, tp: TopicPartition) -> Sequence[FinalLog]:
        return [log for log in self.logs.get(tp, ()) if log.broker != READ]

    def may_lack(self, log: FinalLog, offset: int, trimmed_to: int) -> bool:
        """Whether a log may have nothing at an offset: what stands before its start was trimmed, and compaction takes
        what lies between its ends, which it moves neither of.
        """
        if offset < log.log_start:
            return offset < trimmed_to
        return offset < log.leo and log.tp.topic in self.compacted

    def log(self, tp: TopicPartition) -> FinalLog | None:
        """The one that counts: what a client read where there is that, else the longest replica's."""
        logs = self.logs.get(tp, ())
        read = [log for log in logs if log.broker == READ]
        return max(read or logs, key=lambda log: log.leo, default=None)


class Invariant(ABC):
    """One of I1–I23. It takes events as they come and judges them at the next question.

    Events may come in any order as long as nothing is asked before they are all there; who asks in between tells
    events in the order in which they ended.
    """

    key: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.tally = Tally()
        #: By identity: the sequences belong to the facts and live as long.
        self._seen: dict[int, int] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """The classes of events that it wants to be told of."""
        return {}

    def examine(self) -> None:  # noqa: B027 - those that judge at once, or at the end, have nothing to do
        """Judges what was told since the last time, as far as that can be done before the end."""

    def conclude(self, ending: Ending) -> None:
        """Judges the rest; nothing is told afterwards."""
        self.examine()

    def violated(self, tp: TopicPartition | None, t: int, says: str, *operations: str) -> None:
        self.tally.add(Finding(self.key, tp, t, says, operations))

    def only_counted(self) -> bool:
        """Counts a violation that nobody will be told of, so that its proof need not be searched for."""
        if self.tally.is_full:
            self.tally.violations += 1
        return self.tally.is_full

    def new_in(self, told: Sequence[T]) -> Sequence[T]:
        """What stands in a sequence that only grows since it was asked for last."""
        seen = self._seen.get(id(told), 0)
        if seen == len(told):
            return ()
        self._seen[id(told)] = len(told)
        return told[seen:]

    def partitions(self) -> Iterable[PartitionFacts]:
        return self.facts.partitions.values()
