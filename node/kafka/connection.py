"""One connection of a Kafka client: requests are handled in order, and responses leave in the order of the requests.

A request that has had its effects and only waits, for example for followers, for records to fetch or for members of a
group, lets the next request begin. Any other request that takes longer holds back those after it, because they may
depend on its effect. If the peer does not read its responses, the connection handles no further requests. When the
waiting requests reach a limit, it stops reading too. Other connections go on meanwhile.

A request that has begun is never cancelled when its connection is lost, because it may be half done. But if a request
only waits, its operation learns that the response is not needed any more. So the fetch of a lost consumer ends.

A request that fails without a response closes the connection. No later request begins, and the responses to earlier
requests are sent first.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, cast

from node.kafka.request_memory import RequestMemory
from node.kafka.sending import read_stored, send
from node.net.client_connections import Traffic
from tidelog.errors import StorageError
from tidelog.protocol.kafka.codec import Part
from tidelog.protocol.kafka.frames import FrameError, FrameReader

#: Requests of one connection without a response. Beyond this number the connection reads no further requests.
MAX_UNANSWERED = 100
#: Bytes of requests of one connection that wait to be handled. Beyond this number it reads no further requests.
MAX_WAITING_BYTES = 1024 * 1024
#: Bytes of responses of one connection that are not sent, or wait for the response to an earlier request. Beyond this
#: number the connection handles no further requests.
MAX_UNSENT_BYTES = 256 * 1024
#: Requests of one connection that are handled in one iteration of the event loop, and the time after which no further
#: one is begun, so that a client that pipelines expensive requests does not delay the others.
MAX_IN_A_ROW = 20
LONGEST_TURN_NS = 50_000
#: TCP keepalive: after how many idle seconds a connection is probed, how often, and how many probes may fail. With the
#: kernel's values, a connection whose client has gone without a FIN would stay open for hours.
_PROBED_AFTER_S, _PROBED_EACH_S, _PROBES = 10, 2, 3
#: Memory that a request takes beside its bytes while it waits.
_FRAME_OBJECT_BYTES = 256

Frames = Sequence[Part]


class LaterFrames:
    """A response whose request has had its effects, so that the next request may begin.

    subscribe   called once with the function to call with the frames, or with the reason to close the connection
    abandon     called if the connection is lost before the response is known
    """

    __slots__ = ("abandon", "subscribe")

    def __init__(
        self, subscribe: Callable[[Callable[[Frames | FrameError], None]], None], abandon: Callable[[], None]
    ) -> None:
        self.subscribe = subscribe
        self.abandon = abandon


#: The buffers of a response; None if the request gets none; or a response that is not known yet.
FrameOutcome = Frames | None | LaterFrames | Awaitable[Frames | None]


class Owner(Protocol):
    """The listener of a connection. `now_ns` is a monotonic clock."""

    now_ns: Callable[[], int]
    max_frame_bytes: int
    read_buffer: memoryview
    memory: RequestMemory

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

    def log_closing(self, connection: Connection, error: FrameError) -> None: ...


class _Slot:
    """The place of one response in the order of the requests.

    later     provides the response, if it was not known when the request had its effects
    failure   why the connection must be closed instead of sending this response
    """

    __slots__ = ("buffers", "failure", "is_done", "later", "size_bytes")

    def __init__(self) -> None:
        self.later: LaterFrames | None = None
        self.failure: FrameError | None = None
        self.is_done = False
        self.buffers: Frames = ()
        self.size_bytes = 0


class Connection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket.

    peer         the address of the client, for log lines and listings
    traffic      the bytes that have passed, and when a request last arrived, which the listener sets
    held_bytes   the memory that requests and responses of this connection take
    """

    def __init__(self, owner: Owner) -> None:
        self.peer: tuple[str, int] = ("", 0)
        self.traffic = Traffic()
        self.held_bytes = 0
        self.is_open = False
        self._owner = owner
        self._reader = FrameReader(owner.max_frame_bytes, owner.read_buffer)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[memoryview | FrameError] = deque()  # an error is the last item
        self._waiting_bytes = 0
        self._slots: deque[_Slot] = deque()
        self._parked_bytes = 0  # of responses that wait for the response to an earlier request
        self._task: asyncio.Future[Frames | None] | None = None
        self._task_bytes = 0
        self._is_sending_paused = False
        self._is_reading_paused = False
        self._is_handling = False
        self._is_due = False
        self._has_failed = False  # a request has failed without a response
        self._has_peer_ended = False

    # --- asyncio's callbacks -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.peer = (str(peer[0]), int(peer[1]))
        _probe_when_idle(transport.get_extra_info("socket"))
        self.is_open = True
        if not self._owner.opened(self):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._drop_requests()
        self._owner.closed(self)
        self._owner.memory.add(-self.held_bytes)
        self.held_bytes = 0
        self._owner.memory.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        if not self.is_open or self._has_failed:
            return
        self.traffic.received_bytes += nbytes
        frames = self._reader.received(nbytes)
        self._waiting.extend(frames)
        self._waiting_bytes += sum(map(_memory_of, frames))
        if self._is_due:
            self._count()  # a second turn in one iteration of the event loop would delay other connections
            self._adjust_reading()
        else:
            self._handle_waiting()

    def eof_received(self) -> bool:
        """Return whether the connection stays, because requests that have arrived wait to be handled.

        A producer with acks=0 closes its connection when it has sent its last records, and these must not be lost.
        """
        self._has_peer_ended = True
        return self.is_open and bool(self._waiting)

    def pause_writing(self) -> None:
        self._is_sending_paused = True

    def resume_writing(self) -> None:
        self._is_sending_paused = False
        self._handle_waiting()

    # --- requests ------------------------------------------------------------------------------------

    @property
    def unanswered(self) -> int:
        """Return the number of requests that have begun and whose response has not been sent yet."""
        return len(self._slots)

    @property
    def moved_bytes(self) -> int:
        """Return the sum of the bytes that the peer has sent, and of the response bytes that it has taken."""
        return self.traffic.received_bytes + self.traffic.sent_bytes - self._unsent_bytes()

    @property
    def is_waited_for(self) -> bool:
        """Return whether only the peer can free memory, by sending the rest of a request or by reading responses."""
        return self._is_sending_paused or (self._reader.held_bytes > 0 and not self._is_reading_paused)

    def close(self) -> None:
        """Close the connection at once. Responses that have not left are lost, and other requests get none."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def end(self) -> None:
        """Close the connection when the responses that the transport already has are sent. Other requests get none."""
        self.is_open = False
        self._drop_requests()
        if self._transport is not None:
            self._transport.close()

    def _end_with_error(self, error: FrameError) -> None:
        """End an open connection for this reason, with a log line."""
        if self.is_open:
            self._owner.log_closing(self, error)
            self.end()

    def _handle_waiting(self) -> None:
        """Handle waiting requests as far as the limits allow it, then read more or pause."""
        if not self.is_open:
            return
        self._is_handling = True
        begun = 0
        until_ns = self._owner.now_ns() + LONGEST_TURN_NS if len(self._waiting) > 1 else 0
        try:
            while self._waiting and begun < MAX_IN_A_ROW and self._may_begin():
                frame = self._waiting.popleft()
                self._waiting_bytes -= _memory_of(frame)
                self._begin(frame)
                begun += 1
                if self._waiting and self._owner.now_ns() > until_ns:
                    break
        finally:
            self._is_handling = False
        if begun:
            self._owner.settle()
        self._handle_waiting_soon()
        self._count()
        self._adjust_reading()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._has_peer_ended and self.is_open and not self._waiting:
            self.end()

    def _handle_waiting_soon(self) -> None:
        if self._waiting and not self._is_due and not self._is_handling and self._may_begin():
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._on_due)

    def _on_due(self) -> None:
        self._is_due = False
        self._handle_waiting()

    def _may_begin(self) -> bool:
        return (
            self.is_open
            and not self._has_failed
            and self._task is None
            and not self._is_sending_paused
            and len(self._slots) < MAX_UNANSWERED
            and self._parked_bytes < MAX_UNSENT_BYTES
        )

    def _begin(self, frame: memoryview | FrameError) -> None:
        slot = _Slot()
        try:
            if isinstance(frame, FrameError):
                raise frame
            outcome = self._owner.handle(self, frame)
        except FrameError as error:
            self._slots.append(slot)
            self._fail(slot, error)
            return
        if outcome is None:
            return
        self._slots.append(slot)
        if isinstance(outcome, LaterFrames):
            slot.later = outcome
            outcome.subscribe(partial(self._answer_later, slot))
        elif isinstance(outcome, Awaitable):
            self._task = asyncio.ensure_future(outcome)
            self._task_bytes = len(frame)
            self._task.add_done_callback(partial(self._ended, slot))
        else:
            self._answer(slot, outcome)

    def _ended(self, slot: _Slot, task: asyncio.Future[Frames | None]) -> None:
        self._task, self._task_bytes = None, 0
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(error, MemoryError):
            raise error  # node.process.out_of_memory ends the process
        if error is None:
            self._answer_later(slot, task.result() or ())
        elif isinstance(error, FrameError):
            self._fail(slot, error)
        else:
            # Without the response, all later ones would be taken for the responses to earlier requests.
            self._fail(slot, FrameError("cannot get a response, because the broker did not complete its request"))

    def _answer_later(self, slot: _Slot, outcome: Frames | FrameError) -> None:
        if isinstance(outcome, FrameError):
            self._fail(slot, outcome)
        elif self.is_open:
            self._answer(slot, outcome)
            self._handle_waiting_soon()
            if not self._is_due and not self._is_handling:
                self._count()
                self._adjust_reading()
                self._end_if_done()

    def _fail(self, slot: _Slot, error: FrameError) -> None:
        """Begin no further request, and close the connection when the responses to earlier requests are sent.

        If the peer has ended, close the connection at once, because it does not wait for responses.
        """
        if not self.is_open:
            return
        if self._slots[0] is slot or self._has_peer_ended:
            self._end_with_error(error)
            return
        slot.is_done, slot.failure = True, error
        self._has_failed = True
        # The part of a next request would take memory, and perhaps the only turn to read while memory is scarce.
        self._reader = FrameReader(self._owner.max_frame_bytes, self._owner.read_buffer)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._count()
        self._adjust_reading()

    def _answer(self, slot: _Slot, buffers: Frames) -> None:
        """Fill the slot, and send all responses that have no unanswered request before them.

        If stored records cannot be read, or the connection is lost, close the connection.
        """
        try:
            is_next = self._slots[0] is slot
            slot.buffers = buffers if is_next else read_stored(buffers)
            slot.is_done, slot.size_bytes = True, sum(map(len, buffers))
            self._parked_bytes += slot.size_bytes
            if is_next:
                self._send_ready()
        except StorageError as error:
            self._end_with_error(FrameError(f"asked for records that cannot be read: {error}"))
        except OSError:
            self.close()  # the connection is lost

    def _send_ready(self) -> None:
        """Send the responses without an unanswered request before them, or close the connection after a failure."""
        ready: list[Part] = []
        failure: FrameError | None = None
        while failure is None and self._slots and self._slots[0].is_done:
            first = self._slots.popleft()
            failure = first.failure
            ready += first.buffers
            self._parked_bytes -= first.size_bytes
            self.traffic.sent_bytes += first.size_bytes
        if ready and self._transport is not None and not self._transport.is_closing():
            send(self._transport, ready)
        if failure is not None:
            self._end_with_error(failure)

    def _drop_requests(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = self._parked_bytes = 0
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.later is not None and not slot.is_done:
                slot.later.abandon()

    # --- memory --------------------------------------------------------------------------------------

    def memory_freed(self) -> None:
        """Handle and read further requests as far as the limits allow it, because there may be memory for them."""
        self._handle_waiting()

    def _count(self) -> None:
        """Tell the listener how many bytes this connection holds. A write buffer below its limit is not counted.

        A transport does not tell when the last bytes have left, so that they would be counted until the next request.
        """
        held = self._reader.held_bytes + self._waiting_bytes + self._parked_bytes + self._task_bytes
        if self._is_sending_paused:
            held += self._unsent_bytes()
        self._owner.memory.add(held - self.held_bytes)
        self.held_bytes = held

    def _unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _adjust_reading(self) -> None:
        if self._transport is None or not self.is_open or self._transport.is_closing() or self._has_peer_ended:
            return
        is_full = bool(self._waiting) and (
            self._waiting_bytes >= MAX_WAITING_BYTES or len(self._slots) + len(self._waiting) >= MAX_UNANSWERED
        )
        if is_full:
            self._owner.memory.release(self)
        must_pause = is_full or not self._owner.memory.request_read(self, self._reader.held_bytes > 0)
        if must_pause and not self._is_reading_paused:
            self._transport.pause_reading()
        elif self._is_reading_paused and not must_pause:
            self._transport.resume_reading()
        self._is_reading_paused = must_pause


def _probe_when_idle(accepted: socket.socket | None) -> None:
    """Let the kernel find out that the client has gone without closing the connection."""
    if accepted is None:
        return
    with suppress(OSError):  # the peer may have gone
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBED_AFTER_S)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBED_EACH_S)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def _memory_of(frame: memoryview | FrameError) -> int:
    return _FRAME_OBJECT_BYTES + (0 if isinstance(frame, FrameError) else len(frame))
