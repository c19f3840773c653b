"""Test that our consumer reads topics of transactional producers, which only Kafka has so far."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

import tidelog
from tests.any_kafka.clusters import AnyCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_reader_of_committed_records_skips_aborted_transactions(cluster: AnyCluster, isolation: str) -> None:
    if not cluster.is_kafka:
        pytest.skip("Tidelog has no transactions yet")
    (tp,) = cluster.create_topic()
    producer = ck.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"t-{isolation}", "linger.ms": 0}
    )
    producer.init_transactions(60)
    committed, aborted = [], []
    for number in range(20):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, each) for each in range(5)]
        for value in values:
            producer.produce(tp.topic, value)
        producer.flush(60)  # otherwise an aborted transaction has no records
        if number % 3:
            producer.commit_transaction(60)
            committed += values
        else:
            producer.abort_transaction(60)
            aborted += values
    expected = sorted(committed if isolation == "read_committed" else committed + aborted)
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:  # type: ignore[arg-type]
        consumer.assign([tp])
        found: list[bytes] = []

        def is_read() -> bool:
            found.extend(record.value or b"" for record in consumer.poll(500).get(tp, ()))
            # Kafka confirms a commit before its markers are in the log, so that the end may rise later.
            return len(found) >= len(expected) and consumer.position(tp) == consumer.end_offsets([tp])[tp]

        wait_for("all records to be read", is_read, 60)
        assert sorted(found) == expected
    scan = tidelog.scan(
        tp.topic,
        columns=["value"],
        isolation_level=isolation,  # type: ignore[arg-type]
        bootstrap_servers=cluster.bootstrap_servers,
    )
    assert sorted(scan.to_arrow()["value"].to_pylist()) == expected
