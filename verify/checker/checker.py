"""Check invariants: take events, report new violations at any time, and give the verdict at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from tidelog.history.broker_events import Ack, BecomeFollower, BecomeLeader, HighWatermark
from tidelog.history.events import Event, Header
from tidelog.history.operations import (
    LatestOk,
    ProduceFailed,
    ProduceInvoked,
    ProduceOk,
    Read,
    TrimInvoked,
    TrimOk,
    TrimUnknown,
)
from verify.checker.facts import Facts, PartitionFacts, Source
from verify.checker.findings import Finding
from verify.checker.invariant import Ending, Handler, Invariant
from verify.checker.invariants.brokers.availability import Availability
from verify.checker.invariants.brokers.committed_offsets import CommittedOffsets
from verify.checker.invariants.brokers.in_sync import InSyncReplicas
from verify.checker.invariants.brokers.leadership import Leadership
from verify.checker.invariants.brokers.replicas import EpochsRise, SameReplicas
from verify.checker.invariants.brokers.resource_leaks import ResourceLeaks
from verify.checker.invariants.brokers.staleness import NoReplays
from verify.checker.invariants.brokers.watermarks import HighWatermarks
from verify.checker.invariants.records.acknowledgements import Acknowledged, LeaderCompleteness
from verify.checker.invariants.records.agreement import NoPhantoms, OneOffsetARecord, OneRecordAnOffset
from verify.checker.invariants.records.ends import Ends
from verify.checker.invariants.records.last_values import LastValues
from verify.checker.invariants.records.lookup_history import LookUps
from verify.checker.invariants.records.operation_outcomes import OperationOutcomes
from verify.checker.invariants.records.order import ProducerOrder, RealTimeOrder
from verify.checker.invariants.records.reads import BelowHighWatermark, Contiguity, NoDirtyReads
from verify.checker.verdict import Row, Verdict

INVARIANTS: Final[Sequence[type[Invariant]]] = (
    Acknowledged,
    OneRecordAnOffset,
    OneOffsetARecord,
    NoPhantoms,
    RealTimeOrder,
    ProducerOrder,
    Contiguity,
    Ends,
    NoDirtyReads,
    BelowHighWatermark,
    HighWatermarks,
    Leadership,
    LeaderCompleteness,
    InSyncReplicas,
    SameReplicas,
    EpochsRise,
    CommittedOffsets,
    LookUps,
    Availability,
    NoReplays,
    ResourceLeaks,
    OperationOutcomes,
    LastValues,
)


class Checker:
    """The checker. Call `begin` for each start of a writer, `take` for its events, `new_findings` at any time,
    `conclude` once.

    The processes of one name must come in the order of their starts, each with its events in the order of its history.
    Different names may come in any order as long as `new_findings` is not called in between. Otherwise all events must
    come in the order of their ends (`t` or `t1`). `compacted` names the topics whose logs may have gaps. The names are
    only needed for `new_findings`, because `conclude` uses `Ending.compacted`.
    """

    def __init__(self, compacted: frozenset[str] = frozenset()) -> None:
        self.facts = Facts(compacted)
        self._invariants = [each(self.facts) for each in INVARIANTS]
        self._lives: Counter[str] = Counter()
        self._reported = [0] * len(self._invariants)
        facts = self.facts
        handlers: dict[type, list[Handler]] = defaultdict(list)
        handlers |= {
            ProduceInvoked: [facts.invoked],
            ProduceOk: [facts.acknowledged],
            ProduceFailed: [facts.failed],
            Read: [facts.read],
            LatestOk: [facts.latest_returned],
            TrimInvoked: [facts.trim_invoked],
            TrimOk: [facts.trimmed],
            TrimUnknown: [facts.maybe_trimmed],
            Ack: [facts.replicated],
            BecomeLeader: [facts.led],
            BecomeFollower: [facts.followed],
            HighWatermark: [facts.high_watermark],
        }
        for invariant in self._invariants:
            for kind, handler in invariant.handlers().items():
                handlers[kind].append(handler)
        self._handlers: dict[type, list[Handler]] = handlers

    def begin(self, header: Header) -> Source:
        """Begin the history of a client's or broker's process, which may be a restart under the same name.

        Return the source to pass to `take` with each event of that process. A broker's restart ends its terms as
        leader.
        """
        source = Source(header, self._lives[header.name])
        self._lives[header.name] += 1
        self.facts.begun(source)
        return source

    def take(self, source: Source, event: Event) -> None:
        """Take an event of a process; an event that no invariant needs is ignored. The event's columns must not change
        afterwards.
        """
        for handler in self._handlers.get(type(event), ()):
            handler(source, event)

    def new_findings(self) -> Sequence[Finding]:
        """Return the violations found since the last call, as far as they can be found without the final logs.

        Violations that are only counted (`findings.MOST_DESCRIBED`) are not returned.
        """
        found: list[Finding] = []
        for index, invariant in enumerate(self._invariants):
            invariant.examine()
            findings = invariant.tally.findings
            if len(findings) > self._reported[index]:
                found += findings[self._reported[index] :]
                self._reported[index] = len(findings)
        return found

    def conclude(self, ending: Ending) -> Verdict:
        """Return the verdict on everything, including the findings that `new_findings` returned. No other call may
        follow.
        """
        for tp in ending.logs:
            log = ending.log(tp)
            if log is not None:
                facts = self.facts.of(tp)
                facts.final = log
                facts.observed_offsets.see(log.offsets, log.ids)
        rows, findings = [], []
        for invariant in self._invariants:
            invariant.conclude(ending)
            tally = invariant.tally
            rows.append(Row(invariant.key, invariant.name, tally.observations, tally.violations))
            findings += tally.findings
        seen = (facts for facts in self.facts.partitions.values() if facts.produces or facts.reads)
        by_files = any(ending.replicas(tp) for tp in ending.logs)
        return Verdict(rows, findings, sorted(facts.tp for facts in seen if _lacks_logs(facts, ending, by_files)))


def _lacks_logs(facts: PartitionFacts, ending: Ending, by_files: bool) -> bool:
    """Return whether the partition's final log is missing, or that of one of its replicas if any replicas' logs were
    read.

    The replicas are those at the last acknowledgement that a broker recorded.
    """
    there = {log.broker for log in ending.replicas(facts.tp)}
    _, replicas = facts.replicas
    return ending.log(facts.tp) is None or (by_files and not there.issuperset(map(str, replicas)))
