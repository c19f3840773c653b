"""Share one connection per broker and the cluster's metadata among the parts of one client.

Requests are not retried here, because only the caller knows whether a request may be repeated; `call_any` is the
exception. Two guarantees hold. A broker that is down or hangs never prevents a metadata refresh from asking the other
brokers. If the bootstrap addresses no longer answer, refreshes use the brokers that earlier answers named.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from tidelog.client.connections import (
    CONNECT_TIMEOUT_MS,
    Connections,
    Opener,
    Peer,
    Purpose,
    open_connection,
    result_of,
)
from tidelog.client.metadata import ClusterView, TopicView, no_such_partition
from tidelog.client.metrics.client_metrics import ClientMetrics
from tidelog.client.metrics.measured_connections import measured
from tidelog.client.settings import ClientSettings
from tidelog.client.tasks.background import Background, SupervisedTask
from tidelog.clock import Clock, SystemClock
from tidelog.errors import (
    BrokerError,
    ClosedError,
    DisconnectedError,
    InternalError,
    NoBrokersError,
    NotLeaderOrFollowerError,
    TidelogError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.messages import MetadataRequest, MetadataResponse, Request, Response

#: First timeout of one broker's metadata answer; it doubles with each round in which no broker answers.
METADATA_TIME_LIMIT_MS = 500
#: After how long without an answer the client checks whether the partition has another leader.
WATCH_MS = 1_000
#: Brokers learn of a new topic or partition at different times; it does not exist if brokers deny it for longer.
UNKNOWN_TOPIC_GRACE_MS = 3_000
#: Pauses between attempts grow to this length if no election can end the error, for example if a topic is missing.
LASTING_BACKOFF_MS = 1_000
#: A topic that no caller has requested for so long is forgotten, unless a subscriber needs it.
TOPIC_IDLE_MS = 300_000

_HINT = (
    "the addresses must be those of listeners for clients without TLS and SASL, on a broker of Tidelog the listener"
    " KAFKA and not REPLICATION"
)

#: Name of the metadata request's task in the messages of its failures.
REFRESH = "a metadata refresh"


class KnownCoordinator(NamedTuple):
    """A broker that coordinates a group, and the epoch in which it does; −1: the epoch is not known."""

    broker_id: int
    epoch: int = -1


class _Subscriber(NamedTuple):
    on_view: Callable[[ClusterView], object]
    needs: Callable[[], Iterable[str]]


#: Connects to one candidate within the given number of milliseconds.
_PeerOf = Callable[[int], Awaitable[Peer]]


class ClusterClient:
    """The connections and the metadata of one client; belongs to one event loop.

    view           the known metadata, replaced as a whole; it has only the tracked topics
    cluster_kind   "Tidelog", or which Kafka the cluster is; "" until a broker has answered
    coordinators   each group's coordinator, as far as known
    commit_epochs  the latest epoch of a coordinator to which a commit of the group was sent
    background     the background tasks of the client, and their failures
    metrics        the counters of the client

    With `allow_auto_create_topics` brokers whose setting `auto_create_topics_enable` is on create tracked topics that
    do not exist.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        clock: Clock | None = None,
        opener: Opener = open_connection,
        rng: random.Random | None = None,
        allow_auto_create_topics: bool = False,
    ) -> None:
        self.settings = settings
        self._allow_auto_create_topics = allow_auto_create_topics
        self.clock: Clock = clock or SystemClock()
        self.view = ClusterView()
        self.cluster_kind = ""
        self.coordinators: dict[str, KnownCoordinator] = {}
        self.commit_epochs: dict[str, int] = {}
        self.background = Background(self.lasting_backoff_ms)
        self._subscribers: list[_Subscriber] = []
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._rng = rng or random.Random()
        self._tracked: dict[str, int] = {}
        #: When a broker last answered about a topic, also that it is missing; and since when all answers say so.
        self._answered_ms: dict[str, int] = {}
        self._missing_since_ms: dict[str, int] = {}
        self._partition_missing_since_ms: dict[TopicPartition, int] = {}
        self.metrics = ClientMetrics()
        self._connections = Connections(
            settings.client_id, self.clock, measured(opener, self.metrics, self.clock), self.background
        )
        #: The broker that sent the latest metadata.
        self._metadata_source: Endpoint | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._failed_rounds = 0
        self._periodic_refresh = SupervisedTask(self.background, "the periodic metadata refresh", self._keep_fresh)
        self._closed = False

    @property
    def is_connected(self) -> bool:
        """Whether a connection to any broker is open."""
        return self._connections.has_live

    # --- one broker -------------------------------------------------------------------------------

    def live_peer(self, broker_id: int, purpose: Purpose) -> Peer | None:
        """Return the open connection to a broker at the address that the metadata shows, else None."""
        return self._connections.live(broker_id, self.view.brokers.get(broker_id), purpose)

    async def peer(self, broker_id: int, timeout_ms: int, purpose: Purpose = Purpose.GENERAL) -> Peer:
        """Return the live connection to a broker; open one if there is none. Concurrent calls share one attempt.

        Raises DisconnectedError if the broker is not in the metadata or does not listen. Raises BrokerNotAvailableError
        if another broker has this broker's address, TimeoutError (the attempt goes on), and ClosedError. After an error
        no request was sent.
        """
        endpoint = self.view.brokers.get(broker_id)
        if endpoint is None:
            if self._closed:
                raise ClosedError("the client is closed")
            raise DisconnectedError(f"broker {broker_id} is not in the cluster at the moment")
        return await self._connections.to_broker(broker_id, endpoint, purpose, timeout_ms, self.view.cluster_id)

    def call_leader(
        self, peer: Peer, request: Request, timeout_ms: int, moved: Callable[[ClusterView], bool]
    ) -> asyncio.Future[Response]:
        """Send a request and return its future answer, which fails if `moved` returns True for a newer view.

        The error is NotLeaderOrFollowerError. From `WATCH_MS` on without an answer, the metadata is refreshed and
        `moved` called once a second. A leader that hangs does not answer, and meanwhile another broker becomes leader.
        Without this check the caller would learn of the new leader only after `request_timeout_ms`. The silent leader
        itself is asked last, because it may be cut off from the other brokers and still report itself as the leader.
        """
        answer = peer.send(request, timeout_ms=timeout_ms)
        watch = partial(self._start_leader_watch, peer.endpoint, answer, moved)
        timer = asyncio.get_running_loop().call_later(WATCH_MS / 1000, watch)
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    def _start_leader_watch(
        self, silent: Endpoint, answer: asyncio.Future[Response], moved: Callable[[ClusterView], bool]
    ) -> None:
        watch = SupervisedTask(
            self.background, "the watch for another leader", partial(self._watch_leader, silent, answer, moved)
        )
        watch.start()
        answer.add_done_callback(lambda _: watch.cancel())

    async def _watch_leader(
        self, silent: Endpoint, answer: asyncio.Future[Response], moved: Callable[[ClusterView], bool]
    ) -> None:
        while True:
            self._connections.avoid(silent)
            await asyncio.wait({self.refresh_soon()})
            if answer.done():
                return
            if moved(self.view):
                answer.set_exception(NotLeaderOrFollowerError("the leader changed while the request was in flight"))
                return
            await asyncio.sleep(WATCH_MS / 1000)

    async def call_any(self, request: Request, deadline_ms: int) -> Response:
        """Return the first answer without an error of any broker; retry retriable errors with other brokers.

        Both failed requests and the answer's own `error_code` count. Raises the first final error, TimeoutError at the
        deadline with the last error, and NoBrokersError if no broker was ever reached.
        """
        await self.wait_for_metadata(deadline_ms)
        attempt, last = 0, ""
        while True:
            for peer_of in self._candidates():
                left_ms = deadline_ms - self.clock.monotonic_ms()
                if left_ms <= 0:
                    raise TimeoutError(f"no broker answered {request.api.name} in time{last}")
                try:
                    peer = await peer_of(min(left_ms, CONNECT_TIMEOUT_MS))
                    left_ms = max(1, deadline_ms - self.clock.monotonic_ms())
                    answer = await peer.send(request, timeout_ms=min(left_ms, self.settings.request_timeout_ms))
                    if refusal := error_for(getattr(answer, "error_code", 0)):
                        raise refusal
                    return answer
                except TidelogError as error:
                    if not is_retriable(error):
                        raise
                    last = f" (last: {error})"
            await self.backoff(attempt, deadline_ms)
            attempt += 1

    # --- metadata ---------------------------------------------------------------------------------

    def subscribe(
        self, on_view: Callable[[ClusterView], object], needs: Callable[[], Iterable[str]] = tuple
    ) -> Callable[[], None]:
        """Have `on_view` called with each new view. Return a function that ends this; a second call of it does nothing.

        `needs` names topics to be tracked even if no caller has requested them for a long time.
        """
        subscriber = _Subscriber(on_view, needs)
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def track(self, *topics: str) -> None:
        """Include these topics in refreshes and in the view, until `TOPIC_IDLE_MS` after the last call with the topic.

        The call starts no refresh.
        """
        self._tracked |= dict.fromkeys(topics, self.clock.monotonic_ms())

    def forget(self, topic: str) -> None:
        """Remove a deleted topic from the view, and from later refreshes until the topic is tracked again.

        The view counts the topic as refused (`ClusterView.without`).
        """
        self._tracked.pop(topic, None)
        self._answered_ms.pop(topic, None)
        self._missing_since_ms.pop(topic, None)
        self.view = self.view.without(topic)

    def drop_topic(self, topic: str) -> None:
        """Remove a topic that certainly does not exist from the view. Refreshes still request it.

        The view counts the topic as refused (`ClusterView.without`).
        """
        self.view = self.view.without(topic)

    def refusal(self, topic: str) -> BrokerError | None:
        """Return the error of a topic that this client certainly cannot use; None otherwise, also if nothing is known.

        An error that is not retriable counts at once. UnknownTopicOrPartitionError counts once all answers for 3 s or
        longer have said that the topic does not exist.
        """
        error = error_for(self.view.refused.get(topic, 0), f"topic {topic!r}")
        if error is None or not error.retriable:
            return error
        since_ms = self._missing_since_ms.get(topic)
        if since_ms is None or self._answered_ms.get(topic, since_ms) - since_ms < UNKNOWN_TOPIC_GRACE_MS:
            return None
        return UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")

    def partition_refusal(self, tp: TopicPartition) -> BrokerError | None:
        """Return the topic's `refusal`, or UnknownTopicOrPartitionError if the partition certainly does not exist.

        That is certain if the topic is known, and an answer lacks the partition 3 s or longer after the first call that
        missed the partition. Otherwise None is returned, also if nothing is known.
        """
        if refusal := self.refusal(tp.topic):
            return refusal
        view = self.view.topics.get(tp.topic)
        if view is None or tp.partition in view.partitions:
            self._partition_missing_since_ms.pop(tp, None)
            return None
        since_ms = self._partition_missing_since_ms.setdefault(tp, self.clock.monotonic_ms())
        if self._answered_ms.get(tp.topic, since_ms) - since_ms < UNKNOWN_TOPIC_GRACE_MS:
            return None
        del self._partition_missing_since_ms[
            tp
        ]  # a later call starts again, because the partition may be added meanwhile
        return no_such_partition(tp, len(view.partitions))

    async def topic(self, topic: str, deadline_ms: int) -> TopicView:
        """Track the topic, wait until its metadata is known, and return its view.

        Raises the topic's `refusal`; at the deadline UnknownTopicOrPartitionError if brokers deny the topic, else
        TimeoutError; NoBrokersError if no broker was ever reached.
        """
        was_tracked = topic in self._tracked
        self.track(topic)
        await self.wait_for_metadata(deadline_ms)
        if was_tracked and self.refusal(topic):
            await self.try_refresh(deadline_ms)  # the topic may have been created since
        attempt = 0
        while True:
            self.track(topic)
            if refusal := self.refusal(topic):
                if not was_tracked:  # otherwise another caller still waits for the topic's creation
                    self.forget(topic)
                raise refusal
            view = self.view.topics.get(topic)
            if view is not None:
                return view
            await self.try_refresh(deadline_ms)
            if topic not in self.view.topics:
                if self.clock.monotonic_ms() >= deadline_ms:
                    if topic in self.view.refused:
                        raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
                    raise TimeoutError(f"no broker answered about topic {topic!r} in time")
                await self.backoff(attempt, deadline_ms)
                attempt += 1

    async def partition(self, tp: TopicPartition, deadline_ms: int) -> None:
        """Wait until the topic has this partition.

        Raises the errors of `topic`. Raises UnknownTopicOrPartitionError at once for a negative number, and if the
        partition is still missing after about 3 s or at the deadline.
        """
        attempt = 0
        while tp.partition not in (view := await self.topic(tp.topic, deadline_ms)).partitions:
            if tp.partition < 0 or self.clock.monotonic_ms() >= deadline_ms:
                raise no_such_partition(tp, len(view.partitions))
            if refusal := self.partition_refusal(tp):
                raise refusal
            await self.try_refresh(deadline_ms)
            newer = self.view.topics.get(tp.topic)
            if newer is not None and tp.partition not in newer.partitions:
                await self.backoff(attempt, deadline_ms)
                attempt += 1

    async def wait_for_metadata(self, deadline_ms: int) -> None:
        """Wait until a broker has answered once; return at once if one has.

        Raises NoBrokersError, which names the bootstrap addresses, at the deadline or after `bootstrap_timeout_ms`. The
        error is raised at once if the peers at all addresses have spoken another protocol than Kafka's.
        """
        limit_ms = min(deadline_ms, self.clock.monotonic_ms() + self.settings.bootstrap_timeout_ms)
        attempt = 0
        reason = ""
        while not self.view.version:
            try:
                await self.refresh(limit_ms)
            except (NoBrokersError, TimeoutError) as error:
                # The last attempt usually ends with the time, which says less than the failure of one before.
                if isinstance(error, NoBrokersError) or not reason:
                    reason = str(error)
                addresses = ", ".join(map(str, self.settings.bootstrap))
                # A socket of ZeroMQ may close the connection before its first bytes arrive, so that each address needs
                # to have spoken another protocol once, and not in the same round.
                if isinstance(error, NoBrokersError) and all(
                    map(self._connections.has_other_protocol, self.settings.bootstrap)
                ):
                    raise NoBrokersError(f"no broker of Kafka's protocol at {addresses}: {reason}") from None
                if self.clock.monotonic_ms() >= limit_ms:
                    raise NoBrokersError(f"no broker answered at {addresses}: {reason}; {_HINT}") from None
                await self.backoff(attempt, limit_ms)
                attempt += 1

    def distrust_metadata(self) -> None:
        """For the next 2 s, ask the sender of the latest metadata last, because that metadata is outdated.

        This call sends nothing.
        """
        if self._metadata_source is not None:
            self._connections.avoid(self._metadata_source)

    def refresh_soon(self) -> asyncio.Task[None]:
        """Return the task of the refresh in progress, or of a new one: at most one metadata request is in flight."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self.background.run(REFRESH, self._refresh(), foreseen=(TidelogError,))
        return self._refreshing

    async def refresh(self, deadline_ms: int) -> None:
        """Wait for the refresh in progress or a new one, which merges a broker's answer into the view.

        Raises NoBrokersError if no broker answers, TimeoutError at the deadline (the refresh goes on), ClosedError
        after `close`, and InternalError after a defect.
        """
        if self._closed:
            raise ClosedError("the client is closed")
        task = self.refresh_soon()
        left_ms = deadline_ms - self.clock.monotonic_ms()
        done, _ = await asyncio.wait({task}, timeout=max(0, left_ms) / 1000)
        if not done:
            raise TimeoutError("no broker answered with metadata in time")
        if task.cancelled() and not self._closed:
            raise NoBrokersError("the request for metadata was cancelled from outside")
        result_of(task)

    async def try_refresh(self, deadline_ms: int) -> None:
        """Call `refresh`, and ignore its errors except ClosedError, so that the view may be unchanged."""
        with contextlib.suppress(NoBrokersError, TimeoutError, InternalError):
            await self.refresh(deadline_ms)

    async def fetch_all(self, deadline_ms: int) -> MetadataResponse:
        """Return the metadata of all topics from one broker; merge the tracked topics into the view.

        Raises the errors of `call_any`.
        """
        answer = await self.call_any(MetadataRequest(None), deadline_ms)
        assert isinstance(answer, MetadataResponse)
        self._merge(answer)
        return answer

    def lasting_backoff_ms(self, attempt: int) -> int:
        """Return the pause (ms) after attempt number `attempt`, for an error that may last.

        The pause grows as in `backoff_ms`, but up to `LASTING_BACKOFF_MS` or `retry_backoff_max_ms`, whichever is
        longer.
        """
        return self.backoff_ms(attempt, LASTING_BACKOFF_MS)

    def random_id(self) -> str:
        """Return a random text of 128 bits, which no other client or call returns."""
        return f"{self._rng.getrandbits(128):032x}"

    def backoff_ms(self, attempt: int, most_ms: int = 0) -> int:
        """Return the pause (ms, at least 1) after attempt number `attempt`, which counts from 0.

        The pause grows by 25 % with each attempt, from `retry_backoff_ms` to `retry_backoff_max_ms` or `most_ms`,
        whichever is longer, and has random jitter of ±20 %.
        """
        first_ms, most_ms = self.settings.retry_backoff_ms, max(most_ms, self.settings.retry_backoff_max_ms)
        # The exponent is bounded, because a larger power overflows.
        base = min(first_ms * 1.25 ** min(attempt, 100), max(first_ms, most_ms))
        return max(1, round(base * self._rng.uniform(0.8, 1.2)))

    async def backoff(self, attempt: int, deadline_ms: int) -> None:
        """Sleep for `backoff_ms(attempt)`, but at most until the deadline."""
        left_ms = deadline_ms - self.clock.monotonic_ms()
        await asyncio.sleep(max(0, min(self.backoff_ms(attempt), left_ms)) / 1000)

    def start(self) -> None:
        """Start the periodic metadata refresh. Needs the running loop."""
        self._periodic_refresh.start()

    async def close(self) -> None:
        """Cancel all background tasks, wait until they have ended, and close every connection. Idempotent.

        Requests in flight fail with DisconnectedError, and later calls with ClosedError.
        """
        self._closed = True
        self._connections.refuse_new()
        tasks = [*self._periodic_refresh.cancel(), *self.background.cancel()]
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self.drop_connections()

    def add_closer(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Have `shut_down` call `closer`, which stops a user of the connections. The latest closer is called first."""
        self._closers.append(closer)

    def remove_closer(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Have `shut_down` not call `closer`, because its user of the connections has stopped."""
        self._closers.remove(closer)

    async def shut_down(self) -> None:
        """Call all closers, the latest one first, and then `close`, even if a closer raises an error."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.close)
            for closer in self._closers:
                stack.push_async_callback(closer)

    def drop_connections(self) -> None:
        """Close every connection at once, even if the event loop is closed. Tasks are not cancelled."""
        self._connections.drop()

    # --- helpers ----------------------------------------------------------------------------------

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self.settings.metadata_max_age_ms / 1000)
            await asyncio.wait({self.refresh_soon()})

    async def _open_bootstrap(self, endpoint: Endpoint, timeout_ms: int) -> Peer:
        return await self._connections.to_address(endpoint, timeout_ms, self.view.cluster_id)

    def _candidates(self) -> Iterator[_PeerOf]:
        """Yield functions that connect to a broker, in the order in which brokers are asked.

        The order is: connected brokers, other known brokers, bootstrap addresses that are no known broker's, known
        brokers that failed in the last 2 s (connected ones first). Known brokers of one kind are in random order.
        Bootstrap addresses are in the given order, but those that failed in the last 2 s come last.
        """
        connections = self._connections
        known = list(self.view.brokers.items())
        self._rng.shuffle(known)

        def rank(entry: tuple[int, Endpoint]) -> int:
            return 2 * connections.is_avoided(entry[1]) + (connections.live(*entry, Purpose.GENERAL) is None)

        known.sort(key=rank)
        bootstrap_only = [each for each in self.settings.bootstrap if each not in self.view.brokers.values()]
        bootstrap_only.sort(key=connections.is_avoided)
        good = [entry for entry in known if rank(entry) < 2]
        for broker_id, _ in good:
            yield partial(self.peer, broker_id)
        for endpoint in bootstrap_only:
            yield partial(self._open_bootstrap, endpoint)
        for broker_id, _ in known[len(good) :]:
            yield partial(self.peer, broker_id)

    async def _refresh(self) -> None:
        self._forget_idle_topics()
        request = MetadataRequest(tuple(sorted(self._tracked)), self._allow_auto_create_topics)
        time_limit_ms = min(METADATA_TIME_LIMIT_MS << min(self._failed_rounds, 6), self.settings.request_timeout_ms)
        failures: dict[str, None] = {}
        for peer_of in self._candidates():
            peer: Peer | None = None
            try:
                peer = await peer_of(time_limit_ms)
                answer = await peer.send(request, timeout_ms=time_limit_ms)
            except TidelogError as error:
                failures.setdefault(str(error))
                if peer is not None:
                    self._connections.avoid(peer.endpoint)
                continue
            assert isinstance(answer, MetadataResponse)
            self._failed_rounds = 0
            self._metadata_source = peer.endpoint
            self.cluster_kind = peer.cluster_kind
            self._merge(answer)
            return
        self._failed_rounds += 1
        raise NoBrokersError("; ".join(failures))

    def _forget_idle_topics(self) -> None:
        for subscriber in self._subscribers:
            self.track(*subscriber.needs())
        since_ms = self.clock.monotonic_ms() - TOPIC_IDLE_MS
        self._tracked = {topic: asked_ms for topic, asked_ms in self._tracked.items() if asked_ms > since_ms}
        self._partition_missing_since_ms = {
            tp: ms for tp, ms in self._partition_missing_since_ms.items() if tp.topic in self._tracked
        }
        self._missing_since_ms = {topic: ms for topic, ms in self._missing_since_ms.items() if topic in self._tracked}
        self._answered_ms = {topic: ms for topic, ms in self._answered_ms.items() if topic in self._tracked}

    def _merge(self, answer: MetadataResponse) -> None:
        self.view = self.view.merged(answer).only(self._tracked)
        now_ms = self.clock.monotonic_ms()
        for topic in answer.topics:
            if topic.name not in self._tracked:
                continue
            self._answered_ms[topic.name] = now_ms
            if topic.error_code == UnknownTopicOrPartitionError.code:
                self._missing_since_ms.setdefault(topic.name, now_ms)
            else:
                self._missing_since_ms.pop(topic.name, None)
        self._connections.forget_closed()
        for subscriber in tuple(self._subscribers):
            subscriber.on_view(self.view)


def is_retriable(error: BaseException) -> bool:
    """Return whether the same request may succeed later: the error is retriable, or is a client's TimeoutError."""
    return isinstance(error, TimeoutError) or (isinstance(error, TidelogError) and error.retriable)
