"""The conversation of a follower with one broker that leads something it replicates.

It aligns new partitions by epoch, then keeps one fetch in flight for all of them. Each fetch says how
far every log reaches, so that it acknowledges what the answer before it brought; it goes out at once. When the set
of partitions changes while a fetch is parked at the leader, another is sent on top: the leader then answers the
parked one with what it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from cluster.backoff import Backoff
from cluster.follower import Following, Phase
from node.replica import Replica
from tidelog.clock import Clock
from tidelog.control_messages import BrokerInfo
from tidelog.errors import BrokerError, ProtocolError, StorageError, TidelogError, error_for
from tidelog.messages import (
    ApiVersionsResponse,
    EpochEndOffset,
    EpochPartition,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    Request,
    Response,
)
from tidelog.model import Endpoint, TopicPartition
from tidelog.signals import Signal

log = logging.getLogger(__name__)

_MIN_RECONNECT_MS = 50
_MAX_RECONNECT_MS = 1000
#: One that is parked, and one on top of it that makes the leader answer the first.
_MAX_IN_FLIGHT = 2


class Peer(Protocol):
    """What is needed of `tidelog.connection.Connection`."""

    @property
    def peer(self) -> ApiVersionsResponse: ...
    @property
    def closed(self) -> bool: ...
    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]: ...
    def close(self) -> None: ...


Answer = TypeVar("Answer")

#: Opens a connection under this broker's present registration.
Opener = Callable[[Endpoint], Awaitable[Peer]]


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How a follower asks. `request_timeout_ms` is the patience beyond the wait that the fetch itself allows."""

    broker_id: int
    max_wait_ms: int = 500
    partition_max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    request_timeout_ms: int = 10_000


class Followed:
    """One partition in a conversation.

    ask   what the next fetch says of it; None while it aligns, waits after an error, or is no longer followed.
          An answer counts only for the very `ask` that stands here: any change of epoch or log end replaces it
    """

    __slots__ = ("ask", "following", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.following = Following(replica.partition.leader_epoch, replica.log)
        self.ask: FetchPartition | None = None

    def next_ask(self, max_bytes: int) -> FetchPartition:
        """The fetch from the end of the log."""
        tp, log_ = self.replica.topic_partition, self.replica.log
        leader_epoch = self.following.leader_epoch
        self.ask = FetchPartition(
            tp.topic, tp.partition, leader_epoch, log_.log_end_offset, max_bytes, log_.log_start_offset
        )
        return self.ask


class Conversation:
    """The fetch loop to one leader; lives as long as there is something to fetch from it.

    on_storage_error   told when an append or a truncation fails on the disk
    """

    def __init__(
        self,
        leader: int,
        settings: FetchSettings,
        opener: Opener,
        clock: Clock,
        on_storage_error: Callable[[StorageError, TopicPartition], None],
    ) -> None:
        self.leader = leader
        self.partitions: dict[TopicPartition, Followed] = {}
        self._on_storage_error = on_storage_error
        self._settings = settings
        self._opener = opener
        self._clock = clock
        self._broker: BrokerInfo | None = None
        self._reconnect = False
        # Those whose next request is due at once. Their order rotates: who got records goes to the end.
        self._fetching: dict[TopicPartition, Followed] = {}
        # Those that align or wait after an error, so that a quiet turn looks at none of the others.
        self._unsettled: dict[TopicPartition, Followed] = {}
        self._changed = False
        self._signal = Signal()
        self.task = asyncio.get_running_loop().create_task(self._run())

    def put(self, followed: Followed) -> None:
        """Fetch this partition too, from now on."""
        tp = followed.replica.topic_partition
        if tp in self.partitions:
            self.remove(tp)
        self.partitions[tp] = followed
        self._settle(followed)
        self._changed = True
        self._signal.set()

    def synced(self, tp: TopicPartition) -> None:
        """More of its log is on the disk, or need not be any more."""
        self._settle(self.partitions[tp])
        self._signal.set()

    def remove(self, tp: TopicPartition) -> None:
        """Fetch it no more."""
        followed = self.partitions.pop(tp)
        followed.ask = None
        self._fetching.pop(tp, None)
        self._unsettled.pop(tp, None)
        self._changed = True
        self._signal.set()

    def set_broker(self, broker: BrokerInfo | None) -> None:
        """Where the leader is now; None: it is not live, so that nobody dials."""
        before, self._broker = self._broker, broker
        if broker is None or before is None or _address(broker) != _address(before):
            self.reconnect()

    def reconnect(self) -> None:
        """Give up the connection and dial again."""
        self._reconnect = True
        self._signal.set()

    def close(self) -> None:
        """End the loop."""
        self.task.cancel()

    async def _run(self) -> None:
        backoff = Backoff(_MIN_RECONNECT_MS, _MAX_RECONNECT_MS)
        while True:
            self._reconnect = False
            broker = self._broker
            if broker is None:
                await self._signal.wait()
                continue
            try:
                await self._dial(Endpoint(broker.replication_host, broker.replication_port), backoff)
            except TidelogError as error:
                log.info("fetching from broker %d: %s", self.leader, error)
            except Exception:
                log.exception("fetching from broker %d failed", self.leader)
            if not self._reconnect:
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _dial(self, endpoint: Endpoint, backoff: Backoff) -> None:
        connection = await self._opener(endpoint)
        in_flight: deque[InFlight] = deque()
        try:
            if connection.peer.broker_id != self.leader:
                raise ProtocolError(f"{endpoint} is broker {connection.peer.broker_id}, not {self.leader}")
            self._changed = True
            while not self._reconnect:
                await self._turn(connection, in_flight, backoff)
        finally:
            for sent in in_flight:
                sent.answer.cancel()
            connection.close()

    async def _turn(self, connection: Peer, in_flight: deque[InFlight], backoff: Backoff) -> None:
        """Align what is to be aligned, have one fetch in flight (two after a change), apply what has arrived."""
        next_due_ms = None
        if self._unsettled:
            await self._align(connection)
            next_due_ms = self._wake_delayed()
        if self._fetching and (not in_flight or (self._changed and len(in_flight) < _MAX_IN_FLIGHT)):
            in_flight.append(self._send_fetch(connection))
            self._changed = False
        if not (in_flight and in_flight[0].answer.done()):
            timeout_ms = None if next_due_ms is None else max(1, next_due_ms - self._clock.monotonic_ms())
            await self._signal.wait(timeout_ms)
        while in_flight and in_flight[0].answer.done():
            sent = in_flight.popleft()
            response = sent.answer.result()
            if not isinstance(response, FetchResponse) or len(response.partitions) != len(sent.followed):
                raise ProtocolError(f"broker {self.leader} answered another question than was asked")
            backoff.reset()
            self._apply(sent, response)

    # --- aligning --------------------------------------------------------------------------------------------

    async def _align(self, connection: Peer) -> None:
        while True:
            now_ms = self._clock.monotonic_ms()
            due = [each for each in self._unsettled.values() if each.following.is_due(Phase.ALIGNING, now_ms)]
            if not due:
                return
            questions = []
            for each in due:
                tp, following = each.replica.topic_partition, each.following
                questions.append(EpochPartition(tp.topic, tp.partition, following.leader_epoch, following.asked_epoch))
            request = OffsetForLeaderEpochRequest(tuple(questions), self._settings.broker_id)
            response = await connection.send(request, timeout_ms=self._settings.request_timeout_ms)
            answers = cast(OffsetForLeaderEpochResponse, response).partitions
            if len(answers) != len(due):
                raise ProtocolError(f"broker {self.leader} answered another question than was asked")
            for each, answer in zip(due, answers, strict=True):
                if self.partitions.get(each.replica.topic_partition) is each:
                    self._guarded(each, self._apply_alignment, answer)

    def _apply_alignment(self, followed: Followed, answer: EpochEndOffset) -> None:
        following, replica = followed.following, followed.replica
        now_ms = self._clock.monotonic_ms()
        if error := error_for(answer.error_code):
            following.failed(error, -1, replica.log, now_ms)
            return
        decision = following.epoch_answered(replica.log, answer.leader_epoch, answer.end_offset, now_ms)
        if decision is None:
            log.warning("%s: the leader knows nothing of epoch %d", replica.topic_partition, following.asked_epoch)
            return
        log_ = replica.log
        if decision.offset < log_.log_start_offset:
            self._restart_log(replica, decision.offset)
        elif decision.offset < log_.log_end_offset:
            log.info("%s: truncated from %d to %d", replica.topic_partition, log_.log_end_offset, decision.offset)
            log_.truncate_to(decision.offset)
            self._log_was_cut(replica)
        following.truncated(decision, log_)

    # --- fetching --------------------------------------------------------------------------------------------

    def _send_fetch(self, connection: Peer) -> InFlight:
        settings = self._settings
        followed = tuple(self._fetching.values())
        asks = tuple(each.ask or each.next_ask(settings.partition_max_bytes) for each in followed)
        request = FetchRequest(settings.broker_id, settings.max_wait_ms, 1, settings.response_max_bytes, asks)
        answer = connection.send(request, timeout_ms=settings.max_wait_ms + settings.request_timeout_ms)
        answer.add_done_callback(self._signal.set)
        return InFlight(answer, followed, asks)

    def _apply(self, sent: InFlight, response: FetchResponse) -> None:
        for followed, ask, answer in zip(sent.followed, sent.asks, response.partitions, strict=True):
            # Another epoch, another log end, or dropped: this answer is about a log that is no more.
            if followed.ask is not ask or followed.replica.log.log_end_offset != ask.fetch_offset:
                continue
            replica = followed.replica
            news = answer.error_code or answer.records or answer.log_start_offset > replica.log.log_start_offset
            if not news:
                replica.partition.leader_reported(answer.high_watermark, ask.fetch_offset)
            else:
                self._guarded(followed, self._apply_fetched, answer)

    def _apply_fetched(self, followed: Followed, answer: FetchPartitionResponse) -> None:
        replica, following = followed.replica, followed.following
        followed.ask = None
        error = error_for(answer.error_code)
        if error is not None:
            log.info("%s: broker %d: %s", replica.topic_partition, self.leader, error)
            now_ms = self._clock.monotonic_ms()
            restart = following.failed(error, answer.log_start_offset, replica.log, now_ms)
            if restart is not None:
                self._restart_log(replica, restart.offset)
            return
        if answer.records:
            replica.log.append_as_follower(answer.records)
        following.fetched()
        replica.partition.leader_reported(answer.high_watermark, replica.log.log_end_offset)
        # What the leader has dropped goes here too; never more than is known to be committed.
        replica.log.raise_log_start(min(answer.log_start_offset, replica.partition.high_watermark))
        tp = replica.topic_partition
        if self._fetching.pop(tp, None):
            self._fetching[tp] = followed

    def _guarded(self, followed: Followed, apply: Callable[[Followed, Answer], None], answer: Answer) -> None:
        """Apply one partition's answer; what goes wrong with it delays no other."""
        try:
            apply(followed, answer)
        except StorageError as error:
            self._on_storage_error(error, followed.replica.topic_partition)
            followed.following.delay(self._clock.monotonic_ms())
        except BrokerError as error:
            log.warning("%s: cannot take over what broker %d sent: %s", followed.replica.topic_partition, self.leader,
                        error)  # fmt: skip
            followed.following.delay(self._clock.monotonic_ms())
        if self.partitions.get(followed.replica.topic_partition) is followed:
            self._settle(followed)

    def _settle(self, followed: Followed) -> None:
        """Put the partition where its state says that it belongs.

        With those that are fetched, or that align or are delayed; or with none of them while its log is being synced,
        since to fetch on is to acknowledge: then `synced` brings it back.
        """
        replica = followed.replica
        tp = replica.topic_partition
        if replica.flushes:
            replica.flush_if_due()
        if not followed.following.is_due(Phase.FETCHING, self._clock.monotonic_ms()):
            followed.ask = None
            self._fetching.pop(tp, None)
            self._unsettled[tp] = followed
            return
        self._unsettled.pop(tp, None)
        if replica.flushes and replica.waits_for_disk:
            followed.ask = None
            self._fetching.pop(tp, None)
        elif tp not in self._fetching:
            self._fetching[tp] = followed
            self._changed = True

    def _wake_delayed(self) -> int | None:
        """Take up again those whose delay is over; when the next one's will be."""
        now_ms = self._clock.monotonic_ms()
        for followed in list(self._unsettled.values()):
            self._settle(followed)
        waits = [max(each.following.delayed_until_ms, now_ms + 1) for each in self._unsettled.values()]
        return min(waits, default=None)

    def _restart_log(self, replica: Replica, offset: int) -> None:
        log_ = replica.log
        log.warning("%s: dropped [%d, %d), begins anew at %d", replica.topic_partition, log_.log_start_offset,
                    log_.log_end_offset, offset)  # fmt: skip
        log_.truncate_fully_and_start_at(offset)
        self._log_was_cut(replica)

    def _log_was_cut(self, replica: Replica) -> None:
        log_ = replica.log
        if replica.partition.truncated(log_.log_start_offset, log_.log_end_offset):
            log.warning("%s: records below the high watermark were cut", replica.topic_partition)


def _address(broker: BrokerInfo) -> tuple[int, str, int]:
    return broker.epoch, broker.replication_host, broker.replication_port


@dataclass(frozen=True, slots=True)
class InFlight:
    """A fetch without an answer, and what it said of whom."""

    answer: asyncio.Future[Response]
    followed: tuple[Followed, ...]
    asks: tuple[FetchPartition, ...]
