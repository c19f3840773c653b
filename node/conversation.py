"""The conversation of a follower with one broker that leads something it replicates.

It aligns new partitions by epoch, one look-up at a time, and keeps one fetch in flight for all that are aligned. Each
fetch says how far every log reaches, so that it acknowledges what the answer before it brought; it goes out at once.
When somebody is to be fetched whom the fetch that is parked at the leader does not name, another is sent on top: the
leader then answers the parked one with what it has.

Nothing is given up for being slow. A connection delivers in order or ends, and it ends a few seconds after the last
sign of life (`tidelog.connection`): what is late is on its way through a narrow link, and asking for it once more
would make it later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from cluster.backoff import Backoff
from cluster.follower import Phase
from node.followed import Followed
from tidelog.clock import Clock
from tidelog.control_messages import BrokerInfo
from tidelog.errors import BrokerError, ProtocolError, StorageError, TidelogError
from tidelog.frozen import frozen
from tidelog.messages import (
    ApiVersionsResponse,
    FetchPartition,
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
_MAX_RECONNECT_MS = 250
#: One that is parked, and one on top of it that makes the leader answer the first.
_MAX_FETCHES = 2


class Peer(Protocol):
    """What is needed of `tidelog.connection.Connection`."""

    @property
    def peer(self) -> ApiVersionsResponse: ...
    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]: ...
    def close(self) -> None: ...


Answer = TypeVar("Answer")

#: Opens a connection under this broker's present registration.
Opener = Callable[[Endpoint], Awaitable[Peer]]


@frozen
class FetchSettings:
    """How a follower asks.

    request_timeout_ms   the patience beyond the wait that the fetch itself allows, with a leader that lives and does
                         not answer. In that time `response_max_bytes` must fit through the narrowest link: 1.4 Mbit/s
    """

    broker_id: int
    max_wait_ms: int = 500
    partition_max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    request_timeout_ms: int = 60_000


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
        self._unnamed = False  # somebody is in `_fetching` whom no fetch in flight names
        self._signal = Signal()
        self.task = asyncio.get_running_loop().create_task(self._run())

    def put(self, followed: Followed) -> None:
        """Fetch this partition too, from now on."""
        tp = followed.replica.topic_partition
        if tp in self.partitions:
            self.remove(tp)
        self.partitions[tp] = followed
        self._settle(followed)
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
            if self._reconnect:
                self._reconnect = False
                backoff.reset()
            broker = self._broker
            if broker is None:
                await self._signal.wait()
                continue
            try:
                await self._dial(broker.replication_endpoint, backoff)
            except TidelogError as error:
                log.info("fetching from broker %d: %s", self.leader, error)
            except Exception:
                log.exception("fetching from broker %d failed", self.leader)
            await self._pause(backoff.next_ms())

    async def _pause(self, pause_ms: int) -> None:
        """Before the next dial, unless it has become another one."""
        until_ms = self._clock.monotonic_ms() + pause_ms
        while not self._reconnect and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            await self._signal.wait(left_ms)

    async def _dial(self, endpoint: Endpoint, backoff: Backoff) -> None:
        connection = await self._opener(endpoint)
        in_flight = InFlight()
        try:
            if connection.peer.broker_id != self.leader:
                raise ProtocolError(f"{endpoint} is broker {connection.peer.broker_id}, not {self.leader}")
            while not self._reconnect:
                await self._turn(connection, in_flight, backoff)
        finally:
            in_flight.give_up()
            connection.close()

    async def _turn(self, connection: Peer, in_flight: InFlight, backoff: Backoff) -> None:
        """Ask what is to be asked, wait for something to happen, apply what has arrived."""
        next_due_ms = None
        if self._unsettled:
            next_due_ms = self._wake_delayed()
            if in_flight.look_up is None:
                in_flight.look_up = self._send_look_up(connection)
        fetches = in_flight.fetches
        if self._fetching and (not fetches or (self._unnamed and len(fetches) < _MAX_FETCHES)):
            fetches.append(self._send_fetch(connection))
            self._unnamed = False
        if not in_flight.answered:
            timeout_ms = None if next_due_ms is None else max(1, next_due_ms - self._clock.monotonic_ms())
            await self._signal.wait(timeout_ms)
        if (look_up := in_flight.look_up) is not None and look_up.answer.done():
            in_flight.look_up = None
            self._apply_look_up(look_up, look_up.answer.result())
        # Of one connection's fetches the leader answers the earlier first: one that it has skipped it never answers.
        while any(fetch.answer.done() for fetch in fetches):
            fetch = fetches.popleft()
            if fetch.answer.done():
                self._apply(fetch, fetch.answer.result())
                backoff.reset()
            else:
                fetch.answer.cancel()

    def _send(self, connection: Peer, request: Request, timeout_ms: int) -> asyncio.Future[Response]:
        answer = connection.send(request, timeout_ms=timeout_ms)
        answer.add_done_callback(self._signal.set)
        return answer

    # --- aligning --------------------------------------------------------------------------------------------

    def _send_look_up(self, connection: Peer) -> LookUp | None:
        """Asks where the last epochs of those end that are to be aligned now; None where nobody is."""
        now_ms = self._clock.monotonic_ms()
        due = tuple(each for each in self._unsettled.values() if each.following.is_due(Phase.ALIGNING, now_ms))
        if not due:
            return None
        questions = tuple(each.question() for each in due)
        request = OffsetForLeaderEpochRequest(questions, self._settings.broker_id)
        return LookUp(self._send(connection, request, self._settings.request_timeout_ms), due)

    def _apply_look_up(self, sent: LookUp, response: Response) -> None:
        if not isinstance(response, OffsetForLeaderEpochResponse) or len(response.partitions) != len(sent.followed):
            raise ProtocolError(f"broker {self.leader} answered another question than was asked")
        for followed, answer in zip(sent.followed, response.partitions, strict=True):
            if self.partitions.get(followed.replica.topic_partition) is followed:
                self._guarded(followed, followed.epoch_answered, answer)

    # --- fetching --------------------------------------------------------------------------------------------

    def _send_fetch(self, connection: Peer) -> Fetch:
        settings = self._settings
        followed = tuple(self._fetching.values())
        asks = tuple(each.ask or each.next_ask(settings.partition_max_bytes) for each in followed)
        request = FetchRequest(settings.broker_id, settings.max_wait_ms, 1, settings.response_max_bytes, asks)
        answer = self._send(connection, request, settings.max_wait_ms + settings.request_timeout_ms)
        return Fetch(answer, followed, asks)

    def _apply(self, sent: Fetch, response: Response) -> None:
        if not isinstance(response, FetchResponse) or len(response.partitions) != len(sent.followed):
            raise ProtocolError(f"broker {self.leader} answered another question than was asked")
        for followed, ask, answer in zip(sent.followed, sent.asks, response.partitions, strict=True):
            if not followed.awaits(ask):
                continue
            replica = followed.replica
            news = answer.error_code or answer.records or answer.log_start_offset > replica.log.log_start_offset
            if not news:
                replica.partition.leader_reported(answer.high_watermark, ask.fetch_offset)
                continue
            self._guarded(followed, followed.fetch_answered, answer)
            # Whoever got records waits until all others had their share of an answer.
            if self._fetching.pop(replica.topic_partition, None):
                self._fetching[replica.topic_partition] = followed

    def _guarded(self, followed: Followed, apply: Callable[[Answer, int], None], answer: Answer) -> None:
        """Apply one partition's answer; what goes wrong with it delays no other."""
        tp, now_ms = followed.replica.topic_partition, self._clock.monotonic_ms()
        try:
            apply(answer, now_ms)
        except StorageError as error:
            self._on_storage_error(error, tp)
            followed.following.delay(now_ms)
        except BrokerError as error:
            log.warning("%s: cannot take over what broker %d sent: %s", tp, self.leader, error)
            followed.following.delay(now_ms)
        if self.partitions.get(tp) is followed:
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
            self._unnamed = True

    def _wake_delayed(self) -> int | None:
        """Take up again those whose delay is over; when the next one's will be."""
        now_ms = self._clock.monotonic_ms()
        for followed in list(self._unsettled.values()):
            self._settle(followed)
        ends = (each.following.delayed_until_ms for each in self._unsettled.values())
        return min((end_ms for end_ms in ends if end_ms > now_ms), default=None)


def _address(broker: BrokerInfo) -> tuple[int, Endpoint]:
    return broker.epoch, broker.replication_endpoint


@frozen
class LookUp:
    """A question for the ends of epochs, and about whom."""

    answer: asyncio.Future[Response]
    followed: tuple[Followed, ...]


@frozen
class Fetch:
    """A fetch, and what it says of whom."""

    answer: asyncio.Future[Response]
    followed: tuple[Followed, ...]
    asks: tuple[FetchPartition, ...]


@dataclass(slots=True)
class InFlight:
    """What was asked over one connection and not taken account of yet; the fetches in the order of asking."""

    look_up: LookUp | None = None
    fetches: deque[Fetch] = field(default_factory=deque)

    @property
    def answered(self) -> bool:
        """Whether there is an answer to take account of."""
        look_up = self.look_up
        return (look_up is not None and look_up.answer.done()) or any(fetch.answer.done() for fetch in self.fetches)

    def give_up(self) -> None:
        """Nobody waits for any of it."""
        if self.look_up is not None:
            self.look_up.answer.cancel()
        for fetch in self.fetches:
            fetch.answer.cancel()
