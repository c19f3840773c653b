"""This broker's standing with ZooKeeper: is the session alive, is the registration still there.

`Session` keeps the session busy from the event loop and knows how long it surely lives. `Registration` keeps
`/brokers/ids/N` and says when it was lost, whatever the cause. `Watchdog` ends a process whose loop hangs: kazoo
pings from its own thread, and would keep the session of a broker that does nothing for ever.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace

from cluster import znodes
from cluster.coordination import BrokerIdTaken, Coordination
from cluster.state import BrokerRegistration
from cluster.store import NodeChanged, SessionChanged, SessionState, Store, StoreError, StoreEvent
from tidelog.clock import Clock

log = logging.getLogger(__name__)

_HEARTBEATS_PER_TIMEOUT = 6
_WATCHDOG_TICKS = 10
_RETRY_S = 0.1
#: The exit status of a process whose watchdog has bitten.
HUNG_EXIT_STATUS = 70


class Watchdog:
    """A thread that calls `on_hung` when the loop has not turned for `timeout_ms`.

    It counts its own ticks, not time: a process that was stopped as a whole (SIGSTOP) lost its session rightly,
    and must come back and find out, rather than be taken for hung.
    """

    def __init__(self, timeout_ms: int, on_hung: Callable[[], None]) -> None:
        self._tick_s = timeout_ms / 1000 / _WATCHDOG_TICKS
        self._on_hung = on_hung
        self._missed = 0
        self._stopped = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """From the loop that is to be watched."""
        self._thread.start()

    def stop(self) -> None:
        """Returns at once; the thread ends within a tick."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._tick_s):
            self._missed += 1
            if self._missed > _WATCHDOG_TICKS:
                self._on_hung()
                return
            try:
                self._loop.call_soon_threadsafe(self._turned)
            except RuntimeError:
                return  # the loop is closed

    def _turned(self) -> None:
        self._missed = 0


def end_process() -> None:
    """What a broker does when it hangs: others must be able to take over. Nothing is flushed, as in a crash."""
    log.critical("the event loop has not turned for a whole session timeout: ending the process")
    os._exit(HUNG_EXIT_STATUS)


class Session:
    """Keeps asking ZooKeeper something, so that `Store.confirmed_at_ms` is fresh while all is well."""

    def __init__(self, store: Store, clock: Clock, *, on_hung: Callable[[], None] = end_process) -> None:
        self._store = store
        self._clock = clock
        self._watchdog = Watchdog(store.session_timeout_ms, on_hung)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts heartbeats and watchdog."""
        self._task = asyncio.create_task(self._beat(), name="zookeeper-heartbeat")
        self._watchdog.start()

    async def stop(self) -> None:
        """Stops both; the store stays open."""
        self._watchdog.stop()
        if self._task is not None:
            self._task.cancel()

    @property
    def session_id(self) -> int:
        """0 while there is none. To be kept in the data directory before anything ephemeral is made."""
        return self._store.session_id

    @property
    def cut_off(self) -> bool:
        """Whether the session may be over without our knowing: no request sent since has been answered.

        True from one session timeout after the sending of the last answered request on (DESIGN 5).
        """
        return self._clock.monotonic_ms() - self._store.confirmed_at_ms >= self._store.session_timeout_ms

    async def _beat(self) -> None:
        pause_s = self._store.session_timeout_ms / 1000 / _HEARTBEATS_PER_TIMEOUT
        while True:
            try:
                await self._store.exists("/")
            except StoreError as error:
                log.debug("heartbeat: %s", error)
            await asyncio.sleep(pause_s)


class Registration:
    """`/brokers/ids/N`, made and made again.

    on_lost()             at once when the registration is found gone: stop leading, there is another world now
    on_registered(epoch)  after each registration but the first, whose epoch `start` returns
    on_taken(error)       another live process has our id: this one must end
    save_session(id)      before each registration: a restart may then delete this session's registration, and no other
    """

    def __init__(
        self,
        coordination: Coordination,
        registration: BrokerRegistration,
        *,
        previous_session: int = 0,
        save_session: Callable[[int], None] = lambda session_id: None,
        on_lost: Callable[[], None] = lambda: None,
        on_registered: Callable[[int], None] = lambda epoch: None,
        on_taken: Callable[[BrokerIdTaken], None] = lambda error: None,
    ) -> None:
        self._coordination = coordination
        self._registration = registration
        self._previous_session = previous_session
        self._save_session = save_session
        self._on_lost = on_lost
        self._on_registered = on_registered
        self._on_taken = on_taken
        self._path = znodes.broker_path(registration.broker_id)
        self._changed = asyncio.Event()
        self._expired = False
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def broker_epoch(self) -> int:
        """The czxid of the registration, −1 while there is none."""
        return self._registration.epoch

    @property
    def current(self) -> BrokerRegistration:
        """The registration with its epoch."""
        return self._registration

    async def start(self) -> int:
        """Registers, and keeps registered from now on. Returns the broker epoch; BrokerIdTaken, StoreError."""
        self._unsubscribe = self._coordination.store.subscribe(self._on_event)
        epoch = await self._register()
        self._task = asyncio.create_task(self._keep(), name="registration")
        return epoch

    async def stop(self) -> None:
        """Removes the registration (as far as ZooKeeper can be reached), so that nobody has to find out."""
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
        epoch, self._registration = self.broker_epoch, replace(self._registration, epoch=-1)
        if epoch >= 0 and self._coordination.store.connected:
            try:
                await self._coordination.unregister_broker(self._registration.broker_id, epoch)
            except StoreError as error:
                log.info("the registration was left to its session: %s", error)

    def _on_event(self, event: StoreEvent) -> None:
        if isinstance(event, SessionChanged):
            self._expired |= event.state is SessionState.EXPIRED
            self._changed.set()
        elif isinstance(event, NodeChanged) and event.path == self._path:
            self._changed.set()

    async def _register(self) -> int:
        self._expired = False
        session_id = self._coordination.store.session_id
        self._save_session(session_id)
        epoch = await self._coordination.register_broker(self._registration, self._previous_session)
        self._previous_session = session_id
        self._registration = replace(self._registration, epoch=epoch)
        return epoch

    async def _keep(self) -> None:
        while True:
            await self._until_lost()
            log.warning("the registration of broker %d is gone", self._registration.broker_id)
            self._registration = replace(self._registration, epoch=-1)
            self._on_lost()
            try:
                epoch = await self._register_with_patience()
            except BrokerIdTaken as error:
                self._on_taken(error)
                return
            log.info("broker %d is registered again, epoch %d", self._registration.broker_id, epoch)
            self._on_registered(epoch)

    async def _until_lost(self) -> None:
        while not self._expired:
            self._changed.clear()
            try:
                broker_id, epoch = self._registration.broker_id, self._registration.epoch
                if not await self._coordination.is_registered(broker_id, epoch, watch=True):
                    return
            except StoreError as error:
                log.debug("looking for the registration: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            await self._changed.wait()

    async def _register_with_patience(self) -> int:
        while True:
            try:
                return await self._register()
            except StoreError as error:
                log.debug("registering again: %s", error)
                await asyncio.sleep(_RETRY_S)
