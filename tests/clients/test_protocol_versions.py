"""Which versions of the protocol clients find, and what becomes of a client that needs older ones."""

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


def test_kafka_python_takes_the_brokers_for_kafka_3_9(servers: str) -> None:
    with closing(kafka.KafkaConsumer(bootstrap_servers=servers.split(","), api_version=None)) as consumer:
        assert consumer.config["api_version"] == (3, 9)


def test_offered_versions_begin_with_the_record_format_of_kafka_0_11(
    tidelog_cluster: RunningCluster, servers: str
) -> None:
    """Produce is offered from version 0, because older librdkafka compresses nothing otherwise."""
    with closing(kafka.KafkaAdminClient(bootstrap_servers=servers.split(","))) as admin:
        offered = admin._manager.broker_version_data.api_versions
    assert offered[FetchRequest.API_KEY] == (4, 17)
    assert offered[ProduceRequest.API_KEY] == (0, 10)


def test_producer_of_an_old_version_times_out_and_the_log_says_why(
    tidelog_cluster: RunningCluster, servers: str, topic: str
) -> None:
    outcomes: list[ck.KafkaError | None] = []
    producer = ck.Producer({"bootstrap.servers": servers, "message.timeout.ms": 1000, **OLD})
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    assert [error and error.code() for error in outcomes] == [ck.KafkaError._MSG_TIMED_OUT]
    _wait_for_line(tidelog_cluster, "sent Produce version 1, but this listener understands versions 3 to 10")


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


def _wait_for_line(cluster: RunningCluster, line: str) -> None:
    wait_for("the line in a broker's log", lambda: _said(cluster, line), 60)


def _said(cluster: RunningCluster, line: str) -> bool:
    return any(cluster.said(broker_id, line) for broker_id in cluster.broker_ids)
