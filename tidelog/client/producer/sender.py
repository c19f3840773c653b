"""Send batches from the accumulator to the leaders, and settle them by the answers.

`tidelog.client.producer.produce_outcome` says what the end of an attempt means. A batch that was rejected, or whose end
is unknown, is sent again as long as the error is retriable and the batch may be repeated: unchanged, under its old
sequence number, and before any later batch. A batch that is too large is sent in halves. A batch that was rejected
because of single records, which the leader names (KIP-467), is sent again without them. A batch of a forgotten producer
gets a new producer id. Every other batch fails with the error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeGuard, TypeVar

from tidelog.client.cluster_client import ClusterClient, is_retriable
from tidelog.client.connections import Peer, Purpose
from tidelog.client.leader_discovery import LeaderSearch
from tidelog.client.metadata import ClusterView, Leader
from tidelog.client.producer.accumulator import Accumulator, PartitionQueue
from tidelog.client.producer.produce_outcome import ProduceOutcome, outcome_of
from tidelog.client.producer.producer_batch import ANONYMOUS, Batch, ProducerIdentity
from tidelog.client.settings import ProducerSettings
from tidelog.errors import (
    BrokerError,
    DisconnectedError,
    InternalError,
    NetworkError,
    TidelogError,
    TimeoutError,
    UnknownServerError,
    error_for,
)
from tidelog.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    Response,
)

_log = logging.getLogger(__name__)

#: Maximum bytes of the records of one request, unless a single batch is larger.
MAX_REQUEST_BYTES = 8 << 20
#: Maximum number of requests in flight to one broker; their partitions differ.
MAX_IN_FLIGHT_PER_BROKER = 5
#: The broker's timeout is this share of the client's, so that the broker's answer arrives before the client gives up.
_ANSWER_MARGIN = 0.9

#: First sequence numbers have one bit less than sequence numbers, so that at least half of the range precedes the wrap.
_FIRST_SEQUENCE_BITS = 30

T = TypeVar("T")

_Load = list[tuple[PartitionQueue, Batch]]


@dataclass(slots=True)
class _Plan:
    """The requests of one turn.

    loads        the partitions whose first batch is sent, by the broker of their leader
    later_ms     when to look again at the latest
    leaderless   whether a partition waits for a leader
    """

    loads: dict[int, list[tuple[PartitionQueue, Leader]]] = field(default_factory=dict)
    later_ms: int | None = None
    leaderless: bool = False

    def retry_at(self, at_ms: int) -> None:
        self.later_ms = at_ms if self.later_ms is None else min(self.later_ms, at_ms)


class _Pause(NamedTuple):
    """The number of consecutive unexpected failures of a partition, and the time of the next attempt."""

    attempts: int
    until_ms: int


class Sender:
    """Sends on the event loop; `wake` may be called from any thread.

    The sender has no task of its own. Each event that may allow a batch to be sent (a record, an answer, a newer view,
    a deadline) calls a turn, which sends all batches that may be sent. A task would cost each single record a further
    pass through the event loop.
    """

    def __init__(
        self, client: ClusterClient, settings: ProducerSettings, loop: asyncio.AbstractEventLoop, rng: random.Random
    ) -> None:
        self.accumulator = Accumulator(settings, self.wake, partial(rng.getrandbits, _FIRST_SEQUENCE_BITS))
        self._client = client
        self._settings = settings
        self._loop = loop
        self._next_turn: asyncio.Handle | None = None
        self._in_flight: defaultdict[int, set[asyncio.Future[Any]]] = defaultdict(set)
        self._identity: ProducerIdentity | None = None if settings.idempotent else ANONYMOUS
        self._identifying: asyncio.Task[None] | None = None
        self._identify_attempts = 0
        self._failed_turns = 0
        self._pauses: dict[PartitionQueue, _Pause] = {}
        self._search = LeaderSearch(client, self._turn)
        self._stopped = False
        client.subscribe(self._on_view)

    def start(self) -> None:
        """Run the first turn, which sends what may be sent. Needs the running loop."""
        self._turn()

    async def stop(self, error: TidelogError) -> None:
        """Cancel the requests in flight and wait for their end; then all unsettled records fail with `error`.

        Records of cancelled requests may be stored.
        """
        self._stopped = True
        if self._next_turn is not None:
            self._next_turn.cancel()
        waits: list[asyncio.Future[Any]] = [each for waits in self._in_flight.values() for each in waits]
        if self._identifying is not None:
            waits.append(self._identifying)
        for wait in waits:
            wait.cancel()
        try:
            await asyncio.gather(*waits, return_exceptions=True)
        finally:
            try:
                await self._search.stop()
            finally:  # every future gets an outcome, even if this call is cancelled
                self.accumulator.fail_all(error)

    def wake(self) -> None:
        """Schedule a turn, because there may be something to send. Any thread may call it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the producer
            self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        if self._stopped:
            return
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        now_ms = self._client.clock.monotonic_ms()
        try:
            self.accumulator.arm()
            next_ms = self._send_what_may_go(now_ms)
            if self._failed_turns:
                self._failed_turns = 0
                self._client.background.recovered("the producer's sender")
        except Exception as error:
            self._client.background.report("the producer's sender", error)
            next_ms = now_ms + self._client.backoff_ms(self._failed_turns)
            self._failed_turns += 1
        if next_ms is not None:
            self._next_turn = self._loop.call_later(max(1, next_ms - now_ms) / 1000, self._turn)

    def _send_what_may_go(self, now_ms: int) -> int | None:
        """Expire overdue batches, and send all batches that may be sent.

        Returns when to look again at the latest; None: an event will start the next turn.
        """
        accumulator = self.accumulator
        plan = _Plan()
        waiting = accumulator.expire(now_ms)
        self._client.track(*{queue.topic_partition.topic for queue in waiting})
        for queue in waiting:
            pause = self._pauses.get(queue)
            if pause is not None and now_ms < pause.until_ms:
                plan.retry_at(pause.until_ms)
                continue
            try:
                self._consider(queue, plan, now_ms)
            except Exception as error:
                plan.retry_at(self._pause(queue, error, now_ms))
            else:
                if pause is not None:
                    del self._pauses[queue]
                    self._client.background.recovered(f"sending to {queue.topic_partition}")
        for broker_id, queues in plan.loads.items():
            self._dispatch(broker_id, queues)
        if plan.leaderless:
            self._search.search()
        else:
            self._search.stop_waiting()
        if not waiting:
            return None
        # A batch that has just been sent needs no timer, because its answer starts a turn.
        deadline_ms = accumulator.next_deadline_ms()
        return min((at_ms for at_ms in (plan.later_ms, deadline_ms) if at_ms is not None), default=None)

    def _consider(self, queue: PartitionQueue, plan: _Plan, now_ms: int) -> None:
        """Plan the request for the partition's first batch, or note what the batch waits for.

        If the partition certainly does not exist, fail its records.
        """
        leader = self._client.view.leader_of(*queue.topic_partition)
        head = queue.batches[0]
        at_ms = self.accumulator.ready_at_ms(queue)
        if (head.attempts or leader is None) and (gone := self._client.partition_refusal(queue.topic_partition)):
            self._fail_missing_partition(queue, gone)
        elif at_ms > now_ms and not (head.attempts and leader and leader.epoch > head.sent_epoch):
            plan.retry_at(at_ms)
        elif leader is None:
            plan.leaderless = True
        elif queue.identity is None and not self._have_identity_for(queue):
            pass  # the arrival of the producer id starts a turn
        else:
            plan.loads.setdefault(leader.broker_id, []).append((queue, leader))

    def _pause(self, queue: PartitionQueue, error: Exception, now_ms: int) -> int:
        """Report a defect, exclude this partition for a while, and return until when. The others go on."""
        self._client.background.report(f"sending to {queue.topic_partition}", error)
        attempts = self._pauses[queue].attempts if queue in self._pauses else 0
        until_ms = now_ms + self._client.lasting_backoff_ms(attempts)
        self._pauses[queue] = _Pause(attempts + 1, until_ms)
        return until_ms

    def _fail_missing_partition(self, queue: PartitionQueue, gone: TidelogError) -> None:
        """Fail all records of a partition that does not exist. The next send checks again whether it exists."""
        topic = queue.topic_partition.topic
        _log.info("%s: %s; its waiting records fail", queue.topic_partition, gone)
        self.accumulator.fail_waiting(queue, gone)
        if self._client.refusal(topic):
            self._client.drop_topic(topic)

    def _dispatch(self, broker_id: int, queues: list[tuple[PartitionQueue, Leader]]) -> None:
        load: _Load = []
        size_bytes = 0
        for queue, leader in queues:
            if load and size_bytes + queue.batches[0].size_bytes > MAX_REQUEST_BYTES:
                self._send_load(broker_id, load)
                load, size_bytes = [], 0
            if not load and len(self._in_flight[broker_id]) >= MAX_IN_FLIGHT_PER_BROKER:
                return  # the next answer starts a turn
            batch = self._take(queue, leader)
            if batch is not None:
                load.append((queue, batch))
                size_bytes += batch.size_bytes
        if load:
            self._send_load(broker_id, load)

    def _take(self, queue: PartitionQueue, leader: Leader) -> Batch | None:
        """Return the partition's first batch, encoded; None if the encoding failed, and with it only this batch."""
        assert self._identity is not None or queue.identity is not None
        try:
            batch = self.accumulator.take(queue, queue.identity or self._identity or ANONYMOUS, leader.epoch)
        except Exception as error:
            self.accumulator.fail(queue, error if isinstance(error, TidelogError) else self._unforeseen(error))
            self._loop.call_soon(self._turn)  # the batch behind it may be sent
            return None
        if batch.attempts == 1:
            self.accumulator.metrics.queue_time_ms.add(self._client.clock.monotonic_ms() - batch.created_ms)
        return batch

    def _send_load(self, broker_id: int, load: _Load) -> None:
        try:
            peer = self._client.live_peer(broker_id, Purpose.PRODUCE)
            if peer is not None:
                self._send(peer, broker_id, load)
                return
            connecting = self._loop.create_task(self._client.peer(broker_id, self._timeout_ms(load), Purpose.PRODUCE))
            self._in_flight[broker_id].add(connecting)
            connecting.add_done_callback(partial(self._on_connected, broker_id, load))
        except Exception as error:
            self._all_failed(load, error, sent=True)
            self._loop.call_soon(self._turn)

    def _on_connected(self, broker_id: int, load: _Load, connecting: asyncio.Future[Peer]) -> None:
        self._in_flight[broker_id].discard(connecting)
        if self._stopped:
            return
        try:
            peer = _result_of(connecting)
        except Exception as error:
            self._all_failed(load, error, sent=False)
            self._turn()
        else:
            self._send(peer, broker_id, load)

    def _send(self, peer: Peer, broker_id: int, load: _Load) -> None:
        def moved(view: ClusterView) -> bool:
            newer = [view.has_newer_leader(*batch.topic_partition, batch.sent_epoch) for _, batch in load]
            # Without idempotence a repetition may store records twice, so a request is repeated only if all are lost.
            return any(newer) if self._settings.idempotent else all(newer)

        try:
            timeout_ms = self._timeout_ms(load)
            request = ProduceRequest(
                self._settings.acks,
                max(1, int(timeout_ms * _ANSWER_MARGIN)),
                tuple(ProducePartition(*batch.topic_partition, batch.payload) for _, batch in load),
            )
            if self._settings.acks == 0:
                peer.send_no_reply(request, timeout_ms=timeout_ms)
                for queue, _ in load:
                    self.accumulator.succeed(queue).run_callbacks()
            else:
                answer = self._client.call_leader(peer, request, timeout_ms, moved)
                self._in_flight[broker_id].add(answer)
                answer.add_done_callback(partial(self._on_answer, broker_id, load))
                return
        except Exception as error:
            self._all_failed(load, error, sent=True)
        self._loop.call_soon(self._turn)

    def _timeout_ms(self, load: _Load) -> int:
        """Return the request's timeout; schedule the expiry of batches whose own deadline is earlier."""
        now_ms = self._client.clock.monotonic_ms()
        lefts_ms = [batch.deadline_ms - now_ms for _, batch in load]
        timeout_ms = max(1, min(self._settings.request_timeout_ms, max(lefts_ms)))
        if min(lefts_ms) < timeout_ms:
            for left_ms, (queue, batch) in zip(lefts_ms, load, strict=True):
                if left_ms < timeout_ms:
                    self._loop.call_later(max(0, left_ms) / 1000, self._expire, queue, batch)
        return timeout_ms

    def _expire(self, queue: PartitionQueue, batch: Batch) -> None:
        now_ms = self._client.clock.monotonic_ms()
        next_ms = self.accumulator.expire_in_flight(queue, batch, now_ms)
        if next_ms is not None:
            self._loop.call_later((next_ms - now_ms) / 1000, self._expire, queue, batch)

    def _on_answer(self, broker_id: int, load: _Load, answer: asyncio.Future[Response]) -> None:
        self._in_flight[broker_id].discard(answer)
        if self._stopped:
            return
        try:
            response = _result_of(answer)
            assert isinstance(response, ProduceResponse)
        except Exception as error:
            self._all_failed(load, error, sent=True)
        else:
            self._apply_answers(load, response)
        self._turn()  # batches that waited for this answer are sent before callbacks take time
        for _, batch in load:
            batch.outcome.run_callbacks()

    def _apply_answers(self, load: _Load, response: ProduceResponse) -> None:
        answers = {(each.topic, each.partition): each for each in response.partitions}
        for queue, batch in load:
            try:
                self._settle(queue, batch, answers.get(queue.topic_partition))
            except Exception as error:  # only this batch fails, because the broker's answers about the others are valid
                self._all_failed([(queue, batch)], error, sent=True)

    def _settle(self, queue: PartitionQueue, batch: Batch, answer: ProducePartitionResponse | None) -> None:
        refusal = _refusal(answer)
        if refusal is not None:
            self._failed(queue, batch, refusal, sent=True)
            if refusal.stale_metadata:
                self._client.refresh_soon()
        elif answer is not None:
            self.accumulator.succeed(queue, answer.base_offset, answer.log_append_time_ms)

    def _all_failed(self, load: _Load, error: Exception, *, sent: bool) -> None:
        if not isinstance(error, TidelogError):
            error, sent = self._unforeseen(error), True
        for queue, batch in load:
            if queue.in_flight and queue.batches and queue.batches[0] is batch:
                try:
                    self._failed(queue, batch, error, sent=sent)
                except Exception as unforeseen:  # a batch that stayed in flight would block its partition for ever
                    batch.outcome_unknown |= sent
                    self.accumulator.fail(queue, self._unforeseen(unforeseen))
        if error.stale_metadata or isinstance(error, TimeoutError):
            self._client.refresh_soon()

    def _failed(self, queue: PartitionQueue, batch: Batch, error: TidelogError, *, sent: bool) -> None:
        at_ms = self._client.clock.monotonic_ms() + self._client.backoff_ms(batch.attempts - 1)
        batch.failures += sent
        may_repeat = batch.failures <= self._settings.retries and not batch.expired
        outcome = outcome_of(error, sent=sent, idempotent=self._settings.idempotent)
        unknown = outcome is ProduceOutcome.UNKNOWN
        if outcome is ProduceOutcome.ACKNOWLEDGED:
            self.accumulator.succeed(queue).run_callbacks()
        elif outcome is ProduceOutcome.FORGOTTEN:
            _log.warning("%s: %s; going on with a new producer id", queue.topic_partition, error)
            batch.outcome_unknown = False  # the leader would have recognised an attempt that is in its log
            if may_repeat:
                self.accumulator.retry(queue, error, at_ms, outcome_unknown=False)
            else:
                self.accumulator.fail(queue, error)
            self.accumulator.discard_producer_id(queue)
        elif outcome is ProduceOutcome.TOO_LARGE and batch.builder.record_count > 1 and not batch.expired:
            self._split(queue, batch, error)
        elif outcome is ProduceOutcome.REFUSED and _refuses_single_records(error, batch) and not batch.expired:
            self._drop_refused(queue, error)
        elif is_retriable(error) and may_repeat:
            self.accumulator.retry(queue, error, at_ms, outcome_unknown=unknown)
        else:
            batch.outcome_unknown |= unknown
            self.accumulator.fail(queue, error)

    def _split(self, queue: PartitionQueue, batch: Batch, refusal: TidelogError) -> None:
        tp, count = queue.topic_partition, batch.builder.record_count
        _log.info("%s: %s; its %d records are sent in halves", tp, refusal, count)
        try:
            self.accumulator.split(queue)
        except Exception as error:  # the records of an encoded batch of `send_batch` have not been decoded before
            _log.warning("%s: the %d records cannot be split: %r", tp, count, error)
            self.accumulator.fail(queue, refusal)

    def _drop_refused(self, queue: PartitionQueue, refusal: BrokerError) -> None:
        faults = refusal.record_errors
        _log.info("%s: %s; its other records are sent again", queue.topic_partition, refusal)
        self.accumulator.drop_refused(queue, {index: type(refusal)(fault) for index, fault in faults.items()})

    def _unforeseen(self, error: Exception) -> InternalError:
        """Return the error of records that could not be sent because of a defect of the client."""
        return self._client.background.log("the producer", error)

    # --- producer id and topics -------------------------------------------------------------------

    def _have_identity_for(self, queue: PartitionQueue) -> bool:
        if self._identity is not None and self._identity != queue.refused:
            return True
        if self._identifying is None or self._identifying.done():
            self._identifying = self._client.background.run("the request for a producer id", self._identify())
            self._identifying.add_done_callback(self._on_identified)
        return False

    async def _identify(self) -> None:
        attempt, self._identify_attempts = self._identify_attempts, self._identify_attempts + 1
        deadline_ms = self._client.clock.monotonic_ms() + self._settings.request_timeout_ms
        if attempt:
            await self._client.backoff(attempt - 1, deadline_ms)
        try:
            answer = await self._client.call_any(InitProducerIdRequest(), deadline_ms)
        except TidelogError as error:
            self._report_missing_identity(error)
            return
        assert isinstance(answer, InitProducerIdResponse)
        self._identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        self._identify_attempts = 0

    def _report_missing_identity(self, error: TidelogError) -> None:
        """Fail the records that wait for a producer id if the error is final.

        Otherwise keep the error as the last one of each first batch that has none.
        """
        final = isinstance(error, BrokerError) and not isinstance(error, UnknownServerError) and not error.retriable
        for queue in self.accumulator.waiting_queues():
            if queue.identity is not None:
                continue
            if final:
                self.accumulator.fail_waiting(queue, error)
            elif queue.batches[0].last_error is None:
                queue.batches[0].last_error = error

    def _on_identified(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # by another task: a timer, because nothing may start while a loop is being closed
            self._loop.call_later(self._client.backoff_ms(0) / 1000, self._turn)
        else:
            self._turn()

    def _on_view(self, view: ClusterView) -> None:
        for topic in list(self.accumulator.topics):
            if topic in view.topics:  # other topics were forgotten, because nothing was sent to them for a long time
                self.add_topic(topic)
        self._turn()

    def add_topic(self, topic: str) -> None:
        """Create queues for a topic or its new partitions, and note which partitions have a leader in the view."""
        view = self._client.view
        count = view.partition_count(topic)
        available = [number for number in range(count) if view.leader_of(topic, number)]
        self.accumulator.add_partitions(topic, count, available)


def _refusal(answer: ProducePartitionResponse | None) -> TidelogError | None:
    if answer is None:
        return NetworkError("the broker's answer does not contain this partition")
    message = answer.error_message or ""
    faults = {each.batch_index: each.message or message for each in answer.record_errors}
    return error_for(answer.error_code, message, faults)


def _refuses_single_records(error: TidelogError, batch: Batch) -> TypeGuard[BrokerError]:
    """Return whether the broker rejected the batch because of single records that can be removed from it."""
    return isinstance(error, BrokerError) and bool(error.record_errors) and batch.can_drop(error.record_errors)


def _result_of(future: asyncio.Future[T]) -> T:
    """Return the result; DisconnectedError if another task has cancelled the future."""
    if future.cancelled():
        raise DisconnectedError("the request to the broker was cancelled from outside")
    return future.result()
