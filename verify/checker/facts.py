"""What all invariants stand on: who wrote, what was produced and read, and what was told of each offset."""

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
from verify.checker.logs import FinalLog
from verify.checker.observed_offsets import Sightings
from verify.checker.timeline import RunningMax


@frozen
class Source:
    """One life of who writes a history: its process from one start to its end.

    life   from 0
    """

    header: Header
    life: int = 0

    @property
    def name(self) -> str:
        return self.header.name

    @property
    def waits_for_all(self) -> bool:
        """Whether what it is told to be written is promised to stay: it produces with acks=all."""
        return isinstance(self.header, Client) and self.header.acks == -1


@dataclass(slots=True)
class Term:
    """A broker took itself for the leader of this epoch, until it followed, led another, or its process was another."""

    broker: str
    epoch: int
    begin: float
    end: float = inf


@dataclass(slots=True)
class PartitionFacts:
    """Of one partition. Only what was acknowledged with acks=all counts as acknowledged.

    invoked_at       by id
    invocations      the same as they were told, with their timestamps
    is_awaited       whether anybody ever produced to it who waits for all replicas
    acknowledged     by id: when
    failed           by id: when it was refused for certain
    refusals         the ids of the same, as they were told
    acknowledgements the offsets that were acknowledged, in time
    latest           the ends that clients were told, in time
    high_watermarks  that any broker wrote down, in time
    sightings        which record anybody saw at which offset
    produces         every acknowledgement
    reads            every answer that showed records
    trims            (offset, asked at, answered at or None)
    terms            of its leaders, by the brokers' events
    replicas         who had one when a broker last acknowledged something: (moment, brokers)
    final            the log of the end, when that has come
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
    sightings: Sightings = field(default_factory=Sightings)
    produces: list[tuple[Source, ProduceOk]] = field(default_factory=list)
    reads: list[tuple[Source, Read]] = field(default_factory=list)
    trims: list[tuple[int, int, int | None]] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    replicas: tuple[int, Sequence[int]] = (-1, ())
    final: FinalLog | None = None

    def end_term(self, broker: str, at: float) -> None:
        """The broker knows by now that it does not lead as it did."""
        for term in self.terms:
            if term.broker == broker:
                term.end = min(term.end, at)

    def may_answer_from_the_past(self, asked: float, answered: float) -> bool:
        """Whether a broker still took itself for the leader of an epoch that was over: it knows of no trim since."""
        begun = [term for term in self.terms if term.begin <= answered]
        latest = max((term.epoch for term in begun), default=-1)
        return any(term.epoch < latest and term.end >= asked for term in begun)

    @property
    def trimmed_to(self) -> int:
        """Up to where anybody ever asked to trim; no log begins later."""
        return max((offset for offset, _, _ in self.trims), default=0)

    def produce(self, record_id: int) -> str:
        """The whole story of a record's produce, as proof."""
        told = f"produce of {record_name(record_id)} to {self.tp}"
        if record_id not in self.invoked_at:
            return f"{told}: never invoked"
        told += f", invoked at {seconds(self.invoked_at[record_id])}"
        if record_id in self.acknowledged:
            for source, event in self.produces:
                if record_id in event.ids:
                    offset = event.offsets[list(event.ids).index(record_id)]
                    told += f", acknowledged to {source.name} with offset {offset}"
                    break
            return f"{told} at {seconds(self.acknowledged[record_id])}"
        if record_id in self.failed:
            return f"{told}, refused at {seconds(self.failed[record_id])}"
        return f"{told}, outcome unknown"

    def witnesses(self, offset: int, record_id: int) -> Iterator[str]:
        """Who was told that this record stands there."""
        for _, event in self.produces:
            if record_id in event.ids and event.offsets[list(event.ids).index(record_id)] == offset:
                yield self.produce(record_id)
        for source, read in self.reads:
            if offset in read.offsets and read.ids[list(read.offsets).index(offset)] == record_id:
                yield read_story(source, read, offset, record_id)
        if self.final is not None and self.final.id_at(offset) == record_id:
            yield f"{self.final}: {record_name(record_id)} at offset {offset}"


def read_story(source: Source, read: Read, offset: int, record_id: int) -> str:
    """A read that showed a record, as proof."""
    return (
        f"read by {source.name} (session {read.session}) of {read.tp}, {seconds(read.t0)}–{seconds(read.t1)}:"
        f" {record_name(record_id)} at offset {offset}"
    )


class Facts:
    """Gathers them from events; each invariant reads here what others have told.

    compacted   the topics of which that is known before the end
    """

    def __init__(self, compacted: frozenset[str] = frozenset()) -> None:
        self.compacted = compacted
        self.sources: list[Source] = []
        self.partitions: dict[TopicPartition, PartitionFacts] = {}
        #: Who invoked for the producer with that number.
        self.producers: dict[int, Source] = {}

    def of(self, tp: TopicPartition) -> PartitionFacts:
        facts = self.partitions.get(tp)
        if facts is None:
            facts = self.partitions[tp] = PartitionFacts(tp)
        return facts

    def home_of(self, record_id: int) -> TopicPartition | None:
        """The partition that a record was produced to."""
        return next((tp for tp, facts in self.partitions.items() if record_id in facts.invoked_at), None)

    def is_idempotent(self, record_id: int) -> bool:
        return self.is_idempotent_producer(record_id >> SEQUENCE_BITS)

    def is_idempotent_producer(self, number: int) -> bool:
        source = self.producers.get(number)
        return source is not None and isinstance(source.header, Client) and source.header.idempotent

    def begun(self, source: Source) -> None:
        """A life of who writes a history has begun."""
        self.sources.append(source)
        if isinstance(source.header, Broker):
            for facts in self.partitions.values():
                facts.end_term(source.name, source.header.t)

    def has_forgotten_trims(self, since: float, until: float = inf) -> bool:
        """Whether what was trimmed until then may be there again: a broker that begins anew may have forgotten it, as
        in Kafka, where log starts are noted once a minute.
        """
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
            facts.sightings.see(event.offsets, event.ids)
            facts.produces.append((source, event))

    def failed(self, _source: Source, event: ProduceFailed) -> None:
        facts = self.of(event.tp)
        facts.failed.update(zip(event.ids, event.t, strict=True))
        facts.refusals.append(event.ids)

    def read(self, source: Source, event: Read) -> None:
        facts = self.of(event.tp)
        facts.reads.append((source, event))
        facts.sightings.see(event.offsets, event.ids)

    def told_latest(self, _source: Source, event: LatestOk) -> None:
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
