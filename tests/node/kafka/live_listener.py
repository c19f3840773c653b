"""A Kafka listener on a port of the loopback interface, its handlers, and clients that may send any bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from struct import pack, unpack
from typing import Any

from node.kafka.api_versions import offered
from node.kafka.calls import Call, KafkaApi, Outcome
from node.kafka.listener import DEFAULT_LIMITS, KafkaListener, ListenerLimits
from node.net.client_connections import ClientConnections
from tidelog.errors import BrokerError
from tidelog.model import Endpoint
from tidelog.protocol.kafka.headers import encode_request
from tidelog.protocol.kafka.messages.group_membership import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.kafka.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from tidelog.protocol.kafka.messages.records import ProduceRequest, ProduceResponse
from tidelog.protocol.kafka.schema import Request, Versions

#: The longest time in which the listener answers on a busy machine.
TIMEOUT_S = 20.0
NO_METADATA = MetadataResponse(brokers=(), topics=())
NOTHING_PRODUCED = ProduceResponse(responses=())


class SetClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.time_ms

    def now_ms(self) -> int:
        return self.time_ms


class Handlers:
    """The handlers of four APIs, whose outcomes the test chooses.

    heartbeat   the outcome of the next Heartbeat
    produce     the outcome of the next Produce
    """

    def __init__(self) -> None:
        self.heartbeat: Callable[[], Outcome] = beat
        self.produce: Callable[[], Outcome] = lambda: ProduceResponse(responses=())

    def apis(self) -> list[KafkaApi]:
        def api_versions(request: Any, call: Call) -> Outcome:
            return offered(self.apis())

        def metadata(request: Any, call: Call) -> Outcome:
            return MetadataResponse(brokers=(), cluster_id="x" * 10_000, topics=())

        return [
            KafkaApi(ApiVersionsRequest, Versions(0, 4), api_versions, _api_versions_error),
            KafkaApi(HeartbeatRequest, Versions(0, 4), lambda _, call: self.heartbeat(), _heartbeat_error),
            KafkaApi(MetadataRequest, Versions(0, 12), metadata, lambda _, error, version: NO_METADATA),
            KafkaApi(
                ProduceRequest,
                Versions(0, 9),
                lambda _, call: self.produce(),
                lambda _, error, version: NOTHING_PRODUCED,
            ),
        ]


def beat() -> HeartbeatResponse:
    return HeartbeatResponse(error_code=0)


def _api_versions_error(request: Any, error: BrokerError, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.code, api_keys=())


def _heartbeat_error(request: Any, error: BrokerError, version: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)


class Client:
    """One connection with its two streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def rest(self) -> bytes:
        """Return the bytes until the listener closes the connection."""
        found = b""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while more := await self._reader.read(65536):
                    found += more
            except ConnectionError:
                pass
        return found


class Live:
    """A listener on a port of the loopback interface, and its clients."""

    def __init__(self, limits: ListenerLimits, apis: Iterable[KafkaApi] | None) -> None:
        self.handlers = Handlers()
        self.clock = SetClock()
        self.listener = KafkaListener(
            Endpoint("127.0.0.1", 0),
            "KAFKA",
            self.handlers.apis() if apis is None else apis,
            self.clock,
            limits=limits,
            clients=ClientConnections(self.clock, lambda name: name),
        )
        self._clients: list[Client] = []

    async def client(self) -> Client:
        at = self.listener.endpoint
        client = Client(*await asyncio.open_connection(at.host, at.port))
        self._clients.append(client)
        return client

    async def check(self) -> None:
        """Check that a client that does nothing wrong is served."""
        client = await self.client()
        client.send(heartbeat(99))
        assert await client.response() == pack(">ih", 99, 0)
        client.writer.close()

    async def until(self, is_reached: Callable[[], bool], check: Callable[[], Awaitable[None]] | None = None) -> None:
        """Return when the condition holds. Each turn is a round trip of a client, so that the listener runs."""
        async with asyncio.timeout(TIMEOUT_S):
            while not is_reached():
                await (check or self.check)()

    def close(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()


@asynccontextmanager
async def live(limits: ListenerLimits = DEFAULT_LIMITS, apis: Iterable[KafkaApi] | None = None) -> AsyncIterator[Live]:
    """Run a listener of these APIs. None: of those of `Live.handlers`."""
    found = Live(limits, apis)
    await found.listener.start()
    try:
        yield found
    finally:
        found.close()
        await found.listener.stop()


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def encoded(request: Request, version: int, correlation_id: int) -> bytes:
    return b"".join(encode_request(request, version, correlation_id, "test"))


def heartbeat(correlation_id: int) -> bytes:
    return encoded(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0, correlation_id)


def produce(acks: int, correlation_id: int = 1) -> bytes:
    return encoded(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=()), 3, correlation_id)
