"""Which sessions live, and when those end of which nothing is heard."""

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
    """A client whose connection stands is heard of all the time: it pings. A timer runs only for one that is silent.

    expire   called with a session whose time is over
    get_loop     where the servers live
    """

    def __init__(self, expire: Callable[[int], None], get_loop: LoopSupplier) -> None:
        self.get_loop = get_loop
        self._expire = expire
        self._sessions: dict[int, _Session] = {}
        self._last_id = 0
        self._asleep = False

    def open(self, timeout_ms: int) -> int:
        """The new session's id."""
        self._last_id += 1
        self._sessions[self._last_id] = _Session(timeout_ms / 1000)
        return self._last_id

    def end(self, session_id: int) -> bool:
        """Whether it lived until now."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.cancel()
        return session is not None

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    def heard(self, session_id: int) -> None:
        """Its connection stands."""
        if session := self._sessions.get(session_id):
            session.cancel()

    def silent(self, session_id: int, since_s: float) -> None:
        """Nothing is heard of it since then, by the loop's clock. Its time, where it runs already, runs on."""
        session = self._sessions.get(session_id)
        if session is not None and session.timer is None:
            session.timer = self.get_loop().call_at(since_s + session.timeout_s, self._time_out, session_id)

    def stop(self) -> None:
        """The servers are down: nobody counts."""
        for session in self._sessions.values():
            session.cancel()

    def start(self) -> None:
        """The servers are up again: each session's time begins anew."""
        now_s = self.get_loop().time()
        for session_id in self._sessions:
            self.silent(session_id, now_s)

    def sleep(self) -> None:
        """The servers hang: time goes on, but nobody looks at it."""
        self._asleep = True

    def wake(self) -> None:
        """Ends all whose time is over meanwhile."""
        self._asleep = False
        now_s = self.get_loop().time()
        for session_id, session in list(self._sessions.items()):
            if session.timer is not None and session.timer.when() <= now_s:
                self._expire(session_id)

    def _time_out(self, session_id: int) -> None:
        if not self._asleep:
            self._expire(session_id)
