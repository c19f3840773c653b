"""A broker lists a Kafka client's connection with the software that the client names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import unpack_from

import pytest

from node.handlers.inspection.describe_clients import describe_clients
from node.kafka.calls import NativeHandler
from node.kafka.listener import KafkaListener
from node.metadata.metadata_cache import MetadataCache
from node.net.client_connections import ClientConnections
from node.net.server import RequestContext
from node.replication.sessions.consumer_fetch import ConsumerFetchResponse
from tests.node.client_requests import batch_of
from tests.node.kafka.kafka_requests import apis_of
from tidelog.clock import SystemClock
from tidelog.errors import InvalidRequestError
from tidelog.model import Endpoint
from tidelog.protocol import messages as native
from tidelog.protocol.control_messages import TopicInfo, UpdateMetadataRequest
from tidelog.protocol.group_messages import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.kafka.codec import decode
from tidelog.protocol.kafka.extensions import FIRST_EXTENSION
from tidelog.protocol.kafka.headers import decode_response_header, encode_request
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.kafka.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.kafka.primitives import uuid_from_text
from tidelog.protocol.kafka.schema import Request
from tidelog.protocol.operator_messages import ConnectionReport, DescribeClientsRequest, DescribeClientsResponse

API_VERSIONS_3 = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.0.2")
FIRST = (FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000),)
TOPIC_ID = "A" * 21 + "Q"
#: Topics of a Fetch request, which names topics before version 13 and has their ids from then on.
LINES = FetchTopic(topic="lines", topic_id=uuid_from_text(TOPIC_ID), partitions=FIRST)
ORDERS = FetchTopic(topic="orders", partitions=FIRST)
UNKNOWN = FetchTopic(topic="nowhere", topic_id=b"\x07" * 16, partitions=FIRST)


def handle(request: native.Request, context: RequestContext) -> native.Response:
    if isinstance(request, DescribeClientsRequest):
        return DescribeClientsResponse(0, ())
    return (
        native.ProduceResponse(())
        if isinstance(request, native.ProduceRequest)
        else ConsumerFetchResponse((), members=())
    )


class Live:
    """A listener of a broker with the topics `lines` and `orders`."""

    def __init__(self, handle: NativeHandler = handle) -> None:
        clock, metadata = SystemClock(), MetadataCache("c")
        self.clients = ClientConnections(clock, lambda name: name if metadata.topic(name) else None)
        apis = apis_of(handle, metadata, clock)
        self.listener = KafkaListener(Endpoint("127.0.0.1", 0), "KAFKA", apis, clock, clients=self.clients)
        topics = (TopicInfo("lines", TOPIC_ID, {}, 1), TopicInfo("orders", "", {}, 1))
        metadata.update(UpdateMetadataRequest(1, 1, (), (), topics, (), None))

    def listed(self) -> tuple[ConnectionReport, ...]:
        return describe_clients(self.clients, DescribeClientsRequest(), 0).connections


@asynccontextmanager
async def live(handle: NativeHandler = handle) -> AsyncIterator[Live]:
    broker = Live(handle)
    await broker.listener.start()
    try:
        yield broker
    finally:
        await broker.listener.stop()


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, broker: Live) -> Client:
        return cls(*await asyncio.open_connection(broker.listener.endpoint.host, broker.listener.endpoint.port))

    async def ask(self, request: Request, version: int, client_id: str | None = "till") -> bytes:
        self.writer.write(b"".join(encode_request(request, version, 7, client_id)))
        async with asyncio.timeout(10):
            (size,) = unpack_from(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def state(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        frame = await self.ask(request, version)
        _, position = decode_response_header(frame, ApiVersionsRequest, version)
        return decode(ApiVersionsResponse, version, frame[position:])


async def test_connection_is_listed_with_software_and_requests() -> None:
    async with live() as broker:
        client = await Client.connect(broker)
        assert (await client.state(API_VERSIONS_3, 3)).error_code == 0
        await client.ask(API_VERSIONS_3, 3)
        (found,) = broker.listed()
        assert (found.client_id, found.software_name, found.software_version) == ("till", "librdkafka", "2.0.2")
        assert (found.host, found.port) == client.writer.get_extra_info("sockname")
        assert found.listener == "KAFKA"
        assert [(use.api_key, use.version, use.requests) for use in found.apis] == [(18, 3, 2)]
        assert found.received_bytes > 50 and found.sent_bytes > 100
        client.writer.transport.abort()


async def test_own_client_is_listed_with_its_software_requests_and_topics() -> None:
    async with live() as broker:
        connection = await Connection.open(broker.listener.endpoint, client_id="till", timeout_ms=10_000)
        batches = (native.ProducePartition("orders", 0, batch_of(b"x" * 5000)), native.ProducePartition("no", 0, b""))
        await connection.call(native.ProduceRequest(1, 1000, batches), timeout_ms=10_000)
        asked = (native.FetchPartition("lines", 0, -1, 0, 1000),)
        await connection.call(native.FetchRequest(-1, 0, 0, 1000, asked), timeout_ms=10_000)
        await connection.call(DescribeClientsRequest(), timeout_ms=10_000)
        (found,) = broker.listed()
        assert (found.client_id, found.software_name, found.listener) == ("till", "tidelog", "KAFKA")
        assert (found.reads.topics, found.writes.topics) == (("lines",), ("orders",))
        own = [(use.api_key, use.requests) for use in found.apis if use.api_key >= FIRST_EXTENSION]
        assert own == [(1005, 1), (1006, 1)], "one DescribeClients, and BrokerIdentity of the handshake"
        assert found.received_bytes > 5000 and found.sent_bytes > 0
        connection.close()


async def test_handlers_are_told_the_address_and_the_name_of_the_sender() -> None:
    contexts = []

    def note(request: native.Request, context: RequestContext) -> native.Response:
        contexts.append(context)
        return JoinGroupResponse(0)

    async with live(note) as broker:
        connection = await Connection.open(broker.listener.endpoint, client_id="till", timeout_ms=10_000)
        join = JoinGroupRequest("g", 6000, 6000, "m", None, "consumer", ())
        await connection.call(join, timeout_ms=10_000)
        (context,) = contexts
        assert (context.client_host, context.client_id, context.listener) == ("127.0.0.1", "till", "KAFKA")
        assert (context.sender_epoch, context.between_brokers) == (-1, False)
        connection.close()


async def test_software_is_unknown_before_version_3() -> None:
    async with live() as broker:
        client = await Client.connect(broker)
        assert (await client.state(ApiVersionsRequest(), 2)).error_code == 0
        assert broker.listed()[0].software_name == ""
        client.writer.transport.abort()


@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1"), ("a", ""), ("-a", "1"), ("a", "1."), ("a b", "1"), ("\x1b[2J", "1"), ("a", "1\n"), ("ä", "1")],
)
async def test_software_that_kip_511_forbids_is_refused(name: str, version: str) -> None:
    async with live() as broker:
        client = await Client.connect(broker)
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        refused = await client.state(request, 3)
        assert (refused.error_code, refused.api_keys) == (InvalidRequestError.code, ())
        assert broker.listed()[0].software_name == ""
        assert (await client.state(API_VERSIONS_3, 3)).error_code == 0, "the connection stays, as with Kafka"
        client.writer.transport.abort()


def offered_versions(request: type[Request]) -> range:
    """Return the versions of the API that brokers offer."""
    apis = apis_of(handle)
    (found,) = (api.versions for api in apis if api.request is request)
    return range(found.first, found.last + 1)


def produce(topic: str) -> ProduceRequest:
    batch = PartitionProduceData(index=0, records=b"")
    data = TopicProduceData(name=topic, partition_data=(batch,))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(data,))


def fetch(*topics: FetchTopic) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)


@pytest.mark.parametrize("version", offered_versions(ProduceRequest))
async def test_produced_topics_are_listed_by_name_in_each_version(version: int) -> None:
    async with live() as broker:
        client = await Client.connect(broker)
        for name in ("orders", "nowhere", "x" * 5000):
            await client.ask(produce(name), version)
        (found,) = broker.listed()
        assert (found.reads.topics, found.writes.topics) == ((), ("orders",))
        client.writer.transport.abort()


@pytest.mark.parametrize("version", offered_versions(FetchRequest))
async def test_fetched_topics_are_listed_by_name_in_each_version(version: int) -> None:
    async with live() as broker:
        client = await Client.connect(broker)
        await client.ask(fetch(LINES, UNKNOWN), version)
        (found,) = broker.listed()
        assert (found.reads.topics, found.writes.topics) == (("lines",), ())
        client.writer.transport.abort()


async def test_topics_fetched_by_name_and_by_id_are_listed_together() -> None:
    async with live() as broker:
        client = await Client.connect(broker)
        await client.ask(fetch(ORDERS), 12)
        await client.ask(fetch(LINES), 13)
        (found,) = broker.listed()
        assert found.reads.topics == ("lines", "orders")
        client.writer.transport.abort()


async def test_hostile_client_id_is_kept_short_and_whole_requests_are_served() -> None:
    async with live() as broker:
        client = await Client.connect(broker)
        for client_id in ("\x1b]0;x\x07" * 4000, None, "\0", "é" * 300):
            await client.ask(API_VERSIONS_3, 3, client_id)
            (found,) = broker.listed()
            assert found.client_id == (client_id or "")[:200]
        client.writer.transport.abort()


async def test_ended_connection_is_not_listed() -> None:
    async with live() as broker:
        gone, stays = await Client.connect(broker), await Client.connect(broker)
        await gone.ask(API_VERSIONS_3, 3, "gone")
        await stays.ask(API_VERSIONS_3, 3, "stays")
        gone.writer.transport.abort()
        async with asyncio.timeout(10):
            while len(broker.listed()) > 1:
                await stays.ask(API_VERSIONS_3, 3, "stays")
        assert [each.client_id for each in broker.listed()] == ["stays"]
        stays.writer.transport.abort()
