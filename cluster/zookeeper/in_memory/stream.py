"""One direction of a TCP connection: messages arrive late and in order, or never."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

#: Returns the event loop on which one end of a connection runs. Both ends may run on the same one.
LoopSupplier: TypeAlias = Callable[[], asyncio.AbstractEventLoop]

#: Timers may fire too early by this much.
_RESOLUTION_S = 1e-6


class Stream:
    """Delivers messages; none arrives within the call that sends it.

    receiver_loop   returns the event loop on which messages arrive
    """

    def __init__(self, receiver_loop: LoopSupplier) -> None:
        self._receiver_loop = receiver_loop
        self._waiting: deque[tuple[float, Callable[[], object]]] = deque()
        self._last_due_s = 0.0
        self._handle: asyncio.Handle | None = None
        self._held = False
        self._closed = False

    def send(self, delay_s: float, arrive: Callable[[], object]) -> None:
        """Call `arrive` after this delay and after earlier messages. Do nothing if the stream is closed."""
        if self._closed:
            return
        self._last_due_s = max(self._last_due_s, self._receiver_loop().time() + delay_s)
        self._waiting.append((self._last_due_s, arrive))
        self._schedule()

    def hold(self) -> None:
        """Deliver nothing until `release`."""
        self._held = True
        self._unschedule()

    def release(self) -> None:
        self._held = False
        self._schedule()

    def close(self) -> None:
        """Discard the messages that have not arrived, and all later ones."""
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
