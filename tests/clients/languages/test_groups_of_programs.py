"""Groups of Kafka's Java clients, franz-go and sarama, among themselves, with confluent-kafka and with our consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.adapters.registry import PROGRAMS, Clients
from tests.clients.cluster_under_test import ClusterUnderTest
from tests.clients.group_readers import ConfluentReader, GroupReader, OurReader, closing, wait_shared
from tests.clients.languages.program_reader import ProgramReader
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]  # all tests share one cluster

PARTITIONS = 6
PER_PARTITION = 50

_numbers = count(1)


@pytest.fixture
def topic(cluster: ClusterUnderTest) -> str:
    """Return a new topic with some records in each partition."""
    name = f"shared-{next(_numbers)}"
    cluster.create_topic(name, PARTITIONS)
    produce(cluster, name)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


def produce(cluster: ClusterUnderTest, topic: str) -> None:
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for partition in range(PARTITIONS):
        for number in range(PER_PARTITION):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


def committed(cluster: ClusterUnderTest, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = ck.ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(30)
    return {tp.partition: tp.offset for tp in found.topic_partitions}


def everything(before: int, start: int = 0) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(start, before)}


def wait_seen(wanted: set[tuple[int, int]], *readers: GroupReader) -> None:
    wait_for("the records to be read", lambda: {seen for each in readers for seen in each.seen} >= wanted, 60)


def reader(cluster: ClusterUnderTest, client: Clients, name: str, topic: str, group: str) -> GroupReader:
    if name == "confluent-kafka":
        return ConfluentReader(cluster, topic, group_id=group)
    if name == "ours":
        if not isinstance(cluster, RunningCluster):
            pytest.skip("Apache Kafka does not serve Tidelog's own clients")
        return OurReader(cluster, topic, group_id=group)
    return ProgramReader(client.program(name), topic, group)


@contextmanager
def two_readers(
    cluster: ClusterUnderTest, client: Clients, names: tuple[str, str], topic: str, group: str
) -> Iterator[tuple[GroupReader, GroupReader]]:
    """Yield a reader of each client, once both share the topic and have read its records."""
    first, second = (reader(cluster, client, name, topic, group) for name in names)
    with closing(first, second):
        wait_shared(PARTITIONS, first, second)
        wait_seen(everything(PER_PARTITION), first, second)
        yield first, second


@pytest.mark.parametrize(
    "names",
    [
        ("java-3.9", "java-4.3"),
        ("java-4.3", "confluent-kafka"),
        ("franz-go", "java-3.9"),
        ("sarama", "franz-go"),
        ("confluent-kafka", "sarama"),
        ("java-4.3", "sarama"),
        ("confluent-kafka", "franz-go"),
        ("java-4.3", "ours"),
        ("java-3.9", "ours"),
        ("confluent-kafka", "java-3.9"),
        ("ours", "franz-go"),
        ("sarama", "ours"),
    ],
    ids="+".join,
)
def test_two_clients_share_a_group(
    cluster: ClusterUnderTest, client: Clients, topic: str, group: str, names: tuple[str, str]
) -> None:
    with two_readers(cluster, client, names, topic, group):
        pass
    assert committed(cluster, group) == dict.fromkeys(range(PARTITIONS), PER_PARTITION)
    third = reader(cluster, client, names[1], topic, group)
    with closing(third):
        wait_shared(PARTITIONS, third)
        produce(cluster, topic)
        wait_seen(everything(2 * PER_PARTITION, PER_PARTITION), third)
    assert min(offset for _, offset in third.seen) == PER_PARTITION, "the committed offsets count for each client"


@pytest.mark.parametrize(
    "names", [("java-3.9", "java-4.3"), ("java-4.3", "franz-go"), ("franz-go", "java-3.9")], ids="+".join
)
def test_cooperative_rebalance_takes_only_some_partitions(
    cluster: ClusterUnderTest, client: Clients, topic: str, group: str, names: tuple[str, str]
) -> None:
    readers: list[ProgramReader] = []
    readers.append(ProgramReader(client.program(names[0]), topic, group, assignor="cooperative-sticky"))
    with closing(readers[0]):
        wait_shared(PARTITIONS, readers[0])
        readers.append(ProgramReader(client.program(names[1]), topic, group, assignor="cooperative-sticky"))
        with closing(readers[1]):
            wait_shared(PARTITIONS, *readers)
            wait_seen(everything(PER_PARTITION), *readers)
            assert len(readers[0].revoked) == PARTITIONS // 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_static_member_returns_without_a_rebalance(
    cluster: ClusterUnderTest, client: Clients, topic: str, group: str, name: str
) -> None:
    def static(instance: str) -> ProgramReader:
        return ProgramReader(client.program(name), topic, group, instance=instance, session_timeout_ms=30_000)

    second = static("b")
    with closing(second):
        first = static("a")
        with closing(first):
            wait_shared(PARTITIONS, first, second)
            owned, assignments = set(first.owned), second.assignments
        again = static("a")
        with closing(again):
            wait_for("the assignment", lambda: again.owned == owned, 30)
            assert second.assignments == assignments


@pytest.mark.parametrize("names", [("java-3.9", "franz-go"), ("sarama", "java-4.3")], ids="+".join)
def test_group_of_programs_outlives_its_coordinator(
    cluster: ClusterUnderTest, client: Clients, topic: str, group: str, names: tuple[str, str]
) -> None:
    with two_readers(cluster, client, names, topic, group) as (first, second):
        coordinator = cluster.coordinator(group)
        cluster.kill(coordinator)
        try:
            produce(cluster, topic)
            wait_seen(everything(2 * PER_PARTITION), first, second)
        finally:
            cluster.restart(coordinator)
            for partition in range(PARTITIONS):
                cluster.wait_in_sync(TopicPartition(topic, partition))
