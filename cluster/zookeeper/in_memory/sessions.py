"""The live sessions, and the timers that end the silent ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cluster.zookeeper.in_memory.stream import LoopSupplier


@dataclass(slots=True)
class _Session:
    timeout_s: float
    timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Sessions:
    """Keeps the sessions. A connected client pings all the time, so a timer runs only for a silent one.

    expire     called with a session that has timed out
    get_loop   returns the servers' event loop
    """

    def __init__(self, expire: Callable[[int], None], get_loop: LoopSupplier) -> None:
        self.get_loop = get_loop
        self._expire = expire
        self._sessions: dict[int, _Session] = {}
        self._last_id = 0
        self._asleep = False

    def open(self, timeout_ms: int) -> int:
        """Open a session and return its id."""
        self._last_id += 1
        self._sessions[self._last_id] = _Session(timeout_ms / 1000)
        return self._last_id

    def end(self, session_id: int) -> bool:
        """End a session. Return whether it was live until now."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.cancel()
        return session is not None

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    def heard(self, session_id: int) -> None:
        """Stop the session's timer, because the session has a connection."""
        if session := self._sessions.get(session_id):
            session.cancel()

    def silent(self, session_id: int, since_s: float) -> None:
        """Start the session's timer as of `since_s` (loop time), unless it is running already."""
        session = self._sessions.get(session_id)
        if session is not None and session.timer is None:
            session.timer = self.get_loop().call_at(since_s + session.timeout_s, self._time_out, session_id)

    def stop(self) -> None:
        """Stop all timers, because the servers are down."""
        for session in self._sessions.values():
            session.cancel()

    def start(self) -> None:
        """Start all timers anew, because the servers are up again."""
        now_s = self.get_loop().time()
        for session_id in self._sessions:
            self.silent(session_id, now_s)

    def sleep(self) -> None:
        """Suspend the servers: time passes, but no session ends."""
        self._asleep = True

    def wake(self) -> None:
        """Resume the servers, and end all sessions that have timed out meanwhile."""
        self._asleep = False
        now_s = self.get_loop().time()
        for session_id, session in list(self._sessions.items()):
            if session.timer is not None and session.timer.when() <= now_s:
                self._expire(session_id)

    def _time_out(self, session_id: int) -> None:
        if not self._asleep:
            self._expire(session_id)
