"""The conversation of a follower with one broker that leads something it replicates.

It aligns new partitions by epoch, one look-up at a time, and keeps one fetch in flight for all that are aligned. The
fetches over a connection are a session (KIP-227): each names those whose log end, epoch or log start has changed and
stands for all the others, so that it acknowledges what the answer before it brought; it goes out at once. When
somebody is to be named while a fetch is parked at the leader, another is sent on top: the leader then answers the
parked one with what it has. Where fetch after fetch brings nothing, each waits twice as long as the one before, up to a
bound; the first that brings something is followed by short ones again, so that the high watermark comes soon after it.

Nothing is given up for being slow. A connection delivers in order or ends, and it ends a few seconds after the last
sign of life (`tidelog.protocol.native.connection`): what is late is on its way through a narrow link, and asking for it
once more would make it later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from cluster.backoff import Backoff
from cluster.replication.follower import Phase
from node.replication.fetching.partition_fetch_state import PartitionFetchState
from node.runtime.loop_budget import LoopBudget
from tidelog.client.async_event import Signal
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    ProtocolError,
    StorageError,
    TidelogError,
)
from tidelog.frozen_dataclass import frozen
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.control_messages import BrokerInfo
from tidelog.protocol.messages import (
    ApiVersionsResponse,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ForgottenPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    Request,
    Response,
)

log = logging.getLogger(__name__)

_MIN_RECONNECT_MS = 50
_MAX_RECONNECT_MS = 250
#: One that is parked, and one on top of it that makes the leader answer the first.
_MAX_FETCHES = 2


class Peer(Protocol):
    """What is needed of `tidelog.protocol.native.connection.Connection`."""

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

    max_wait_ms          how long a fetch may wait for records
    idle_wait_ms         and up to how long where those before it have brought nothing
    request_timeout_ms   the patience beyond the wait that the fetch itself allows, with a leader that lives and does
                         not answer. In that time `response_max_bytes` must fit through the narrowest link: 1.4 Mbit/s
    """

    broker_id: int
    max_wait_ms: int = 500
    idle_wait_ms: int = 2000
    partition_max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    request_timeout_ms: int = 60_000


class ReplicaFetcher:
    """The fetch loop to one leader; lives as long as there is something to fetch from it.

    on_storage_error   told when an append or a truncation fails on the disk
    """

    def __init__(
        self,
        leader: int,
        settings: FetchSettings,
        opener: Opener,
        clock: Clock,
        loop_budget: LoopBudget,
        on_storage_error: Callable[[StorageError, TopicPartition], None],
    ) -> None:
        self.leader = leader
        self.partitions: dict[TopicPartition, PartitionFetchState] = {}
        self._on_storage_error = on_storage_error
        self._settings = settings
        self._opener = opener
        self._clock = clock
        self._loop_budget = loop_budget
        self._broker: BrokerInfo | None = None
        self._reconnect = False
        # Those that are fetched; of them those that the next fetch must name; and whom it must call off.
        self._fetching: dict[TopicPartition, PartitionFetchState] = {}
        self._unnamed: dict[TopicPartition, PartitionFetchState] = {}
        self._forgotten: dict[TopicPartition, None] = {}
        # Those that align or wait after an error, so that a quiet turn looks at none of the others.
        self._unsettled: dict[TopicPartition, PartitionFetchState] = {}
        # Of the session at the leader; without an id until its first answer has come.
        self._session_id = self._session_epoch = 0
        self._sent = 0
        self._wait_ms = settings.max_wait_ms
        self._signal = Signal()
        self.task = asyncio.get_running_loop().create_task(self._run())

    def put(self, followed: PartitionFetchState) -> None:
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

    def log_start_rose(self, tp: TopicPartition) -> None:
        """By our own retention. The leader, which waits for it where somebody deletes records, hears of it at once."""
        followed = self.partitions[tp]
        if followed.ask is not None:
            followed.ask = None
            self._settle(followed)
            self._signal.set()

    def remove(self, tp: TopicPartition) -> None:
        """Fetch it no more."""
        self._pause_fetching(tp, self.partitions.pop(tp))
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
        self._begin_session()
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
        if self._is_fetch_due(len(fetches)):
            fetches.append(self._send_fetch(connection))
        if not in_flight.answered:
            timeout_ms = None if next_due_ms is None else max(1, next_due_ms - self._clock.monotonic_ms())
            await self._signal.wait(timeout_ms)
        if (look_up := in_flight.look_up) is not None and look_up.answer.done():
            in_flight.look_up = None
            await self._apply_look_up(look_up, look_up.answer.result())
        try:
            while any(fetch.answer.done() for fetch in fetches):
                fetch = fetches.popleft()
                if not fetch.answer.done():
                    # The leader answers the earlier first: this answer is lost, and what it told is told no more.
                    raise InvalidFetchSessionEpochError(f"broker {self.leader} has skipped a fetch")
                await self._apply(fetch, fetch.answer.result())
                backoff.reset()
        except (FetchSessionIdNotFoundError, InvalidFetchSessionEpochError) as error:
            log.debug("the fetch session with broker %d begins anew: %s", self.leader, error)
            in_flight.give_up_fetches()
            self._begin_session()

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

    async def _apply_look_up(self, sent: LookUp, response: Response) -> None:
        if not isinstance(response, OffsetForLeaderEpochResponse) or len(response.partitions) != len(sent.followed):
            raise ProtocolError(f"broker {self.leader} answered another question than was asked")
        for followed, answer in zip(sent.followed, response.partitions, strict=True):
            if self._loop_budget.exhausted:
                await self._loop_budget.yield_()
            if self.partitions.get(followed.replica.topic_partition) is followed:
                self._guarded(followed, followed.epoch_answered, answer)

    # --- fetching --------------------------------------------------------------------------------------------

    def _begin_session(self) -> None:
        """Whatever the leader knew of our fetches counts no more: the next one names everything."""
        self._session_id = self._session_epoch = 0
        self._wait_ms = self._settings.max_wait_ms
        self._forgotten.clear()
        for followed in self.partitions.values():
            followed.forgotten()
        self._unnamed = dict(self._fetching)

    def _is_fetch_due(self, in_flight: int) -> bool:
        if not self._fetching or not in_flight:
            return bool(self._fetching)
        # On top of another only in a session that has begun: to begin is answered at once.
        return bool(self._unnamed) and self._session_id > 0 and in_flight < _MAX_FETCHES

    def _send_fetch(self, connection: Peer) -> Fetch:
        settings = self._settings
        self._sent += 1
        unnamed, self._unnamed = self._unnamed, {}
        for tp in unnamed:
            self._forgotten.pop(tp, None)
        forgotten, self._forgotten = self._forgotten, {}
        request = FetchRequest(
            settings.broker_id,
            self._wait_ms,
            1,
            settings.response_max_bytes,
            tuple([each.name(settings.partition_max_bytes, self._sent) for each in unnamed.values()]),
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            forgotten=tuple([ForgottenPartition(*tp) for tp in forgotten]),
        )
        self._session_epoch += 1
        answer = self._send(connection, request, self._wait_ms + settings.request_timeout_ms)
        return Fetch(answer, self._sent)

    async def _apply(self, sent: Fetch, response: Response) -> None:
        if not isinstance(response, FetchResponse):
            raise ProtocolError(f"broker {self.leader} answered another question than was asked")
        self._session_id = response.session_id
        settings = self._settings
        self._wait_ms = settings.max_wait_ms if response.partitions else min(2 * self._wait_ms, settings.idle_wait_ms)
        for answer in response.partitions:
            if self._loop_budget.exhausted:
                await self._loop_budget.yield_()
            followed = self.partitions.get(TopicPartition(answer.topic, answer.partition))
            # What was named again since is answered again.
            if followed is not None and 0 < followed.named_in <= sent.number:
                self._apply_one(followed, answer)

    def _apply_one(self, followed: PartitionFetchState, answer: FetchPartitionResponse) -> None:
        ask, replica = followed.ask, followed.replica
        over = bool(answer.error_code or answer.records)
        if over:
            followed.forgotten()
        if ask is None or not followed.awaits(ask):
            followed.ask = None
            self._settle(followed)
        elif over or answer.log_start_offset > replica.log.log_start_offset:
            self._guarded(followed, followed.fetch_answered, answer)
        else:
            followed.following.fetched()
            replica.leader_reported(answer.high_watermark)

    def _guarded(self, followed: PartitionFetchState, apply: Callable[[Answer, int], None], answer: Answer) -> None:
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
        self._loop_budget.charge(self._clock.monotonic_ms() - now_ms)
        if self.partitions.get(tp) is followed:
            self._settle(followed)

    def _settle(self, followed: PartitionFetchState) -> None:
        """Put the partition where its state says that it belongs.

        With those that are fetched, or that align or are delayed; or with none of them while its log is being synced,
        since to fetch on is to acknowledge: then `synced` brings it back.
        """
        replica = followed.replica
        tp = replica.topic_partition
        if replica.flushes:
            replica.flush_if_due()
        if not followed.following.is_due(Phase.FETCHING, self._clock.monotonic_ms()):
            self._pause_fetching(tp, followed)
            self._unsettled[tp] = followed
            return
        self._unsettled.pop(tp, None)
        if replica.flushes and replica.waits_for_disk:
            self._pause_fetching(tp, followed)
            return
        self._fetching[tp] = followed
        if followed.ask is None:
            self._unnamed[tp] = followed

    def _pause_fetching(self, tp: TopicPartition, followed: PartitionFetchState) -> None:
        """The leader must not take the next fetches for this one's too."""
        if followed.named_in:
            self._forgotten[tp] = None
        followed.forgotten()
        self._fetching.pop(tp, None)
        self._unnamed.pop(tp, None)

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
    followed: tuple[PartitionFetchState, ...]


@frozen
class Fetch:
    """A fetch, by its number among all of this conversation."""

    answer: asyncio.Future[Response]
    number: int


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
        self.give_up_fetches()

    def give_up_fetches(self) -> None:
        """What is still answered of them is about a session that is over."""
        for fetch in self.fetches:
            fetch.answer.cancel()
        self.fetches.clear()
