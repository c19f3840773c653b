"""A port that passes its connections to another one, as a second address of the same process."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

_HOST = "127.0.0.1"


class PortForward:
    """Passes bytes in both directions on a thread of its own, from the construction until `close`.

    port       the port to connect to
    accepted   how many connections have come so far
    """

    def __init__(self, target: int) -> None:
        self.accepted = 0
        self._target = target
        self._open: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._connect, _HOST, 0), self._loop
        ).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Break all connections, and refuse further ones. A second call has no effect."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _close(self) -> None:
        self._server.close()
        for transport in list(self._open):
            transport.abort()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        with suppress(OSError):
            there, back = await asyncio.open_connection(_HOST, self._target)
            ends = {writer.transport, back.transport}
            self._open |= ends
            passing = [asyncio.ensure_future(_pass(reader, back)), asyncio.ensure_future(_pass(there, writer))]
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            for task in passing:
                task.cancel()
            self._open -= ends
            back.transport.abort()
        writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
