"""Questions by time while something goes wrong, beside records and trims; and the verdict on each answer."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from tests.processes.harness.background import Background
from tests.processes.harness.waiting import wait_for
from tidelog import Admin, Consumer, ConsumerRecord, Producer, TopicPartition
from tidelog.client.producer.record_future import RecordFuture
from tidelog.errors import TidelogError, error_for
from tidelog.model import Endpoint
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse
from verify.checker.look_ups import Fault, LookUp, StoredRecord, Trim, Wrong, judge

START_MS = 1_700_000_000_000
_STEP_MS = 5
#: The number of keys that are written repeatedly; other records have unique keys.
_HOT_KEYS = 40
_DAY_MS = 24 * 60 * 60 * 1000


class Sent:
    """One record of a `Timeline`; the producer's thread sets `acknowledged_at`."""

    __slots__ = ("acknowledged_at", "future", "key", "sent_at", "timestamp")

    def __init__(self, key: bytes, timestamp: int, future: RecordFuture, sent_at: float) -> None:
        self.key = key
        self.timestamp = timestamp
        self.sent_at = sent_at
        self.acknowledged_at = inf
        self.future = future
        future.add_callback(self._acknowledged)

    def _acknowledged(self, _: object) -> None:
        self.acknowledged_at = time.monotonic()


class Timeline(Background):
    """Records whose times go forward on the whole, and up and down as they go: many equal, some far from the others.

    Every third comes back by its key sooner or later, so that compaction has work.
    """

    def __init__(self, bootstrap_servers: str, tps: Sequence[TopicPartition], seed: int) -> None:
        super().__init__("timeline")
        self.sent: dict[TopicPartition, list[Sent]] = {tp: [] for tp in tps}
        self._servers = bootstrap_servers
        self._rng = random.Random(seed)
        self._producer = Producer(bootstrap_servers, client_id="timeline")

    def fill(self, count: int) -> None:
        """Send this many records to each partition in small compressed batches, and wait for their acknowledgements."""
        with Producer(self._servers, client_id="fill", batch_size=2000, compression_type="lz4") as producer:
            for _ in range(count):
                for tp in self.sent:
                    self._send(producer, tp)
            producer.flush(60)
        self.all_acknowledged()

    def once(self) -> None:
        for tp in self.sent:
            self._send(self._producer, tp)
        time.sleep(0.008)

    def close(self) -> None:
        self._producer.close(60)

    def all_acknowledged(self) -> None:
        for records in self.sent.values():
            for each in records:
                each.future.get(120)

    def _send(self, producer: Producer, tp: TopicPartition) -> None:
        rng, number = self._rng, len(self.sent[tp])
        now_ms = START_MS + number * _STEP_MS
        kind = rng.random()
        if kind < 0.2:  # later than all before it
            timestamp = now_ms + 1500 + number % 7
        elif kind < 0.22:  # far from the others
            timestamp = rng.choice([1, START_MS - 7 * _DAY_MS, now_ms + 20_000])
        else:
            timestamp = (now_ms + rng.randrange(-2500, 1500)) // 20 * 20
        key = b"hot %d" % rng.randrange(_HOT_KEYS) if rng.random() < 0.35 else b"%d" % number
        sent_at = time.monotonic()
        future = producer.send(tp.topic, b"%d" % number, partition=tp.partition, key=key, timestamp_ms=timestamp)
        self.sent[tp].append(Sent(key, timestamp, future, sent_at))


class Trimmer(Background):
    """Has the oldest records of one partition after the other deleted, a few at a time."""

    def __init__(self, bootstrap_servers: str, tps: Sequence[TopicPartition], pause_s: float) -> None:
        super().__init__("trimmer")
        self.trims: dict[TopicPartition, list[Trim]] = {tp: [] for tp in tps}
        self._admin = Admin(bootstrap_servers, client_id="trimmer")
        self._pause_s = pause_s

    def once(self) -> None:
        for tp, trims in self.trims.items():
            offset, asked_at, answered_at = (trims[-1].offset if trims else 0) + 37, time.monotonic(), inf
            try:
                self._admin.delete_records({tp: offset}, timeout_ms=5000)
                answered_at = time.monotonic()
            except TidelogError:
                pass  # a replica died meanwhile: perhaps it has happened, perhaps not
            trims.append(Trim(offset, asked_at, answered_at))
            if self._stop.wait(self._pause_s):
                return

    def close(self) -> None:
        self._admin.close()

    @property
    def confirmed(self) -> int:
        return sum(trim.answered_at < inf for trims in self.trims.values() for trim in trims)


class Asked(NamedTuple):
    """One look-up in one partition; `outcome` is "found", "nothing" or the name of an error."""

    tp: TopicPartition
    look_up: LookUp
    outcome: str


class Replacement(NamedTuple):
    """The time in which a replaced leader may answer: from before the election of its successor until the replaced
    leader follows the successor.
    """

    begin: float
    end: float


class Targets:
    """Times to look up: recent ones, old ones, and such that nothing reaches."""

    def __init__(self, timeline: Timeline, seed: int) -> None:
        self._timeline = timeline
        self._rng = random.Random(seed)

    def of(self, tp: TopicPartition) -> int:
        rng, sent = self._rng, self._timeline.sent[tp]
        count, kind = len(sent), rng.random()
        if kind < 0.4:  # the last acknowledged record; if its time is the latest, only it can be the answer
            recent = (sent[slot] for slot in range(count - 1, max(count - 40, -1), -1))
            known = [each for each in recent if each.acknowledged_at < inf]
            if known:
                return max(known[:8], key=lambda each: each.timestamp).timestamp
        if kind < 0.75:
            return sent[rng.randrange(count)].timestamp + rng.choice([0, 0, 1, -1])
        if kind < 0.9:
            return rng.randrange(START_MS - 5000, START_MS + count * _STEP_MS + 3000)
        return rng.choice([0, START_MS + count * _STEP_MS + _DAY_MS])


class Inquirer(Background):
    """Looks times up in one or in all partitions, as any program does."""

    def __init__(self, bootstrap_servers: str, timeline: Timeline, seed: int, pause_s: float = 0.01) -> None:
        super().__init__(f"inquirer {seed}")
        self.asked: list[Asked] = []
        self._timeline = timeline
        self._targets = Targets(timeline, seed)
        self._rng = random.Random(seed)
        self._pause_s = pause_s
        self._consumer = Consumer(bootstrap_servers=bootstrap_servers, client_id="inquirer")

    def once(self) -> None:
        tps = list(self._timeline.sent)
        chosen = tps if self._rng.random() < 0.2 else [self._rng.choice(tps)]
        targets = {tp: self._targets.of(tp) for tp in chosen}
        asked_at = time.monotonic()
        try:
            found = self._consumer.offsets_for_times(targets)
        except TidelogError as error:
            outcome = type(error).__name__
            self.asked += [
                Asked(tp, LookUp(target, asked_at, time.monotonic(), None), outcome) for tp, target in targets.items()
            ]
        else:
            answered_at = time.monotonic()
            for tp, target in targets.items():
                answer = found[tp]
                shown = None if answer is None else (answer.offset, answer.timestamp, answer.leader_epoch)
                look_up = LookUp(target, asked_at, answered_at, shown)
                self.asked.append(Asked(tp, look_up, "nothing" if shown is None else "found"))
        time.sleep(self._pause_s)

    def close(self) -> None:
        self._consumer.close()


class Loyal(Background):
    """Asks one broker all the time, whether it leads or sleeps or has been deposed: what it answers must be right."""

    def __init__(self, address: str, timeline: Timeline, seed: int, pause_s: float = 0.02) -> None:
        super().__init__("loyal")
        self.asked: list[Asked] = []
        self._endpoint = Endpoint.parse(address)
        self._timeline = timeline
        self._targets = Targets(timeline, seed)
        self._pause_s = pause_s
        self._questions: set[asyncio.Task[None]] = set()

    def once(self) -> None:
        asyncio.run(self._ask_until_stopped())

    def close(self) -> None:
        """Nothing outlives the loop."""

    async def _ask_until_stopped(self) -> None:
        try:
            connection = await Connection.open(self._endpoint, client_id="loyal", timeout_ms=5000)
        except TidelogError:
            await asyncio.sleep(self._pause_s)  # the broker is down
            return
        try:
            while not self._stop.is_set() and not connection.closed:
                for tp in self._timeline.sent:
                    question = asyncio.create_task(self._ask(connection, tp))
                    self._questions.add(question)
                    question.add_done_callback(self._questions.discard)
                await asyncio.sleep(self._pause_s)
        finally:
            connection.close()
            await asyncio.gather(*self._questions)

    async def _ask(self, connection: Connection, tp: TopicPartition) -> None:
        target, asked_at = self._targets.of(tp), time.monotonic()
        with contextlib.suppress(TidelogError):
            response = await connection.call(
                ListOffsetsRequest((ListOffsetsPartition(*tp, target),)), timeout_ms=30_000
            )
            assert isinstance(response, ListOffsetsResponse)
            [answer] = response.partitions
            shown = None if answer.offset < 0 else (answer.offset, answer.timestamp, answer.leader_epoch)
            error = error_for(answer.error_code)
            outcome = type(error).__name__ if error else "found" if shown else "nothing"
            self.asked.append(Asked(tp, LookUp(target, asked_at, time.monotonic(), shown), outcome))


def read_times(
    bootstrap_servers: str, tps: Sequence[TopicPartition], timeout_s: float = 90
) -> dict[TopicPartition, list[ConsumerRecord]]:
    """Every record of the final log, from the leaders."""
    found: dict[TopicPartition, list[ConsumerRecord]] = {tp: [] for tp in tps}
    with Consumer(
        bootstrap_servers=bootstrap_servers, client_id="final read", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(list(tps))
        consumer.seek_to_beginning(*tps)
        ends = consumer.end_offsets(list(tps))

        def done() -> bool:
            for tp, records in consumer.poll(timeout_ms=500, max_records=10_000).items():
                found[tp] += records
            return all(consumer.position(tp) >= ends[tp] for tp in tps)

        wait_for(f"the final read to {ends}", done, timeout_s)
    return found


def stored_records(sent: Sequence[Sent], log: Sequence[ConsumerRecord], trims: Sequence[Trim]) -> list[StoredRecord]:
    """Return the facts about one partition that the judge needs; all sent records must be acknowledged.

    The final log must be correct: each record has its acknowledged offset and content, and each missing record was
    compacted or deleted.
    """
    superseded_at: dict[bytes, float] = {}
    placed = sorted(((each.future.get(0).offset, each) for each in sent), key=lambda pair: -pair[0])
    in_log = {record.offset: record for record in log}
    trimmed = max((trim.offset for trim in trims), default=0)
    stored = []
    for offset, each in placed:
        gone_from, record = superseded_at.get(each.key, inf), in_log.pop(offset, None)
        superseded_at[each.key] = each.sent_at
        epoch = None
        if record is not None:
            assert (record.key, record.timestamp) == (each.key, each.timestamp), f"{record} where {each.key!r} was"
            epoch = record.leader_epoch
        else:
            assert gone_from < inf or offset < trimmed, f"offset {offset} is lost, {each.key!r} of {each.timestamp}"
        stored.append(StoredRecord(offset, each.timestamp, each.sent_at, each.acknowledged_at, gone_from, epoch))
    assert not in_log, f"no client sent {list(in_log.values())[:3]}"
    return stored


def is_outdated(wrong: Wrong, trims: Sequence[Trim], replacements: Sequence[Replacement]) -> bool:
    """Return whether a replaced leader may have given this wrong answer, as Kafka's leaders may.

    A paused leader does not know its successor. Until it does, it returns records that only the successor has trimmed.
    The old leader knows each trim that was confirmed before its replacement, so that such an answer is not excused.
    """
    if wrong.fault is not Fault.TRIMMED or wrong.expected is None:
        return False
    removed_at = min(trim.answered_at for trim in trims if trim.offset > wrong.expected.offset)
    return any(each.begin <= removed_at and wrong.look_up.asked_at <= each.end for each in replacements)


def check_look_ups(
    timeline: Timeline,
    trims: Mapping[TopicPartition, Sequence[Trim]],
    asked: Sequence[Asked],
    logs: Mapping[TopicPartition, Sequence[ConsumerRecord]],
    replacements: Sequence[Replacement] = (),
) -> Counter[str]:
    """Each answer is one that the log could give, or `is_outdated`; what was refused says nothing.

    Returns the look-ups by outcome, how many were `forced` or `outdated`, and how many records compaction has taken.
    """
    outcomes = Counter(each.outcome for each in asked)
    for tp, log in logs.items():
        known = trims.get(tp, ())
        stored = stored_records(timeline.sent[tp], log, known)
        answered = [each.look_up for each in asked if each.tp == tp and each.outcome in ("found", "nothing")]
        verdict = judge(stored, known, answered)
        wrong = [each for each in verdict.wrong if not is_outdated(each, known, replacements)]
        assert not wrong, f"{tp}: {len(wrong)} of {len(answered)}, {verdict.faults}: {wrong[0]}"
        outcomes["forced"] += verdict.forced
        outcomes["outdated"] += len(verdict.wrong)
        start = log[0].offset if log else 0
        outcomes["compacted"] += sum(each.offset >= start for each in stored) - len(log)
    return outcomes
