"""One connection: the order of requests and responses, and what a slow peer holds back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest

from node.kafka.connection import MAX_UNANSWERED, Connection, FrameOutcome, Frames, LaterFrames
from node.kafka.frames import FrameError


class Transport(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 4711)})
        self.sent = b""
        self.is_reading = True
        self.is_aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        self.sent += b"".join(list_of_data)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def abort(self) -> None:
        self.is_aborted = True


class Owner:
    """A listener whose handler is the text of the request.

    now …    answered at once
    wait …   answered by `answer`, without holding back the next request
    slow …   answered by `answer`, and holds back the next request
    none …   not answered
    bad …    refused
    """

    max_frame_bytes = 1_000_000

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.reasons: list[str] = []
        self.waiting: dict[bytes, Callable[[Frames], None]] = {}
        self.slow: dict[bytes, asyncio.Future[Frames | None]] = {}
        self.open = 0

    def opened(self, connection: Connection) -> bool:
        self.open += 1
        return True

    def closed(self, connection: Connection) -> None:
        self.open -= 1

    def settle(self) -> None:
        pass

    def refused(self, connection: Connection, reason: str) -> None:
        self.reasons.append(reason)

    def handle(self, connection: Connection, frame: memoryview) -> FrameOutcome:
        text = bytes(frame)
        self.begun.append(text)
        kind = text.split()[0]
        if kind == b"now":
            return [b"<", text, b">"]
        if kind == b"none":
            return None
        if kind == b"bad":
            raise FrameError("sent a bad request")
        if kind == b"wait":

            def subscribe(receive: Callable[[Frames], None]) -> None:
                self.waiting[text] = receive

            return LaterFrames(subscribe)
        future: asyncio.Future[Frames | None] = asyncio.get_running_loop().create_future()
        self.slow[text] = future
        return future

    def answer(self, text: bytes) -> None:
        if text in self.waiting:
            self.waiting.pop(text)([b"<" + text + b">"])
        else:
            self.slow.pop(text).set_result([b"<" + text + b">"])


def connected() -> tuple[Owner, Connection, Transport]:
    owner, transport = Owner(), Transport()
    connection = Connection(owner)
    connection.connection_made(transport)
    return owner, connection, transport


def send(connection: Connection, *requests: bytes) -> None:
    data = b"".join(pack(">i", len(request)) + request for request in requests)
    while data:
        space = connection.get_buffer(-1)
        size = min(len(space), len(data))
        space[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


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


async def test_bad_request_closes_the_connection_and_says_why() -> None:
    owner, connection, transport = connected()
    send(connection, b"now 1", b"bad 2", b"now 3")
    assert (transport.sent, transport.is_aborted, owner.reasons) == (b"<now 1>", True, ["sent a bad request"])
    assert owner.begun == [b"now 1", b"bad 2"]


async def test_peer_that_does_not_read_gets_no_further_request_handled() -> None:
    owner, connection, transport = connected()
    connection.pause_writing()
    send(connection, *(b"now %d" % number for number in range(MAX_UNANSWERED + 5)))
    assert (owner.begun, transport.is_reading) == ([], False)
    connection.resume_writing()
    assert len(owner.begun) == MAX_UNANSWERED + 5
    assert transport.is_reading


async def test_requests_that_wait_are_bounded() -> None:
    owner, connection, transport = connected()
    send(connection, *(b"wait %d" % number for number in range(MAX_UNANSWERED + 3)))
    assert len(owner.begun) == MAX_UNANSWERED
    assert not transport.is_reading
    owner.answer(b"wait 0")
    await asyncio.sleep(0)
    assert len(owner.begun) == MAX_UNANSWERED + 1


@pytest.mark.parametrize("request_", [b"wait 1", b"slow 1"])
async def test_answer_after_the_connection_is_lost_is_dropped(request_: bytes) -> None:
    owner, connection, transport = connected()
    send(connection, request_)
    connection.connection_lost(None)
    if request_ == b"wait 1":
        owner.answer(request_)
    await asyncio.sleep(0)
    assert (transport.sent, owner.open) == (b"", 0)
