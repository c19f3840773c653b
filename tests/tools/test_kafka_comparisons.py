"""The comparisons through one Kafka client: what is measured where, and the measurements on a mock cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tidelog.local.processes.ports import LOOPBACK
from tools.bench.catalog import TABLES, select
from tools.bench.environment import BenchEnvironment
from tools.bench.kafka import reference
from tools.bench.kafka.brokers import jars_in
from tools.bench.kafka.reference import KafkaReference
from tools.bench.kafka_clients import latency, look_ups, throughput
from tools.bench.kafka_clients.bare_broker import bare_broker
from tools.bench.kafka_clients.comparisons import COMPARISONS, Comparison, Row
from tools.bench.kafka_clients.mock_cluster import MockTarget, mock_cluster
from tools.bench.results import Figure, NotMeasured


@pytest.fixture
def mock() -> Iterator[MockTarget]:
    with mock_cluster() as started:
        yield started


def test_kafka_table_has_every_comparison_on_both_sides() -> None:
    benchmarks, rows = select(["kafka"])
    assert [row.key for row in rows] == list(TABLES["kafka"])
    assert {benchmark.name for benchmark in benchmarks} == {comparison.name for comparison in COMPARISONS}
    assert all(row.kafka and row.same_client for row in rows)


def test_ceilings_are_bounds_but_no_rows() -> None:
    _, rows = select(["kafka"])
    bounds = {row.bound for row in rows if row.bound}
    assert "kafka-clients-1000B-6p.ceiling-produce-rate" in bounds
    assert not bounds & {row.key for row in rows}


@pytest.mark.parametrize("place", ["", "libs", "kafka-lib"])
def test_jars_are_found_in_the_directory_or_its_libs(tmp_path: Path, place: str) -> None:
    assert jars_in(tmp_path) is None
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "kafka-clients-3.9.1.jar").touch()
    assert jars_in(tmp_path) is None, "a client alone is no broker"
    (tmp_path / place / "kafka_2.13-3.9.1.jar").touch()
    assert jars_in(tmp_path) == tmp_path / place


def comparison(name: str, outcome: float | Exception) -> Comparison:
    def measure(target: object, seconds: float) -> Mapping[str, float]:
        if isinstance(outcome, Exception):
            raise outcome
        return {"rate": outcome}

    return Comparison(name, "none", (Row("rate", "a rate", "MB/s"),), measure)


def test_comparisons_go_on_after_a_failed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = [comparison("one", 1.0), comparison("two", NotMeasured("no record")), comparison("three", 3.0)]
    unwanted = comparison("four", AssertionError("not asked for"))

    @contextmanager
    def brokers(directory: Path, jars: Path) -> Iterator[object]:
        assert jars == tmp_path
        yield None

    monkeypatch.setattr(reference, "COMPARISONS", [*compared, unwanted])
    monkeypatch.setattr(reference, "kafka_brokers", brokers)
    monkeypatch.setattr(reference, "warm_up", lambda target, seconds: None)
    (tmp_path / "kafka_2.13-3.9.1.jar").touch()
    rows: list[Figure] = [figure for each in compared for figure in each.figures()]
    found: dict[str, float] = {}
    add: Any = found.update
    kafka = KafkaReference(tmp_path, rows, BenchEnvironment(tmp_path, 1.0, lambda line: None))
    with pytest.raises(NotMeasured, match="two: no record"):
        kafka.measure(rows, add)
    assert found == {"one:rate": 1.0, "three:rate": 3.0}


def test_throughput_is_measured_on_a_mock_cluster(mock: MockTarget) -> None:
    found = throughput.measure_mock(mock, 1000, 6, 0.2)
    assert found.keys() == {"produce_rate", "produce_cpu", "consume_rate", "consume_cpu"}
    assert found["produce_rate"] > 0 < found["consume_rate"]


def test_records_that_cannot_be_read_back_fail_the_measurement(mock: MockTarget) -> None:
    # A mock partition drops records beyond 5 MB.
    with pytest.raises(NotMeasured, match=r"\d+ records were acknowledged, the partitions hold \d+"):
        throughput.measure(mock, 100_000, 1, 0.2)


def test_latencies_are_measured_on_a_mock_cluster(mock: MockTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "RECORDS", 50)
    found = latency.measure_produce(mock)
    assert 0 < found["p50"] <= found["p99"]


def test_wrong_answer_of_a_look_up_fails_the_measurement(mock: MockTarget) -> None:
    assert look_ups.measure(mock, 6, 0.1, filled=False)["rate"] > 0
    # A mock does not search, and answers that no record is young enough.
    with pytest.raises(NotMeasured, match="looked up"):
        look_ups.measure(mock, 1, 0.1)


def test_bare_broker_answers_produces_and_look_ups_by_itself(mock: MockTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "RECORDS", 50)
    with bare_broker(mock) as bare:
        assert latency.measure_produce(bare)["p50"] > 0
        assert look_ups.measure(bare, 1, 0.1, filled=False)["rate"] > 0
        topic = bare.create_topic(1)
        addresses = [f"{LOOPBACK}:{port}" for port in bare.ports().values()]
        assert addresses == [bare.bootstrap_servers] * 3, "a client may ask any broker for metadata"
    consumer = Consumer({**mock.client, "group.id": "none"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 1), "the first record is real"
    consumer.close()
