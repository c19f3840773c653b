"""Measures a small message to another process and back: the cost of our sockets and loop without decoding.

Run as a module, this file is the other process. It prints its port, and sends back each message until it is killed.
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
from tools.supervised_process import KILL, supervised

_MESSAGE = bytes(60)
_WARM_UP = 500
_TIMEOUT_S = 30


def ping_pong(count: int) -> list[float]:
    """Start the other process, and return the milliseconds of each of `count` sequential round trips after a warm-up.

    Raises NotMeasured if the other process does not start, and TimeoutError after 30 s.
    """
    command = [sys.executable, "-P", "-m", __name__]
    with supervised(command, KILL, stdout=subprocess.PIPE, stderr=None) as other:
        assert other.stdout is not None
        port = other.stdout.readline().decode().strip()
        if not port:
            raise NotMeasured("the other process did not come up")
        return uvloop.run(asyncio.wait_for(_ask(f"tcp://127.0.0.1:{port}", count), _TIMEOUT_S))


async def _ask(address: str, count: int) -> list[float]:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[None] = loop.create_future()
    echo = _EchoSocket(open_socket(zmq.DEALER), lambda _: answered.set_result(None))
    try:
        echo.socket.connect(address)
        each_ms = []
        for _ in range(_WARM_UP + count):
            started = time.perf_counter()
            answered = loop.create_future()
            echo.send([_MESSAGE])
            await answered
            each_ms.append((time.perf_counter() - started) * 1e3)
        return each_ms[_WARM_UP:]
    finally:
        echo.close()


async def _answer() -> None:
    """Print the port, and send each message back until this process is killed."""
    echo = _EchoSocket(open_socket(zmq.ROUTER), lambda message: echo.send(message))
    print(echo.socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
    await asyncio.Event().wait()


class _EchoSocket:
    """A socket on the running event loop; `act` is called with the frames of each message that arrives."""

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
