"""One connection of a Kafka client: requests are handled in order, and responses leave in the order of the requests.

A request whose records are appended, and which only waits for followers, lets the next request begin. Any other
request that takes longer holds back those after it, because they may depend on its effect. A connection whose peer does
not read its responses stops reading requests. No other connection notices either.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, cast

from node.kafka.frames import FrameError, FrameReader
from tidelog.model import Buffer

#: Requests of one connection without a response. Beyond this number the connection reads no further requests.
MAX_UNANSWERED = 100
#: Bytes of requests of one connection that wait to be handled. Beyond this number it reads no further requests.
MAX_WAITING_BYTES = 1024 * 1024
#: Unsent bytes of responses. Beyond this number the connection handles no further requests.
MAX_UNSENT_BYTES = 1024 * 1024

Frames = Sequence[Buffer]


class LaterFrames:
    """A response whose request has had its effects, so that the next request may begin.

    subscribe   called once with the function to call with the frames
    """

    __slots__ = ("subscribe",)

    def __init__(self, subscribe: Callable[[Callable[[Frames], None]], None]) -> None:
        self.subscribe = subscribe


#: The buffers of a response; None if the request gets none; or a response that is not known yet.
FrameOutcome = Frames | None | LaterFrames | Awaitable[Frames | None]


class Owner(Protocol):
    """The listener of a connection."""

    max_frame_bytes: int

    def opened(self, connection: Connection) -> bool:
        """Return whether the connection may stay."""
        ...

    def closed(self, connection: Connection) -> None: ...

    def handle(self, connection: Connection, frame: memoryview) -> FrameOutcome:
        """Handle a request. Raise FrameError to close the connection."""
        ...

    def settle(self) -> None:
        """Answer delayed requests that the requests that arrived together have completed."""
        ...

    def refused(self, connection: Connection, reason: str) -> None: ...


class _Slot:
    """The place of one response in the order of the requests."""

    __slots__ = ("buffers", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self.buffers: Frames | None = None


class Connection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket.

    peer            the address of the client, for log lines and listings
    last_active_ms  when a request last arrived; set by the listener
    """

    def __init__(self, owner: Owner) -> None:
        self.peer: tuple[str, int] = ("", 0)
        self.last_active_ms = 0
        self.is_open = False
        self._owner = owner
        self._reader = FrameReader(owner.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._slots: deque[_Slot] = deque()
        self._task: asyncio.Future[Frames | None] | None = None
        self._is_sending_paused = False
        self._is_reading_paused = False

    # --- asyncio's callbacks -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.peer = (str(peer[0]), int(peer[1]))
        self.is_open = True
        if not self._owner.opened(self):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._waiting.clear()
        self._slots.clear()
        if self._task is not None:
            self._task.cancel()
        self._owner.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.received(nbytes):
                self._waiting.append(frame)
                self._waiting_bytes += len(frame)
        except FrameError as error:
            self._refuse(error)
            return
        self._go_on()
        self._owner.settle()

    def pause_writing(self) -> None:
        self._is_sending_paused = True

    def resume_writing(self) -> None:
        self._is_sending_paused = False
        self._go_on()
        self._owner.settle()

    # --- requests ------------------------------------------------------------------------------------

    @property
    def unanswered(self) -> int:
        """Return the number of requests that have begun and have no response yet."""
        return len(self._slots)

    def close(self) -> None:
        """Close the connection. Requests without a response get none."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _go_on(self) -> None:
        """Handle waiting requests as long as the limits allow it, then read more or pause."""
        while self._waiting and self._may_begin():
            frame = self._waiting.popleft()
            self._waiting_bytes -= len(frame)
            self._begin(frame)
        self._adjust_reading()

    def _may_begin(self) -> bool:
        return self.is_open and self._task is None and not self._is_sending_paused and len(self._slots) < MAX_UNANSWERED

    def _begin(self, frame: memoryview) -> None:
        try:
            outcome = self._owner.handle(self, frame)
        except FrameError as error:
            self._refuse(error)
            return
        if outcome is None:
            return
        slot = _Slot()
        self._slots.append(slot)
        if isinstance(outcome, LaterFrames):
            outcome.subscribe(partial(self._answer, slot))
        elif isinstance(outcome, Awaitable):
            self._task = asyncio.ensure_future(outcome)
            self._task.add_done_callback(partial(self._ended, slot))
        else:
            self._answer(slot, outcome)

    def _ended(self, slot: _Slot, task: asyncio.Future[Frames | None]) -> None:
        self._task = None
        if task.cancelled() or not self.is_open:
            return
        error = task.exception()
        if isinstance(error, FrameError):
            self._refuse(error)
        elif error is not None:
            raise error  # the listener turns all errors of handlers into responses
        else:
            self._answer(slot, task.result())
            self._go_on()

    def _answer(self, slot: _Slot, buffers: Frames | None) -> None:
        """Fill the slot, and send all responses that have no unanswered request before them."""
        slot.buffers, slot.is_done = buffers, True
        if not self.is_open or self._transport is None:
            return
        ready: list[Buffer] = []
        while self._slots and self._slots[0].is_done:
            ready += self._slots.popleft().buffers or ()
        if ready:
            self._transport.writelines(ready)
        if self._waiting and self._may_begin():
            asyncio.get_running_loop().call_soon(self._go_on)

    def _adjust_reading(self) -> None:
        if self._transport is None or not self.is_open:
            return
        is_full = bool(self._waiting) and (
            self._waiting_bytes >= MAX_WAITING_BYTES or len(self._slots) + len(self._waiting) >= MAX_UNANSWERED
        )
        if is_full and not self._is_reading_paused:
            self._transport.pause_reading()
        elif self._is_reading_paused and not is_full:
            self._transport.resume_reading()
        self._is_reading_paused = is_full

    def _refuse(self, error: FrameError) -> None:
        self._owner.refused(self, error.reason)
        self.close()
