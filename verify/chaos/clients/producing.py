"""Produce at a fixed rate, and record the outcome of each record.

A record is written to the history before it is sent, so that the history contains every record of a log even if the
client is killed. The outcome is usually written within a tick of the acknowledgement, and later if a call of `send`
waits.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from tidelog.client.producer.partitioner import partition_for_key
from tidelog.errors import DuplicateSequenceError, TidelogError
from tidelog.history.operations import ProduceFailed, ProduceInvoked, ProduceOk, ProduceUnknown
from tidelog.model import RecordMetadata, TopicPartition
from verify.chaos.clients.client_context import AcknowledgedRecord, ClientContext
from verify.chaos.clients.support.interfaces import RecordProducer, SentRecord
from verify.chaos.clients.support.pace import Pace
from verify.chaos.clients.support.repeating import repeating
from verify.chaos.clients.support.timestamps import timestamp_ms
from verify.chaos.payload import make_id, payload
from verify.checker.outcomes import Outcome, error_name, produce_outcome

_TICK_S = 0.02
#: One in this many records is large.
_LARGE_ONE_IN = 50
_LARGE_BYTES = 4_000
#: The additional time for the last records after their own deadline.
_GRACE_S = 1.0


class _Draft(NamedTuple):
    record_id: int
    tp: TopicPartition
    key: bytes | None
    timestamp: int


class ProducingClient:
    """The producing client. Creating it opens its history.

    number       the number from which unique ids are derived, among all producers of a run
    rate         records per second
    value_bytes  the least and greatest size of most values; one in fifty has 4,000 bytes
    options      options of the producer, in addition to its acks, idempotence and timeouts, or in place of these
    tick_s       the interval in which due records are sent and outcomes written
    open_producer  opens the producer, with its name and settings; None: our own, over `ClientContext.opener`
    """

    def __init__(
        self,
        context: ClientContext,
        name: str,
        number: int,
        rate: float,
        *,
        acks: int = -1,
        idempotent: bool = True,
        value_bytes: tuple[int, int] = (12, 300),
        options: dict[str, Any] | None = None,
        tick_s: float = _TICK_S,
        open_producer: Callable[..., RecordProducer] | None = None,
    ) -> None:
        self.name = name
        self._context = context
        self._number = number
        self._rate = rate
        self._tick_s = tick_s
        self._acks = acks
        self._history = context.history(name, acks=acks, idempotent=idempotent)
        self._options: dict[str, Any] = {
            "acks": acks,
            "enable_idempotence": idempotent,
            "delivery_timeout_ms": context.timeout_ms,
            "max_block_ms": context.timeout_ms,
            "request_timeout_ms": max(1_000, context.timeout_ms // 3),
            **(options or {}),
        }
        opener = repeating(context.opener, context.rng) if idempotent else context.opener
        self._open_producer = open_producer or partial(context.producer, opener=opener)
        self._value_bytes = value_bytes
        self._sequence = 0
        self._shares = [topic.share for topic in context.topics]
        self._ok: defaultdict[TopicPartition, list[tuple[int, int, int]]] = defaultdict(list)
        self._not_ok: defaultdict[tuple[Outcome, TopicPartition], list[tuple[int, str, int]]] = defaultdict(list)
        self.pace: Pace | None = None

    async def run(self) -> None:
        """Produce records at the rate, until `context.stopping` is set, and write the outcome of each to the history.

        Then wait until every sent record has an outcome, for slightly longer than the time limit of a record, and close
        the producer and the history.
        """
        context = self._context
        producer = self._open_producer(self.name, **self._options)
        try:
            await self._find_topics(producer)
            self.pace = Pace(self._rate, context.now_ns())
            while not context.stopping.is_set():
                if due := self.pace.due(context.now_ns()):
                    await self._send(producer, self._drafts(due))
                self._write_outcomes()
                await context.pause(self._tick_s)
            with suppress(TidelogError):
                await self._flush(producer)
        finally:
            await producer.close(0)
            self._write_outcomes()
            self._history.close()

    async def _find_topics(self, producer: RecordProducer) -> None:
        for topic in self._context.topics:
            while not self._context.stopping.is_set():
                try:
                    await producer.partitions_for(topic.name)
                    break
                except TidelogError:
                    await self._context.pause(0.1)

    async def _flush(self, producer: RecordProducer) -> None:
        flushing = asyncio.ensure_future(producer.flush(self._context.timeout_ms / 1000 + _GRACE_S))
        while not flushing.done():
            await asyncio.wait({flushing}, timeout=self._tick_s)
            self._write_outcomes()
        flushing.result()

    # --- records to send --------------------------------------------------------------------------------

    def _drafts(self, count: int) -> list[_Draft]:
        """Return the next `count` records to send, all of one random topic. Records without a key
        share one partition.
        """
        context, rng = self._context, self._context.rng
        (topic,) = rng.choices(context.topics, self._shares)
        partition, now_ms = rng.randrange(topic.partitions), context.clock.now_ms()
        drafts = []
        for _ in range(count):
            key = b"%d" % rng.randrange(topic.keys) if topic.keys else None
            where = partition if key is None else partition_for_key(key, topic.partitions)
            at_ms = timestamp_ms(topic.times, now_ms, rng)
            drafts.append(_Draft(make_id(self._number, self._sequence), TopicPartition(topic.name, where), key, at_ms))
            self._sequence += 1
        return drafts

    async def _send(self, producer: RecordProducer, drafts: Sequence[_Draft]) -> None:
        context, rng = self._context, self._context.rng
        by_partition: defaultdict[TopicPartition, list[_Draft]] = defaultdict(list)
        for draft in drafts:
            by_partition[draft.tp].append(draft)
        for tp, here in by_partition.items():
            ids, ts, now = [each.record_id for each in here], [each.timestamp for each in here], context.now_ns()
            keys = None if here[0].key is None else [int(each.key or b"") for each in here]
            self._history.write(ProduceInvoked(tp, ids, ts, [now] * len(here), keys))
        for place, draft in enumerate(drafts):
            size = _LARGE_BYTES if rng.randrange(_LARGE_ONE_IN) == 0 else rng.randint(*self._value_bytes)
            try:
                future = await producer.send(
                    draft.tp.topic,
                    payload(draft.record_id, size),
                    key=draft.key,
                    partition=None if draft.key is not None else draft.tp.partition,
                    timestamp_ms=draft.timestamp,
                )
            except TidelogError as error:
                # Later records are not sent, because each might wait as long, and the history announced all of them for
                # this time.
                for each in drafts[place:]:
                    self._settled(each, produce_outcome([error_name(error)]), error)
                return
            self._follow(draft, future)

    # --- outcomes ---------------------------------------------------------------------------------------

    def _follow(self, draft: _Draft, future: SentRecord) -> None:
        def failed(error: TidelogError) -> None:
            known = produce_outcome([error_name(error)])
            self._settled(draft, Outcome.UNKNOWN if future.may_be_stored() else known, error)

        future.add_callback(self._acknowledged, draft)
        future.add_errback(failed)

    def _acknowledged(self, draft: _Draft, place: RecordMetadata) -> None:
        tp, now = TopicPartition(place.topic, place.partition), self._context.now_ns()
        if self._acks < 0 and place.offset < 0:
            # The broker recognized a duplicate but no longer knew its offset. The record is stored, but its offset is
            # unknown.
            self._not_ok[Outcome.UNKNOWN, tp].append((draft.record_id, error_name(DuplicateSequenceError), now))
            return
        self._ok[tp].append((draft.record_id, place.offset, now))
        if self._acks < 0:
            self._context.acknowledged[tp].append(AcknowledgedRecord(place.offset, place.timestamp))

    def _settled(self, draft: _Draft, outcome: Outcome, error: TidelogError) -> None:
        self._not_ok[outcome, draft.tp].append((draft.record_id, error_name(error), self._context.now_ns()))

    def _write_outcomes(self) -> None:
        ok, self._ok = self._ok, defaultdict(list)
        for tp, settled in ok.items():
            ids, offsets, times = zip(*settled, strict=True)
            self._history.write(ProduceOk(tp, ids, offsets, times))
        not_ok, self._not_ok = self._not_ok, defaultdict(list)
        for (outcome, tp), unsettled in not_ok.items():
            ids, names, times = zip(*unsettled, strict=True)
            event = ProduceFailed if outcome is Outcome.FAILED else ProduceUnknown
            self._history.write(event(tp, ids, names, times))
