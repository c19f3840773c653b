"""One connection: the order of requests and responses, and what a slow peer holds back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest

from node.kafka.connection import (
    LONGEST_TURN_NS,
    MAX_IN_A_ROW,
    MAX_UNANSWERED,
    MAX_UNSENT_BYTES,
    Connection,
    FrameOutcome,
    Frames,
    LaterFrames,
)
from node.kafka.request_memory import RequestMemory
from tidelog.errors import StorageError
from tidelog.protocol.kafka.frames import READ_BYTES, FrameError


class Transport(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self, accepted: socket.socket | None = None) -> None:
        super().__init__({"peername": ("10.0.0.1", 4711), "socket": accepted})
        self.sent = b""
        self.is_reading = True
        self.is_aborted = self.is_ended = False
        self.unsent_bytes = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        self.sent += b"".join(list_of_data)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_aborted or self.is_ended

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def close(self) -> None:
        self.is_ended = True

    def abort(self) -> None:
        self.is_aborted = True


class Stored:
    """Stored bytes, which are gone once `is_gone` is set."""

    is_gone = False

    def __len__(self) -> int:
        return 6

    def read(self, begin: int = 0) -> bytes:
        if self.is_gone:
            raise StorageError("a.log: the file is gone")
        return b"stored"[begin:]

    def send(self, socket: int, begin: int = 0) -> int:
        raise AssertionError("this test has no socket")


class Owner:
    """A listener whose handler is the text of the request.

    now …    answered at once
    wait …   answered by `answer`, without holding back the next request
    slow …   answered by `answer`, and holds back the next request
    none …   not answered
    bad …    refused
    stored   answered at once with stored bytes

    request_ns   how long each request takes, by the owner's clock
    """

    max_frame_bytes = 1_000_000

    def __init__(self, max_memory_bytes: int = 1 << 30) -> None:
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        self.memory = RequestMemory(max_memory_bytes, lambda call: asyncio.get_running_loop().call_soon(call))
        self.begun: list[bytes] = []
        self.reasons: list[str] = []
        self.waiting: dict[bytes, Callable[[Frames | FrameError], None]] = {}
        self.abandoned: list[bytes] = []
        self.slow: dict[bytes, asyncio.Future[Frames | None]] = {}
        self.open = self.settled = 0
        self.at_ns = self.request_ns = 0
        self.stored = Stored()

    def now_ns(self) -> int:
        return self.at_ns

    def opened(self, connection: Connection) -> bool:
        self.open += 1
        return True

    def closed(self, connection: Connection) -> None:
        self.open -= 1

    def settle(self) -> None:
        self.settled = len(self.begun)

    def log_closing(self, connection: Connection, error: FrameError) -> None:
        self.reasons.append(error.reason)

    def handle(self, connection: Connection, frame: memoryview) -> FrameOutcome:
        text = bytes(frame)
        self.begun.append(text)
        self.at_ns += self.request_ns
        kind = text.split()[0]
        if kind == b"now":
            return [b"<", text, b">"]
        if kind == b"none":
            return None
        if kind == b"stored":
            return [b"<", self.stored, b">"]
        if kind == b"bad":
            raise FrameError("sent a bad request")
        if kind == b"wait":

            def subscribe(receive: Callable[[Frames | FrameError], None]) -> None:
                self.waiting[text] = receive

            return LaterFrames(subscribe, lambda: self.abandoned.append(text))
        future: asyncio.Future[Frames | None] = asyncio.get_running_loop().create_future()
        self.slow[text] = future
        return future

    def answer(self, text: bytes) -> None:
        if text in self.waiting:
            self.waiting.pop(text)([b"<" + text + b">"])
        else:
            self.slow.pop(text).set_result([b"<" + text + b">"])


def connected(owner: Owner | None = None) -> tuple[Owner, Connection, Transport]:
    owner, transport = owner or Owner(), Transport()
    connection = Connection(owner)
    connection.connection_made(transport)
    return owner, connection, transport


async def turns() -> None:
    """Let the callbacks run that the loop has been given, and those that they give it."""
    for _ in range(20):
        await asyncio.sleep(0)


def send(connection: Connection, *requests: bytes) -> None:
    data = b"".join(pack(">i", len(request)) + request for request in requests)
    while data:
        space = connection.get_buffer(-1)
        size = min(len(space), len(data))
        space[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


async def test_peer_that_vanishes_without_a_word_is_noticed_by_the_kernel() -> None:
    with socket.socket() as accepted:
        assert not accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        Connection(Owner()).connection_made(Transport(accepted))
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [accepted.getsockopt(socket.IPPROTO_TCP, each) for each in options] == [10, 2, 3]


async def test_responses_leave_in_the_order_of_the_requests() -> None:
    owner, connection, transport = connected()
    send(connection, b"wait 1", b"now 2", b"none 3", b"now 4")
    assert owner.begun == [b"wait 1", b"now 2", b"none 3", b"now 4"], "a waiting produce holds nothing back"
    assert transport.sent == b""
    owner.answer(b"wait 1")
    assert transport.sent == b"<wait 1><now 2><now 4>"


async def test_slow_request_holds_back_the_requests_after_it() -> None:
    owner, connection, transport = connected()
    send(connection, b"slow 1", b"now 2")
    assert owner.begun == [b"slow 1"]
    owner.answer(b"slow 1")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (owner.begun, transport.sent) == ([b"slow 1", b"now 2"], b"<slow 1><now 2>")


async def test_stored_bytes_behind_an_unanswered_request_are_read_at_once() -> None:
    owner, connection, transport = connected()
    send(connection, b"wait 1", b"stored")
    owner.stored.is_gone = True
    owner.answer(b"wait 1")
    assert transport.sent == b"<wait 1><stored>"


@pytest.mark.parametrize("before", [b"", b"wait 1"], ids=["next to be sent", "behind another"])
async def test_connection_is_closed_if_stored_bytes_cannot_be_read(before: bytes) -> None:
    owner, connection, transport = connected()
    transport.unsent_bytes = 1
    owner.stored.is_gone = True
    send(connection, *filter(None, [before, b"stored", b"now 2"]))
    assert (transport.sent, transport.is_ended) == (b"", True)
    assert owner.reasons == ["asked for records that cannot be read: a.log: the file is gone"]


async def test_bad_request_closes_the_connection_and_says_why() -> None:
    owner, connection, transport = connected()
    send(connection, b"now 1", b"bad 2", b"now 3")
    assert (transport.sent, transport.is_ended, owner.reasons) == (b"<now 1>", True, ["sent a bad request"])
    assert owner.begun == [b"now 1", b"bad 2"]


async def test_requests_before_a_size_that_is_not_allowed_are_handled() -> None:
    owner, connection, transport = connected()
    send(connection, b"now 1", b"wait 2")
    data = pack(">i", 5) + b"now 3" + pack(">i", -1) + b"now 4"
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    assert (owner.begun, transport.sent) == ([b"now 1", b"wait 2", b"now 3"], b"<now 1>")
    send(connection, b"now 5")
    owner.answer(b"wait 2")
    assert (transport.sent, transport.is_ended) == (b"<now 1><wait 2><now 3>", True)
    assert owner.reasons == ["claims a frame of -1 bytes; at most 1000000 are allowed"]
    assert len(owner.begun) == 3
    connection.connection_lost(None)
    assert owner.memory.held_bytes == 0


async def test_peer_that_does_not_read_gets_no_further_request_handled() -> None:
    owner, connection, transport = connected()
    connection.pause_writing()
    send(connection, *(b"now %d" % number for number in range(MAX_UNANSWERED + 5)))
    assert (owner.begun, transport.is_reading) == ([], False)
    connection.resume_writing()
    assert len(owner.begun) == MAX_IN_A_ROW, "other connections have their turn"
    await turns()
    assert (len(owner.begun), owner.settled) == (MAX_UNANSWERED + 5, MAX_UNANSWERED + 5)
    assert transport.is_reading


async def test_expensive_requests_are_handled_one_by_one() -> None:
    owner, connection, _ = connected()
    owner.request_ns = LONGEST_TURN_NS + 1
    send(connection, *(b"now %d" % number for number in range(5)))
    assert owner.begun == [b"now 0"], "other connections have their turn"
    await turns()
    assert owner.begun == [b"now %d" % number for number in range(5)]


async def test_connection_has_one_turn_in_each_iteration_of_the_loop() -> None:
    owner, connection, _ = connected()
    owner.request_ns = LONGEST_TURN_NS + 1
    for first in (0, 3, 6):
        send(connection, *(b"now %d" % number for number in range(first, first + 3)))
    assert owner.begun == [b"now 0"], "more bytes bring no second turn"
    connection.resume_writing()
    for handled in range(3, 10):
        await asyncio.sleep(0)
        assert len(owner.begun) == handled


async def test_requests_of_a_peer_that_has_ended_are_handled() -> None:
    owner, connection, transport = connected()
    owner.request_ns = LONGEST_TURN_NS + 1
    send(connection, b"none 0", b"slow 1", b"wait 2", b"none 3")
    assert connection.eof_received(), "the transport keeps the connection"
    await turns()
    owner.answer(b"slow 1")
    assert not transport.is_ended
    await turns()
    assert owner.begun == [b"none 0", b"slow 1", b"wait 2", b"none 3"]
    assert transport.is_ended, "the connection does not wait for responses"
    assert transport.sent == b"<slow 1>"


async def test_connection_without_waiting_requests_ends_with_its_peer() -> None:
    _, connection, _ = connected()
    send(connection, b"now 1", b"wait 2", b"slow 3")
    assert not connection.eof_received()


async def test_requests_that_wait_are_bounded() -> None:
    owner, connection, transport = connected()
    send(connection, *(b"wait %d" % number for number in range(MAX_UNANSWERED + 3)))
    await turns()
    assert len(owner.begun) == MAX_UNANSWERED
    assert not transport.is_reading
    owner.answer(b"wait 0")
    await turns()
    assert (len(owner.begun), owner.settled) == (MAX_UNANSWERED + 1, MAX_UNANSWERED + 1)


@pytest.mark.parametrize("request_", [b"wait 1", b"slow 1"])
async def test_answer_after_the_connection_is_lost_is_dropped(request_: bytes) -> None:
    owner, connection, transport = connected()
    send(connection, request_)
    connection.connection_lost(None)
    if request_ == b"wait 1":
        owner.answer(request_)
    await asyncio.sleep(0)
    assert (transport.sent, owner.open) == (b"", 0)


@pytest.mark.parametrize("is_lost", [True, False])
async def test_waiting_requests_of_a_closed_connection_are_abandoned(is_lost: bool) -> None:
    owner, connection, _ = connected()
    send(connection, b"wait 1", b"wait 2", b"wait 3", b"slow 4", b"wait 5")
    owner.answer(b"wait 2")
    assert owner.abandoned == []
    if is_lost:
        connection.connection_lost(None)
    else:
        connection.end()
        connection.connection_lost(None)
    assert owner.abandoned == [b"wait 1", b"wait 3"], "wait 2 has its response, and wait 5 has not begun"
    for request in owner.abandoned:
        owner.answer(request)


async def test_request_goes_on_when_its_connection_is_lost() -> None:
    owner, connection, transport = connected()
    send(connection, b"slow 1", b"now 2")
    future = owner.slow[b"slow 1"]
    connection.connection_lost(None)
    await turns()
    assert not future.cancelled(), "it may be half done"
    owner.answer(b"slow 1")
    await turns()
    assert (owner.begun, transport.sent, owner.memory.held_bytes) == ([b"slow 1"], b"", 0)


@pytest.mark.parametrize("error", [None, RuntimeError("a bug"), FrameError("sent nonsense")])
async def test_connection_ends_when_a_response_will_never_come(error: Exception | None) -> None:
    owner, connection, transport = connected()
    send(connection, b"now 0", b"slow 1", b"now 2")
    future = owner.slow[b"slow 1"]
    if error is None:
        future.cancel()
    else:
        future.set_exception(error)
    await turns()
    assert (transport.sent, transport.is_ended, len(owner.reasons)) == (b"<now 0>", True, 1)
    assert owner.begun == [b"now 0", b"slow 1"]


async def test_later_response_that_fails_ends_its_connection() -> None:
    owner, connection, transport = connected()
    send(connection, b"wait 1", b"now 2")
    owner.waiting[b"wait 1"](FrameError("cannot get a response to it"))
    assert (transport.sent, transport.is_ended) == (b"", True)


async def test_responses_behind_an_unanswered_request_are_bounded() -> None:
    owner, connection, _ = connected()
    large = b"now " + b"x" * (MAX_UNSENT_BYTES // 4)
    send(connection, b"wait 1", *[large] * 10)
    await turns()
    assert len(owner.begun) == 5, "the first, and as many as fill the limit"
    owner.answer(b"wait 1")
    await turns()
    assert len(owner.begun) == 11


async def test_all_connections_wait_while_their_requests_fill_the_memory() -> None:
    owner = Owner(max_memory_bytes=400_000)
    _, first, its_transport = connected(owner)
    _, second, other_transport = connected(owner)
    send(first, b"slow " + b"x" * 250_000)
    send(second, b"now 1")
    assert (its_transport.is_reading, other_transport.is_reading) == (False, False)
    assert other_transport.sent == b"<now 1>", "a request that has been read is answered"
    owner.answer(next(iter(owner.slow)))
    await turns()
    assert (its_transport.is_reading, other_transport.is_reading) == (True, True)
    assert owner.memory.held_bytes == 0


async def test_part_of_a_request_is_read_on_when_memory_is_full() -> None:
    owner = Owner(max_memory_bytes=400_000)
    pairs = [connected(owner)[1:] for _ in range(4)]
    for connection, _ in pairs:
        begin = pack(">i", 300_000) + b"now "
        connection.get_buffer(-1)[: len(begin)] = begin
        connection.buffer_updated(len(begin))
    assert [transport.is_reading for _, transport in pairs] == [True, True, True, True]
    left = 300_000 - 4
    while left > 0:
        for connection, transport in pairs:
            if transport.is_reading:
                size = min(len(connection.get_buffer(-1)), 50_000)
                connection.buffer_updated(size)
        left -= 50_000
    for _ in range(40):
        await turns()
        for connection, transport in pairs:
            if transport.is_reading and not transport.sent:
                connection.buffer_updated(min(len(connection.get_buffer(-1)), 50_000))
    assert [len(transport.sent) for _, transport in pairs] == [300_002] * 4
    assert owner.memory.held_bytes == 0


async def test_lost_connection_frees_its_memory() -> None:
    owner = Owner(max_memory_bytes=400_000)
    _, first, _ = connected(owner)
    _, second, other_transport = connected(owner)
    send(first, b"slow " + b"x" * 250_000)
    send(second, b"now 1")
    assert not other_transport.is_reading
    first.connection_lost(None)
    await turns()
    assert (owner.memory.held_bytes, other_transport.is_reading) == (0, True)


@pytest.mark.parametrize("bad", [b"bad 3", b"slow 3"])
async def test_failed_request_closes_only_after_earlier_responses(bad: bytes) -> None:
    owner, connection, transport = connected()
    send(connection, b"wait 1", b"now 2", bad, b"now 4")
    if bad == b"slow 3":
        owner.slow[bad].set_exception(FrameError("sent a bad request"))
        await turns()
    send(connection, b"now 5")
    assert (transport.sent, transport.is_ended, owner.reasons) == (b"", False, [])
    owner.answer(b"wait 1")
    assert (transport.sent, transport.is_ended, owner.reasons) == (b"<wait 1><now 2>", True, ["sent a bad request"])
    assert owner.begun == [b"wait 1", b"now 2", bad]
    assert connection.unanswered == 0


async def test_later_failure_closes_only_after_earlier_responses() -> None:
    owner, connection, transport = connected()
    send(connection, b"wait 1", b"wait 2", b"now 3")
    owner.waiting[b"wait 2"](FrameError("cannot get a response to it"))
    assert not transport.is_ended
    owner.answer(b"wait 1")
    assert (transport.sent, transport.is_ended) == (b"<wait 1>", True)


async def test_connection_that_awaits_its_end_holds_no_requests() -> None:
    owner, connection, transport = connected()
    send(connection, b"wait 1", b"slow 2", b"now " + b"x" * 10_000)
    owner.slow[b"slow 2"].set_exception(FrameError("sent a bad request"))
    await turns()
    send(connection, b"now " + b"y" * 10_000)
    assert (owner.memory.held_bytes, transport.is_ended) == (0, False)


async def test_failure_closes_a_connection_whose_peer_has_ended() -> None:
    owner, connection, transport = connected()
    send(connection, b"wait 1", b"slow 2", b"none 3")
    assert connection.eof_received(), "none 3 waits"
    owner.slow[b"slow 2"].set_exception(FrameError("sent nonsense"))
    await turns()
    assert (transport.is_ended, owner.reasons, owner.abandoned) == (True, ["sent nonsense"], [b"wait 1"])


async def test_connection_that_has_failed_holds_no_part_of_a_request() -> None:
    owner, connection, _ = connected()
    send(connection, b"wait 1", b"slow 2")
    begin = (pack(">i", 300_000) + b"now ").ljust(50_000, b"x")
    connection.get_buffer(-1)[: len(begin)] = begin
    connection.buffer_updated(len(begin))
    assert owner.memory.held_bytes >= len(begin)
    owner.slow[b"slow 2"].set_exception(FrameError("sent nonsense"))
    await turns()
    assert (connection.held_bytes, owner.memory.held_bytes) == (0, 0), "the request will never be read"
    connection.buffer_updated(len(connection.get_buffer(-1)))
    assert owner.memory.held_bytes == 0
