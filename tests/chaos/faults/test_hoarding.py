"""Test what a broker holds for clients that do not read (F17), with a Kafka listener and real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from node.kafka.calls import Call, KafkaApi, Outcome
from node.kafka.listener import KafkaListener
from node.net.client_connections import ClientConnections
from tidelog.clock import SystemClock
from tidelog.errors import BrokerError
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.kafka.messages.records import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.kafka.schema import Versions
from verify.chaos.faults.resources import OutOfMemory, fetch_from

#: Larger than the buffers of both sockets together.
ANSWER_BYTES = 16 << 20
HELD_BYTES = 8 << 20


@asynccontextmanager
async def listening(asked: list[Any]) -> AsyncIterator[KafkaListener]:
    """Answer each fetch with 16 MiB."""

    def handle(request: Any, call: Call) -> Outcome:
        asked.append(request)
        data = PartitionData(
            partition_index=0, error_code=0, high_watermark=5, aborted_transactions=None, records=bytes(ANSWER_BYTES)
        )
        return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(data,)),))

    def refuse(request: Any, error: BrokerError, version: int) -> FetchResponse:
        return FetchResponse(error_code=error.code, responses=())

    clock = SystemClock()
    fetch = KafkaApi(FetchRequest, Versions(4, 12), handle, refuse)
    clients = ClientConnections(clock, lambda name: name)
    listener = KafkaListener(Endpoint("127.0.0.1", 0), "KAFKA", [fetch], clock, clients=clients)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


async def test_broker_holds_a_response_for_each_client_that_does_not_read() -> None:
    asked: list[Any] = []
    fault = OutOfMemory()
    async with listening(asked) as listener:
        for _ in range(2):
            await fault.hoard(listener.endpoint, fetch_from({TopicPartition("t", 0): 3}))
        async with asyncio.timeout(30):
            while listener.memory.held_bytes < 2 * HELD_BYTES:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await fault.heal()
        async with asyncio.timeout(30):
            while listener.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert listener.memory.held_bytes == 0
    fetch = asked[0]
    assert [
        (topic.topic, each.partition, each.fetch_offset, each.partition_max_bytes)
        for topic in fetch.topics
        for each in topic.partitions
    ] == [("t", 0, 3, 50 << 20)]


async def test_hoarding_client_survives_a_broker_that_has_ended() -> None:
    async with listening([]) as listener:
        endpoint = listener.endpoint
    fault = OutOfMemory()
    await fault.hoard(endpoint, fetch_from({TopicPartition("t", 0): 0}))
    await fault.heal()
