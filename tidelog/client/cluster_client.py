"""The part that all clients share: one connection per broker, and a picture of who leads what.

Nothing here retries a request; that is for those who know whether it may be repeated. What this part promises:
a broker that is down or hangs never keeps a refresh of the picture from reaching another one, and when the
addresses that one started with are gone, the brokers that were learnt since are asked instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from tidelog.client.background import Background, SupervisedTask
from tidelog.client.metadata import ClusterView, TopicView, no_such_partition
from tidelog.client.settings import ClientSettings
from tidelog.clock import Clock, SystemClock
from tidelog.errors import (
    BrokerError,
    BrokerNotAvailableError,
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
from tidelog.protocol.messages import ApiVersionsResponse, MetadataRequest, MetadataResponse, Request, Response
from tidelog.protocol.native.connection import Connection

#: A broker that does not answer the handshake for this long is not waited for.
CONNECT_TIMEOUT_MS = 3_000
#: The first patience with one broker's metadata answer; doubles while no broker answers at all.
METADATA_PATIENCE_MS = 500
#: A broker that failed is asked last for so long.
AVOID_MS = 2_000
#: A request without an answer for so long makes the client look whether the leader is still the leader.
WATCH_MS = 1_000
#: Brokers learn of a new topic or partition one after the other; one that is denied for longer does not exist.
UNKNOWN_TOPIC_GRACE_MS = 3_000
#: Pauses between attempts grow to this length if no election can end the error, for example if a topic is missing.
LASTING_BACKOFF_MS = 1_000
#: A topic that nobody needs or has asked for in so long is forgotten.
TOPIC_IDLE_MS = 300_000

#: The name of the task that asks for metadata, in the messages of its failures.
REFRESH = "a metadata refresh"


class Peer(Protocol):
    """What a connection must do; `tidelog.protocol.native.connection.Connection` does, and so does the tests'
    network.
    """

    peer: ApiVersionsResponse

    @property
    def closed(self) -> bool: ...

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]: ...

    def send_no_reply(self, request: Request, *, timeout_ms: int) -> None: ...

    def close(self) -> None: ...


class Opener(Protocol):
    """Makes a connected Peer, or raises DisconnectedError or TimeoutError."""

    async def __call__(self, endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> Peer: ...


_T = TypeVar("_T")

#: Connects to one candidate, within so many milliseconds.
_PeerOf = Callable[[int], Awaitable[Peer]]


async def open_connection(endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> Peer:
    """The real network."""
    return await Connection.open(endpoint, client_id=client_id, timeout_ms=timeout_ms, cluster_id=cluster_id)


class ClusterClient:
    """Connections and metadata of one client; belongs to one event loop.

    view           what is known of the cluster; replaced whole. Of topics it has those that are tracked
    listeners      called with each new view
    needs          name the topics that are tracked however long ago somebody has asked for them
    coordinators   of groups, as far as they were asked for and not found wrong
    closers        stop the users of the connections; `shut_down` calls the latest first
    background     the background tasks of the client, and their failures
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        clock: Clock | None = None,
        opener: Opener = open_connection,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.view = ClusterView()
        self.listeners: list[Callable[[ClusterView], None]] = []
        self.needs: list[Callable[[], Iterable[str]]] = []
        self.coordinators: dict[str, int] = {}
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self.background = Background(self.lasting_backoff_ms)
        self._opener = opener
        self._rng = rng or random.Random()
        self._tracked: dict[str, int] = {}
        #: When a broker last told of a topic, be it that there is none, and since when all have said that.
        self._told_ms: dict[str, int] = {}
        self._missing_since_ms: dict[str, int] = {}
        self._lacking_since_ms: dict[TopicPartition, int] = {}
        self._peers: dict[int, Peer] = {}
        self._addresses: dict[int, Endpoint] = {}
        self._moved: set[int] = set()
        self._opening: dict[int, asyncio.Task[Peer]] = {}
        self._avoid_until_ms: dict[Endpoint, int] = {}
        #: Who told of the picture last.
        self._teller: Endpoint | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._failed_rounds = 0
        self._ageing = SupervisedTask(self.background, "the periodic metadata refresh", self._keep_fresh)
        self._closed = False

    # --- one broker -------------------------------------------------------------------------------

    def live_peer(self, broker_id: int) -> Peer | None:
        """The connection to a broker where there is one, and the broker has not moved since."""
        live = self._peers.get(broker_id)
        return None if live is None or live.closed or broker_id in self._moved else live

    async def peer(self, broker_id: int, timeout_ms: int) -> Peer:
        """The live connection to a broker, opened if need be. DisconnectedError, TimeoutError: nothing was sent."""
        if live := self.live_peer(broker_id):
            return live
        if self._closed:
            raise ClosedError("the client is closed")
        endpoint = self.view.brokers.get(broker_id)
        if endpoint is None:
            raise DisconnectedError(f"broker {broker_id} is not in the cluster at the moment")
        opening = self._opening.get(broker_id)
        if opening is None or opening.done():
            opening = self.background.run(
                f"the connection to broker {broker_id}", self._open(broker_id, endpoint), foreseen=(TidelogError,)
            )
            self._opening[broker_id] = opening
        done, _ = await asyncio.wait({opening}, timeout=timeout_ms / 1000)
        if not done:
            raise TimeoutError(f"no connection to broker {broker_id} at {endpoint} in {timeout_ms} ms")
        if opening.cancelled() and not self._closed:
            raise DisconnectedError(f"the connection to broker {broker_id} at {endpoint} was cancelled from outside")
        return self._result(opening)

    def call_leader(
        self, peer: Peer, request: Request, timeout_ms: int, moved: Callable[[ClusterView], bool]
    ) -> asyncio.Future[Response]:
        """The answer, or NotLeaderOrFollowerError once a newer view shows that the leader `moved`.

        A leader that hangs answers nothing, its successor is elected meanwhile, and nobody should wait
        `request_timeout_ms` to learn of it.
        """
        answer = peer.send(request, timeout_ms=timeout_ms)
        timer = asyncio.get_running_loop().call_later(WATCH_MS / 1000, self._begin_to_watch, answer, moved)
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    def _begin_to_watch(self, answer: asyncio.Future[Response], moved: Callable[[ClusterView], bool]) -> None:
        watch = SupervisedTask(self.background, "the watch for another leader", partial(self._watch, answer, moved))
        watch.start()
        answer.add_done_callback(lambda _: watch.cancel())

    async def _watch(self, answer: asyncio.Future[Response], moved: Callable[[ClusterView], bool]) -> None:
        while True:
            await asyncio.wait({self.refresh_soon()})
            if answer.done():
                return
            if moved(self.view):
                answer.set_exception(NotLeaderOrFollowerError("the leader changed while the request was in flight"))
                return
            await asyncio.sleep(WATCH_MS / 1000)

    async def call_any(self, request: Request, deadline_ms: int) -> Response:
        """The first answer that any broker gives; refusals that may pass are tried elsewhere until the deadline."""
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

    # --- the picture ------------------------------------------------------------------------------

    def track(self, *topics: str) -> None:
        """From now on refreshes ask for these topics as well, until `TOPIC_IDLE_MS` after this was called last."""
        self._tracked |= dict.fromkeys(topics, self.clock.monotonic_ms())

    def forget(self, topic: str) -> None:
        """The topic is gone, and is not asked for any more."""
        self._tracked.pop(topic, None)
        self._told_ms.pop(topic, None)
        self._missing_since_ms.pop(topic, None)
        self.view = self.view.without(topic)

    def drop_topic(self, topic: str) -> None:
        """Remove a topic that certainly does not exist from the view. Refreshes still ask whether it exists again."""
        self.view = self.view.without(topic)

    def refusal(self, topic: str) -> BrokerError | None:
        """Why there is no such topic for this client, once that is certain: it was denied again after some seconds."""
        error = error_for(self.view.refused.get(topic, 0), f"topic {topic!r}")
        if error is None or not error.retriable:
            return error
        since_ms = self._missing_since_ms.get(topic)
        if since_ms is None or self._told_ms.get(topic, since_ms) - since_ms < UNKNOWN_TOPIC_GRACE_MS:
            return None
        return UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")

    def partition_refusal(self, tp: TopicPartition) -> BrokerError | None:
        """Why there is no such partition for this client, once that is certain: as `refusal`, since this was asked."""
        if refusal := self.refusal(tp.topic):
            return refusal
        view = self.view.topics.get(tp.topic)
        if view is None or tp.partition in view.partitions:
            self._lacking_since_ms.pop(tp, None)
            return None
        since_ms = self._lacking_since_ms.setdefault(tp, self.clock.monotonic_ms())
        if self._told_ms.get(tp.topic, since_ms) - since_ms < UNKNOWN_TOPIC_GRACE_MS:
            return None
        del self._lacking_since_ms[tp]  # whoever asks again later may find that it was added
        return no_such_partition(tp, len(view.partitions))

    async def topic(self, topic: str, deadline_ms: int) -> TopicView:
        """The topic's view, waited for. Its refusal, or TimeoutError (NoBrokersError before any broker was found)."""
        was_tracked = topic in self._tracked
        self.track(topic)
        await self.wait_for_metadata(deadline_ms)
        if was_tracked and self.refusal(topic):
            await self.try_refresh(deadline_ms)  # it may have been made since
        attempt = 0
        while True:
            self.track(topic)
            if refusal := self.refusal(topic):
                if not was_tracked:  # else somebody waits for it to be made
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
                    raise TimeoutError(f"no broker told of topic {topic!r} in time")
                await self.backoff(attempt, deadline_ms)
                attempt += 1

    async def partition(self, tp: TopicPartition, deadline_ms: int) -> None:
        """Returns once the topic has this partition. Errors as of `topic`, UnknownTopicOrPartitionError where it is not
        there after some seconds.
        """
        attempt = 0
        while tp.partition not in (view := await self.topic(tp.topic, deadline_ms)).partitions:
            if tp.partition < 0 or self.clock.monotonic_ms() >= deadline_ms:
                raise no_such_partition(tp, len(view.partitions))
            if refusal := self.partition_refusal(tp):
                raise refusal
            await self.try_refresh(deadline_ms)
            told = self.view.topics.get(tp.topic)
            if told is not None and tp.partition not in told.partitions:
                await self.backoff(attempt, deadline_ms)
                attempt += 1

    async def wait_for_metadata(self, deadline_ms: int) -> None:
        """Returns once some broker has told of the cluster; NoBrokersError names the addresses that did not."""
        limit_ms = min(deadline_ms, self.clock.monotonic_ms() + self.settings.bootstrap_timeout_ms)
        attempt = 0
        while not self.view.version:
            try:
                await self.refresh(limit_ms)
            except (NoBrokersError, TimeoutError) as error:
                if self.clock.monotonic_ms() >= limit_ms:
                    addresses = ", ".join(map(str, self.settings.bootstrap))
                    raise NoBrokersError(f"no broker answered at {addresses}: {error}") from None
                await self.backoff(attempt, limit_ms)
                attempt += 1

    def distrust_metadata(self) -> None:
        """What was told last is too old: for some seconds others are asked before the broker that told it."""
        if self._teller is not None:
            self._avoid(self._teller)

    def refresh_soon(self) -> asyncio.Task[None]:
        """The refresh that is under way, or a new one: however many ask, one request is in flight."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self.background.run(REFRESH, self._refresh(), foreseen=(TidelogError,))
        return self._refreshing

    async def refresh(self, deadline_ms: int) -> None:
        """One newer answer, merged. NoBrokersError where nobody answers, TimeoutError at the deadline."""
        if self._closed:
            raise ClosedError("the client is closed")
        task = self.refresh_soon()
        left_ms = deadline_ms - self.clock.monotonic_ms()
        done, _ = await asyncio.wait({task}, timeout=max(0, left_ms) / 1000)
        if not done:
            raise TimeoutError("no broker told of the cluster in time")
        if task.cancelled() and not self._closed:
            raise NoBrokersError("the request for metadata was cancelled from outside")
        self._result(task)

    async def try_refresh(self, deadline_ms: int) -> None:
        """Like `refresh`; an attempt that fails changes nothing and raises nothing."""
        with contextlib.suppress(NoBrokersError, TimeoutError, InternalError):
            await self.refresh(deadline_ms)

    async def fetch_all(self, deadline_ms: int) -> MetadataResponse:
        """Every topic there is, from one broker. Merged into the view as well, as far as topics are tracked."""
        answer = await self.call_any(MetadataRequest(None), deadline_ms)
        assert isinstance(answer, MetadataResponse)
        self._merge(answer)
        return answer

    def lasting_backoff_ms(self, attempt: int) -> int:
        """Like `backoff_ms`, for errors that may last: the pauses grow to `LASTING_BACKOFF_MS`."""
        return self.backoff_ms(attempt, LASTING_BACKOFF_MS)

    def backoff_ms(self, attempt: int, most_ms: int = 0) -> int:
        """How long to wait before attempt number `attempt` + 1, with some jitter."""
        first_ms, most_ms = self.settings.retry_backoff_ms, max(most_ms, self.settings.retry_backoff_max_ms)
        # Beyond a hundred attempts a power would only overflow.
        base = min(first_ms * 1.25 ** min(attempt, 100), max(first_ms, most_ms))
        return max(1, round(base * self._rng.uniform(0.8, 1.2)))

    async def backoff(self, attempt: int, deadline_ms: int) -> None:
        """Waits `backoff_ms`, but never beyond the deadline."""
        left_ms = deadline_ms - self.clock.monotonic_ms()
        await asyncio.sleep(max(0, min(self.backoff_ms(attempt), left_ms)) / 1000)

    def start(self) -> None:
        """Keep the picture from growing old. Needs the running loop."""
        self._ageing.start()

    async def close(self) -> None:
        """Drop every connection; what is in flight fails with DisconnectedError. Idempotent."""
        self._closed = True
        tasks = [*self._ageing.cancel(), *self.background.cancel()]
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self.drop_connections()

    async def shut_down(self) -> None:
        """Call the `closers`, the latest first, and close."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.close)
            for closer in self.closers:
                stack.push_async_callback(closer)

    def drop_connections(self) -> None:
        """Close every connection, also on a loop that is closed."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    # --- below ------------------------------------------------------------------------------------

    @staticmethod
    def _result(task: asyncio.Task[_T]) -> _T:
        """Return the result of a task that is done, or raise its error as one of ours.

        A task that `close` has cancelled raises ClosedError, so that the tasks that wait for it are not cancelled.
        """
        if task.cancelled():
            raise ClosedError("the client was closed meanwhile")
        try:
            return task.result()
        except TidelogError:
            raise
        except Exception as error:
            raise InternalError(f"{task.get_name()} failed unexpectedly: {error!r}") from error

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self.settings.metadata_max_age_ms / 1000)
            await asyncio.wait({self.refresh_soon()})

    async def _open(self, broker_id: int, endpoint: Endpoint) -> Peer:
        try:
            peer = await self._opener(
                endpoint,
                client_id=self.settings.client_id,
                timeout_ms=CONNECT_TIMEOUT_MS,
                cluster_id=self.view.cluster_id,
            )
        except TidelogError:
            self._avoid(endpoint)
            raise
        if peer.peer.broker_id != broker_id:
            peer.close()
            self._avoid(endpoint)
            raise BrokerNotAvailableError(f"{endpoint} is broker {peer.peer.broker_id} now, not {broker_id}")
        self._adopt(peer, endpoint)
        return peer

    def _adopt(self, peer: Peer, endpoint: Endpoint) -> Peer:
        broker_id = peer.peer.broker_id
        before = self._peers.get(broker_id)
        if before is not None and before is not peer:
            before.close()
        self._peers[broker_id] = peer
        self._addresses[broker_id] = endpoint
        self._note_moves()
        self._avoid_until_ms.pop(endpoint, None)
        return peer

    async def _open_bootstrap(self, endpoint: Endpoint, timeout_ms: int) -> Peer:
        try:
            peer = await self._opener(
                endpoint, client_id=self.settings.client_id, timeout_ms=timeout_ms, cluster_id=self.view.cluster_id
            )
        except TidelogError:
            self._avoid(endpoint)
            raise
        return self._adopt(peer, endpoint)

    def _avoid(self, endpoint: Endpoint) -> None:
        self._avoid_until_ms[endpoint] = self.clock.monotonic_ms() + AVOID_MS

    def _candidates(self) -> Iterator[_PeerOf]:
        """Whom to ask, the likeliest first: connected brokers, known ones, the bootstrap addresses, the avoided."""
        now_ms = self.clock.monotonic_ms()
        known = list(self.view.brokers.items())
        self._rng.shuffle(known)

        def rank(entry: tuple[int, Endpoint]) -> int:
            live = self._peers.get(entry[0])
            return 2 * (self._avoid_until_ms.get(entry[1], 0) > now_ms) + (live is None or live.closed)

        known.sort(key=rank)
        strangers = [each for each in self.settings.bootstrap if each not in self.view.brokers.values()]
        strangers.sort(key=lambda each: self._avoid_until_ms.get(each, 0) > now_ms)
        good = [entry for entry in known if rank(entry) < 2]
        for broker_id, _ in good:
            yield partial(self.peer, broker_id)
        for endpoint in strangers:
            yield partial(self._open_bootstrap, endpoint)
        for broker_id, _ in known[len(good) :]:
            yield partial(self.peer, broker_id)

    async def _refresh(self) -> None:
        self._forget_idle_topics()
        topics = tuple(sorted(self._tracked))
        patience_ms = min(METADATA_PATIENCE_MS << min(self._failed_rounds, 6), self.settings.request_timeout_ms)
        failures: list[str] = []
        for peer_of in self._candidates():
            peer: Peer | None = None
            try:
                peer = await peer_of(patience_ms)
                answer = await peer.send(MetadataRequest(topics), timeout_ms=patience_ms)
            except TidelogError as error:
                if str(error) not in failures:
                    failures.append(str(error))
                if peer is not None and (endpoint := self._addresses.get(peer.peer.broker_id)):
                    self._avoid(endpoint)
                continue
            assert isinstance(answer, MetadataResponse)
            self._failed_rounds = 0
            self._teller = self._addresses.get(peer.peer.broker_id)
            self._merge(answer)
            return
        self._failed_rounds += 1
        raise NoBrokersError("; ".join(failures))

    def _forget_idle_topics(self) -> None:
        for need in self.needs:
            self.track(*need())
        since_ms = self.clock.monotonic_ms() - TOPIC_IDLE_MS
        self._tracked = {topic: asked_ms for topic, asked_ms in self._tracked.items() if asked_ms > since_ms}
        self._lacking_since_ms = {tp: ms for tp, ms in self._lacking_since_ms.items() if tp.topic in self._tracked}
        self._missing_since_ms = {topic: ms for topic, ms in self._missing_since_ms.items() if topic in self._tracked}
        self._told_ms = {topic: ms for topic, ms in self._told_ms.items() if topic in self._tracked}

    def _merge(self, answer: MetadataResponse) -> None:
        self.view = self.view.merged(answer).only(self._tracked)
        now_ms = self.clock.monotonic_ms()
        for told in answer.topics:
            if told.name not in self._tracked:
                continue
            self._told_ms[told.name] = now_ms
            if told.error_code == UnknownTopicOrPartitionError.code:
                self._missing_since_ms.setdefault(told.name, now_ms)
            else:
                self._missing_since_ms.pop(told.name, None)
        for broker_id, peer in list(self._peers.items()):
            if peer.closed:
                del self._peers[broker_id]
        self._note_moves()
        for listener in self.listeners:
            listener(self.view)

    def _note_moves(self) -> None:
        """Which brokers are said to be elsewhere than where the connection leads."""
        told = self.view.brokers
        self._moved = {each for each, address in self._addresses.items() if told.get(each, address) != address}


def is_retriable(error: BaseException) -> bool:
    """Whether the same request may succeed later: by the error's own word, or because no answer came."""
    return isinstance(error, TimeoutError) or (isinstance(error, TidelogError) and error.retriable)
