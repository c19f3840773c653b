"""Produce with acks=0 to a listener of Kafka clients: a failure closes the connection, also after long validation."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import unpack_from

import pytest

from node.kafka.connection import Connection
from node.kafka.listener import KafkaListener
from node.net.client_connections import ClientConnections
from storage.segments.timestamp_search import MAX_QUICK_BYTES
from tests.message_sets import message
from tests.node.client_requests import TP, batch_of
from tests.node.kafka.kafka_requests import apis_of
from tests.node.kafka.test_connection import Transport, send
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.model import Endpoint
from tidelog.protocol.kafka.headers import encode_request
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest
from tidelog.protocol.kafka.messages.records import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.records import Codec, encode_batch

T0 = 1_700_000_000_000
OTHER = TP._replace(partition=1)


def long(value: bytes = b"long", key: bytes | None = b"k") -> bytes:
    """Return a small batch that is too large to decompress on the event loop."""
    return encode_batch([(T0, key, value, ()), (T0, b"k", bytes(MAX_QUICK_BYTES), ())], codec=Codec.ZSTD)


class Stage:
    """A listener of Kafka clients in front of the leader of two partitions of a compacted topic."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        clock, leader = VirtualClock(), cluster.leader
        sessions = leader.purgatories.consumer_sessions
        apis = apis_of(leader.handlers.handle, leader.metadata, clock, sessions)
        clients = ClientConnections(clock, lambda name: name)
        self.listener = KafkaListener(Endpoint("127.0.0.1", 1), "KAFKA", apis, clock, clients=clients)

    def connect(self) -> Client:
        transport, connection = Transport(), Connection(self.listener)
        connection.connection_made(transport)
        return Client(connection, transport)

    def values(self) -> list[bytes]:
        """Return the values in partition 0, without the long ones."""
        return [value for value in self.cluster.leader.log().values if len(value) < MAX_QUICK_BYTES]


class Client:
    """One connection, with the ids of the requests that have got a response."""

    def __init__(self, connection: Connection, transport: Transport) -> None:
        self.connection = connection
        self.transport = transport

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closing()

    def produce(self, *records: bytes, acks: int = 0, version: int = 9, correlation_id: int = 1) -> None:
        """Send a Produce with one batch for each partition, from partition 0 on."""
        parts = tuple(PartitionProduceData(index=index, records=each) for index, each in enumerate(records))
        request = ProduceRequest(
            acks=acks, timeout_ms=5000, topic_data=(TopicProduceData(name=TP.topic, partition_data=parts),)
        )
        send(self.connection, b"".join(encode_request(request, version, correlation_id, "test"))[4:])

    def ping(self, correlation_id: int) -> None:
        """Send a request that is answered at once."""
        send(self.connection, b"".join(encode_request(ApiVersionsRequest(), 0, correlation_id, "test"))[4:])

    def answered(self) -> list[int]:
        found, position, sent = [], 0, self.transport.sent
        while position < len(sent):
            size, correlation_id = unpack_from(">ii", sent, position)
            found.append(correlation_id)
            position += 4 + size
        return found


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    cluster = MemoryCluster()
    cluster.configs["cleanup.policy"] = "compact"
    async with cluster:
        await cluster.elect(1)
        await cluster.elect(1, tp=OTHER)
        yield Stage(cluster)


@on_virtual_time
async def test_long_batch_that_fails_closes_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with a_stage() as stage:
        client, other = stage.connect(), stage.connect()
        client.produce(long(key=None))
        other.ping(1)
        assert not client.is_closed, "the batch is validated on a thread"
        with caplog.at_level(logging.WARNING):
            await until(lambda: client.is_closed)
        (record,) = caplog.records
        reason = "sent records without asking for a response (acks=0), which failed: record 0"
        assert reason in record.getMessage() and "without a key" in record.getMessage()
        assert (client.answered(), other.answered(), other.is_closed) == ([], [1], False)


@on_virtual_time
async def test_message_set_that_fails_closes_the_connection() -> None:
    async with a_stage() as stage:
        client = stage.connect()
        client.produce(message(key=None), version=2)
        assert not client.is_closed
        await until(lambda: client.is_closed)


@on_virtual_time
async def test_batch_that_fails_behind_a_long_one_closes_the_connection() -> None:
    async with a_stage() as stage:
        client, other = stage.connect(), stage.connect()
        other.produce(long(b"a"))
        client.produce(batch_of(b"keyless"))
        await until(lambda: client.is_closed)
        other.ping(1)
        assert (stage.values(), other.answered(), other.is_closed) == ([b"a"], [1], False)


@on_virtual_time
async def test_one_failed_partition_closes_after_the_others_are_appended() -> None:
    async with a_stage() as stage:
        client = stage.connect()
        client.produce(long(b"a"), batch_of(b"keyless"))
        assert not client.is_closed, "partition 0 is being validated"
        await until(lambda: client.is_closed)
        assert stage.values() == [b"a"]


@on_virtual_time
async def test_long_batch_without_failure_gets_no_answer_and_keeps_the_order() -> None:
    async with a_stage() as stage:
        client = stage.connect()
        client.produce(long(b"a"))
        client.produce(long(b"b"))
        client.ping(3)
        await until(lambda: bool(client.answered()))
        assert (client.answered(), stage.values(), client.is_closed) == ([3], [b"a", b"b"], False)
        assert client.connection.unanswered == 0


@pytest.mark.parametrize("failing", [long(key=None), batch_of(b"keyless")], ids=["late", "at once"])
@on_virtual_time
async def test_earlier_requests_are_answered_and_later_ones_dropped(failing: bytes) -> None:
    async with a_stage() as stage:
        client = stage.connect()
        client.produce(encode_batch([(T0, b"k", b"first", ())]), acks=-1, correlation_id=1)
        client.produce(failing, correlation_id=2)
        client.produce(encode_batch([(T0, b"k", b"later", ())]), acks=-1, correlation_id=3)
        assert client.answered() == [], "the first batch waits for the followers"
        await until(lambda: client.is_closed)
        assert (client.answered(), stage.values()) == ([1], [b"first"])


@on_virtual_time
async def test_request_whose_connection_is_lost_is_appended() -> None:
    async with a_stage() as stage:
        client = stage.connect()
        client.produce(long(b"a"))
        client.connection.connection_lost(None)
        await until(lambda: bool(stage.values()))
        assert stage.listener.memory.held_bytes == 0
