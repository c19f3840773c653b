"""The store on a real ZooKeeper: the only module that uses kazoo.

kazoo runs threads of its own. Its callbacks only put a call on the event loop's inbox; everything else happens on the
loop. kazoo's session states are not exact enough: a SUSPENDED session may already have expired, and LOST comes late. So
the store notes when the last request was sent that the leader of the ensemble answered. The session lives at least its
timeout from then on.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import selector_select
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent
from kazoo.retry import KazooRetry

from cluster.zookeeper.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    Listener,
    Node,
    NodeChanged,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Operation,
    OutcomeUnknownError,
    Result,
    SessionChanged,
    SessionExpiredError,
    SessionState,
    Set,
    StoreError,
    StoreEvent,
    TransactionFailedError,
    UnreachableError,
)
from tidelog.clock import Clock
from tidelog.errors import ConfigError

log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 3.0
#: How long to wait for the answer to a handshake; doubled after each timeout. A starting server forgets requests, and
#: kazoo would wait for a whole session timeout.
_HANDSHAKE_TIMEOUT_S = 0.5
#: Log a warning only after a longer wait, because ZooKeeper and brokers are often started together.
_WARN_AFTER_S = 1.0

_ERRORS: dict[type[BaseException], type[StoreError]] = {
    kazoo_errors.NoNodeError: NoNodeError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.BadVersionError: BadVersionError,
    kazoo_errors.NotEmptyError: NotEmptyError,
    kazoo_errors.SessionExpiredError: SessionExpiredError,
    kazoo_errors.ConnectionClosedError: SessionExpiredError,
}

#: The answers of a multi for the operations before and after the one that failed.
_ROLLED_BACK = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


#: The names that kazoo uses of `selectors`, with poll(2), because epoll takes a file descriptor for each wait.
_POLL = SimpleNamespace(
    EVENT_READ=selectors.EVENT_READ, EVENT_WRITE=selectors.EVENT_WRITE, DefaultSelector=selectors.PollSelector
)


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Waits for sockets with poll(2), so that the connection lasts even if the process may open no more files."""

    def select(self, *args: Any, **kwargs: Any) -> Any:
        return selector_select(*args, selectors_module=_POLL, **kwargs)


class ZooKeeperStore:
    """One session of one process; a `Store`. Made by `open`."""

    def __init__(self, hosts: str, session_timeout_ms: int, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Listener] = []
        self._watchers: dict[str, Callable[[WatchedEvent], None]] = {}
        self._asked_timeout_ms = session_timeout_ms
        self._granted_timeout_ms = 0
        self._session_id = 0
        self._confirmed_at_ms = clock.monotonic_ms()
        self._closing = False
        self._hosts, slash, chroot = hosts.partition("/")
        self._chroot = slash + chroot.strip("/") if chroot.strip("/") else ""
        self._client = KazooClient(
            hosts=self._hosts + self._chroot,
            timeout=session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=0.2, max_delay=0.5),
            command_retry=KazooRetry(max_tries=0),
            handler=PollingHandler(),
        )
        self._client.add_listener(self._from_kazoo_state)
        self._time_handshakes()

    @classmethod
    async def open(
        cls, hosts: str, *, session_timeout_ms: int, clock: Clock, connect_timeout_ms: int = 15_000
    ) -> ZooKeeperStore:
        """Connect to `host:port,host:port/chroot`, and create the chroot.

        UnreachableError. ConfigError if the server grants another timeout than the requested one (it grants 2 to 20 of
        its ticks), because a broker must know how long its session lives.
        """
        store = cls(hosts, session_timeout_ms, clock)
        try:
            await store._connect(connect_timeout_ms)
            granted_ms = store._granted_timeout_ms
            if granted_ms != session_timeout_ms:
                raise ConfigError(
                    f"ZooKeeper at {store._hosts} grants a session timeout of {granted_ms} ms instead of "
                    f"{session_timeout_ms} ms; set the timeout between 2 and 20 of its ticks"
                )
            if store._chroot:
                await store._make_chroot()
        except BaseException:
            await store.close()
            raise
        return store

    async def _connect(self, timeout_ms: int) -> None:
        arrived = asyncio.Event()
        unsubscribe = self.subscribe(lambda event: arrived.set())
        self._client.start_async()
        warning = self._loop.call_later(_WARN_AFTER_S, log.warning, "waiting for ZooKeeper at %s", self._hosts)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await arrived.wait()
        except TimeoutError:
            raise UnreachableError(
                f"no ZooKeeper answers at {self._hosts} (tried for {timeout_ms} ms); start it, or name another"
            ) from None
        finally:
            warning.cancel()
            unsubscribe()

    async def _make_chroot(self) -> None:
        # With the chroot set, the client could create only the chroot's last level.
        self._client.chroot = ""
        try:
            if await self._request(lambda: self._client.exists_async(self._chroot)) is None:
                log.info("ZooKeeper at %s has no chroot %s yet, which is now created", self._hosts, self._chroot)
            await self._request(lambda: self._client.ensure_path_async(self._chroot))
        finally:
            self._client.chroot = self._chroot

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def connected(self) -> bool:
        return bool(self._client.connected) and not self._closing

    @property
    def session_timeout_ms(self) -> int:
        return self._granted_timeout_ms or self._asked_timeout_ms

    @property
    def confirmed_at_ms(self) -> int:
        return self._confirmed_at_ms

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    async def get(self, path: str, *, watch: bool = False) -> Node:
        watcher = self._watcher(path) if watch else None
        data, stat = await self._request(lambda: self._client.get_async(path, watch=watcher))
        return Node(data, _stat(stat))

    async def exists(self, path: str, *, watch: bool = False) -> NodeStat | None:
        watcher = self._watcher(path) if watch else None
        stat = await self._request(lambda: self._client.exists_async(path, watch=watcher))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        watcher = self._watcher(path) if watch else None
        return sorted(await self._request(lambda: self._client.get_children_async(path, watch=watcher)))

    async def sync(self, path: str) -> None:
        await self._request(lambda: self._client.sync_async(path), by_leader=True)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, NodeStat]:
        made, stat = await self._request(
            lambda: self._client.create_async(path, data, ephemeral=ephemeral, sequence=sequence, include_data=True),
            by_leader=True,
        )
        return made, _stat(stat)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        stat = await self._request(lambda: self._client.set_async(path, data, version), by_leader=True)
        return int(stat.version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._request(lambda: self._client.delete_async(path, version), by_leader=True)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Check(path, version):
                    transaction.check(path, version)
                case Create(path, data, ephemeral, sequence):
                    transaction.create(path, data, ephemeral=ephemeral, sequence=sequence)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
        answers = await self._request(transaction.commit_async, by_leader=True)
        for index, answer in enumerate(answers):
            if isinstance(answer, Exception) and not isinstance(answer, _ROLLED_BACK):
                raise TransactionFailedError(index, _translate(answer, operations[index].path))
        if any(isinstance(answer, Exception) for answer in answers):
            raise TransactionFailedError(0, StoreError("rolled back without a reason"))
        return [_result(operation, answer) for operation, answer in zip(operations, answers, strict=True)]

    async def close(self) -> None:
        """Close the session. After a few seconds without an answer, give up; the session then ends by its timeout."""
        if self._closing:
            return
        self._closing = True
        done = asyncio.Event()

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            except Exception:
                self._client.logger.debug("closing", exc_info=True)
            finally:
                self._enqueue(done.set)

        threading.Thread(target=stop, name="zookeeper-close", daemon=True).start()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await done.wait()
        except TimeoutError:
            return

    async def _request(self, send: Callable[[], Any], *, by_leader: bool = False) -> Any:
        """Send a request and return its result or raise its error; wait at most one session timeout.

        An answer `by_leader`, also a refusal, confirms the session. SessionExpiredError once the store is closed,
        OutcomeUnknownError without a connection.
        """
        if self._closing:
            raise SessionExpiredError("the session is closed")
        if not self._client.connected:
            raise OutcomeUnknownError(f"no connection to ZooKeeper at {self._hosts}")
        sent_at_ms = self._clock.monotonic_ms()
        answered: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()

        # kazoo's result keeps this callback, so that the future must not lead back to the result. The memory of such a
        # cycle would wait for a garbage collection, and these are rare.
        def on_answer(result: Any) -> None:
            self._enqueue(self._complete, answered, (result.value, result.exception))

        send().rawlink(on_answer)
        try:
            async with asyncio.timeout(self.session_timeout_ms / 1000):
                value, error = await answered
        except TimeoutError:
            raise OutcomeUnknownError(f"ZooKeeper at {self._hosts} does not answer") from None
        refused = type(error) in _ERRORS and not isinstance(error, kazoo_errors.SessionExpiredError)
        if by_leader and (error is None or refused):
            self._confirmed_at_ms = max(self._confirmed_at_ms, sent_at_ms)
        if error is not None:
            raise _translate(error, "") from error
        return value

    @staticmethod
    def _complete(
        answered: asyncio.Future[tuple[Any, BaseException | None]], answer: tuple[Any, BaseException | None]
    ) -> None:
        if not answered.done():
            answered.set_result(answer)

    def _enqueue(self, callback: Callable[..., None], *args: Any) -> None:
        """Call `callback` on the loop, from any thread. Do nothing if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return

    def _watcher(self, path: str) -> Callable[[WatchedEvent], None]:
        """Return the function that reports a watch on this path, always the same one for the same path.

        kazoo keeps watchers in a set, so that a path with two watches is reported once.
        """
        watcher = self._watchers.get(path)
        if watcher is None:

            def watcher(event: WatchedEvent) -> None:
                if event.type != EventType.NONE:
                    self._enqueue(self._deliver, NodeChanged(path))

            self._watchers[path] = watcher
        return watcher

    def _from_kazoo_state(self, state: str) -> None:
        """Pass kazoo's session state on to the loop. Runs on kazoo's thread."""
        if state == KazooState.CONNECTED:
            session_id = self._client.client_id[0]
            self._enqueue(self._on_session, SessionState.CONNECTED, session_id)
        elif state == KazooState.SUSPENDED:
            self._enqueue(self._on_session, SessionState.SUSPENDED, None)
        elif self._client.client_state == KeeperState.EXPIRED_SESSION:
            self._enqueue(self._on_session, SessionState.EXPIRED, 0)

    def _on_session(self, state: SessionState, session_id: int | None) -> None:
        if session_id is not None:
            self._session_id = session_id
        if not self._closing:
            self._deliver(SessionChanged(state))

    def _deliver(self, event: StoreEvent) -> None:
        for listener in list(self._listeners):
            listener(event)

    def _time_handshakes(self) -> None:
        """Shorten kazoo's long wait for handshake answers, and read the granted timeout, which kazoo does not
        expose.
        """
        connection = self._client._connection
        invoke, no_answer = connection._invoke, self._client.handler.timeout_exception
        timeout_s = _HANDSHAKE_TIMEOUT_S

        def invoke_within_timeout(timeout: float, request: Any, xid: int | None = None) -> Any:
            nonlocal timeout_s
            if not isinstance(request, Connect):
                return invoke(timeout, request, xid)
            try:
                answer = invoke(min(timeout, timeout_s), request, xid)
            except no_answer:
                timeout_s *= 2
                raise
            timeout_s = _HANDSHAKE_TIMEOUT_S
            if answer[0].time_out > 0:
                self._granted_timeout_ms = int(answer[0].time_out)
            return answer

        connection._invoke = invoke_within_timeout


def _stat(stat: Any) -> NodeStat:
    return NodeStat(int(stat.version), int(stat.czxid), int(stat.ephemeralOwner), int(stat.mzxid))


def _result(operation: Operation, answer: Any) -> Result:
    match operation:
        case Create():
            return str(answer)
        case Set():
            return int(answer.version)
        case _:
            return None


def _translate(error: BaseException, path: str) -> StoreError:
    for theirs, ours in _ERRORS.items():
        if isinstance(error, theirs):
            return ours(path or str(error) or theirs.__name__)
    return OutcomeUnknownError(f"{type(error).__name__} {error}")
