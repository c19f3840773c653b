"""Test that our clients outlive a killed leader of any Kafka without a lost, doubled or misplaced record."""

from __future__ import annotations

import pytest

from tests.any_kafka.clusters import AnyCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer, Producer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RECORDS = 2_000


def test_each_record_arrives_once_and_in_order(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    victim = cluster.leader(tp)
    with (
        Producer(cluster.bootstrap_servers, delivery_timeout_ms=120_000, max_block_ms=120_000) as producer,
        Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([tp])
        found: list[bytes | None] = []

        def read() -> None:
            found.extend(record.value for record in consumer.poll(100).get(tp, ()))

        try:
            for number in range(RECORDS):
                producer.send(tp.topic, b"%d" % number)
                if number == RECORDS // 4:
                    producer.flush()
                    cluster.kill(victim)
                if number % 50 == 0:
                    read()
            producer.flush()

            def all_are_read() -> bool:
                read()
                return len(found) >= RECORDS

            wait_for("all records to be read", all_are_read, 120)
            assert found == [b"%d" % number for number in range(RECORDS)]
            assert cluster.leader(tp) != victim
        finally:
            cluster.restart(victim)
            cluster.wait_whole(tp)
