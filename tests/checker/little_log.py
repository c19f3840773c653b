"""A little model of a replicated log, and the history of a random run of it, in which everything is right.

Each operation takes effect at one moment between its call and its end; so do all that brokers do.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.history.broker_events import (
    Ack,
    Append,
    BecomeFollower,
    BecomeLeader,
    Broker,
    Controller,
    HighWatermark,
    IsrChange,
    Processed,
    Reject,
    Resources,
)
from tidelog.history.events import Event, Header
from tidelog.history.group_operations import Assigned, CommitFailed, CommitOk, CommittedOk, CommitUnknown
from tidelog.history.operations import (
    Client,
    LatestOk,
    LookUpOk,
    ProduceFailed,
    ProduceInvoked,
    ProduceOk,
    ProduceUnknown,
    Read,
)
from tidelog.model import TopicPartition
from verify.checker.checker import Checker
from verify.checker.facts import Source
from verify.checker.inputs.logs import READ, EpochStart, FinalLog, StoredBatch
from verify.checker.invariant import Ending, Window
from verify.checker.verdict import Verdict

TPS = [TopicPartition("t", 0), TopicPartition("t", 1)]
#: A topic with keys and compaction, in which only the last record of each key must stay.
COMPACTED_TP = TopicPartition("latest", 0)
BROKERS = (1, 2, 3)
MS = 1_000_000
TIMEOUT_MS = 200
T0_MS = 1_700_000_000_000


@dataclass
class Case:
    """The events with their sources, in the order of their ends, and the final logs."""

    headers: dict[str, Header]
    entries: list[tuple[str, Event]]
    ending: Ending

    @property
    def logs(self) -> dict[TopicPartition, Sequence[FinalLog]]:
        """Return the partitions that are not compacted."""
        return {tp: logs for tp, logs in self.ending.logs.items() if tp != COMPACTED_TP}

    def verdict(self) -> Verdict:
        checker, sources = self._begun()
        for name, event in self.entries:
            checker.take(sources[name], event)
        return checker.conclude(self.ending)

    def found_on_the_way(self) -> set[str]:
        """Return the violated invariants if the checker is queried after every event."""
        checker, sources = self._begun()
        found = set()
        for name, event in self.entries:
            checker.take(sources[name], event)
            found |= {each.invariant for each in checker.new_findings()}
        return found

    def _begun(self) -> tuple[Checker, dict[str, Source]]:
        checker = Checker(self.ending.compacted)
        return checker, {name: checker.begin(header) for name, header in self.headers.items()}


@dataclass
class _Partition:
    tp: TopicPartition
    records: list[tuple[int, int, int]] = field(default_factory=list)  # id, timestamp, epoch
    batches: list[StoredBatch] = field(default_factory=list)
    epochs: list[EpochStart] = field(default_factory=list)
    leader: int = 0
    epoch: int = 0
    partition_epoch: int = 0


class _Run:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 1000 * MS
        self.entries: list[tuple[int, str, Event]] = []
        self.partitions = {tp: _Partition(tp) for tp in TPS}
        self.sequences = {1: 0, 2: 0}
        self.cursors: dict[tuple[str, TopicPartition], int] = defaultdict(int)
        self.sessions: dict[tuple[str, TopicPartition], int] = defaultdict(int)
        self.read_until: dict[tuple[str, TopicPartition], int] = defaultdict(int)
        self.committed: dict[TopicPartition, int] = {}
        self.next_commit: dict[TopicPartition, int] = defaultdict(int)
        self.generation = 0

    def say(self, t: int, name: str, event: Event) -> None:
        self.entries.append((t, name, event))

    def around(self) -> tuple[int, int]:
        """Make a call that takes effect now: return its begin and its end."""
        self.now += self.rng.randrange(1, 10) * MS
        return self.now - self.rng.randrange(1, 20 * MS), self.now + self.rng.randrange(1, 20 * MS)

    def elect(self) -> None:
        part = self.partitions[self.rng.choice(TPS)]
        self.now += MS
        part.epoch += 1
        part.partition_epoch += 1
        part.leader = self.rng.choice(BROKERS)
        while part.epochs and part.epochs[-1].start_offset == len(part.records):
            part.epochs.pop()
        part.epochs.append(EpochStart(part.epoch, len(part.records)))
        leo = len(part.records)
        for broker in BROKERS:
            if broker == part.leader:
                leads = BecomeLeader(self.now, part.tp, part.epoch, leo, leo, part.partition_epoch)
                self.say(self.now, str(broker), leads)
            else:
                self.say(self.now, str(broker), BecomeFollower(self.now, part.tp, part.epoch, part.leader))

    def change_isr(self) -> None:
        part = self.partitions[self.rng.choice(TPS)]
        self.now += MS
        part.partition_epoch += 1
        isr = tuple(sorted({part.leader, *self.rng.sample(BROKERS, 2)}))
        change = IsrChange(self.now, part.tp, isr, part.epoch, part.partition_epoch, True)
        self.say(self.now, str(part.leader), change)

    def produce(self) -> None:
        part = self.partitions[self.rng.choice(TPS)]
        producer = self.rng.choice([1, 2])
        t0, t1 = self.around()
        count = self.rng.randrange(1, 5)
        first = producer << 40 | self.sequences[producer]
        self.sequences[producer] += count
        ids = list(range(first, first + count))
        stamps = [T0_MS + self.now // MS + self.rng.randrange(-30, 30) for _ in ids]
        name = f"producer-{producer}"
        self.say(t0, name, ProduceInvoked(part.tp, ids, stamps, [t0] * count))
        outcome = self.rng.choice(["ok", "ok", "ok", "ok", "failed", "appended", "gone"])
        base = len(part.records)
        if outcome in ("ok", "appended"):
            part.records += [(each, stamp, part.epoch) for each, stamp in zip(ids, stamps, strict=True)]
            last = len(part.records) - 1
            part.batches.append(StoredBatch(base, last, self.rng.getrandbits(32)))
            end, leader = last + 1, str(part.leader)
            self.say(self.now, leader, Append(self.now, part.tp, base, last, part.epoch, "leader"))
            self.say(self.now, leader, HighWatermark(self.now, part.tp, part.epoch, end))
            leos = dict.fromkeys(BROKERS, end)
            pending = self.rng.choice([each for each in BROKERS if each != part.leader])
            isr = [each for each in BROKERS if each != pending]
            self.say(self.now, leader, Ack(self.now, part.tp, last, part.epoch, isr, [pending], leos, BROKERS, 2))
        ended = [t1] * count
        if outcome == "ok":
            epochs = [part.epoch] * count
            self.say(t1, name, ProduceOk(part.tp, ids, list(range(base, base + count)), ended, epochs))
        elif outcome == "failed":
            self.say(t1, name, ProduceFailed(part.tp, ids, ["NOT_ENOUGH_REPLICAS"] * count, ended))
        else:
            self.say(t1, name, ProduceUnknown(part.tp, ids, ["REQUEST_TIMED_OUT"] * count, ended))

    def read(self) -> None:
        part, name = self.partitions[self.rng.choice(TPS)], self.rng.choice(["reader-1", "reader-2"])
        key = name, part.tp
        t0, t1 = self.around()
        # A consumer makes one request after another.
        self.now = max(self.now, self.read_until[key] + MS)
        t0, t1 = max(t0, self.read_until[key] + 1), max(t1, self.now + 1)
        self.read_until[key] = t1
        if self.rng.random() < 0.1:
            self.sessions[key] += 1
            self.cursors[key] = self.rng.randrange(len(part.records) + 1)
        begin = self.cursors[key]
        shown = part.records[begin : begin + self.rng.randrange(1, 8)]
        self.cursors[key] = begin + len(shown)
        ids, stamps = [each for each, _, _ in shown], [stamp for _, stamp, _ in shown]
        offsets = list(range(begin, begin + len(shown)))
        end = len(part.records)
        self.say(t1, name, Read(part.tp, self.sessions[key], end, t0, t1, offsets, ids, stamps))

    def ask(self) -> None:
        part, name = self.partitions[self.rng.choice(TPS)], self.rng.choice(["reader-1", "reader-2"])
        t0, t1 = self.around()
        self.say(t1, name, LatestOk(part.tp, len(part.records), t0, t1, part.epoch))
        target = T0_MS + self.now // MS - self.rng.randrange(200)
        found = next(((offset, each) for offset, each in enumerate(part.records) if each[1] >= target), None)
        if found is None:
            self.say(t1, name, LookUpOk(part.tp, target, -1, t0, t1))
        else:
            offset, (_, stamp, epoch) = found
            self.say(t1, name, LookUpOk(part.tp, target, offset, t0, t1, stamp, epoch))

    def commit(self) -> None:
        """Return the records that a member has just read."""
        tp = self.rng.choice(TPS)
        begin, records = self.next_commit[tp], self.partitions[tp].records
        shown = records[begin : begin + self.rng.randrange(1, 5)]
        if not shown:
            return
        offsets, (ids, stamps, _) = range(begin, begin + len(shown)), zip(*shown, strict=True)
        self.now += MS
        self.say(
            self.now, "member", Read(tp, self.generation, len(records), self.now - 1, self.now, offsets, ids, stamps)
        )
        t0, t1 = self.around()
        self.next_commit[tp] += len(shown)
        offset, outcome = self.next_commit[tp], self.rng.choice(["ok", "ok", "unknown", "failed"])
        mark = ("g", tp, offset)
        if outcome == "failed":
            failed = CommitFailed(*mark, "REBALANCE_IN_PROGRESS", t0, t1, self.generation, "m")
            self.say(t1, "member", failed)
            return
        self.committed[tp] = offset
        if outcome == "ok":
            self.say(t1, "member", CommitOk(*mark, t0, t1, self.generation, "m"))
        else:
            self.say(t1, "member", CommitUnknown(*mark, "REQUEST_TIMED_OUT", t0, t1, self.generation, "m"))

    def fetch(self) -> None:
        tp = self.rng.choice(TPS)
        t0, t1 = self.around()
        self.say(t1, "reader-1", CommittedOk("g", tp, self.committed.get(tp, -1), t0, t1))

    def rebalance(self) -> None:
        # No operation of the earlier generation is in flight any more.
        self.now += 50 * MS
        self.generation += 1
        self.say(self.now, "member", Assigned("g", "m", self.generation, [TPS[0]], self.now))
        self.say(self.now, "member-2", Assigned("g", "m2", self.generation, [TPS[1]], self.now))
        self.now += 50 * MS

    def control(self) -> None:
        self.now += MS
        broker = str(self.rng.choice(BROKERS))
        self.say(self.now, broker, Processed(self.now, "Produce", self.now + MS, 1, 1))
        self.say(self.now, broker, Reject(self.now, "Fetch", "its deadline has passed"))

    def compact(self) -> list[FinalLog]:
        """A life of a compacted topic, in which each replica and reader finds other records gone.

        Returns its logs: of each key the last record is there, and others by chance.
        """
        producer, name = 3, "producer-3"
        records: list[tuple[int, int, int, bool]] = []  # id, key, timestamp, tombstone
        for number in range(self.rng.randrange(8, 20)):
            t0, t1 = self.around()
            # The first keys end with a value and with a tombstone, so that both can be mutated.
            key = number % 3 if number < 6 else self.rng.randrange(3, 6)
            tombstone = number == 4 or (number > 6 and self.rng.random() < 0.2)
            record_id, stamp = producer << 40 | number, T0_MS + self.now // MS
            tombstones = [1] if tombstone else None
            self.say(t0, name, ProduceInvoked(COMPACTED_TP, [record_id], [stamp], [t0], [key], tombstones))
            if number < 6 or self.rng.random() < 0.8:
                self.say(t1, name, ProduceOk(COMPACTED_TP, [record_id], [number], [t1], [1]))
            else:
                self.say(t1, name, ProduceUnknown(COMPACTED_TP, [record_id], ["REQUEST_TIMED_OUT"], [t1]))
            records.append((record_id, key, stamp, tombstone))
        logs = [self._compacted(records, broker) for broker in (*map(str, BROKERS), READ)]
        t0, t1 = self.around()
        shown = logs[-1]
        self.say(t1, "reader-2", Read(COMPACTED_TP, 0, -1, t0, t1, shown.offsets, shown.ids, shown.ts))
        return logs

    def _compacted(self, records: list[tuple[int, int, int, bool]], broker: str) -> FinalLog:
        last = {key: offset for offset, (_, key, _, _) in enumerate(records)}
        gone = {offset for offset, record in enumerate(records) if offset < last[record[1]] and self.rng.random() < 0.5}
        for key, offset in last.items():
            earlier = [at for at, record in enumerate(records) if record[1] == key and at < offset]
            if records[offset][3] and gone.issuperset(earlier) and offset + 1 < len(records) and broker != "3":
                gone.add(offset)
        if broker == "3":
            gone -= {1}  # deleted by the tombstone of its key
        offsets = [offset for offset in range(len(records)) if offset not in gone]
        ids, stamps = [records[at][0] for at in offsets], [records[at][2] for at in offsets]
        checkpoint = None if broker == READ else [EpochStart(1, 0)]
        end = len(records)
        return FinalLog(broker, COMPACTED_TP, 0, end, end, checkpoint, offsets, ids, stamps, [1] * len(ids))

    def end(self) -> Case:
        compacted = self.compact()
        self.now += 3000 * MS
        for name in ("producer-1", "producer-2", "reader-1", "reader-2"):
            for part in self.partitions.values():
                end = LatestOk(part.tp, len(part.records), self.now, self.now + 1, part.epoch)
                self.say(self.now + 1, name, end)
        for tp, offset in self.committed.items():
            self.say(self.now + 1, "reader-1", CommittedOk("g", tp, offset, self.now, self.now + 1))
        for broker in BROKERS:
            self.say(self.now, str(broker), Resources(self.now, "healed", 100, 10, 1 << 28, 0))
        headers: dict[str, Header] = {
            name: Client(name, request_timeout_ms=TIMEOUT_MS)
            for name in ("producer-1", "producer-2", "producer-3", "reader-1", "reader-2", "member", "member-2")
        }
        headers |= {str(broker): Broker(str(broker)) for broker in BROKERS}
        entries = [(name, event) for _, name, event in sorted(self.entries, key=lambda each: each[0])]
        window = Window("F1", 1000 * MS, self.now, self.now + MS, most_gap_ns=3600 * 1000 * MS, least_operations=5)
        logs = {tp: [_final(part, broker) for broker in (*map(str, BROKERS), READ)] for tp, part in self._parts()}
        logs[COMPACTED_TP] = compacted
        return Case(headers, entries, Ending(logs, [window], frozenset({COMPACTED_TP.topic})))

    def _parts(self) -> list[tuple[TopicPartition, _Partition]]:
        return list(self.partitions.items())


def _final(part: _Partition, broker: str) -> FinalLog:
    end = len(part.records)
    ids, stamps, epochs = ([each[index] for each in part.records] for index in range(3))
    checkpoint = None if broker == READ else list(part.epochs)
    batches = [] if broker == READ else list(part.batches)
    return FinalLog(broker, part.tp, 0, end, end, checkpoint, range(end), ids, stamps, epochs, batches)


def random_case(seed: int, steps: int = 150) -> Case:
    run = _Run(random.Random(seed))
    for broker in BROKERS:
        run.say(run.now, str(broker), Resources(run.now, "baseline", 100, 10, 1 << 28, 0))
    for epoch, broker in enumerate((1, 2), 1):
        run.say(run.now + epoch, str(broker), Controller(run.now + epoch, epoch))
    for _ in range(4):
        run.elect()
    for part in run.partitions.values():
        while not part.leader:
            run.elect()
    run.rebalance()
    # One event of each kind, so that every invariant has data and every mutation finds its target.
    first = [run.produce] * 12 + [run.read, run.ask, run.commit, run.fetch] * 4 + [run.control, run.change_isr]
    for step in first:
        step()
    for part in run.partitions.values():
        run.elect()
        while part.epoch < 3:
            run.elect()
    run.change_isr()
    often = [run.produce] * 8 + [run.read] * 6 + [run.ask] * 4 + [run.commit] * 3 + [run.fetch] * 3
    seldom = [run.elect, run.change_isr, run.control, run.rebalance]
    for _ in range(steps):
        run.rng.choice(often + seldom)()
    while not run.committed:
        run.produce()
        run.commit()
    for step in (run.rebalance, *[run.read] * 12, *[run.produce] * 4):
        step()
    return run.end()
