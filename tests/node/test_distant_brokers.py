"""Brokers behind a link with a long delay, over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from node.net.identity import CONNECT_TIMEOUT_MS, Identity
from node.net.server import Server
from node.net.zeromq.connection import Connection
from tidelog.clock import SystemClock
from tidelog.model import Endpoint

ONE_WAY_S = 0.2


class SlowLink:
    """A proxy at `endpoint` that forwards all bytes to `target` and back, each `ONE_WAY_S` late."""

    def __init__(self, target: Endpoint) -> None:
        self._target = target
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> SlowLink:
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        self.endpoint = Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _on_connection(self, here: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * ONE_WAY_S)  # stands for TCP's handshake, which a proxy answers at once
        there, out = await asyncio.open_connection(self._target.host, self._target.port)
        self._tasks += [asyncio.create_task(self._carry(here, out)), asyncio.create_task(self._carry(there, back))]

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            with suppress(OSError):
                while data := await reader.read(65_536):
                    loop.call_later(ONE_WAY_S, writer.write, data)
        finally:
            writer.close()


async def test_brokers_behind_a_slow_link_find_each_other() -> None:
    server = Server(Endpoint("127.0.0.1", 0), Identity("c", 7, 42), lambda *_: None, SystemClock())
    server.start()
    try:
        async with SlowLink(server.endpoint) as link:
            connection = await Connection.open(link.endpoint, client_id="broker-1", timeout_ms=CONNECT_TIMEOUT_MS)
            assert connection.peer.broker_id == 7
            connection.close()
    finally:
        server.stop()
