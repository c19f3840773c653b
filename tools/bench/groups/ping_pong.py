"""Measures a small message to another process and back over TCP: the cost of sockets and event loop without decoding.

Run as a module, this file is the other process. It prints its port, and sends back each message until it is killed.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from typing import cast

import uvloop

from tidelog.local.processes.ports import LOOPBACK
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
        return uvloop.run(asyncio.wait_for(_ask(int(port), count), _TIMEOUT_S))


async def _ask(port: int, count: int) -> list[float]:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[None] = loop.create_future()
    _, echo = await loop.create_connection(lambda: _Echo(lambda: answered.set_result(None)), LOOPBACK, port)
    try:
        each_ms = []
        for _ in range(_WARM_UP + count):
            started = time.perf_counter()
            answered = loop.create_future()
            echo.send()
            await answered
            each_ms.append((time.perf_counter() - started) * 1e3)
        return each_ms[_WARM_UP:]
    finally:
        echo.close()


async def _answer() -> None:
    """Print the port, and send each message back until this process is killed."""

    def echo() -> _Echo:
        answering = _Echo(lambda: answering.send())
        return answering

    server = await asyncio.get_running_loop().create_server(echo, LOOPBACK, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class _Echo(asyncio.Protocol):
    """One end of a connection; `act` is called when a whole message has arrived."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._missing = len(_MESSAGE)
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing <= 0:
            self._missing += len(_MESSAGE)
            self._act()

    def send(self) -> None:
        assert self._transport is not None
        self._transport.write(_MESSAGE)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


if __name__ == "__main__":
    uvloop.run(_answer())
