"""A broker with its two listeners on real sockets, over the real log, on its own thread; and peers that connect."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from struct import unpack
from typing import cast

import zmq

from node.handlers.dispatch import HandlerResult
from node.handlers.inspection.describe_broker import BrokerDescription
from node.handlers.operator import operator_handlers
from node.kafka.listener import KafkaListener
from node.net.client_connections import ClientConnections
from node.net.identity import Identity
from node.net.server import RequestContext, Server
from storage.files import RealFiles
from storage.log_manager import LogManager
from tests.node.client_requests import produce_request
from tests.node.kafka.kafka_requests import apis_of
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.node.offsets_topic import OFFSETS
from tests.node.topic_settings import broker_settings
from tests.virtual_time import VirtualClock
from tidelog.errors import BrokerError
from tidelog.model import Buffer, Endpoint, TopicPartition
from tidelog.protocol.codec import RequestHeader, decode_response, encode
from tidelog.protocol.kafka.client.translation.apis import translation_of
from tidelog.protocol.kafka.codec import decode
from tidelog.protocol.kafka.extensions import OWN_SOFTWARE
from tidelog.protocol.kafka.headers import decode_response_header, encode_request
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest as KafkaApiVersionsRequest
from tidelog.protocol.kafka.schema import Request as KafkaRequest
from tidelog.protocol.kafka.schema import Response as KafkaResponse
from tidelog.protocol.kafka.schema import Versions
from tidelog.protocol.listeners import BROKERS, CLIENTS
from tidelog.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ProduceResponse,
    Request,
    Response,
)

CLUSTER_ID = "c"
BROKER_EPOCH = 101
#: The longest time in which a healthy broker answers on a busy machine.
TIMEOUT_S = 20.0
#: The id of every topic, in the form that Kafka's requests can carry.
TOPIC_ID = "A" * 21 + "Q"
#: Only the canary uses this partition.
CANARY = TopicPartition("canary", 0)

#: Correlation ids far from those that hypothesis draws.
_correlations = count(0x5EED << 40)


class LiveListeners:
    """`endpoints` by listener name; `tracebacks` are the tracebacks in the broker's log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.endpoints: dict[str, Endpoint] = {}
        self.tracebacks: list[str] = []
        self.cluster: MemoryCluster
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    @contextmanager
    def open(self) -> Iterator[LiveListeners]:
        handler = _Tracebacks(self.tracebacks)
        logging.getLogger().addHandler(handler)
        self._thread.start()
        try:
            assert self._ready.wait(TIMEOUT_S)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(TIMEOUT_S)
            logging.getLogger().removeHandler(handler)

    async def _serve(self) -> None:
        def directory() -> LogManager:
            return LogManager.open([self.directory / "data"], RealFiles(), 1, CLUSTER_ID, "boot")

        async with MemoryCluster(1, directory=directory, topic_id=TOPIC_ID) as cluster:
            self.cluster = cluster
            cluster.configs = {"min.insync.replicas": "1"}
            await cluster.elect(1)
            await cluster.elect(1, tp=CANARY)
            await cluster.elect(1, tp=OFFSETS)
            node, clock = cluster.nodes[1], VirtualClock()
            connections = ClientConnections(clock, lambda name: name)
            apis = apis_of(
                _Handlers(node, connections).handle, node.metadata, clock, node.purgatories.consumer_sessions
            )
            clients = KafkaListener(Endpoint("127.0.0.1", 0), CLIENTS, apis, clock, clients=connections)
            brokers = Server(
                Endpoint("127.0.0.1", 0), Identity(CLUSTER_ID, 1, BROKER_EPOCH), node.handlers.handle, clock
            )
            await clients.start()
            brokers.start()
            self.endpoints = {CLIENTS: clients.endpoint, BROKERS: brokers.endpoint}
            self._ready.set()
            await self._stop.wait()
            await clients.stop()
            brokers.stop()

    def caller(self) -> Caller:
        """Connect to the listener for brokers."""
        return Caller(self.endpoints[BROKERS])

    def client(self) -> Client:
        """Connect to the listener for clients."""
        return Client(self.endpoints[CLIENTS])


class _Session:
    """A session of a broker that has just heard from ZooKeeper."""

    silence_ms = 0


class _Handlers:
    """The handlers of a broker in memory, and those of operators' requests, which it leaves out."""

    def __init__(self, node: Node, connections: ClientConnections) -> None:
        description = BrokerDescription(
            broker_settings(),
            node.replicas,
            _Session(),
            node.directory,
            lambda: None,
            lambda: 1000,
            connections,
            lambda: 500,
        )
        self._node = node
        self._of_operators = operator_handlers(node.replicas, 1000, description, connections)

    def handle(self, request: Request, context: RequestContext) -> HandlerResult:
        handler = self._of_operators.get(request.api)
        return self._node.handlers.handle(request, context) if handler is None else handler(request, context)


class ConnectionClosedError(Exception):
    """The broker has closed the connection instead of answering."""


class Client:
    """One TCP connection to the listener for clients, which can send any bytes.

    apis   the APIs that the listener offers to a client of Tidelog
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.socket = socket.create_connection((endpoint.host, endpoint.port), timeout=TIMEOUT_S)
        software = KafkaApiVersionsRequest(client_software_name=OWN_SOFTWARE, client_software_version="1")
        offered = self.ask(software, 3)
        self.apis = {each.api_key: Versions(each.min_version, each.max_version) for each in offered.api_keys}  # type: ignore[attr-defined]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes. Ignore that the broker has closed the connection, because the next response shows it."""
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def end_sending(self) -> None:
        """Send nothing more. The broker closes the connection when the requests that wait have begun."""
        with suppress(OSError):  # the broker may have closed the connection already
            self.socket.shutdown(socket.SHUT_WR)

    def frame(self) -> bytes:
        """Return the next response. Raise ConnectionClosedError if the broker closes the connection instead."""
        (size,) = unpack(">i", self._exactly(4))
        return self._exactly(size)

    def ask(self, request: KafkaRequest, version: int) -> KafkaResponse:
        """Return the response to a request of Kafka's protocol; ConnectionClosedError if there is none."""
        correlation = next(_correlations) & 0x7FFFFFFF
        self.send(b"".join(encode_request(request, version, correlation, "hostile")))
        while True:
            frame = self.frame()
            answered, position = decode_response_header(frame, type(request), version)
            if answered == correlation:
                return decode(request.response, version, memoryview(frame)[position:])

    def call(self, request: Request) -> Response | int:
        """Return the typed response, or the error code of the whole request, as a client of Tidelog gets it."""
        translation = translation_of(request, self.apis)
        version = min(translation.versions(request).last, self.apis[translation.request.api].last)
        response = self.ask(translation.write(request, version), version)
        try:
            return translation.read(response, request, version)
        except BrokerError as error:
            return error.code

    def rest(self) -> bytes:
        """Return the bytes that arrive until the broker closes the connection."""
        found = b""
        try:
            while more := self.socket.recv(1 << 16):
                found += more
        except ConnectionError:
            pass
        return found

    def _exactly(self, size: int) -> bytes:
        found = b""
        try:
            while len(found) < size:
                more = self.socket.recv(size - len(found))
                if not more:
                    raise ConnectionClosedError
                found += more
        except ConnectionError:
            raise ConnectionClosedError from None
        return found


class Caller:
    """A raw ZeroMQ peer that can send any frames."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"tcp://{endpoint}")

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(linger=0)

    def send(self, frames: Sequence[Buffer]) -> None:
        self.socket.send_multipart(frames)

    def answers_until_handshake(self) -> list[int]:
        """Send a handshake. Return the error codes of all answers that arrive before its answer."""
        correlation = next(_correlations)
        self.send(encode(header_of(ApiVersionsRequest("test"), correlation), ApiVersionsRequest("test")))
        codes = []
        while True:
            header, body = decode_response(self._receive())
            if header.correlation_id == correlation:
                assert body.read(ApiVersionsResponse).error_code == 0
                return codes
            codes.append(header.error_code)

    def call(self, request: Request, **header: int) -> Response | int:
        """Return the answer, or the error code of the whole request."""
        correlation = next(_correlations)
        self.send(encode(header_of(request, correlation)._replace(**header), request))
        while True:
            answered, body = decode_response(self._receive())
            if answered.correlation_id == correlation:
                return answered.error_code or body.read(request.response)

    def _receive(self) -> list[bytes]:
        assert self.socket.poll(TIMEOUT_S * 1000), "the broker does not answer"
        return cast(list[bytes], self.socket.recv_multipart())


class Canary:
    """A well-behaved client with its own connection, which must be able to write and read at all times."""

    def __init__(self, live: LiveListeners) -> None:
        self._live = live
        self._client = live.client()
        self.slowest_s = 0.0

    def check(self) -> None:
        started = time.monotonic()
        value = b"canary %d" % next(_correlations)
        written = self._client.call(produce_request(value, tp=CANARY))
        assert isinstance(written, ProduceResponse) and written.partitions[0].error_code == 0
        offset = written.partitions[0].base_offset
        read = self._client.call(FetchRequest(-1, 0, 1, 1 << 20, (FetchPartition(*CANARY, -1, offset, 1 << 20),)))
        assert isinstance(read, FetchResponse) and value in bytes(read.partitions[0].records or b"")
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        found, self._live.tracebacks[:] = "\n".join(self._live.tracebacks), []
        assert not found, found


class _Tracebacks(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._found.append(self.format(record))


def header_of(request: Request, correlation: int = 7) -> RequestHeader:
    return RequestHeader(request.api, request.versions[1], correlation, "hostile", "", -1, -1, -1)


def resident_bytes() -> int:
    """Return the resident memory of this process, which includes the broker's threads."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def begin_peak() -> None:
    """Reset the peak that `peak_bytes` returns."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the peak of this process's resident memory since `begin_peak`."""
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
