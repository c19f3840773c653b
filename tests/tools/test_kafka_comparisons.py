"""The comparisons through one Kafka client: what is measured where, and the measurements on a mock cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tidelog.local.processes.ports import LOOPBACK
from tools.bench.catalog import TABLES, select
from tools.bench.environment import BenchEnvironment
from tools.bench.kafka import reference
from tools.bench.kafka.brokers import KafkaBrokers, jars_in
from tools.bench.kafka.reference import KafkaReference
from tools.bench.kafka_clients import comparisons, latency, look_ups, throughput
from tools.bench.kafka_clients.bare_broker import bare_broker
from tools.bench.kafka_clients.comparisons import COMPARISONS, Comparison, Row
from tools.bench.kafka_clients.mock_cluster import MockTarget, mock_cluster
from tools.bench.kafka_clients.target import Target
from tools.bench.results import Figure, NotMeasured


@pytest.fixture
def mock() -> Iterator[MockTarget]:
    with mock_cluster() as started:
        yield started


def test_kafka_table_has_every_comparison_on_shared_clusters() -> None:
    benchmarks, rows = select(["kafka"])
    assert [row.key for row in rows] == list(TABLES["kafka"])
    shared = {comparison.name for comparison in COMPARISONS if not comparison.fresh}
    assert {benchmark.name for benchmark in benchmarks} == shared
    assert all(row.kafka and row.same_client for row in rows)


def test_a_thousand_partitions_are_compared_ten_thousand_are_not() -> None:
    compared, alone = select(["scale-1000"])[1], select(["scale-10000"])[1]
    assert [row.key.partition(".")[2] for row in compared] == [row.key.partition(".")[2] for row in alone]
    assert all(row.kafka and row.same_client for row in compared)
    assert not any(row.kafka for row in alone)


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
    def measure(target: object, env: BenchEnvironment) -> Mapping[str, float]:
        if isinstance(outcome, Exception):
            raise outcome
        return {"rate": outcome}

    return Comparison(name, "none", (Row("rate", "a rate", "MB/s"),), measure)


def which_cluster(name: str, *, fresh: bool) -> Comparison:
    """Return a comparison whose value is the number that stands for the measured cluster."""
    return Comparison(name, "none", (Row("rate", "a rate", "MB/s"),), lambda target, env: {"rate": target}, fresh=fresh)  # type: ignore[dict-item]


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


def test_fresh_comparison_has_a_kafka_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = [which_cluster(name, fresh=name in ("two", "four")) for name in ("one", "two", "three", "four")]
    started, warm = count(), list[int]()

    @contextmanager
    def brokers(directory: Path, jars: Path) -> Iterator[int]:
        yield next(started)

    monkeypatch.setattr(reference, "COMPARISONS", compared)
    monkeypatch.setattr(reference, "kafka_brokers", brokers)
    monkeypatch.setattr(reference, "warm_up", lambda target, seconds: warm.append(target))
    (tmp_path / "kafka_2.13-3.9.1.jar").touch()
    rows = [figure for each in compared for figure in each.figures()]
    found: dict[str, float] = {}
    add: Any = found.update
    KafkaReference(tmp_path, rows, BenchEnvironment(tmp_path, 1.0, lambda line: None)).measure(rows, add)
    assert found == {"one:rate": 0, "three:rate": 0, "two:rate": 1, "four:rate": 2}
    assert warm == [0, 1, 2]


def test_fresh_comparison_has_a_tidelog_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, started = 0, count(1)

    @contextmanager
    def fresh_cluster() -> Iterator[int]:
        yield next(started)

    env: Any = SimpleNamespace(cluster=shared, fresh_cluster=fresh_cluster)
    monkeypatch.setattr(comparisons, "TidelogTarget", lambda cluster: cluster)
    assert which_cluster("one", fresh=False).benchmark().measure(env) == {"one.rate": 0}
    assert which_cluster("two", fresh=True).benchmark().measure(env) == {"two.rate": 1}
    assert which_cluster("three", fresh=True).benchmark().measure(env) == {"three.rate": 2}


class MetadataTarget(Target):
    """A cluster whose metadata changes with each look: the leader and the replicas of each partition."""

    def __init__(self, *looks: list[tuple[int, list[int]]]) -> None:
        super().__init__("none:1")
        self.looks = iter(looks)

    @property
    def pids(self) -> Mapping[int, int]:
        return {}

    def _admin(self) -> Any:
        return None

    def _metadata(self, admin: Any, topic: str) -> Any:  # type: ignore[override]
        partitions = [SimpleNamespace(leader=leader, replicas=replicas) for leader, replicas in next(self.looks)]
        return SimpleNamespace(partitions=dict(enumerate(partitions)))


def test_preferred_leaders_are_the_first_replicas_of_all_partitions() -> None:
    none, some, every = [], [(1, [1, 2]), (1, [2, 1])], [(1, [1, 2]), (2, [2, 1])]
    target = MetadataTarget(none, some, every)
    target.wait_for_preferred_leaders("orders", 60)
    assert next(target.looks, None) is None


#: Listens on the port of the properties that it is given last, and ends by SIGTERM, unless it is to ignore that.
_BROKER = """\
import pathlib, re, signal, socket, sys
pathlib.Path("ignores").exists() and signal.signal(signal.SIGTERM, signal.SIG_IGN)
port = re.search(r"listeners=.*:([0-9]+)", pathlib.Path(sys.argv[-1]).read_text())[1]
with socket.socket() as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen()
    signal.pause()
"""


class ScriptedBrokers(KafkaBrokers):
    """Brokers that are a script, of which no other broker knows in the first `unknown` looks."""

    unknown = 2

    def brokers(self) -> set[int]:
        self.unknown -= 1
        return {2, 3} if self.unknown >= 0 else {1, 2, 3}


def test_broker_of_kafka_starts_and_shuts_down_alone(tmp_path: Path) -> None:
    script = tmp_path / "java"
    script.write_text(f"#!{sys.executable} -IS\n{_BROKER}")
    script.chmod(0o755)
    kafka = ScriptedBrokers(tmp_path, tmp_path, script)
    try:
        kafka.restart(1)
        assert kafka.unknown == -1, "the start lasts until the broker is registered"
        first = kafka.pids[1]
        kafka.shut_down(1, 60)
        (tmp_path / "ignores").touch()
        kafka.restart(1)
        assert kafka.pids[1] != first
        with pytest.raises(NotMeasured, match="Kafka's broker 1 has not ended 0 s after SIGTERM"):
            kafka.shut_down(1, 0)
        kafka.kill(1)
    finally:
        kafka.stop()


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
