"""Send one request to one broker, without the retries of a client."""

from __future__ import annotations

import asyncio
import socket

from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.messages import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    Request,
    Response,
)
from tidelog.records.encode import encode_batch


def ask(address: str, request: Request, timeout_ms: int = 10_000) -> Response:
    """The broker's answer, as it came."""

    async def exchange() -> Response:
        connection = await Connection.open(Endpoint.parse(address), client_id="test", timeout_ms=timeout_ms)
        try:
            return await connection.call(request, timeout_ms=timeout_ms)
        finally:
            connection.close()

    return asyncio.run(exchange())


def ask_to_append(address: str, tp: TopicPartition, value: bytes, acks: int = -1) -> ProducePartitionResponse:
    """Send one record to this broker, whether it is the leader or not."""
    batch = encode_batch([(1_700_000_000_000, None, value, ())])
    answer = ask(address, ProduceRequest(acks, 5000, (ProducePartition(*tp, batch),)))
    assert isinstance(answer, ProduceResponse)
    return answer.partitions[0]


def is_served(connection: socket.socket, request: bytes) -> bool:
    """Return whether the broker responds to the request, and read the response.

    If the broker closes the connection instead, return False.
    """
    try:
        connection.sendall(request)
        with connection.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4))
            return 0 < size == len(stream.read(size))
    except (ConnectionError, TimeoutError):
        return False
