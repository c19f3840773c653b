"""This broker's session with ZooKeeper: kept busy from the event loop, so that one knows how long it surely lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cluster.zookeeper.store import SessionChanged, SessionState, Store, StoreError, StoreEvent
from node.events.recorder import NO_EVENTS, Events
from node.runtime.watchdog import Guard
from tidelog.clock import Clock

log = logging.getLogger(__name__)

_HEARTBEATS_PER_TIMEOUT = 6


class Session:
    """Keeps asking the leader of ZooKeeper, so that `Store.confirmed_at_ms` is fresh while all is well."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        guard: Guard,
        *,
        events: Events = NO_EVENTS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._guard = guard
        self._events = events
        self._unsubscribe: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts heartbeats and guard."""
        self._task = asyncio.create_task(self._beat(), name="zookeeper-heartbeat")
        self._guard.start()
        self._unsubscribe = self._store.subscribe(self._on_event)
        self._events.session(SessionState.CONNECTED.value)

    async def stop(self) -> None:
        """Stops both; the store stays open."""
        self._unsubscribe()
        self._guard.stop()
        if self._task is not None:
            self._task.cancel()

    @property
    def session_id(self) -> int:
        """0 while there is none. To be kept in the data directory before anything ephemeral is made."""
        return self._store.session_id

    @property
    def cut_off(self) -> bool:
        """Whether the session may be over without our knowing: no request sent since has been confirmed.

        True from one session timeout after the sending of the last confirmed request on (DESIGN 5).
        """
        return self.silence_ms >= self._store.session_timeout_ms

    @property
    def silence_ms(self) -> int:
        """Since the sending of the last request that ZooKeeper confirmed."""
        return self._clock.monotonic_ms() - self._store.confirmed_at_ms

    def _on_event(self, event: StoreEvent) -> None:
        if isinstance(event, SessionChanged):
            self._events.session(event.state.value)

    async def _beat(self) -> None:
        """One at a time, each with the deadline of the store."""
        pause_s = self._store.session_timeout_ms / 1000 / _HEARTBEATS_PER_TIMEOUT
        while True:
            try:
                await self._store.sync("/")
            except StoreError as error:
                log.debug("heartbeat: %s", error)
            await asyncio.sleep(pause_s)
