"""Topics that do not exist: `tidelog up` creates them for Kafka clients, `tidelog broker` does not by default."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import confluent_kafka as ck
import pytest

from tests.clients.adapters import kcat
from tests.clients.adapters.foreign_client import ForeignClient, Record
from tests.clients.adapters.registry import NAMES
from tests.clients.kafka_cluster import KafkaCluster, kafka_cluster
from tests.processes.harness.cluster import RunningCluster
from tidelog import Admin, Consumer, Producer, TopicPartition
from tidelog.errors import UnknownTopicOrPartitionError

pytestmark = pytest.mark.xdist_group("clients, second cluster")  # so that two workers share the tests of clients

#: librdkafka's wait for a topic that may be on its way. Its default is 30 s.
IMPATIENT = {"topic.metadata.propagation.max.ms": "1000"}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Return a broker that was started by `tidelog broker`, with default settings."""
    with kafka_cluster(tmp_path_factory.mktemp("strict"), brokers=1) as started:
        yield started


@pytest.fixture(params=["on", "off"])
def own_servers(request: pytest.FixtureRequest, cluster: RunningCluster, strict: KafkaCluster) -> str:
    """Return the addresses for our own clients, of brokers with the setting on and off."""
    return cluster.bootstrap_servers if request.param == "on" else strict.bootstrap_servers


@pytest.mark.parametrize("name", NAMES)
def test_record_for_a_missing_topic_creates_it(
    cluster: RunningCluster, client: Callable[[str], ForeignClient], name: str
) -> None:
    topic = f"made-by-{name}"
    assert client(name).produce(topic, [Record(b"first")]) == [Record(b"first")]
    assert [each.value for each in client(name).consume(topic, 1)] == [b"first"]
    (described,) = cluster.admin.describe_topics([topic])
    (partition,) = described.partitions
    assert sorted(partition.replicas) == cluster.broker_ids, "the defaults of the brokers count"


def test_confluent_kafka_reports_an_unknown_topic_with_the_setting_off(strict: KafkaCluster) -> None:
    producer = ck.Producer({"bootstrap.servers": strict.bootstrap_servers, **IMPATIENT})
    errors: list[ck.KafkaError | None] = []
    producer.produce("nowhere", b"lost", on_delivery=lambda error, message: errors.append(error))
    producer.flush(60)
    assert [error and error.code() for error in errors] == [ck.KafkaError.UNKNOWN_TOPIC_OR_PART]
    with Admin(strict.bootstrap_servers) as admin:
        assert "nowhere" not in admin.list_topics()


@kcat.needs_kcat
def test_kcat_reports_an_unknown_topic_with_the_setting_off(strict: KafkaCluster) -> None:
    assert kcat.PROGRAM is not None
    command = [kcat.PROGRAM, "-b", strict.bootstrap_servers, "-P", "-t", "nowhere", "-p", "0"]
    command += ["-X", "topic.metadata.propagation.max.ms=1000"]
    ended = subprocess.run(command, input=b"lost\n", capture_output=True, timeout=60, check=False)
    assert b"Unknown topic or partition" in ended.stderr, ended


def test_consumer_of_confluent_kafka_creates_a_topic_only_if_asked(cluster: RunningCluster, servers: str) -> None:
    for allow in (False, True):
        consumer = ck.Consumer(
            {"bootstrap.servers": servers, "group.id": "asks", "allow.auto.create.topics": allow, **IMPATIENT}
        )
        try:
            consumer.assign([ck.TopicPartition("asked-for", 0)])
            for _ in range(6):
                consumer.poll(0.5)
        finally:
            consumer.close()
        assert ("asked-for" in cluster.admin.list_topics()) == allow


def test_our_consumer_says_that_the_topic_does_not_exist(own_servers: str) -> None:
    with Consumer(bootstrap_servers=own_servers) as consumer:
        consumer.assign([TopicPartition("nowhere", 0)])
        with pytest.raises(UnknownTopicOrPartitionError, match=r"^topic 'nowhere' does not exist$"):
            for _ in range(10):
                assert consumer.poll(1000) == {}
    with Admin(own_servers) as admin:
        assert "nowhere" not in admin.list_topics()


def test_our_producer_says_that_the_topic_does_not_exist(own_servers: str) -> None:
    with (
        Producer(own_servers) as producer,
        pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' does not exist"),
    ):
        producer.send("nowhere", b"lost").get(30)
    with Admin(own_servers) as admin:
        assert "nowhere" not in admin.list_topics()


def test_our_clients_create_a_topic_if_they_are_asked_to(cluster: RunningCluster, strict: KafkaCluster) -> None:
    with Producer(cluster.bootstrap_servers, allow_auto_create_topics=True) as producer:
        assert producer.send("made-by-us", b"first").get(30).offset == 0
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, allow_auto_create_topics=True) as consumer:
        consumer.assign([TopicPartition("awaited", 0)])
        assert consumer.poll(3000) == {}
    assert {"made-by-us", "awaited"} <= set(cluster.admin.list_topics())
    with (
        Producer(strict.bootstrap_servers, allow_auto_create_topics=True) as producer,
        pytest.raises(UnknownTopicOrPartitionError, match="topic 'nowhere' does not exist"),
    ):
        producer.send("nowhere", b"lost").get(30)
