"""A broker ends when it runs out of memory, and survives other errors of a callback."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable

import pytest
import zmq

from node.net.identity import Identity
from node.net.server import Server
from node.net.zeromq.connection import Connection
from node.process.out_of_memory import guard_memory
from tidelog.clock import SystemClock
from tidelog.errors import TimeoutError
from tidelog.model import Endpoint
from tidelog.protocol.messages import MetadataRequest, Response


@pytest.mark.parametrize(
    "failure",
    [
        MemoryError("Unable to allocate internal buffer."),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        zmq.ZMQError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_callback_without_memory_ends_the_broker(failure: Exception) -> None:
    ends: list[str] = []
    guard_memory(asyncio.get_running_loop(), lambda: ends.append("ended"))

    def answer() -> None:
        raise failure

    asyncio.get_running_loop().call_soon(answer)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ends == ["ended"]


async def test_other_failures_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    ends: list[str] = []
    guard_memory(asyncio.get_running_loop(), lambda: ends.append("ended"))

    def answer() -> None:
        raise ValueError("not this one")

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.get_running_loop().call_soon(answer)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not ends
    assert "not this one" in caplog.text


async def without_memory() -> Response:
    raise MemoryError


def at_once() -> Response:
    raise MemoryError


@pytest.mark.parametrize("fail", [at_once, without_memory])
async def test_request_without_memory_ends_the_broker_unanswered(
    fail: Callable[[], Response | Awaitable[Response]],
) -> None:
    ends: list[str] = []
    guard_memory(asyncio.get_running_loop(), lambda: ends.append("ended"))
    server = Server(Endpoint("127.0.0.1", 0), Identity("c", 7), lambda *_: fail(), SystemClock())
    server.start()
    connection = await Connection.open(server.endpoint, client_id="test", timeout_ms=5000)
    try:
        with pytest.raises(TimeoutError):
            await connection.call(MetadataRequest(), timeout_ms=200)
    finally:
        connection.close()
        server.stop()
    assert ends == ["ended"]
