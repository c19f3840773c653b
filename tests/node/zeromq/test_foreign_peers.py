"""Peers that speak Kafka's protocol to a ZeroMQ port: recognised by their events, and logged once in some seconds."""

from __future__ import annotations

import asyncio
import logging
import socket
from struct import pack

import pytest

from node.net.identity import Identity
from node.net.server import Server
from node.net.zeromq.connection import Connection
from node.net.zeromq.foreign_peers import ForeignPeers
from tests.node.controller_cluster import SkippingClock
from tests.node.kafka.live_listener import live
from tidelog.errors import DisconnectedError, ProtocolError
from tidelog.model import Endpoint
from tidelog.protocol.kafka.client.connection import Connection as ClientConnection

#: A Kafka request: its size, then ApiVersions in version 0.
KAFKA = pack(">ihhih", 10, 18, 0, 1, -1)


def test_end_without_a_handshake_is_a_kafka_client() -> None:
    peers = ForeignPeers()
    peers.accepted(7)
    assert peers.disconnected(7)
    peers.accepted(7)
    peers.succeeded()
    assert not peers.disconnected(7)
    peers.accepted(7)
    peers.failed()
    assert not peers.disconnected(7)


def test_outcome_of_one_of_several_connections_accuses_none() -> None:
    peers = ForeignPeers()
    for connection in (1, 2, 3):
        peers.accepted(connection)
    peers.succeeded()
    assert not any(map(peers.disconnected, (1, 2, 3)))
    peers.succeeded()  # of connection 2 or 3
    peers.accepted(4)
    assert peers.disconnected(4), "earlier outcomes do not count for it"


def test_failed_connection_leaves_the_others_undecided() -> None:
    peers = ForeignPeers()
    peers.accepted(1)
    peers.accepted(2)
    peers.failed()
    assert not peers.disconnected(1)
    assert peers.disconnected(2)


async def test_kafka_client_at_the_brokers_port_is_logged_with_the_right_one(caplog: pytest.LogCaptureFixture) -> None:
    clock = SkippingClock()
    server = Server(
        Endpoint("127.0.0.1", 0),
        Identity("c", 7),
        lambda request, context: None,
        clock,
        clients_address=lambda: "host-1:9092",
    )
    server.start()

    def lines() -> int:
        return caplog.text.count("a peer speaks Kafka's protocol")

    async def knock(sent: bytes) -> None:
        with socket.create_connection((server.endpoint.host, server.endpoint.port)) as peer:
            peer.sendall(sent)
            await asyncio.sleep(0.1)

    async def until_logged(times: int) -> None:
        async with asyncio.timeout(10):
            while lines() < times:
                await knock(KAFKA)

    try:
        with caplog.at_level(logging.WARNING):
            connection = await Connection.open(server.endpoint, client_id="t", timeout_ms=5000)
            connection.close()
            await knock(b"")
            await knock(b"GET / HTTP/1.1\r\n\r\n")
            assert lines() == 0
            await until_logged(1)
            assert "this port is for brokers: the connection is closed; clients connect to host-1:9092" in caplog.text
            for _ in range(5):
                await knock(KAFKA)
            assert lines() == 1, "a client that comes again does not fill the log"
            clock.skipped_ms += 10_000
            await until_logged(2)
    finally:
        server.stop()


async def test_own_client_at_the_brokers_port_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(Endpoint("127.0.0.1", 0), Identity("c", 7), lambda request, context: None, SkippingClock())
    server.start()
    try:
        with caplog.at_level(logging.WARNING):
            async with asyncio.timeout(20):
                # The socket of ZeroMQ often closes the connection before the bytes that name its protocol arrive.
                with pytest.raises((DisconnectedError, ProtocolError)):
                    await ClientConnection.open(server.endpoint, client_id="t", timeout_ms=600_000)
                broker = await Connection.open(server.endpoint, client_id="t", timeout_ms=10_000)
                broker.close()
    finally:
        server.stop()


async def test_broker_at_a_clients_port_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    async with live() as broker:
        with caplog.at_level(logging.WARNING):
            async with asyncio.timeout(20):
                with pytest.raises(DisconnectedError):
                    await Connection.open(broker.listener.endpoint, client_id="t", timeout_ms=600_000)
        assert "speaks ZeroMQ instead of Kafka's protocol" in caplog.text
        await broker.check()
