"""The clients of a listener of the native protocol, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from node.net import native_clients
from node.net.client_connections import ClientConnections
from node.net.identity import Identity
from node.net.server import RequestContext, Server
from tidelog.clock import SystemClock
from tidelog.model import Endpoint
from tidelog.protocol.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    Request,
    Response,
)
from tidelog.protocol.native import connection as native_connection
from tidelog.protocol.native.connection import Connection


def handle(request: Request, context: RequestContext) -> Response | None:
    if isinstance(request, ProduceRequest):
        return None
    return FetchResponse(()) if isinstance(request, FetchRequest) else MetadataResponse("c", 1, (), ())


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, ClientConnections]]:
    clock = SystemClock()
    clients = ClientConnections(clock, lambda name: name if name in ("read", "written") else None)
    endpoint, identity = Endpoint("127.0.0.1", 0), Identity("c", 7)
    server = Server(endpoint, identity, handle, clock, between_brokers=False, listener="TIDELOG", clients=clients)
    server.start()
    try:
        yield server, clients
    finally:
        server.stop()
        assert len(clients) == 0, "a closed listener has no clients"


async def connect(server: Server, client_id: str = "till") -> Connection:
    return await Connection.open(server.endpoint, client_id=client_id, timeout_ms=5000)


async def ask(connection: Connection) -> None:
    await connection.call(MetadataRequest(), timeout_ms=5000)


async def test_client_is_listed_with_its_requests_and_topics() -> None:
    async with serving() as (server, clients):
        connection = await connect(server)
        connection.send_no_reply(
            ProduceRequest(0, 0, (ProducePartition("written", 0, b"x" * 5000), ProducePartition("nowhere", 0, b"x"))),
            timeout_ms=5000,
        )
        fetch = FetchRequest(-1, 0, 0, 1000, (FetchPartition("read", 0, -1, 0, 1000),))
        await connection.call(fetch, timeout_ms=5000)
        (client,), following = clients.after(0, 100)
        assert (client.client_id, client.host, client.port) == ("till", "127.0.0.1", -1)
        assert (client.listener, client.software.name, following) == ("TIDELOG", "tidelog", -1)
        assert [(key >> 16, count) for key, count in client.requests.items()] == [(18, 1), (0, 1), (1, 1)]
        assert (list(client.read.values()), list(client.written.values())) == (["read"], ["written"])
        assert client.traffic.received_bytes > 5000 and client.traffic.sent_bytes > 0
        connection.close()


async def test_client_that_has_gone_is_not_listed_and_a_silent_one_is() -> None:
    async with serving() as (server, clients):
        gone, silent = await connect(server, "gone"), await connect(server, "silent")
        await ask(gone)
        await ask(silent)
        assert len(clients) == 2
        gone.close()
        async with asyncio.timeout(10):
            while len(clients.after(0, 100)[0]) > 1:
                await ask(silent)  # a round trip, so that the server sees that the other client has gone
        (left,), _ = clients.after(0, 100)
        assert left.client_id == "silent"
        await ask(silent)
        assert not silent.closed, "the client ignores the messages that find out whether it is connected"
        silent.close()


async def test_gone_clients_are_removed_although_nobody_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_clients, "_FIRST_CHECK", 3)
    async with serving() as (server, clients):
        opened = 0
        async with asyncio.timeout(10):
            while opened == len(clients):
                connection = await connect(server)
                opened += 1
                connection.close()
        assert opened > 3


@pytest.mark.parametrize("software", ["", "x", "/", "\x1b[2J/1", "a/b/c", "x" * 40 + "/" + "ä"])
async def test_handshake_with_bad_software_is_accepted_without_it(
    software: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_connection, "CLIENT_SOFTWARE", software)
    async with serving() as (server, clients):
        connection = await connect(server)
        (client,), _ = clients.after(0, 100)
        assert client.software.version == ""
        connection.close()
