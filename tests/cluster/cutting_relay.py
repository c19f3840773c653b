"""A relay in front of a real ZooKeeper that cuts the connection at the next write, or holds back its answer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.cluster.faulty_store import Loss

#: ZooKeeper's operation codes: create, delete, setData, multi, create2.
_WRITES = {1, 2, 5, 14, 15}


class CuttingRelay:
    """Relays frames in both directions.

    cuts   the part of the next write that is lost, if any
    hold   while it is not set, answers stay here
    """

    def __init__(self, port: int) -> None:
        self.cuts: Loss | None = None
        self.hold = asyncio.Event()
        self.hold.set()
        self._port = port

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        withheld: set[int] = set()
        passing = [
            asyncio.create_task(self._pass_requests(client, to_server, withheld)),
            asyncio.create_task(self._pass_answers(server, to_client, withheld)),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in passing:
                task.cancel()
            to_client.close()
            to_server.close()

    async def _pass_requests(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, withheld: set[int]
    ) -> None:
        """Relay requests until one is to be lost. The first frame opens the session."""
        with suppress(OSError, asyncio.IncompleteReadError):
            to_server.write(await _frame(client))
            while frame := await _frame(client):
                xid, operation = struct.unpack_from(">ii", frame, 4)
                if operation in _WRITES and self.cuts is not None:
                    cuts, self.cuts = self.cuts, None
                    if cuts is Loss.REQUEST:
                        return
                    withheld.add(xid)
                to_server.write(frame)

    async def _pass_answers(
        self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter, withheld: set[int]
    ) -> None:
        """Relay answers until one is to be lost."""
        with suppress(OSError, asyncio.IncompleteReadError):
            to_client.write(await _frame(server))
            while frame := await _frame(server):
                if struct.unpack_from(">i", frame, 4)[0] in withheld:
                    return
                await self.hold.wait()
                to_client.write(frame)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(struct.unpack(">i", length)[0])
