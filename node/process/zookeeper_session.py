"""This broker's session with ZooKeeper, with heartbeats from the event loop that prove how long the session lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cluster.zookeeper.store import SessionChanged, SessionState, Store, StoreError, StoreEvent
from node.events.recorder import NO_EVENTS, Events
from node.process.watchdog import Guard
from tidelog.clock import Clock

log = logging.getLogger(__name__)

_HEARTBEATS_PER_TIMEOUT = 6


class ZooKeeperSession:
    """Sends heartbeats to ZooKeeper's leader, so that `Store.confirmed_at_ms` is recent while ZooKeeper answers.

    `guard` runs from `start` to `stop`, and ends the process if its event loop hangs.
    """

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
        """Start the heartbeats and the guard."""
        self._task = asyncio.create_task(self._beat(), name="zookeeper-heartbeat")
        self._guard.start()
        self._unsubscribe = self._store.subscribe(self._on_event)
        self._events.session(SessionState.CONNECTED.value)

    async def stop(self) -> None:
        """Stop the heartbeats and the guard; the store stays open."""
        self._unsubscribe()
        self._guard.stop()
        if self._task is not None:
            self._task.cancel()

    @property
    def session_id(self) -> int:
        """Return the id of the session; 0 while there is none.

        The caller saves the id in the data directory before it creates an ephemeral znode.
        """
        return self._store.session_id

    @property
    def cut_off(self) -> bool:
        """Return whether the session may have expired without this broker's knowledge.

        The session may have expired from one session timeout after the last confirmed request was sent.
        """
        return self.silence_ms >= self._store.session_timeout_ms

    @property
    def may_have_ended(self) -> bool:
        """Return whether the session may have ended, also before its timeout.

        ZooKeeper may end a session at once on behalf of another client. The lost connection is the first sign of that.
        """
        return self.cut_off or not self._store.connected

    @property
    def silence_ms(self) -> int:
        """Return the time since this broker has sent the last request that ZooKeeper confirmed."""
        return self._clock.monotonic_ms() - self._store.confirmed_at_ms

    def _on_event(self, event: StoreEvent) -> None:
        if isinstance(event, SessionChanged):
            self._events.session(event.state.value)

    async def _beat(self) -> None:
        """Send one heartbeat after the other, each with the deadline of the store."""
        pause_s = self._store.session_timeout_ms / 1000 / _HEARTBEATS_PER_TIMEOUT
        while True:
            try:
                await self._store.sync("/")
            except StoreError as error:
                log.debug("heartbeat: %s", error)
            await asyncio.sleep(pause_s)
