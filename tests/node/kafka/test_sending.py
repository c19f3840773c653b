"""Responses with stored bytes, sent to real sockets: each byte once and in order, whatever the peer reads."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from node.kafka.sending import send
from storage.files import RealFiles
from storage.segments.file_slice import FileSlice
from tidelog.errors import StorageError

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
_WAIT_S = 20.0


class Counted(FileSlice):
    """A slice that counts the bytes that the kernel sent from the file, and those that were read."""

    __slots__ = ("read_bytes", "sent_bytes")

    def __init__(self, path: Path, position: int, size: int) -> None:
        super().__init__(RealFiles().open(path), position, size, lambda _: None)
        self.read_bytes = self.sent_bytes = 0

    def read(self, begin: int = 0) -> bytes:
        data = super().read(begin)
        self.read_bytes += len(data)
        return data

    def send(self, socket: int, begin: int = 0) -> int:
        sent = super().send(socket, begin)
        self.sent_bytes += sent
        return sent


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.Transport, socket.socket]]:
    """Yield the transport of an accepted connection, and the client's socket, which does not block."""
    transports: asyncio.Queue[asyncio.Transport] = asyncio.Queue()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transports.put_nowait(transport)

    server = await asyncio.get_running_loop().create_server(Accepted, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    client.setblocking(False)
    transport = await asyncio.wait_for(transports.get(), _WAIT_S)
    try:
        yield transport, client
    finally:
        client.close()
        transport.abort()
        server.close()


async def received(client: socket.socket, size: int) -> bytes:
    """Return the next `size` bytes, which the peer sends while this coroutine waits."""
    data = bytearray()
    async with asyncio.timeout(_WAIT_S):
        while len(data) < size:
            data += await asyncio.get_running_loop().sock_recv(client, size - len(data))
    return bytes(data)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    def in_loop(coroutine: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(coroutine)

    return in_loop


@pytest.fixture
def content(tmp_path: Path) -> tuple[Path, bytes]:
    data = random.Random(7).randbytes(9_000_000)
    (tmp_path / "a.log").write_bytes(data)
    return tmp_path / "a.log", data


def test_stored_bytes_leave_between_the_buffers_around_them(
    run: Callable[[Any], None], content: tuple[Path, bytes]
) -> None:
    path, data = content

    async def story() -> None:
        async with connected() as (transport, client):
            first, second, third = (Counted(path, begin, 50_000) for begin in (0, 50_000, 200_000))
            send(transport, [b"<", first, b">"])
            assert await received(client, 50_002) == b"<" + data[:50_000] + b">"
            send(transport, [b"<", second, b"", memoryview(b"-"), third, b">"])
            expected = b"<" + data[50_000:100_000] + b"-" + data[200_000:250_000] + b">"
            assert await received(client, len(expected)) == expected
            assert [each.read_bytes for each in (first, second, third)] == [0, 0, 0]
            assert [each.sent_bytes for each in (first, second, third)] == [50_000] * 3

    run(story())


def test_responses_before_and_after_stored_bytes_keep_their_order(
    run: Callable[[Any], None], content: tuple[Path, bytes]
) -> None:
    path, data = content

    async def story() -> None:
        async with connected() as (transport, client):
            expected = b""
            for turn in range(4):
                for number in range(3):
                    send(transport, [b"small %d.%d" % (turn, number)])
                    send(transport, [b"<", Counted(path, turn * 1_000, 300_000), b">"])
                    expected += b"small %d.%d" % (turn, number) + b"<" + data[turn * 1_000 :][:300_000] + b">"
                if turn % 2:
                    assert await received(client, len(expected)) == expected
                    expected = b""
            assert await received(client, len(expected)) == expected

    run(story())


def test_the_rest_that_a_full_socket_does_not_accept_is_read_at_once(
    run: Callable[[Any], None], content: tuple[Path, bytes]
) -> None:
    path, data = content

    async def story() -> None:
        async with connected() as (transport, client):
            large, after = Counted(path, 0, len(data)), Counted(path, 5, 100)
            send(transport, [b"<", large, b">"])
            send(transport, [b"[", after, b"]"])
            assert large.sent_bytes > 0 and large.read_bytes > 0
            assert large.sent_bytes + large.read_bytes == len(data)
            assert (after.sent_bytes, after.read_bytes) == (0, 100), "the second response waits behind the first"
            os.truncate(path, 0)
            expected = b"<" + data + b">[" + data[5:105] + b"]"
            assert await received(client, len(expected)) == expected

    run(story())


def test_a_response_waits_behind_the_rest_of_another(run: Callable[[Any], None], content: tuple[Path, bytes]) -> None:
    path, data = content

    async def story() -> None:
        async with connected() as (transport, client):
            send(transport, [b"<", Counted(path, 0, len(data)), b">"])
            first = client.recv(1_000_000)
            while more := _at_once(client):
                first += more
            assert len(first) < len(data), "the rest waits for the next iteration of the event loop"
            send(transport, [b"[", Counted(path, 5, 100), b"]"])
            expected = b"<" + data + b">[" + data[5:105] + b"]"
            assert first + await received(client, len(expected) - len(first)) == expected

    run(story())


def _at_once(client: socket.socket) -> bytes:
    try:
        return client.recv(1_000_000)
    except BlockingIOError:
        return b""


def test_files_are_sent_again_after_the_socket_was_full(
    run: Callable[[Any], None], content: tuple[Path, bytes]
) -> None:
    path, data = content

    async def story() -> None:
        async with connected() as (transport, client):
            for _ in range(2):
                send(transport, [b"<", Counted(path, 0, len(data)), b">"])
                await received(client, len(data) + 2)
            last = Counted(path, 0, 1_000)
            send(transport, [last, b"."])
            assert (last.sent_bytes, last.read_bytes) == (1_000, 0)
            assert await received(client, 1_001) == data[:1_000] + b"."

    run(story())


def test_errors_of_the_file_and_of_the_connection_reach_the_caller(
    run: Callable[[Any], None], content: tuple[Path, bytes]
) -> None:
    path, _ = content

    async def story() -> None:
        async with connected() as (transport, client):
            with pytest.raises(StorageError):
                send(transport, [b"<", Counted(path, 9_000_000, 10), b">"])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()  # with a reset
            with pytest.raises(OSError):
                for _ in range(3):
                    send(transport, [b"<", Counted(path, 0, 100_000), b">"])

    run(story())
