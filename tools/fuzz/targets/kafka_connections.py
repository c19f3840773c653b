"""Fuzzes a connection of the Kafka listener: any bytes, cut in any way, before the translations of all APIs."""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from itertools import pairwise
from struct import unpack_from
from typing import Any

from cluster.state import LeaderAndEpoch
from node.kafka.connection import Connection
from node.kafka.listener import KafkaListener
from node.kafka.translation.apis import kafka_apis
from node.metadata.metadata_cache import MetadataCache
from node.net.client_connections import ClientConnections
from node.net.identity import Identity
from node.replication.sessions.consumer_sessions import ConsumerSessions
from tidelog.clock import SystemClock
from tidelog.errors import InvalidRequestError, ProtocolError
from tidelog.model import NO_LEADER, Endpoint
from tidelog.protocol.codec import encode_body
from tidelog.protocol.kafka.apis import APIS, request_class
from tidelog.protocol.kafka.extensions import EXTENSION_APIS, carrier_of
from tidelog.protocol.kafka.headers import encode_request
from tidelog.protocol.messages import Message
from tools.fuzz.examples import examples
from tools.fuzz.kafka_examples import kafka_example
from tools.fuzz.targets.frames import REQUESTS
from tools.fuzz.targets.target import Target, check

_PIECES = (1, 3, 4, 17, 1000, 65_536)


class _Transport(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 4711)})
        self.sent = bytearray()
        self.is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def writelines(self, list_of_data: Any) -> None:
        self.sent += b"".join(list_of_data)

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    abort = close


class _Failures(logging.Handler):
    """Keeps the errors that the listener logs: bugs that a client sees as UNKNOWN_SERVER_ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


def _refuse(request: object, context: object) -> None:
    raise InvalidRequestError("fuzz")


@cache
def _listener() -> tuple[asyncio.AbstractEventLoop, KafkaListener, _Failures]:
    failures = _Failures()
    logging.getLogger("node.kafka").addHandler(failures)
    clock = SystemClock()
    apis = kafka_apis(
        _refuse,
        MetadataCache("c"),
        clock,
        ConsumerSessions(on_end=lambda _: None),
        topic_configs=lambda _: (),
        has_lost=lambda _: False,
        latest_leader=lambda _: LeaderAndEpoch(NO_LEADER, -1),
        identity=Identity("c", 1),
    )
    clients = ClientConnections(clock, lambda name: name)
    listener = KafkaListener(Endpoint("127.0.0.1", 1), "KAFKA", apis, clock, clients=clients)
    return asyncio.new_event_loop(), listener, failures


def run_connection(data: bytes) -> None:
    """Check that the responses are whole frames, and that a closed connection holds nothing.

    The first byte chooses the size of the pieces in which the rest arrives.
    """
    if data:
        loop, listener, failures = _listener()
        failures.texts.clear()
        loop.run_until_complete(_run(listener, data[1:], _PIECES[data[0] % len(_PIECES)]))
        check(not failures.texts, "\n".join(failures.texts))


async def _run(listener: KafkaListener, data: bytes, piece: int) -> None:
    transport, connection = _Transport(), Connection(listener)
    connection.connection_made(transport)
    while data and not transport.is_closed:
        space = connection.get_buffer(-1)
        size = min(piece, len(space), len(data))
        space[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]
        await asyncio.sleep(0)
    position = 0
    while position < len(transport.sent):
        check(len(transport.sent) - position >= 8, "a response is shorter than its header")
        position += 4 + unpack_from(">i", transport.sent, position)[0]
    check(position == len(transport.sent), "the responses end inside a frame")
    connection.connection_lost(None)
    check(listener.memory.held_bytes == 0, f"{listener.memory.held_bytes} bytes are held without a connection")
    check(listener.connections == 0, "the listener has a connection that is closed")


def _is_encodable(message: Message, version: int) -> bool:
    """Return whether the version of the message's API has all fields of the message that are not empty."""
    try:
        encode_body(message, version)
    except ProtocolError:
        return False
    return True


def _seeds() -> list[bytes]:
    requests = [
        b"".join(encode_request(kafka_example(request_class(api), version), version, 7, "fuzz"))
        for api in APIS
        for version in sorted({api.valid.first, api.valid.last})
    ]
    requests += [
        b"".join(encode_request(carrier_of(cls)(body=encode_body(message, version)), version, 7, "fuzz"))
        for cls in REQUESTS
        if cls.api in EXTENSION_APIS
        for version in sorted({*cls.versions})
        for message in examples(cls)
        if _is_encodable(message, version)
    ]
    pairs = [b"\x03" + first + last for first, last in pairwise(requests)]
    return [b"\x05" + request for request in requests] + pairs


TARGETS = (
    Target(
        "kafka-connection",
        "connections of Kafka clients",
        run_connection,
        _seeds,
        ("tidelog.protocol.kafka", "node.kafka"),
        (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET ", b"\x16\x03\x01\x02", b"\xff\0\0\0"),
    ),
)
