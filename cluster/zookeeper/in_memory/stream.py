"""One direction of a connection, as TCP keeps it: what is sent arrives late, in its order, or never."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

#: Whose turn it is when something happens at one end of a connection; the same for both, or another.
LoopSupplier: TypeAlias = Callable[[], asyncio.AbstractEventLoop]

#: Timers may be called as much too early.
_RESOLUTION_S = 1e-6


class Stream:
    """Nothing arrives within the call that sends it.

    there   where it arrives
    """

    def __init__(self, receiver_loop: LoopSupplier) -> None:
        self._receiver_loop = receiver_loop
        self._waiting: deque[tuple[float, Callable[[], object]]] = deque()
        self._last_due_s = 0.0
        self._handle: asyncio.Handle | None = None
        self._held = False
        self._closed = False

    def send(self, delay_s: float, arrive: Callable[[], object]) -> None:
        """Calls `arrive` so much later, but not before what was sent before it."""
        if self._closed:
            return
        self._last_due_s = max(self._last_due_s, self._receiver_loop().time() + delay_s)
        self._waiting.append((self._last_due_s, arrive))
        self._schedule()

    def hold(self) -> None:
        """Nothing arrives until `release`."""
        self._held = True
        self._unschedule()

    def release(self) -> None:
        self._held = False
        self._schedule()

    def close(self) -> None:
        """What has not arrived never will."""
        self._closed = True
        self._waiting.clear()
        self._unschedule()

    def _schedule(self) -> None:
        if self._handle is not None or self._held or not self._waiting:
            return
        loop = self._receiver_loop()
        due_s = self._waiting[0][0]
        late = due_s - _RESOLUTION_S <= loop.time()
        self._handle = loop.call_soon(self._arrive) if late else loop.call_at(due_s, self._arrive)

    def _unschedule(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arrive(self) -> None:
        self._handle = None
        until_s = self._receiver_loop().time() + _RESOLUTION_S
        for _ in range(len(self._waiting)):
            if self._held or not self._waiting or self._waiting[0][0] > until_s:
                break
            self._waiting.popleft()[1]()
        self._schedule()
