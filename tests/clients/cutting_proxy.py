"""A proxy that cuts connections between the arrival of a Produce response and its delivery to the client."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from tidelog.local.processes.ports import LOOPBACK

_PRODUCE = 0
_HEADER = 4


class CuttingProxy:
    """Passes frames in both directions on a thread of its own. The broker has appended the records of each cut.

    cuts   how many connections were cut so far
    """

    def __init__(self, every: int) -> None:
        """Cut at the answer of every `every`-th Produce request."""
        self.cuts = 0
        self._every = every
        self._requests = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def port_for(self, target: int) -> int:
        """Return a port whose connections are passed to the port `target`."""

        async def serve() -> int:
            server = await asyncio.start_server(lambda *ends: self._connect(target, *ends), LOOPBACK, 0)
            port: int = server.sockets[0].getsockname()[1]
            return port

        return asyncio.run_coroutine_threadsafe(serve(), self._loop).result(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _connect(self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(LOOPBACK, target)
        except OSError:
            writer.close()
            return
        condemned: set[bytes] = set()
        ways = (self._pass_requests(reader, to_broker, condemned), self._pass_responses(from_broker, writer, condemned))
        tasks = [asyncio.ensure_future(way) for way in ways]
        with suppress(asyncio.CancelledError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.transport.abort()
        to_broker.close()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, condemned: set[bytes]
    ) -> None:
        while True:
            frame = await _frame(reader)
            if int.from_bytes(frame[_HEADER : _HEADER + 2], "big") == _PRODUCE:
                self._requests += 1
                if self._requests % self._every == 0:
                    condemned.add(frame[_HEADER + 4 : _HEADER + 8])
            writer.write(frame)
            await writer.drain()

    async def _pass_responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, condemned: set[bytes]
    ) -> None:
        while True:
            frame = await _frame(reader)
            if frame[_HEADER : _HEADER + 4] in condemned:
                self.cuts += 1
                return
            writer.write(frame)
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(_HEADER)
    return size + await reader.readexactly(int.from_bytes(size, "big"))
