"""The benchmarks' runner and table: medians, ratios, silences, and figures that cannot be measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidelog import TopicPartition
from tools.bench import __main__, interpreter, kafka_dump_check, machine
from tools.bench.__main__ import status
from tools.bench.catalog import BENCHMARKS, TABLES, select
from tools.bench.clusters.probe_producer import longest_silence
from tools.bench.environment import BenchEnvironment, Benchmark, leader_of_some
from tools.bench.results import Figure, NotMeasured, Results
from tools.bench.runner import run
from tools.bench.table import as_json, markdown, number
from tools.check.dump import Reading
from tools.check.toolbox import NotRun

RATE = Figure("made-up.rate", "a made-up rate", "MB/s", "≥ 40", bound="made-up.bound", kafka="produce:mb_per_s")
BOUND = Figure("made-up.bound", "its bound", "MB/s")


@pytest.fixture
def env(tmp_path: Path) -> BenchEnvironment:
    return BenchEnvironment(tmp_path, 1.0, lambda line: None)


def benchmark_of(*values: Mapping[str, float] | Exception) -> Benchmark:
    """Return a benchmark that yields these values, one in each run."""
    following = iter(values)

    def measure(env: BenchEnvironment) -> Mapping[str, float]:
        value = next(following)
        if isinstance(value, Exception):
            raise value
        return value

    return Benchmark("made-up", "none", (RATE, BOUND), measure)


def test_each_figure_is_the_median_of_its_runs(env: BenchEnvironment) -> None:
    values = [{RATE.key: rate, BOUND.key: 100.0} for rate in (30.0, 90.0, 50.0)]
    results = run([benchmark_of(*values)], [RATE], env, 3, None, lambda line: None)
    assert results.median(RATE.key) == 50.0
    assert not results.failures


def test_a_row_shows_spread_aim_bound_and_ratio(env: BenchEnvironment) -> None:
    results = Results()
    for rate in (30.0, 90.0, 50.0):
        results.add({RATE.key: rate, BOUND.key: 100.0})
    heading, rule, row, _ = markdown([RATE, BOUND], results).splitlines()
    assert heading == "| figure | Tidelog | lowest–highest | aim | reached | bound | of the bound |"
    assert rule == "| - | -: | -: | -: | -: | -: | -: |"
    assert row == "| a made-up rate | 50 MB/s | 30–90 | ≥ 40 MB/s | yes | 100 | 0.5 × |"


def test_row_names_the_other_client_if_clients_differ(env: BenchEnvironment) -> None:
    results = Results()
    results.add({RATE.key: 50.0, BOUND.key: 100.0})
    assert "confluent-kafka" not in markdown([RATE], results)
    results.add_kafka({"produce:mb_per_s": 25.0})
    [row] = markdown([RATE], results).splitlines()[2:]
    assert "confluent-kafka" in row
    assert row.endswith("| 25 | 2 × |")


def test_failed_measurement_is_reported_and_the_others_go_on(env: BenchEnvironment) -> None:
    fine = {RATE.key: 1.0, BOUND.key: 2.0}
    failing = benchmark_of(NotMeasured("no broker"), fine)
    printed: list[str] = []
    results = run([failing], [RATE], env, 2, None, printed.append)
    assert results.failures == ["made-up, run 1 of 2: no broker"]
    assert results.median(RATE.key) == 1.0
    assert any("no broker" in line for line in printed)


def test_a_missing_value_is_a_failure(env: BenchEnvironment) -> None:
    results = run([benchmark_of({RATE.key: 1.0})], [RATE], env, 1, None, lambda line: None)
    assert results.failures == ["made-up, run 1 of 1: no value for made-up.bound"]
    assert markdown([RATE], results).splitlines()[2].startswith("| a made-up rate | – |")
    assert as_json([RATE], results)[0]["median"] is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.0638, "0.0638"), (1.2345, "1.23"), (99.96, "100"), (147.4, "147"), (128_765, "129,000")],
)
def test_numbers_have_three_significant_digits(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("aim", "reached", "missed"),
    [("≤ 10", (9.9, 10.0), (10.1,)), ("≥ 100,000", (100_000.0, 1e6), (99_999.0,)), ("≤ 0.5", (0.5,), (0.51,))],
)
def test_an_aim_that_is_a_number_can_be_missed(aim: str, reached: tuple[float, ...], missed: tuple[float, ...]) -> None:
    figure = Figure("made-up.rate", "a made-up rate", "s", aim)
    assert all(figure.reached(value) for value in reached)
    assert [figure.reached(value) for value in missed] == [False] * len(missed)


@pytest.mark.parametrize(
    ("aim", "value"), [("", 7.0), ("≥ 0.8 × bound,", 0.1), ("≤ 100, ≤ 1.3 × that", 700.0), ("≤ 1", None)]
)
def test_figure_without_numeric_aim_or_value_misses_no_aim(aim: str, value: float | None) -> None:
    assert Figure("made-up.rate", "a made-up rate", "s", aim).reached(value) is None


@pytest.mark.parametrize(
    ("aim", "value", "kafka", "bound", "reached"),
    [
        ("≥ 1.5 × Kafka", 30.0, 20.0, None, True),
        ("≥ 1.5 × Kafka", 29.0, 20.0, 40.0, False),
        ("≥ 1.5 × Kafka", 23.0, 20.0, 25.0, True),  # 0.9 of the client's ceiling
        ("≥ 1.5 × Kafka", 22.0, 20.0, 25.0, False),
        ("≤ 0.8 × Kafka", 0.8, 1.0, 0.1, True),
        ("≤ 0.8 × Kafka", 0.9, 1.0, 0.1, False),
        ("≤ 0.8 × Kafka", 0.9, 1.0, 0.85, True),
        ("≤ 0.8 × Kafka", 1.0, 1.0, 0.85, False),
        ("≥ 1 × Kafka", 82.0, 97.0, 76.0, False),  # Kafka surpasses the ceiling, which is none then
        ("≥ 1 × Kafka", 5.0, None, 25.0, None),
        ("≥ 1 × Kafka", None, 5.0, 25.0, None),
        ("≥ 40", 30.0, 20.0, 10.0, False),
    ],
)
def test_aim_relative_to_kafka_yields_to_a_lower_ceiling(
    aim: str, value: float | None, kafka: float | None, bound: float | None, reached: bool | None
) -> None:
    assert Figure("made-up.rate", "a made-up rate", "MB/s", aim).reached(value, kafka, bound) is reached


def test_row_shows_whether_a_relative_aim_is_reached(env: BenchEnvironment) -> None:
    figure = Figure(RATE.key, "rate", "MB/s", "≥ 1.5 × Kafka", kafka="rate:mb_per_s", same_client=True)
    results = Results()
    results.add({RATE.key: 50.0})
    [row] = markdown([figure], results).splitlines()[2:]
    assert row == "| rate | 50 MB/s | ≥ 1.5 × Kafka |"
    for rate in (40.0, 20.0, 45.0):
        results.add_kafka({"rate:mb_per_s": rate})
    [row] = markdown([figure], results).splitlines()[2:]
    assert row == "| rate | 50 MB/s | ≥ 1.5 × Kafka | no | 40 (20–45) | 1.25 × |"
    assert as_json([figure], results)[0]["reached"] is False


@pytest.mark.parametrize(("arguments", "status_"), [((), 0), (("--aims",), 1)])
def test_aims_option_fails_the_run_if_an_aim_is_missed(
    arguments: tuple[str, ...], status_: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["scripts/bench", "made-up", "--runs", "1", *arguments])
    # The tests go on after `main` has returned.
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    benchmark = benchmark_of({RATE.key: 39.0, BOUND.key: 100.0})
    monkeypatch.setattr(__main__, "select", lambda names: ([benchmark], [RATE]))
    assert __main__.main() == status_
    assert ("bench: not reached: made-up.rate ≥ 40 MB/s" in capsys.readouterr().err) == bool(arguments)


def test_longest_silence_includes_the_gaps_at_both_ends() -> None:
    events = [1.0, 2.0, 2.1, 5.0]
    assert longest_silence(events, 1.5, 5.5) == pytest.approx(2.9)
    assert longest_silence(events, 1.5, 2.5) == pytest.approx(1.0)
    assert longest_silence(events, 1.5, 9.5) == pytest.approx(4.5)


def test_silence_needs_an_event_before_the_span_and_within_it() -> None:
    with pytest.raises(NotMeasured):
        longest_silence([], 1.0, 2.0)
    with pytest.raises(NotMeasured):
        longest_silence([3.0], 1.0, 2.0)


def test_names_and_keys_are_unique_and_bounds_exist() -> None:
    names = [benchmark.name for benchmark in BENCHMARKS]
    figures = [figure for benchmark in BENCHMARKS for figure in benchmark.figures]
    keys = [figure.key for figure in figures]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)
    assert all(figure.key.startswith(f"{benchmark.name}.") for benchmark in BENCHMARKS for figure in benchmark.figures)
    assert {figure.bound for figure in figures} - {""} <= set(keys)


def test_table_selects_the_benchmarks_of_its_rows_and_keeps_their_order() -> None:
    benchmarks, rows = select(["cluster"])
    assert [row.key for row in rows] == list(TABLES["cluster"])
    names = [benchmark.name for benchmark in benchmarks]
    assert names == [benchmark.name for benchmark in BENCHMARKS if benchmark.name in names]
    assert "floor" in names and "storage-append" not in names
    # the restart of a broker frees its memory
    assert names.index("consume-1000B") < names.index("memory") < names.index("failover")


def test_name_selects_benchmarks_by_prefix_and_each_row_once() -> None:
    benchmarks, rows = select(["latency", "cluster-idle"])
    assert [benchmark.name for benchmark in benchmarks] == ["latency", "cluster-idle"]
    assert [row.key.partition(".")[0] for row in rows] == ["latency", "latency", "cluster-idle", "cluster-idle"]
    both = [row.key for row in select(["cluster", "latency"])[1]]
    assert len(set(both)) == len(both)
    assert select([])[0] == BENCHMARKS
    with pytest.raises(ValueError, match="no benchmark nonsense: there are cluster, "):
        select(["latency", "nonsense"])


def test_whole_name_selects_only_the_benchmark_of_that_name() -> None:
    assert [benchmark.name for benchmark in select(["scale-1000"])[0]] == ["scale-1000"]
    assert [benchmark.name for benchmark in select(["scale-100"])[0]] == ["scale-1000", "scale-10000"]
    assert {row.key.partition(".")[0] for row in select(["scale-group"])[1]} == {"scale-group"}


@pytest.mark.parametrize(
    ("is_controller", "leaders", "chosen", "led"),
    [
        (False, {0: 3, 1: 1, 2: 2, 3: 2}, 2, [2, 3]),  # the lowest id among those that are not the controller
        (True, {0: 3, 1: 1, 2: 2, 3: 2}, 1, [1]),
        (False, {0: -1, 1: 3}, 3, [1]),  # a partition without a leader
    ],
)
def test_leader_is_chosen_with_its_partitions(
    is_controller: bool, leaders: Mapping[int, int], chosen: int, led: list[int]
) -> None:
    tps = [TopicPartition("orders", number) for number in leaders]
    assert leader_of_some(tps, leaders, 1, is_controller=is_controller) == (chosen, [tps[number] for number in led])


@pytest.mark.parametrize("is_controller", [False, True])
def test_no_leader_that_fits_is_reported(is_controller: bool) -> None:
    tps, leader = [TopicPartition("orders", 0)], 2 if is_controller else 1
    with pytest.raises(NotMeasured, match=rf"broker 1 is the controller, \[{leader}\] lead: no broker fits"):
        leader_of_some(tps, {0: leader}, 1, is_controller=is_controller)


def reading(*complaints: str) -> Callable[[Sequence[str], Path, Sequence[str]], Reading]:
    """Return a dump tool that finds a record and these faults."""
    return lambda command, directory, files: Reading(Counter(records=1), list(complaints))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    log = tmp_path / "bench-0"
    log.mkdir()
    for suffix in (".log", ".index", ".timeindex"):
        (log / f"{0:020}{suffix}").write_bytes(b"")
    return tmp_path


def test_dump_check_reads_each_log_once_and_reports_it(
    env: BenchEnvironment, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_dump_check, "kafka_command", lambda main_class: ["dump"])
    monkeypatch.setattr(kafka_dump_check, "dump", reading())
    assert env.dump_check.in_words() == ""
    for _ in range(3):  # three runs
        env.dump_check.read("small log", written)
    assert env.dump_check.in_words() == "Kafka's dump: 3 files read, no mismatch"


def test_figures_are_dropped_if_kafka_finds_a_fault_in_the_log(
    env: BenchEnvironment, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_dump_check, "kafka_command", lambda main_class: ["dump"])
    monkeypatch.setattr(kafka_dump_check, "dump", reading("Index timestamp: 5, log timestamp: 4"))
    with pytest.raises(NotMeasured, match=r"small log: .*log timestamp: 4"):
        env.dump_check.read("small log", written)


def test_dump_check_reports_that_the_tool_is_missing(
    env: BenchEnvironment, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(main_class: str) -> list[str]:
        raise NotRun("no Java")

    monkeypatch.setattr(kafka_dump_check, "kafka_command", missing)
    env.dump_check.read("small log", written)
    assert env.dump_check.in_words() == "Kafka's dump: NOT RUN: no Java"
    assert status(Results(), env.dump_check, dump_check_required=False) == 0
    assert status(Results(), env.dump_check, dump_check_required=True) == 1
    assert status(Results(failures=["made-up"]), env.dump_check, dump_check_required=False) == 1


class PartlyFailingKafka:
    """A Kafka whose second part fails."""

    def measure(self, rows: Sequence[Figure], add: Callable[[Mapping[str, float]], None]) -> None:
        add({rows[0].kafka: 25.0})
        raise NotMeasured("failover.py took longer than 900 s")


def test_kafka_figures_survive_the_failure_of_a_later_part(env: BenchEnvironment) -> None:
    kafka: Any = PartlyFailingKafka()
    results = run([benchmark_of({RATE.key: 50.0, BOUND.key: 100.0})], [RATE], env, 1, kafka, lambda line: None)
    assert results.kafka_median(RATE.kafka) == 25.0
    assert results.failures == ["Kafka, run 1: failover.py took longer than 900 s"]


@pytest.mark.parametrize(
    ("arguments", "optimised"),
    [
        ("'--prefix=/usr/local' '--enable-optimizations' '--with-lto'", True),
        ("'--enable-shared' '--with-wheel-pkg-dir=/usr/share/python-wheels/' '--without-ensurepip'", True),
        ("'--prefix=/root/.pyenv/versions/3.11.7' '--enable-shared'", False),
        ("", False),
    ],
)
def test_interpreter_is_optimised_if_its_configuration_says_so(arguments: str, optimised: bool) -> None:
    assert interpreter.is_optimised(arguments) == optimised


def test_a_report_names_how_its_interpreter_was_built() -> None:
    described = machine.describe()
    build = "with optimisation" if described["python_optimised"] else "without optimisation (slower)"
    assert f"{described['python']}, built {build}, load" in machine.in_words(described)
