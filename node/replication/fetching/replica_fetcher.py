"""Fetch from one leader broker the partitions that this broker follows (Kafka's ReplicaFetcherThread).

Aligning: the fetcher aligns new partitions with the leader's log by leader epoch, with one OffsetForLeaderEpoch request
in flight at a time.

Fetching: the fetcher keeps one fetch in flight for all aligned partitions.
- The fetches over a connection form a fetch session (KIP-227). A fetch names the partitions whose log end, leader epoch
  or log start has changed, and covers all others implicitly. The next fetch goes out at once, because it acknowledges
  the records of the answer before it.
- A request names at most a few hundred partitions, so that no broker handles thousands of them at once. The next
  request follows without a wait.
- If a partition must be named while a fetch is parked at the leader, the fetcher sends a second fetch. The leader then
  answers the parked one with what it has.
- If fetches bring no news, each waits twice as long as the one before, up to a bound. After a fetch with news the waits
  are short again, so that the new high watermark follows soon.

Throttling (KIP-73): throttled partitions that are not in sync wait in a queue while the throttle allows no bytes. Else
the first few of them are fetched. A partition whose records have arrived goes to the end of the queue. So after the
throttle begins to pause, the fetches in flight bring only the records of a few partitions. If their records do not
arrive, because the leader's own throttle pauses, and no partition was admitted for a second, the oldest of them go to
the end of the queue, as many as wait there.

The fetcher does not resend a slow request. A connection delivers in order or ends, and it ends a few seconds after the
last heartbeat (`node.net.zeromq.connection`). So a late answer is still in transit over a narrow link, and a
second request would only delay it more.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, TypeVar

from cluster.backoff import Backoff
from cluster.replication.follower import Phase
from node.replication.fetching.partition_fetch_state import PartitionFetchState
from node.runtime.loop_budget import LoopBudget
from node.runtime.rate_limit import RateLimit
from tidelog.client.tasks.async_event import Signal
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
#: The limit of partitions that one request names. The leader needs about 3 ms for so many.
_MAX_NAMED = 512
#: The limit of throttled partitions in the fetch session that are not in sync.
_MAX_THROTTLED = 16
#: The shortest turn of a throttled partition without records, if others wait. A turn must not end at the first answer:
#: the leader answers a fetch that names throttled partitions at once, so that the fetches would form a loop.
_TURN_MS = 1000
#: The longest wait for the throttle, after which the present rate is looked at again.
_LOOK_AGAIN_MS = 1000
#: The limit of fetches in flight: one parked at the leader, and one more that makes the leader answer the first.
_MAX_FETCHES = 2


class Peer(Protocol):
    """The part of `node.net.zeromq.connection.Connection` that the fetcher uses."""

    @property
    def peer(self) -> ApiVersionsResponse: ...
    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]: ...
    def close(self) -> None: ...


Answer = TypeVar("Answer")

#: Opens a connection under this broker's current registration.
Opener = Callable[[Endpoint], Awaitable[Peer]]


@frozen
class FetchSettings:
    """The settings of a follower's fetches.

    max_wait_ms          how long a fetch may wait for records at the leader
    idle_wait_ms         the longest wait, reached when earlier fetches brought no news
    request_timeout_ms   how long a live leader may take beyond the wait of the fetch. In that time an answer of
                         `response_max_bytes` must fit through the narrowest link: 1.4 Mbit/s
    """

    broker_id: int
    max_wait_ms: int = 500
    idle_wait_ms: int = 2000
    partition_max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    request_timeout_ms: int = 60_000


class ReplicaFetcher:
    """The fetch loop for one leader, which runs as the task `task` from the construction until `close`.

    `partitions` has the followed partitions of that leader.
    """

    def __init__(
        self,
        leader: int,
        settings: FetchSettings,
        opener: Opener,
        clock: Clock,
        loop_budget: LoopBudget,
        lost_ms: dict[int, int],
        throttle: RateLimit,
    ) -> None:
        """`lost_ms` has the leader from a failure of the connection on, with its time, until the next connection.

        `throttle` limits what the throttled partitions of all fetchers bring while they are not in sync.
        """
        self.leader = leader
        self.partitions: dict[TopicPartition, PartitionFetchState] = {}
        self._settings = settings
        self._opener = opener
        self._clock = clock
        self._loop_budget = loop_budget
        self._lost_ms = lost_ms
        self._throttle = throttle
        self._broker: BrokerInfo | None = None
        self._reconnect = False
        # The partitions in the fetch session; those of them that the next fetch must name; those that it must forget.
        self._fetching: dict[TopicPartition, PartitionFetchState] = {}
        self._to_add: dict[TopicPartition, PartitionFetchState] = {}
        self._to_forget: dict[TopicPartition, None] = {}
        # The partitions that align now, and a heap of those that wait after an error. Of the latter some may have been
        # removed since. A step looks only at those whose delay has ended.
        self._aligning: dict[TopicPartition, PartitionFetchState] = {}
        self._delayed: list[tuple[int, int, PartitionFetchState]] = []
        self._delay_numbers = itertools.count()
        # The throttled partitions that wait for their turn, and those of `_fetching` that have their turn. It ends with
        # records, or `_TURN_MS` after the last admission of any partition.
        self._queued: dict[TopicPartition, PartitionFetchState] = {}
        self._throttled: dict[TopicPartition, None] = {}
        self._admitted_ms = 0
        # The fetch session at the leader. Its id is 0 until the first answer has arrived.
        self._session_id = self._session_epoch = 0
        self._sent = 0
        self._wait_ms = settings.max_wait_ms
        self._signal = Signal()
        self.task = asyncio.get_running_loop().create_task(self._run())

    def put(self, fetch_state: PartitionFetchState) -> None:
        """Add a partition to fetch, or replace its earlier fetch state. The log is aligned before the first fetch."""
        tp = fetch_state.replica.topic_partition
        if tp in self.partitions:
            self.remove(tp)
        self.partitions[tp] = fetch_state
        self._reclassify(fetch_state)
        self._signal.set()

    def flushed(self, tp: TopicPartition) -> None:
        """Continue with the partition after a flush of its log, or after its flush settings have changed."""
        self._reclassify(self.partitions[tp])
        self._signal.set()

    def log_start_rose(self, tp: TopicPartition) -> None:
        """Have a fetch name the partition at once, because a DeleteRecords may wait for the new log start."""
        fetch_state = self.partitions[tp]
        if fetch_state.ask is not None:
            fetch_state.ask = None
            self._reclassify(fetch_state)
            self._signal.set()

    def remove(self, tp: TopicPartition) -> None:
        """Stop fetching the partition. Its answers in flight are not applied."""
        self._pause_fetching(tp, self.partitions.pop(tp))
        self._aligning.pop(tp, None)

    def set_broker(self, broker: BrokerInfo | None) -> None:
        """Take over the leader's registration, and reconnect if its epoch or its address has changed.

        None: the leader is not live, so the fetcher disconnects and does not connect.
        """
        before, self._broker = self._broker, broker
        if broker is None or before is None or _address(broker) != _address(before):
            self.reconnect()

    def reconnect(self) -> None:
        """Have the loop close the connection, and connect again without a pause if the leader is live."""
        self._reconnect = True
        self._signal.set()

    def close(self) -> None:
        """Cancel the loop's task, which closes the connection. Return at once."""
        self.task.cancel()

    async def _run(self) -> None:
        # A cancelled task keeps the traceback of its cancellation, which leads to this fetcher, which has the task. The
        # memory of such a cycle would wait for a garbage collection, and these are rare.
        with suppress(asyncio.CancelledError):
            await self._keep_fetching()

    async def _keep_fetching(self) -> None:
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
                await self._connect_and_fetch(broker.replication_endpoint, backoff)
            except TidelogError as error:
                self._lost_ms[self.leader] = self._clock.monotonic_ms()
                log.info("cannot fetch from broker %d: %s", self.leader, error)
            except Exception:
                log.exception("cannot fetch from broker %d", self.leader)
            await self._pause(backoff.next_ms())

    async def _pause(self, pause_ms: int) -> None:
        """Wait before the next attempt to connect, unless the address changes."""
        until_ms = self._clock.monotonic_ms() + pause_ms
        while not self._reconnect and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            await self._signal.wait(left_ms)

    async def _connect_and_fetch(self, endpoint: Endpoint, backoff: Backoff) -> None:
        connection = await self._opener(endpoint)
        self._lost_ms.pop(self.leader, None)
        in_flight = InFlight()
        self._begin_session()
        try:
            if connection.peer.broker_id != self.leader:
                raise ProtocolError(f"{endpoint} is broker {connection.peer.broker_id}, not {self.leader}")
            while not self._reconnect:
                await self._step(connection, in_flight, backoff)
        finally:
            in_flight.cancel()
            connection.close()

    async def _step(self, connection: Peer, in_flight: InFlight, backoff: Backoff) -> None:
        """Send the requests that are due, wait for an answer or a change, apply the answers that have arrived."""
        due_ms = (self._wake_delayed(), self._admit_throttled())
        next_due_ms = min((each for each in due_ms if each is not None), default=None)
        if self._aligning and in_flight.epoch_request is None:
            in_flight.epoch_request = self._send_epoch_request(connection)
        fetches = in_flight.fetches
        while self._is_fetch_due(len(fetches)):
            fetches.append(self._send_fetch(connection))
        if not in_flight.answered:
            timeout_ms = None if next_due_ms is None else max(1, next_due_ms - self._clock.monotonic_ms())
            await self._signal.wait(timeout_ms)
        if (epoch_request := in_flight.epoch_request) is not None and epoch_request.answer.done():
            in_flight.epoch_request = None
            await self._apply_epoch_answers(epoch_request, epoch_request.answer.result())
        try:
            while any(fetch.answer.done() for fetch in fetches):
                fetch = fetches.popleft()
                if not fetch.answer.done():
                    # The leader answers earlier fetches first, so this answer is lost. The leader does not repeat its
                    # news in this session, so a new session must begin.
                    raise InvalidFetchSessionEpochError(f"broker {self.leader} has skipped fetch {fetch.number}")
                await self._apply(fetch, fetch.answer.result())
                backoff.reset()
        except (FetchSessionIdNotFoundError, InvalidFetchSessionEpochError) as error:
            log.debug("beginning a new fetch session with broker %d: %s", self.leader, error)
            in_flight.cancel_fetches()
            self._begin_session()

    def _send(self, connection: Peer, request: Request, timeout_ms: int) -> asyncio.Future[Response]:
        answer = connection.send(request, timeout_ms=timeout_ms)
        answer.add_done_callback(self._signal.set)
        return answer

    # --- aligning the logs with the leader's -----------------------------------------------------------------

    def _send_epoch_request(self, connection: Peer) -> EpochRequest:
        """Ask where the last epochs of the first partitions end that must align."""
        due = tuple(islice(self._aligning.values(), _MAX_NAMED))
        entries = tuple(each.epoch_entry() for each in due)
        request = OffsetForLeaderEpochRequest(entries, self._settings.broker_id)
        return EpochRequest(self._send(connection, request, self._settings.request_timeout_ms), due)

    async def _apply_epoch_answers(self, sent: EpochRequest, response: Response) -> None:
        if not isinstance(response, OffsetForLeaderEpochResponse) or len(response.partitions) != len(sent.fetch_state):
            raise ProtocolError(f"broker {self.leader}: the answer does not match the OffsetForLeaderEpoch request")
        for fetch_state, answer in zip(sent.fetch_state, response.partitions, strict=True):
            if self._loop_budget.exhausted:
                await self._loop_budget.yield_()
            if self.partitions.get(fetch_state.replica.topic_partition) is fetch_state:
                self._apply_or_delay(fetch_state, fetch_state.epoch_answered, answer)

    # --- fetching --------------------------------------------------------------------------------------------

    def _begin_session(self) -> None:
        """Begin a new fetch session, whose first fetches name all partitions."""
        self._session_id = self._session_epoch = 0
        self._wait_ms = self._settings.max_wait_ms
        self._to_forget.clear()
        for fetch_state in self.partitions.values():
            fetch_state.dropped()
        # Partitions that no fetch has named yet come first, because sessions may go on ending before their turn.
        self._to_add = self._to_add | self._fetching

    def _is_fetch_due(self, in_flight: int) -> bool:
        if not self._fetching or not in_flight:
            return bool(self._fetching)
        # A second fetch needs a session that has begun. The fetch that begins a session is answered at once.
        return bool(self._to_add) and self._session_id > 0 and in_flight < _MAX_FETCHES

    def _send_fetch(self, connection: Peer) -> Fetch:
        settings = self._settings
        self._sent += 1
        to_add = dict(islice(self._to_add.items(), _MAX_NAMED))
        for tp in to_add:
            del self._to_add[tp]
            self._to_forget.pop(tp, None)
        forgotten, self._to_forget = self._to_forget, {}
        request = FetchRequest(
            settings.broker_id,
            self._wait_ms,
            1,
            settings.response_max_bytes,
            tuple([each.add_to_request(settings.partition_max_bytes, self._sent) for each in to_add.values()]),
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            forgotten=tuple([ForgottenPartition(*tp) for tp in forgotten]),
        )
        self._session_epoch += 1
        answer = self._send(connection, request, self._wait_ms + settings.request_timeout_ms)
        return Fetch(answer, self._sent)

    async def _apply(self, sent: Fetch, response: Response) -> None:
        if not isinstance(response, FetchResponse):
            raise ProtocolError(f"broker {self.leader}: the answer does not match the Fetch request")
        self._session_id = response.session_id
        settings = self._settings
        self._wait_ms = settings.max_wait_ms if response.partitions else min(2 * self._wait_ms, settings.idle_wait_ms)
        for answer in response.partitions:
            if self._loop_budget.exhausted:
                await self._loop_budget.yield_()
            fetch_state = self.partitions.get(TopicPartition(answer.topic, answer.partition))
            # If a later fetch has named the partition again, its own answer will follow.
            if fetch_state is not None and 0 < fetch_state.requested_in <= sent.number:
                self._apply_one(fetch_state, answer)
        self._end_turns(sent)

    def _apply_one(self, fetch_state: PartitionFetchState, answer: FetchPartitionResponse) -> None:
        ask, replica = fetch_state.ask, fetch_state.replica
        if replica.throttled_as_follower and answer.records:
            self._throttle.record(len(answer.records), self._clock.monotonic_ms())
        left_session = bool(answer.error_code or answer.records)
        if left_session:
            fetch_state.dropped()
        # An answer to an entry from before a truncation or an append is about another log end, so it is not applied.
        if ask is None or not fetch_state.is_current(ask):
            fetch_state.ask = None
            self._reclassify(fetch_state)
        elif left_session or answer.log_start_offset > replica.log.log_start_offset:
            self._apply_or_delay(fetch_state, fetch_state.fetch_answered, answer)
        else:
            fetch_state.leader_reported(answer.high_watermark)
            if not fetch_state.lags:
                self._throttled.pop(replica.topic_partition, None)

    def _apply_or_delay(
        self, fetch_state: PartitionFetchState, apply: Callable[[Answer, int], None], answer: Answer
    ) -> None:
        """Apply one partition's answer. An error delays this partition and no other one."""
        tp, now_ms = fetch_state.replica.topic_partition, self._clock.monotonic_ms()
        try:
            apply(answer, now_ms)
        except StorageError as error:
            fetch_state.replica.storage_failed(error)
            fetch_state.following.delay(now_ms)
        except BrokerError as error:
            log.warning("%s: cannot apply the answer of broker %d: %s", tp, self.leader, error)
            fetch_state.following.delay(now_ms)
        self._loop_budget.charge(self._clock.monotonic_ms() - now_ms)
        if self.partitions.get(tp) is fetch_state:
            self._reclassify(fetch_state)

    def _reclassify(self, fetch_state: PartitionFetchState) -> None:
        """Put the partition into the collection that fits its state.

        A. The partition waits after an error: `_delayed`.
        B. The partition aligns: `_aligning`, also while an OffsetForLeaderEpoch request with it is in flight.
        C. A flush of its log is in progress: no collection, because the next fetch would acknowledge records that are
           not flushed yet. `flushed` brings the partition back.
        D. The partition is throttled, and no fetch covers it: `_queued`, at the end, so that all partitions have turns.
        E. Else: `_fetching`, and `_to_add` if a fetch must name it.
        """
        replica = fetch_state.replica
        tp = replica.topic_partition
        if replica.flushes:
            replica.flush_if_due()
        following = fetch_state.following
        if following.is_delayed(self._clock.monotonic_ms()):  # A
            self._pause_fetching(tp, fetch_state)
            self._aligning.pop(tp, None)
            heapq.heappush(self._delayed, (following.delayed_until_ms, next(self._delay_numbers), fetch_state))
            return
        if following.phase is Phase.ALIGNING:  # B
            self._pause_fetching(tp, fetch_state)
            self._aligning[tp] = fetch_state
            return
        self._aligning.pop(tp, None)
        if replica.flushes and replica.waits_for_disk:  # C
            self._pause_fetching(tp, fetch_state)
            return
        if not self._is_throttled(fetch_state):
            self._queued.pop(tp, None)
            self._throttled.pop(tp, None)
        elif not fetch_state.requested_in:  # D
            self._pause_fetching(tp, fetch_state)
            self._queued[tp] = fetch_state
            return
        self._fetching[tp] = fetch_state  # E
        if fetch_state.ask is None:
            self._to_add[tp] = fetch_state

    def _pause_fetching(self, tp: TopicPartition, fetch_state: PartitionFetchState) -> None:
        """Remove the partition from the fetch session, so that later fetches do not cover it."""
        if fetch_state.requested_in:
            self._to_forget[tp] = None
        fetch_state.dropped()
        for collection in (self._fetching, self._to_add, self._queued, self._throttled):
            collection.pop(tp, None)

    def _is_throttled(self, fetch_state: PartitionFetchState) -> bool:
        return fetch_state.replica.throttled_as_follower and fetch_state.lags and self._throttle.is_set

    def _admit_throttled(self) -> int | None:
        """Admit throttled partitions to the next fetch if the throttle allows bytes now, and all if it was removed.

        Return when to look again, or None if no partition waits for the time.
        """
        now_ms = self._clock.monotonic_ms()
        while self._queued and (len(self._throttled) < _MAX_THROTTLED or not self._throttle.is_set):
            if pause_ms := self._throttle.pause_ms(now_ms):
                return now_ms + min(pause_ms, _LOOK_AGAIN_MS)
            tp = next(iter(self._queued))
            self._fetching[tp] = self._to_add[tp] = self._queued.pop(tp)
            self._throttled[tp] = None
            self._admitted_ms = now_ms
        return None

    def _end_turns(self, answered: Fetch) -> None:
        """Move the oldest throttled partitions without records to the end of the queue, as many as wait there.

        Called after each answer. Records of a second fetch in flight are ignored, and are fetched in the next turn.
        """
        if len(self._throttled) < _MAX_THROTTLED or self._clock.monotonic_ms() < self._admitted_ms + _TURN_MS:
            return
        for tp in list(islice(self._throttled, len(self._queued))):
            fetch_state = self.partitions[tp]
            if 0 < fetch_state.requested_in <= answered.number:
                self._pause_fetching(tp, fetch_state)
                self._queued[tp] = fetch_state

    def _wake_delayed(self) -> int | None:
        """Reclassify the partitions whose delay has ended. Return when the next delay ends, or None."""
        now_ms = self._clock.monotonic_ms()
        while self._delayed and self._delayed[0][0] <= now_ms:
            fetch_state = heapq.heappop(self._delayed)[2]
            if self.partitions.get(fetch_state.replica.topic_partition) is fetch_state:
                self._reclassify(fetch_state)
        return self._delayed[0][0] if self._delayed else None


def _address(broker: BrokerInfo) -> tuple[int, Endpoint]:
    return broker.epoch, broker.replication_endpoint


@frozen
class EpochRequest:
    """An OffsetForLeaderEpoch request in flight, and the partitions that it names, in order."""

    answer: asyncio.Future[Response]
    fetch_state: tuple[PartitionFetchState, ...]


@frozen
class Fetch:
    """A fetch in flight. `number` counts all fetches of this fetcher."""

    answer: asyncio.Future[Response]
    number: int


@dataclass(slots=True)
class InFlight:
    """The requests of one connection whose answers are not applied yet; the fetches in the order of sending."""

    epoch_request: EpochRequest | None = None
    fetches: deque[Fetch] = field(default_factory=deque)

    @property
    def answered(self) -> bool:
        """Return whether an answer waits to be applied."""
        epoch_request = self.epoch_request
        return (epoch_request is not None and epoch_request.answer.done()) or any(
            fetch.answer.done() for fetch in self.fetches
        )

    def cancel(self) -> None:
        """Stop waiting for all answers."""
        if self.epoch_request is not None:
            self.epoch_request.answer.cancel()
        self.cancel_fetches()

    def cancel_fetches(self) -> None:
        """Stop waiting for the answers to fetches, because their session has ended."""
        for fetch in self.fetches:
            fetch.answer.cancel()
        self.fetches.clear()
