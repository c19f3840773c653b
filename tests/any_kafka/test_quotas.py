"""Test that our clients obey a quota of Kafka (KIP-219) and lose nothing."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from tests.any_kafka.clusters import AnyCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer, Producer
from tidelog.clock import SystemClock
from tidelog.model import Buffer, Endpoint, TopicPartition
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.kafka.client.line import OnEnded, TcpLine
from tidelog.protocol.kafka.codec import decode
from tidelog.protocol.kafka.headers import decode_response_header
from tidelog.protocol.kafka.messages.records import ProduceRequest as KafkaProduceRequest
from tidelog.protocol.messages import ProducePartition, ProduceRequest, ProduceResponse
from tidelog.records import encode_batch
from tools.check.toolbox import KAFKA_4_VERSION, KAFKA_VERSION, kafka_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BYTES_PER_S = 100_000
RECORD = bytes(100_000)


@pytest.fixture
def throttled(cluster: AnyCluster) -> str:
    """Return a client id that may write and read 100 KB/s only. Tidelog has no quotas."""
    if not cluster.is_kafka:
        pytest.skip("Tidelog has no quotas yet")
    version = KAFKA_4_VERSION if cluster.kind == "kafka-4.1" else KAFKA_VERSION
    command = kafka_command("kafka.admin.ConfigCommand", version=version)
    command += ["--bootstrap-server", cluster.bootstrap_servers, "--alter"]
    command += ["--add-config", f"producer_byte_rate={BYTES_PER_S},consumer_byte_rate={BYTES_PER_S}"]
    command += ["--entity-type", "clients", "--entity-name", "throttled"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return "throttled"


class Event(NamedTuple):
    """A frame that was sent or received."""

    at_ms: int
    is_sent: bool
    frame: bytes


class RecordedLine(TcpLine):
    """A real connection whose frames are recorded."""

    def __init__(
        self, events: list[Event], address: Endpoint, on_frame: Callable[[memoryview], None], on_ended: OnEnded
    ) -> None:
        self._events = events
        self._clock = SystemClock()

        def receive(frame: memoryview) -> None:
            self._events.append(Event(self._clock.monotonic_ms(), False, bytes(frame)))
            on_frame(frame)

        super().__init__(address, receive, on_ended)

    def send(self, frame: Sequence[Buffer]) -> None:
        self._events.append(Event(self._clock.monotonic_ms(), True, b""))
        super().send(frame)


def throttle_ms(frame: bytes, version: int) -> int:
    _, position = decode_response_header(frame, KafkaProduceRequest, version)
    return decode(KafkaProduceRequest.response, version, memoryview(frame)[position:]).throttle_time_ms


def test_connection_sends_nothing_while_the_broker_throttles_it(cluster: AnyCluster, throttled: str) -> None:
    (tp,) = cluster.create_topic()
    events = asyncio.run(write_until_throttled(cluster, throttled, tp))
    throttles = [(each, throttle_ms(each.frame, PRODUCE_VERSION)) for each in events if not each.is_sent]
    received, pause_ms = next((each, ms) for each, ms in throttles if ms)
    later = [each for each in events if each.is_sent and each.at_ms >= received.at_ms]
    assert later and pause_ms > 0
    assert later[0].at_ms - received.at_ms >= pause_ms


#: The version of Produce in which this client and both versions of Kafka speak to each other.
PRODUCE_VERSION = 11


async def write_until_throttled(cluster: AnyCluster, client_id: str, tp: TopicPartition) -> list[Event]:
    """Send produce requests until one is throttled, and one more; return the frames from the first request on."""
    events: list[Event] = []
    endpoint = await leader_of(cluster, tp)

    def dial(address: Endpoint, on_frame: Callable[[memoryview], None], on_ended: OnEnded) -> RecordedLine:
        return RecordedLine(events, address, on_frame, on_ended)

    connection = await Connection.open(endpoint, client_id=client_id, timeout_ms=10_000, dial=dial)
    try:
        events.clear()
        batch = encode_batch([(1, None, RECORD, ())])
        request = ProduceRequest(1, 30_000, (ProducePartition(*tp, batch),))
        throttled = 0
        while throttled < 2:
            answer = await connection.call(request, timeout_ms=60_000)
            assert isinstance(answer, ProduceResponse) and answer.partitions[0].error_code == 0
            assert len(events) < 200, "the quota has no effect"
            throttled += bool(throttled) or throttle_ms(events[-1].frame, PRODUCE_VERSION) > 0
    finally:
        connection.close()
    return events


async def leader_of(cluster: AnyCluster, tp: TopicPartition) -> Endpoint:
    from tidelog import aio

    async with aio.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (topic,) = await admin.describe_topics([tp.topic])
        return (await admin.describe_cluster()).brokers[topic.partitions[0].leader]


def test_throttled_clients_lose_nothing(cluster: AnyCluster, throttled: str) -> None:
    (tp,) = cluster.create_topic()
    values = [b"%d-" % number + RECORD[:20_000] for number in range(100)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, client_id=throttled, max_block_ms=120_000) as producer:
        for value in values:
            producer.send(tp.topic, value)
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, client_id=throttled, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([tp])
        found: list[bytes | None] = []

        def is_read() -> bool:
            found.extend(record.value for record in consumer.poll(500).get(tp, ()))
            return len(found) >= len(values)

        wait_for("all records to be read", is_read, 120)
    assert found == values
