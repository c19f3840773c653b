"""The metrics of our clients agree with the logs of real brokers."""

from __future__ import annotations

import pytest

from tests.processes.harness.cluster import RunningCluster
from tidelog import Admin, Consumer, Producer, TopicPartition

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

RECORDS = 2_000


def test_records_and_bytes_are_those_in_the_log(tidelog_cluster: RunningCluster, topic: str) -> None:
    servers, tp = tidelog_cluster.bootstrap_servers, TopicPartition(topic, 0)
    with Producer(bootstrap_servers=servers, batch_size=10_000) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)
        producer.flush(timeout=60)
        sent = producer.metrics()["producer-metrics"]
    with Admin(bootstrap_servers=servers) as admin:
        leader = tidelog_cluster.leader(tp)
        (log,) = (
            each
            for directory in admin.describe_log_dirs([leader])[leader]
            for each in directory.replicas
            if each.topic == topic
        )
        assert admin.metrics()["admin-client-metrics"]["requests-in-flight"] == 0
    with Consumer(bootstrap_servers=servers, group_id=f"group-of-{topic}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] < RECORDS:
            consumer.poll(10_000)
        consumer.commit()
        read = consumer.metrics()
    assert sent["record-send-total"] - sent["record-retry-total"] == RECORDS and sent["record-error-total"] == 0
    if not sent["record-retry-total"]:
        assert sent["byte-total"] == log.size_bytes
        assert sent["batch-size-avg"] <= sent["batch-size-max"] <= 10_000
    fetched, group = read["consumer-fetch-manager-metrics"], read["consumer-coordinator-metrics"]
    assert (fetched["records-consumed-total"], fetched["bytes-consumed-total"]) == (RECORDS, log.size_bytes)
    assert read["records-lag"] == {str(tp): 0} and fetched["records-lag-max"] == 0
    assert (group["assigned-partitions"], group["rebalance-total"]) == (1, 1)
    assert group["commit-total"] >= 1 and group["commit-latency-avg"] >= 0
    assert read["consumer-metrics"]["connection-count"] >= 3
