"""Foreign clients write, read, look up and administrate while the leader and the coordinator that they use are dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka as ck
import kafka
import kafka.admin
import kafka.errors
import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.adapters.foreign_client import CODECS, ForeignClient, Record
from tests.clients.adapters.foreign_client import TIMEOUT_S as S
from tests.clients.adapters.registry import NAMES
from tests.clients.admin_clients import aiokafka_admin, kafka_python_admin
from tests.clients.cluster_under_test import ClusterUnderTest
from tests.clients.record_stream import RecordStream
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

pytestmark = pytest.mark.xdist_group("clients, second cluster")  # so that two workers share the tests of clients

Client = Callable[[str], ForeignClient]
T = TypeVar("T")

#: The errors of calls whose broker is dead. librdkafka and the AdminClient of aiokafka wait for such a broker until the
#: time of the call is over.
DEAD_BROKER_ERRORS = (
    TimeoutError,
    aiokafka.errors.KafkaError,
    ck.KafkaException,
    kafka.errors.KafkaConnectionError,
    kafka.errors.NodeNotReadyError,
    kafka.errors.UnknownBrokerIdError,
    kafka.errors.CoordinatorNotAvailableError,
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


@pytest.fixture
def led_and_coordinated(cluster: ClusterUnderTest, client: Client, servers: str, topic: str) -> tuple[str, str, int]:
    """Return a topic with ten records, a group that has committed offset 3 of it, and the broker that serves both."""
    group = f"group-of-{topic}"

    def commit(led: str) -> None:
        with closing(ck.Consumer({"bootstrap.servers": servers, "group.id": group})) as consumer:
            consumer.commit(offsets=[ck.TopicPartition(led, 0, 3)], asynchronous=False)

    commit(topic)
    coordinator, led = cluster.coordinator(group), topic
    for number in range(30):
        if cluster.leader(TopicPartition(led, 0)) == coordinator:
            break
        led = f"{topic}-{number}"
        cluster.create_topic(led)
    else:
        raise AssertionError("the coordinator leads none of 30 topics")
    client("confluent-kafka").produce(led, [Record(b"%d" % number) for number in range(10)], acks="all")
    commit(led)
    return led, group, coordinator


def test_confluent_kafka_administrates_beside_a_dead_leader(
    cluster: ClusterUnderTest, servers: str, led_and_coordinated: tuple[str, str, int]
) -> None:
    topic, group, leader = led_and_coordinated
    tp, new = ck.TopicPartition(topic, 0, 4), f"{topic}-new"
    setting = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, new, incremental_configs=[setting])
    short = {"request_timeout": 5}

    def ask(begin: Callable[[AdminClient], dict[Any, Future[Any]]]) -> Any:
        # An AdminClient asks the coordinator that it once found for as long as that broker is dead: a new one finds
        # the coordinator again.
        def once() -> Any:
            admin = AdminClient({"bootstrap.servers": servers})
            (future,) = begin(admin).values()
            return future.result(S)

        return despite_dead_broker(once)

    def partitions() -> int:
        admin = AdminClient({"bootstrap.servers": servers})
        return len(despite_dead_broker(lambda: admin.list_topics(new, timeout=5)).topics[new].partitions)

    def retention_ms() -> Any:
        return ask(lambda admin: admin.describe_configs([resource], **short))["retention.ms"].value

    with dead(cluster, leader, TopicPartition(topic, 0)):
        ask(lambda admin: admin.create_topics([NewTopic(new, 1, 2)], **short))
        ask(lambda admin: admin.create_partitions([NewPartitions(new, 3)], **short))
        wait_for("the new partitions", lambda: partitions() == 3)
        ask(lambda admin: admin.incremental_alter_configs([resource], **short))
        wait_for("the setting", lambda: retention_ms() == "60000")
        assert ask(lambda admin: admin.delete_records([tp], **short)).low_watermark == 4
        assert ask(lambda admin: admin.list_offsets({tp: OffsetSpec.latest()}, **short)).offset == 10
        asked = [ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0)])]
        listed = ask(lambda admin: admin.list_consumer_group_offsets(asked, **short))
        assert [each.offset for each in listed.topic_partitions] == [3]
        ask(lambda admin: admin.delete_consumer_groups([group], **short))
        ask(lambda admin: admin.delete_topics([new], **short))


def test_kafka_python_administrates_beside_a_dead_leader(
    cluster: ClusterUnderTest, servers: str, led_and_coordinated: tuple[str, str, int]
) -> None:
    topic, group, leader = led_and_coordinated
    tp, new = kafka.TopicPartition(topic, 0), f"{topic}-new"

    def ask(call: Callable[[kafka.KafkaAdminClient], T]) -> T:
        def once() -> T:
            with kafka_python_admin(servers) as admin:
                return call(admin)

        return despite_dead_broker(once)

    with dead(cluster, leader, TopicPartition(topic, 0)):
        ask(lambda admin: admin.create_topics({new: {"num_partitions": 1, "replication_factor": 2}}))
        ask(lambda admin: admin.create_partitions({new: 3}))
        wait_for("the new topic", lambda: new in ask(lambda admin: admin.list_topics()))
        assert ask(lambda admin: admin.delete_records({tp: 4}))[tp]["low_watermark"] == 4
        latest = {tp: kafka.admin.OffsetSpec.LATEST}
        assert ask(lambda admin: admin.list_partition_offsets(latest))[tp].offset == 10
        assert ask(lambda admin: admin.list_group_offsets(group))[group][tp].offset == 3
        ask(lambda admin: admin.delete_groups([group]))
        ask(lambda admin: admin.delete_topics([new]))


@pytest.mark.slow
def test_aiokafka_administrates_beside_a_dead_leader(
    cluster: ClusterUnderTest, servers: str, led_and_coordinated: tuple[str, str, int]
) -> None:
    topic, group, leader = led_and_coordinated
    tp, new = aiokafka.TopicPartition(topic, 0), f"{topic}-new"
    config = AioConfigResource(AioConfigResourceType.TOPIC, new, {"retention.ms": "60000"})

    def ask(call: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, Any]]) -> Any:
        async def once() -> Any:
            async with aiokafka_admin(servers, request_timeout_ms=5000) as admin:
                return await call(admin)

        return despite_dead_broker(lambda: asyncio.run(once()))

    with dead(cluster, leader, TopicPartition(topic, 0)):
        ask(lambda admin: admin.create_topics([AioNewTopic(new, 1, 2)]))
        wait_for("the new topic", lambda: new in ask(lambda admin: admin.list_topics()))
        (altered,) = ask(lambda admin: admin.alter_configs([config]))
        assert [code for code, *_ in altered.resources] == [0]
        assert ask(lambda admin: admin.delete_records({tp: RecordsToDelete(4)})) == {tp: 4}
        assert ask(lambda admin: admin.list_consumer_group_offsets(group))[tp].offset == 3
        ask(lambda admin: admin.delete_topics([new]))
