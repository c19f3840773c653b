"""A small message there and back between two processes: what our sockets and loop cost before anybody reads a word.

Run as a module it is the other process: it prints its port, and sends back whatever comes until its input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import uvloop
import zmq

from tidelog.model import Buffer
from tidelog.protocol.native.sockets import descriptor_of, has_input, open_socket, receive_message, send_message
from tools.bench.results import NotMeasured

_MESSAGE = bytes(60)
_WARM_UP = 500
_PATIENCE_S = 30


def ping_pong(count: int) -> list[float]:
    """The milliseconds that each of `count` took, one after the other."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        try:
            port = other.stdout.readline().strip()
            if not port:
                raise NotMeasured("the other process did not come up")
            return uvloop.run(asyncio.wait_for(_ask(f"tcp://127.0.0.1:{port}", count), _PATIENCE_S))
        finally:
            other.stdin.close()
            other.wait(_PATIENCE_S)


async def _ask(address: str, count: int) -> list[float]:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[None] = loop.create_future()
    line = _Line(open_socket(zmq.DEALER), lambda _: answered.set_result(None))
    try:
        line.socket.connect(address)
        each_ms = []
        for _ in range(_WARM_UP + count):
            started = time.perf_counter()
            answered = loop.create_future()
            line.send([_MESSAGE])
            await answered
            each_ms.append((time.perf_counter() - started) * 1e3)
        return each_ms[_WARM_UP:]
    finally:
        line.close()


async def _answer() -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    line = _Line(open_socket(zmq.ROUTER), lambda message: line.send(message))
    print(line.socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(sys.stdin.fileno(), end)
    await ended
    loop.remove_reader(sys.stdin.fileno())
    line.close()


class _Line:
    """A socket, and what is done with each message that comes."""

    def __init__(self, socket: zmq.Socket[bytes], act: Callable[[list[memoryview]], object]) -> None:
        self.socket = socket
        self._act = act
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor_of(socket), self._on_readable)

    def send(self, frames: Sequence[Buffer]) -> None:
        send_message(self.socket, frames)
        if has_input(self.socket):
            self._loop.call_soon(self._on_readable)

    def close(self) -> None:
        self._loop.remove_reader(descriptor_of(self.socket))
        self.socket.close(linger=0)

    def _on_readable(self) -> None:
        message = receive_message(self.socket)
        if message is not None:
            self._act(message)
            if has_input(self.socket):
                self._loop.call_soon(self._on_readable)


if __name__ == "__main__":
    uvloop.run(_answer())
