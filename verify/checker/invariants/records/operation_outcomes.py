"""Check I22: each operation ends in time, with success or a documented error."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tidelog.history import group_operations, operations
from tidelog.history.group_operations import CommitFailed, CommitInvoked, CommitOk, CommitUnknown
from tidelog.history.operations import Client, Overdue, ProduceFailed, ProduceInvoked, ProduceOk, ProduceUnknown
from tidelog.model import TopicPartition
from verify.checker.by_record import ABSENT, ByRecord
from verify.checker.facts import Facts, Source
from verify.checker.findings import record_name, seconds
from verify.checker.invariant import Ending, Handler, Invariant
from verify.checker.outcomes import DOCUMENTED

#: The time after its request timeout within which an operation must end.
GRACE_NS: Final = 1_000_000_000
_WITH_TWO_TIMES: Final = (
    operations.Read,
    operations.ReadFailed,
    operations.LatestOk,
    operations.LatestFailed,
    operations.EarliestOk,
    operations.EarliestFailed,
    operations.LookUpOk,
    operations.LookUpFailed,
    operations.TrimOk,
    operations.TrimUnknown,
    group_operations.CommittedOk,
    group_operations.CommittedFailed,
)
_ENDS_OF_COMMITS: Final = (CommitOk, CommitFailed, CommitUnknown)
#: Group, partition and offset.
_Commit: TypeAlias = tuple[str, TopicPartition, int]


class OperationOutcomes(Invariant):
    """Check I22: each operation ends within its client's request timeout and a second, with success or a documented
    error.

    A produce or commit call, which the history names at its begin, hangs if it has no end and its client goes on for
    longer than that limit. For other operations, the client that waits for them reports a hang.
    """

    key, name = "I22", "every operation ends, and says how"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        #: The open operations of each process, and the time of its last event.
        self._open: dict[Source, ByRecord] = defaultdict(ByRecord)
        self._open_commits: dict[Source, dict[_Commit, int]] = defaultdict(dict)
        self._last: dict[Source, int] = {}

    def handlers(self) -> Mapping[type, Handler]:
        return {
            ProduceInvoked: self._invoked,
            ProduceOk: self._ended,
            ProduceFailed: self._refused,
            ProduceUnknown: self._refused,
            **dict.fromkeys(_WITH_TWO_TIMES, self._one_line),
            Overdue: self._overdue,
            CommitInvoked: self._commit_invoked,
            **dict.fromkeys(_ENDS_OF_COMMITS, self._commit_ended),
        }

    def _invoked(self, source: Source, event: ProduceInvoked) -> None:
        self._open[source].put(event.ids, event.t)
        self._goes_on(source, max(event.t, default=0))

    def _ended(self, source: Source, event: ProduceOk | ProduceFailed | ProduceUnknown) -> None:
        if not event.ids:
            return
        self.tally.observations += len(event.ids)
        last, most = max(event.t), _most_ns(source)
        self._goes_on(source, last)
        began = self._open[source].take(event.ids)
        if last - min(began) > most:
            for record_id, t0, t1 in zip(event.ids, began, event.t, strict=True):
                if t0 != ABSENT and t1 - t0 > most and not self.only_counted():
                    self._late(source, event.tp, f"produce of {record_name(record_id)}", t0, t1)

    def _refused(self, source: Source, event: ProduceFailed | ProduceUnknown) -> None:
        self._ended(source, event)
        if not DOCUMENTED.issuperset(event.errors):
            for record_id, error, t in zip(event.ids, event.errors, event.t, strict=True):
                self._ended_with(source, event.tp, f"produce of {record_name(record_id)}", error, t)

    def _one_line(self, source: Source, event: Any) -> None:
        self.tally.observations += 1
        self._goes_on(source, event.t1)
        if event.t1 - event.t0 > _most_ns(source) and not self.only_counted():
            self._late(source, event.tp, type(event).__name__, event.t0, event.t1)
        error = getattr(event, "error", None)
        if error is not None:
            self._ended_with(source, event.tp, type(event).__name__, error, event.t1)

    def _commit_invoked(self, source: Source, event: CommitInvoked) -> None:
        self._open_commits[source][event.group, event.tp, event.offset] = event.t
        self._goes_on(source, event.t)

    def _commit_ended(self, source: Source, event: CommitOk | CommitFailed | CommitUnknown) -> None:
        self._open_commits[source].pop((event.group, event.tp, event.offset), None)
        self._one_line(source, event)

    def _overdue(self, source: Source, event: Overdue) -> None:
        self.tally.observations += 1
        self._goes_on(source, event.t1)
        if event.t1 - event.t0 > _most_ns(source) and not self.only_counted():
            says = f"{event.what} hangs: the operation had not ended after {(event.t1 - event.t0) / 1e6:.0f} ms"
            self.violated(event.tp, event.t1, says, f"{source.name}: {event.what} at {seconds(event.t0)}")

    def _goes_on(self, source: Source, t: int) -> None:
        self._last[source] = max(self._last.get(source, 0), t)

    def _ended_with(self, source: Source, tp: TopicPartition, what: str, error: str, t: int) -> None:
        if error not in DOCUMENTED and not self.only_counted():
            says = f"{what} ended with {error}, which is not documented"
            self.violated(tp, t, says, f"{source.name} at {seconds(t)}")

    def _late(self, source: Source, tp: TopicPartition, what: str, t0: int, t1: int) -> None:
        says = f"{what} took {(t1 - t0) / 1e6:.0f} ms; the limit is {_most_ns(source) / 1e6:.0f} ms"
        self.violated(tp, t1, says, f"{source.name}: {what}, {seconds(t0)}–{seconds(t1)}")

    def conclude(self, ending: Ending) -> None:
        for source, produces in self._open.items():
            for record_id, t in produces.items():
                if self._hangs(source, t):
                    self._never_ended(
                        source, self.facts.partition_of(record_id), f"produce of {record_name(record_id)}", t
                    )
        for source, commits in self._open_commits.items():
            for (group, tp, offset), t in commits.items():
                if self._hangs(source, t):
                    self._never_ended(source, tp, f"commit of {offset} by {group}", t)

    def _hangs(self, source: Source, t: int) -> bool:
        """Return whether an operation without an end should have ended by the last event of its client.

        A hang counts as an observation. False also if further violations are only counted; the hang is then counted.
        """
        hangs = self._last.get(source, 0) - t > _most_ns(source)
        self.tally.observations += hangs
        return hangs and not self.only_counted()

    def _never_ended(self, source: Source, tp: TopicPartition | None, what: str, t: int) -> None:
        says = f"{what} hangs: the operation never ended, but {source.name} continued"
        self.violated(tp, t, says, f"invoked at {seconds(t)}, last event at {seconds(self._last[source])}")


def _most_ns(source: Source) -> int:
    """Return the limit of an operation of this client: its request timeout and GRACE_NS."""
    assert isinstance(source.header, Client)
    return source.header.request_timeout_ms * 1_000_000 + GRACE_NS
