"""Groups of unmodified Kafka clients, among themselves and together with our own consumers, over real brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.adapters.kcat import needs_kcat
from tests.clients.group_readers import (
    AioKafkaReader,
    ConfluentReader,
    GroupReader,
    KafkaPythonReader,
    KcatReader,
    OurReader,
    closing,
    wait_shared,
)
from tests.clients.kafka_cluster import KafkaCluster, kafka_cluster
from tests.processes.harness.waiting import wait_for
from tidelog import Admin, Producer, TopicPartition

pytestmark = pytest.mark.xdist_group("groups of Kafka clients")  # all tests share one cluster

PARTITIONS = 6
PER_PARTITION = 50
EVERYTHING = {(partition, offset) for partition in range(PARTITIONS) for offset in range(PER_PARTITION)}

_numbers = count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 3}
    with kafka_cluster(tmp_path_factory.mktemp("cluster"), **settings) as started:
        yield started


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    """Return a new topic with some records in each partition."""
    name = f"t{next(_numbers)}"
    cluster.create_topic(name, PARTITIONS)
    produce(cluster, name)
    return name


@pytest.fixture
def group() -> str:
    return f"g{next(_numbers)}"


def produce(cluster: KafkaCluster, topic: str) -> None:
    with Producer(cluster.bootstrap_servers) as producer:
        for partition, offset in sorted(EVERYTHING):
            producer.send(topic, b"%d" % offset, partition=partition)


def wait_all_seen(*readers: GroupReader) -> None:
    wait_for("all records to be read", lambda: {seen for each in readers for seen in each.seen} >= EVERYTHING, 150)


KINDS: dict[str, Callable[..., GroupReader]] = {
    "ours": OurReader,
    "confluent": ConfluentReader,
    "kafka-python": KafkaPythonReader,
    "aiokafka": AioKafkaReader,
    "kcat": KcatReader,
}
PAIRS = [
    ("confluent", "confluent"),
    ("confluent", "ours"),
    ("ours", "confluent"),
    ("kafka-python", "confluent"),
    ("ours", "kafka-python"),
    ("ours", "aiokafka"),
    pytest.param(("ours", "kcat"), marks=needs_kcat),
]


@pytest.mark.parametrize("kinds", PAIRS, ids="+".join)
def test_clients_of_these_kinds_share_a_group(
    cluster: KafkaCluster, topic: str, group: str, kinds: tuple[str, ...]
) -> None:
    first, second = (KINDS[kind](cluster, topic, group_id=group) for kind in kinds)
    with closing(first, second):
        wait_shared(PARTITIONS, first, second)
        wait_all_seen(first, second)
    with Admin(cluster.bootstrap_servers) as admin:
        committed = admin.list_consumer_group_offsets(group)
        assert {tp: each.offset for tp, each in committed.items()} == {
            TopicPartition(topic, partition): PER_PARTITION for partition in range(PARTITIONS)
        }
    third = KINDS[kinds[1]](cluster, topic, group_id=group)
    with closing(third):
        wait_shared(PARTITIONS, third)
        produce(cluster, topic)
        wait_for("the new records", lambda: len(third.seen) >= len(EVERYTHING), 150)
    assert min(offset for _, offset in third.seen) == PER_PARTITION, "the committed offsets count for each kind"


@pytest.mark.parametrize(
    "kinds", [("confluent", "confluent"), ("confluent", "ours"), ("ours", "confluent")], ids="+".join
)
def test_cooperative_member_gives_up_only_half_when_another_joins(
    cluster: KafkaCluster, topic: str, group: str, kinds: tuple[str, ...]
) -> None:
    options = {"group_id": group, "partition_assignment_strategy": "cooperative-sticky"}
    first = KINDS[kinds[0]](cluster, topic, **options)
    with closing(first):
        wait_shared(PARTITIONS, first)
        second = KINDS[kinds[1]](cluster, topic, **options)
        with closing(second):
            wait_shared(PARTITIONS, first, second)
            wait_all_seen(first, second)
            assert len(first.owned) == PARTITIONS // 2
            assert first.revoked == second.owned, "the first reader never gave up the others"


def test_static_member_restarts_without_a_rebalance(cluster: KafkaCluster, topic: str, group: str) -> None:
    options = {"group_id": group, "session_timeout_ms": 30_000}
    first = ConfluentReader(cluster, topic, group_instance_id="a", **options)
    second = ConfluentReader(cluster, topic, group_instance_id="b", **options)
    with closing(second):
        with closing(first):
            wait_shared(PARTITIONS, first, second)
            owned = set(first.owned)
        with Admin(cluster.bootstrap_servers) as admin:
            described = admin.describe_consumer_groups([group])[group]
        assert str(described.state) == "Stable"
        assert {member.group_instance_id for member in described.members} == {"a", "b"}
        before = second.assignments
        again = ConfluentReader(cluster, topic, group_instance_id="a", **options)
        with closing(again):
            wait_for("the assignment", lambda: again.owned == owned, 20)
            assert second.assignments == before


def test_admin_client_of_kafka_shows_and_changes_groups(cluster: KafkaCluster, topic: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    reader = ConfluentReader(cluster, topic, group_id=group)
    with closing(reader):
        wait_all_seen(reader)
        described = admin.describe_consumer_groups([group])[group].result(20)
        assert described.state == confluent_kafka.ConsumerGroupState.STABLE
        [member] = described.members
        assert {tp.partition for tp in member.assignment.topic_partitions} == set(range(PARTITIONS))
        listed = {each.group_id: each for each in admin.list_consumer_groups().result(20).valid}
        assert listed[group].state == confluent_kafka.ConsumerGroupState.STABLE
        assert listed[group].type == confluent_kafka.ConsumerGroupType.CLASSIC
        with pytest.raises(confluent_kafka.KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
            admin.delete_consumer_groups([group])[group].result(20)

    wanted = confluent_kafka.ConsumerGroupTopicPartitions
    found = admin.list_consumer_group_offsets([wanted(group)])[group].result(20)
    assert {(tp.partition, tp.offset) for tp in found.topic_partitions} == {
        (partition, PER_PARTITION) for partition in range(PARTITIONS)
    }
    moved = confluent_kafka.TopicPartition(topic, 3, 7)
    admin.alter_consumer_group_offsets([wanted(group, [moved])])[group].result(20)
    with Admin(cluster.bootstrap_servers) as ours:
        assert ours.list_consumer_group_offsets(group)[TopicPartition(topic, 3)].offset == 7
    admin.delete_consumer_groups([group])[group].result(20)
    with Admin(cluster.bootstrap_servers) as ours:
        assert ours.list_consumer_group_offsets(group) == {}


def test_offsets_of_our_own_consumer_are_read_by_a_kafka_client(cluster: KafkaCluster, topic: str, group: str) -> None:
    reader = OurReader(cluster, topic, group_id=group)
    with closing(reader):
        wait_all_seen(reader)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    asked = [confluent_kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    assert [tp.offset for tp in consumer.committed(asked, timeout=20)] == [PER_PARTITION] * PARTITIONS
    consumer.close()


OUTLIVING = [
    ("confluent", "ours"),
    pytest.param(("kafka-python", "aiokafka"), marks=pytest.mark.slow),
    pytest.param(("kcat", "ours"), marks=[pytest.mark.slow, needs_kcat]),
]


@pytest.mark.parametrize("kinds", OUTLIVING, ids="+".join)
def test_group_outlives_its_coordinator(cluster: KafkaCluster, topic: str, group: str, kinds: tuple[str, ...]) -> None:
    first, second = (KINDS[kind](cluster, topic, group_id=group) for kind in kinds)
    with closing(first, second):
        wait_shared(PARTITIONS, first, second)
        with Admin(cluster.bootstrap_servers) as admin:
            coordinator = admin.describe_consumer_groups([group])[group].coordinator
        cluster.kill(coordinator)
        try:
            produce(cluster, topic)
            wanted = {(partition, offset + PER_PARTITION) for partition, offset in EVERYTHING}
            wait_for("the new records", lambda: {s for each in (first, second) for s in each.seen} >= wanted, 60)
        finally:
            cluster.restart(coordinator)
    for each in (first, second):
        assert_in_order(each)


def assert_in_order(reader: GroupReader) -> None:
    """Assert that the reader saw the records of each partition in order. It may see records again after a rebalance."""
    once = list(dict.fromkeys(reader.seen))
    for number in range(PARTITIONS):
        offsets = [offset for partition, offset in once if partition == number]
        assert offsets == sorted(offsets)
