"""Test whole frames over a real TCP connection, on the client's side."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import pack

import pytest

from tests.both_loops import on_both_loops
from tidelog.errors import OverloadedError
from tidelog.model import Endpoint
from tidelog.protocol.kafka.client.line import MAX_UNSENT_BYTES, TcpLine

#: The longest time for a few bytes on a busy machine.
TIMEOUT_S = 20.0


class Peer:
    """A listening socket with one connection, and the client's line to it.

    received   the frames that the line has received, and at the end the reason of its end, if it ended by itself
    """

    def __init__(self) -> None:
        self.received: list[bytes | str] = []
        self.line: TcpLine
        self._connected: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._arrived = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected.put_nowait((reader, writer))

    async def accept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.wait_for(self._connected.get(), TIMEOUT_S)

    @property
    def has_no_connection(self) -> bool:
        """Whether no connection waits for `accept`."""
        return self._connected.empty()

    def dial(self, address: Endpoint) -> TcpLine:
        self.line = TcpLine(address, lambda frame: self._note(bytes(frame)), self._note_end)
        return self.line

    def _note_end(self, reason: str, other_protocol: str = "") -> None:
        self._note(reason)

    def _note(self, event: bytes | str) -> None:
        self.received.append(event)
        self._arrived.set()

    async def until(self, condition: Callable[[list[bytes | str]], bool]) -> list[bytes | str]:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition(self.received):
                self._arrived.clear()
                await self._arrived.wait()
        return self.received


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Peer, asyncio.StreamReader, asyncio.StreamWriter]]:
    peer = Peer()
    async with listening(peer) as address:
        peer.dial(address)
        reader, writer = await peer.accept()
        try:
            yield peer, reader, writer
        finally:
            peer.line.close()
            writer.close()


@asynccontextmanager
async def listening(peer: Peer) -> AsyncIterator[Endpoint]:
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    try:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


def framed(*frames: bytes) -> bytes:
    return b"".join(pack(">i", len(frame)) + frame for frame in frames)


@on_both_loops
async def test_frames_arrive_whole_in_whatever_pieces_their_bytes_come() -> None:
    frames = [b"", b"one", b"x" * 70_000, b"two", b"y" * 3_000_000]
    async with connected() as (peer, _, writer):
        data = framed(*frames)
        for piece in (data[:2], data[2:9], data[9:40_000], data[40_000:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        assert await peer.until(lambda received: len(received) == len(frames)) == frames


@on_both_loops
async def test_frames_that_are_sent_before_the_connection_exists_leave_in_order() -> None:
    peer = Peer()
    async with listening(peer) as address:
        line = peer.dial(address)
        line.send([b"\0\0\0\3", b"one"])
        line.send([b"\0\0\0\3two"])
        reader, writer = await peer.accept()
        line.send([framed(b"three")])
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.readexactly(23) == framed(b"one", b"two", b"three")
        line.close()
        writer.close()


@on_both_loops
async def test_refused_connection_ends_the_line_with_the_reason() -> None:
    peer = Peer()
    async with listening(peer) as address:
        pass
    peer.dial(address).send([framed(b"lost")])
    (reason,) = await peer.until(bool)
    assert isinstance(reason, str) and reason.startswith("cannot connect: ") and "refused" in reason


@on_both_loops
async def test_peer_that_closes_ends_the_line() -> None:
    async with connected() as (peer, _, writer):
        writer.write(framed(b"last"))
        writer.close()
        assert await peer.until(lambda received: len(received) == 2) == [b"last", "the peer closed the connection"]
        assert peer.has_no_connection, "the line opens another connection only if the peer has sent nothing"


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the peer speaks HTTP instead of Kafka's protocol"),
        (b"\xff\0\0\0\0\0\0\0\1\x7f", "the peer speaks ZeroMQ instead of Kafka's protocol"),
        (pack(">i", -2), "the peer claims a frame of -2 bytes"),
    ],
)
@on_both_loops
async def test_bytes_of_another_protocol_end_the_line(start: bytes, reason: str) -> None:
    async with connected() as (peer, _, writer):
        writer.write(start)
        (found,) = await peer.until(bool)
        assert isinstance(found, str) and found.startswith(reason)
        assert peer.received == [found], "the end is reported once"


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b"\xff\0\0\0\0\0\0\0\1\x7f", "the peer speaks ZeroMQ instead of Kafka's protocol"),
        (b"\xff", "the peer closed the connection"),
        (b"", "the peer closed the connection"),
    ],
)
@on_both_loops
async def test_peer_that_closes_without_a_byte_is_connected_again(start: bytes, reason: str) -> None:
    async with connected() as (peer, _, first):
        first.close()
        second_reader, second = await peer.accept()
        second.write(start)
        second.write_eof()
        assert await peer.until(bool) == [reason]
        async with asyncio.timeout(TIMEOUT_S):
            assert await second_reader.read() == b"", "the line sends nothing there"
        second.close()


@on_both_loops
async def test_line_listens_to_a_silent_peer_for_a_short_time() -> None:
    async with connected() as (peer, _, first):
        first.close()
        _, second = await peer.accept()
        assert await peer.until(bool) == ["the peer closed the connection"]
        second.close()


@on_both_loops
async def test_line_whose_listening_is_cancelled_reports_its_end() -> None:
    async with connected() as (peer, _, first):
        first.close()
        _, second = await peer.accept()
        (listening_task,) = (
            task for task in asyncio.all_tasks() if task.get_name().startswith("the second connection")
        )
        listening_task.cancel()
        assert await peer.until(bool) == ["the peer closed the connection"]
        second.close()


@on_both_loops
async def test_line_that_is_closed_while_it_listens_calls_nothing() -> None:
    async with connected() as (peer, _, first):
        first.close()
        reader, second = await peer.accept()
        peer.line.close()
        async with asyncio.timeout(TIMEOUT_S):
            assert await _end_of(reader)
        second.close()
        assert peer.received == []


@on_both_loops
async def test_closed_line_calls_nothing() -> None:
    async with connected() as (peer, reader, writer):
        peer.line.close()
        peer.line.close()
        writer.write(framed(b"late"))
        async with asyncio.timeout(TIMEOUT_S):
            assert await _end_of(reader)
        assert peer.received == []


async def _end_of(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


@on_both_loops
async def test_line_that_is_closed_while_it_connects_calls_nothing() -> None:
    peer = Peer()
    async with listening(peer) as address:
        peer.dial(address).close()
        # A later connection is made, so that the first one has had the time for its callbacks.
        later = TcpLine(address, lambda frame: None, lambda reason: None)
        _, writer = await peer.accept()
        later.close()
        writer.close()
    assert peer.received == []


@on_both_loops
async def test_unsent_bytes_are_bounded() -> None:
    async with connected() as (peer, _, _writer):
        part = bytes(MAX_UNSENT_BYTES // 2)
        with pytest.raises(OverloadedError, match="bytes wait to be sent"):
            for _ in range(6):
                peer.line.send([part])


@on_both_loops
async def test_kernel_probes_an_idle_connection_and_sends_small_frames_at_once() -> None:
    async with connected() as (peer, _, _writer):
        assert peer.line._transport is not None
        raw = peer.line._transport.get_extra_info("socket")
        options = {
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 4,
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 1,
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 4,
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 8_000,
        }
        assert {option: raw.getsockopt(*option) for option in options} == options
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
