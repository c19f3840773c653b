"""Collect the facts that all invariants use: the writers, the produced and read records, and the observed offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from tidelog.frozen_dataclass import frozen
from tidelog.history.broker_events import Ack, BecomeFollower, BecomeLeader, Broker, HighWatermark
from tidelog.history.columns import SEQUENCE_BITS, Column
from tidelog.history.events import Header
from tidelog.history.operations import (
    Client,
    LatestOk,
    ProduceFailed,
    ProduceInvoked,
    ProduceOk,
    Read,
    TrimInvoked,
    TrimOk,
    TrimUnknown,
)
from tidelog.model import TopicPartition
from verify.checker.by_record import ByRecord
from verify.checker.findings import record_name, seconds
from verify.checker.inputs.logs import FinalLog
from verify.checker.observed_offsets import ObservedOffsets
from verify.checker.timeline import RunningMax


@frozen
class Source:
    """The history of one process: a client or broker from one start to its end.

    life   the number of earlier starts under the same name
    """

    header: Header
    life: int = 0

    @property
    def name(self) -> str:
        return self.header.name

    @property
    def waits_for_all(self) -> bool:
        """Return whether acknowledgements to this source are durable: the source is any client with acks=all (−1)."""
        return isinstance(self.header, Client) and self.header.acks == -1


@dataclass(slots=True)
class Term:
    """The time (ns) in which a broker considered itself the leader of this epoch, until it followed, led another epoch,
    or restarted.

    end   `inf` while none of these is known
    """

    broker: str
    epoch: int
    begin: float
    end: float = inf


@dataclass(slots=True)
class PartitionFacts:
    """The facts of one partition. Times are in ns. Only acknowledgements to producers with acks=all count.

    invoked_at         the time of each record's produce call, by id
    invocations        the same calls as events, with their timestamps
    is_awaited         whether a producer with acks=all produced to the partition
    acknowledged       the time of acknowledgement, by id
    failed             the time of a definite refusal, by id
    refusals           the ids of the same refusals, by event
    acknowledgements   the greatest acknowledged offset, over time
    latest             the greatest end offset returned to clients, over time
    high_watermarks    the greatest high watermark that any broker recorded, over time
    observed_offsets   the record observed at each offset, in acknowledgements and reads, and at the end in the final
                       log
    produces           every acknowledgement, with the client
    reads              every successful read, also one without records, with the client
    trims              (offset, request time, answer time or None); the request and the end of a trim are two entries
    terms              the terms of its leaders, from the brokers' events
    replicas           the replicas at the last acknowledgement by a broker: (time, brokers); (−1, ()) before the first
    final              the final log, once it is known
    """

    tp: TopicPartition
    invoked_at: ByRecord = field(default_factory=ByRecord)
    invocations: list[ProduceInvoked] = field(default_factory=list)
    is_awaited: bool = False
    acknowledged: ByRecord = field(default_factory=ByRecord)
    failed: dict[int, int] = field(default_factory=dict)
    refusals: list[Column] = field(default_factory=list)
    acknowledgements: RunningMax = field(default_factory=RunningMax)
    latest: RunningMax = field(default_factory=RunningMax)
    high_watermarks: RunningMax = field(default_factory=RunningMax)
    observed_offsets: ObservedOffsets = field(default_factory=ObservedOffsets)
    produces: list[tuple[Source, ProduceOk]] = field(default_factory=list)
    reads: list[tuple[Source, Read]] = field(default_factory=list)
    trims: list[tuple[int, int, int | None]] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    replicas: tuple[int, Sequence[int]] = (-1, ())
    final: FinalLog | None = None

    def end_term(self, broker: str, at: float) -> None:
        """End the broker's terms at the time when it knows that it no longer leads; terms that ended before stay."""
        for term in self.terms:
            if term.broker == broker:
                term.end = min(term.end, at)

    def may_answer_in_old_epoch(self, asked: float, answered: float) -> bool:
        """Return whether any broker may have answered between these times as the leader of an old epoch.

        Such a broker does not know later trims.
        """
        begun = [term for term in self.terms if term.begin <= answered]
        latest = max((term.epoch for term in begun), default=-1)
        return any(term.epoch < latest and term.end >= asked for term in begun)

    @property
    def trimmed_to(self) -> int:
        """Return the highest offset of any trim request, whatever its outcome; 0: none. No log start may be higher."""
        return max((offset for offset, _, _ in self.trims), default=0)

    def produce(self, record_id: int) -> str:
        """Return the description of a record's produce call and its outcome, as evidence."""
        text = f"produce of {record_name(record_id)} to {self.tp}"
        if record_id not in self.invoked_at:
            return f"{text}: never invoked"
        text += f", invoked at {seconds(self.invoked_at[record_id])}"
        if record_id in self.acknowledged:
            for source, event in self.produces:
                if record_id in event.ids:
                    offset = event.offsets[list(event.ids).index(record_id)]
                    text += f", acknowledged to {source.name} with offset {offset}"
                    break
            return f"{text} at {seconds(self.acknowledged[record_id])}"
        if record_id in self.failed:
            return f"{text}, refused at {seconds(self.failed[record_id])}"
        return f"{text}, outcome unknown"

    def evidence_of(self, offset: int, record_id: int) -> Iterator[str]:
        """Yield each acknowledgement, read or final log that shows this record at this offset, in words."""
        for _, event in self.produces:
            if record_id in event.ids and event.offsets[list(event.ids).index(record_id)] == offset:
                yield self.produce(record_id)
        for source, read in self.reads:
            if offset in read.offsets and read.ids[list(read.offsets).index(offset)] == record_id:
                yield describe_read(source, read, offset, record_id)
        if self.final is not None and self.final.id_at(offset) == record_id:
            yield f"{self.final}: {record_name(record_id)} at offset {offset}"


def describe_read(source: Source, read: Read, offset: int, record_id: int) -> str:
    """Return the description of a read that returned a record, as evidence."""
    return (
        f"read by {source.name} (session {read.session}) of {read.tp}, {seconds(read.t0)}–{seconds(read.t1)}:"
        f" {record_name(record_id)} at offset {offset}"
    )


class Facts:
    """The collected facts of all partitions, on which the invariants are based.

    compacted   the compacted topics, as far as they are known before the end
    sources     the processes that have begun, in order
    """

    def __init__(self, compacted: frozenset[str] = frozenset()) -> None:
        self.compacted = compacted
        self.sources: list[Source] = []
        self.partitions: dict[TopicPartition, PartitionFacts] = {}
        #: The source that produced with each producer number.
        self.producers: dict[int, Source] = {}

    def of(self, tp: TopicPartition) -> PartitionFacts:
        """Return the facts of a partition; empty ones are created at the first call."""
        facts = self.partitions.get(tp)
        if facts is None:
            facts = self.partitions[tp] = PartitionFacts(tp)
        return facts

    def partition_of(self, record_id: int) -> TopicPartition | None:
        """Return the partition of the produce invoked for a record, whatever its outcome; None if there was none."""
        return next((tp for tp, facts in self.partitions.items() if record_id in facts.invoked_at), None)

    def is_idempotent(self, record_id: int) -> bool:
        """Return whether an idempotent producer sent this record; False for an unknown producer."""
        return self.is_idempotent_producer(record_id >> SEQUENCE_BITS)

    def is_idempotent_producer(self, number: int) -> bool:
        source = self.producers.get(number)
        return source is not None and isinstance(source.header, Client) and source.header.idempotent

    def begun(self, source: Source) -> None:
        """Note the start of a process. The start of a broker ends the broker's terms as leader."""
        self.sources.append(source)
        if isinstance(source.header, Broker):
            for facts in self.partitions.values():
                facts.end_term(source.name, source.header.t)

    def may_be_forgotten(self, tp: TopicPartition, offset: int, until: float = inf) -> bool:
        """Return whether the records below `offset` may be back, because any broker restarted until then.

        As in Kafka, a restarted broker may have forgotten a trim, because log starts are checkpointed once a minute.
        Restarts count from the first request to trim to this offset or a higher one. A leader that is cut off from
        ZooKeeper does not learn of a restart, and so answers a repeated trim by what the earlier process reported.
        """
        since = min((asked for trimmed, asked, _ in self.of(tp).trims if trimmed >= offset), default=inf)
        lives = (life.header for life in self.sources if life.life)
        return any(isinstance(each, Broker) and since < each.t <= until for each in lives)

    def invoked(self, source: Source, event: ProduceInvoked) -> None:
        facts = self.of(event.tp)
        facts.invoked_at.put(event.ids, event.t)
        facts.invocations.append(event)
        facts.is_awaited = facts.is_awaited or source.waits_for_all
        if event.ids:
            self.producers[event.ids[0] >> SEQUENCE_BITS] = source
            self.producers[event.ids[-1] >> SEQUENCE_BITS] = source

    def acknowledged(self, source: Source, event: ProduceOk) -> None:
        if source.waits_for_all:
            facts = self.of(event.tp)
            facts.acknowledged.put(event.ids, event.t)
            facts.acknowledgements.extend(event.t, event.offsets)
            facts.observed_offsets.see(event.offsets, event.ids)
            facts.produces.append((source, event))

    def failed(self, _source: Source, event: ProduceFailed) -> None:
        facts = self.of(event.tp)
        facts.failed.update(zip(event.ids, event.t, strict=True))
        facts.refusals.append(event.ids)

    def read(self, source: Source, event: Read) -> None:
        facts = self.of(event.tp)
        facts.reads.append((source, event))
        facts.observed_offsets.see(event.offsets, event.ids)

    def latest_returned(self, _source: Source, event: LatestOk) -> None:
        self.of(event.tp).latest.add(event.t1, event.offset)

    def trim_invoked(self, _source: Source, event: TrimInvoked) -> None:
        self.of(event.tp).trims.append((event.offset, event.t, None))

    def trimmed(self, _source: Source, event: TrimOk) -> None:
        self.of(event.tp).trims.append((event.offset, event.t0, event.t1))

    def maybe_trimmed(self, _source: Source, event: TrimUnknown) -> None:
        self.of(event.tp).trims.append((event.offset, event.t0, None))

    def replicated(self, _source: Source, event: Ack) -> None:
        facts = self.of(event.tp)
        if event.t > facts.replicas[0]:
            facts.replicas = event.t, event.replicas

    def led(self, source: Source, event: BecomeLeader) -> None:
        facts = self.of(event.tp)
        facts.end_term(source.name, event.t)
        facts.terms.append(Term(source.name, event.epoch, event.t))
        facts.high_watermarks.add(event.t, event.hw)

    def followed(self, source: Source, event: BecomeFollower) -> None:
        self.of(event.tp).end_term(source.name, event.t)

    def high_watermark(self, _source: Source, event: HighWatermark) -> None:
        self.of(event.tp).high_watermarks.add(event.t, event.value)
