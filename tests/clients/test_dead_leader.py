"""Foreign clients write, read and look up while the leader that they use is dead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TypeVar

import aiokafka.errors
import confluent_kafka as ck
import kafka.errors
import pytest

from tests.clients.adapters.foreign_client import CODECS, ForeignClient, Record
from tests.clients.adapters.foreign_client import TIMEOUT_S as S
from tests.clients.adapters.registry import NAMES
from tests.clients.cluster_under_test import ClusterUnderTest
from tests.clients.record_stream import RecordStream
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

Client = Callable[[str], ForeignClient]
T = TypeVar("T")

#: The errors of calls whose broker is dead. librdkafka waits for such a broker until the time of the call is over.
DEAD_BROKER_ERRORS = (
    aiokafka.errors.KafkaError,
    ck.KafkaException,
    kafka.errors.KafkaConnectionError,
    kafka.errors.NodeNotReadyError,
    kafka.errors.UnknownBrokerIdError,
)
HEADERS = (("trace", b"a1"), ("source", b"till"))
#: The clients of the normal selection.
SELECTED = ("confluent-kafka", "kafka-python")


@contextmanager
def dead(cluster: ClusterUnderTest, broker: int, tp: TopicPartition) -> Iterator[None]:
    """Kill the broker. At the end restart it, and wait until its replica of the partition is in sync again."""
    cluster.kill(broker)
    try:
        yield
    finally:
        cluster.restart(broker)
        cluster.wait_in_sync(tp)


def numbered(codec: str) -> Callable[[int], Record]:
    return lambda number: Record(b"%d " % number * 20, codec.encode(), HEADERS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SELECTED else pytest.mark.slow) for name in NAMES]
)
def test_records_of_every_codec_survive_a_killed_leader(
    cluster: ClusterUnderTest, client: Client, servers: str, topic: str, name: str
) -> None:
    tp, reader = TopicPartition(topic, 0), client(name)
    streams = {codec: RecordStream(numbered(codec)) for codec in CODECS}
    with ThreadPoolExecutor(len(CODECS)) as threads:
        produced = {
            codec: threads.submit(client(name).produce, topic, stream, codec=codec, acks="all", is_idempotent=True)
            for codec, stream in streams.items()
        }
        try:
            wait_stored(servers, topic, 500)
            with dead(cluster, cluster.leader(tp), tp):
                killed_at = wait_stored(servers, topic, 500)
                wait_stored(servers, topic, killed_at + 500)
                despite_dead_broker(lambda: check_positions(reader, topic))
        finally:
            for stream in streams.values():
                stream.end()
        acknowledged = {codec: [each.value for each in future.result(2 * S)] for codec, future in produced.items()}
    _, end = reader.offset_range(topic)
    read = reader.consume(topic, end)
    assert {each.headers for each in read} == {HEADERS}
    for codec in CODECS:
        values = [each.value for each in read if each.key == codec.encode()]
        assert values == [numbered(codec)(number).value for number in range(len(values))], "lost, repeated or misplaced"
        assert acknowledged[codec] and set(acknowledged[codec]) <= set(values)
        assert max(each.offset for each in read if each.key == codec.encode()) > killed_at


def wait_stored(servers: str, topic: str, least: int) -> int:
    """Wait until clients find a leader of the topic, which has so many committed records. Return their number."""

    def stored() -> int:
        # A client that has begun to ask the leader when it dies waits for the whole timeout.
        with closing(ck.Consumer({"bootstrap.servers": servers, "group.id": "none"})) as consumer:
            try:
                end: int = consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=2)[1]
            except ck.KafkaException:
                return 0
        return end if end >= least else 0

    return wait_for(f"{least} records", stored, S)


def despite_dead_broker(call: Callable[[], T]) -> T:
    """Call again as long as the client raises that it has asked the dead broker, or knows no other one yet."""
    deadline = time.monotonic() + S
    while True:
        try:
            return call()
        except DEAD_BROKER_ERRORS:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def check_positions(reader: ForeignClient, topic: str) -> None:
    """Find the topic, its bounds, an offset and a time, and read from there."""
    assert topic in reader.topics() and reader.partitions(topic) == [0]
    start, end = reader.offset_range(topic)
    assert start == 0 and end > 100
    (first,) = reader.consume(topic, 1)
    assert (first.offset, first.headers) == (0, HEADERS)
    assert reader.offset_for_time(topic, first.timestamp_ms) == 0
    assert [each.offset for each in reader.consume(topic, 1, timestamp_ms=first.timestamp_ms)] == [0]
    assert [each.offset for each in reader.consume(topic, 3, offset=end // 2)] == [end // 2 + each for each in range(3)]
