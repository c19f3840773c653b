"""Which versions of the protocol clients find, and what old clients can do."""

from __future__ import annotations

from contextlib import closing

import confluent_kafka as ck
import kafka
import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_for

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

#: A client that asks for no versions, and takes those of brokers before Kafka 0.10.
OLD = {"api.version.request": False, "broker.version.fallback": "0.9.0", "log_level": 0}
T0 = 1_700_000_000_000
COUNT, VALUE = 300, b"value " * 10


def test_kafka_python_takes_the_brokers_for_kafka_3_9(servers: str) -> None:
    with closing(kafka.KafkaConsumer(bootstrap_servers=servers.split(","), api_version=None)) as consumer:
        assert consumer.config["api_version"] == (3, 9)


def test_clients_may_write_in_old_record_formats_but_not_read_in_them(
    tidelog_cluster: RunningCluster, servers: str
) -> None:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=servers.split(","))) as admin:
        offered = admin._manager.broker_version_data.api_versions
    assert offered[FetchRequest.API_KEY] == (4, 17)
    assert offered[ProduceRequest.API_KEY] == (0, 10)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("release", ["0.9.0", "0.10.0"])
def test_records_of_an_old_librdkafka_are_read_back(servers: str, topic: str, release: str, codec: str) -> None:
    outcomes: list[ck.KafkaError | None] = []
    settings = {**OLD, "broker.version.fallback": release, "compression.type": codec, "linger.ms": 50}
    producer = ck.Producer({"bootstrap.servers": servers, **settings})
    for number in range(COUNT):
        producer.produce(
            topic,
            VALUE,
            str(number),
            timestamp=T0 + number,
            partition=0,
            on_delivery=lambda error, _: outcomes.append(error),
        )
    assert producer.flush(60) == 0
    assert outcomes == [None] * COUNT
    # Format 0, of Kafka 0.9, has no timestamps.
    times = [-1] * COUNT if release == "0.9.0" else [T0 + number for number in range(COUNT)]
    assert read_back(servers, topic) == [(str(number).encode(), VALUE, time) for number, time in enumerate(times)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4"])
def test_records_of_an_old_kafka_python_are_read_back(servers: str, topic: str, codec: str | None) -> None:
    settings = {"api_version": (0, 10), "compression_type": codec, "linger_ms": 50, "acks": "all"}
    with closing(kafka.KafkaProducer(bootstrap_servers=servers.split(","), **settings)) as producer:
        for number in range(COUNT):
            producer.send(topic, VALUE, str(number).encode(), timestamp_ms=T0 + number, partition=0)
        producer.flush(60)
    assert read_back(servers, topic) == [(str(number).encode(), VALUE, T0 + number) for number in range(COUNT)]


def test_consumer_of_an_old_version_reads_nothing_and_the_log_says_why(
    tidelog_cluster: RunningCluster, servers: str, topic: str
) -> None:
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": "of-old-versions", **OLD})
    with closing(consumer):
        consumer.assign([ck.TopicPartition(topic, 0, 0)])
        line = "sent Fetch version 1, but this listener understands versions 4 to 17"

        def is_refused() -> bool:
            assert consumer.poll(0.1) is None
            return _said(tidelog_cluster, line)

        wait_for("the line in a broker's log", is_refused, 60)


def read_back(servers: str, topic: str) -> list[tuple[bytes, bytes, int]]:
    """Return the first records of partition 0 as a new client reads them: key, value and timestamp."""
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": "reader", "check.crcs": True})
    with closing(consumer):
        consumer.assign([ck.TopicPartition(topic, 0, 0)])
        read = consumer.consume(COUNT, 30)
    assert [message.error() for message in read] == [None] * COUNT
    return [(message.key(), message.value(), message.timestamp()[1]) for message in read]


def _said(cluster: RunningCluster, line: str) -> bool:
    return any(cluster.said(broker_id, line) for broker_id in cluster.broker_ids)
