"""Lists what is measured through Kafka's client on Tidelog, on a real Kafka, and against the client's own ceiling.

An aim such as "≥ 1.5 × Kafka" is a ratio of medians of the same run. The figures of the mock cluster are the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from tools.bench.environment import REPLICAS, BenchEnvironment, Benchmark
from tools.bench.kafka_clients import failover, idle, latency, look_ups, throughput
from tools.bench.kafka_clients.bare_broker import bare_broker
from tools.bench.kafka_clients.mock_cluster import mock_cluster
from tools.bench.kafka_clients.target import Target, TidelogTarget
from tools.bench.records.load import in_words
from tools.bench.results import Figure, NotMeasured
from tools.bench.scale import many_groups
from tools.bench.scale import partitions as many_partitions

PREFIX = "kafka-clients"
#: Seconds that a real Kafka is under load before the first figure, because the JVM compiles meanwhile.
WARM_UP_S = 20.0


class Row(NamedTuple):
    """One figure: the name of the measured value, what it is in words, its unit, its aim.

    has_ceiling   whether the mock cluster is measured for it as well
    has_floor     whether bare brokers are measured for it as well
    """

    value: str
    what: str
    unit: str
    aim: str = ""
    has_ceiling: bool = False
    has_floor: bool = False


Values = Mapping[str, float]
Measurement = Callable[[Target, BenchEnvironment], Values]


@dataclass(frozen=True)
class Comparison:
    """Figures that are measured on each cluster alike.

    measure    measures once on a cluster, and returns the values by their names
    ceiling    the same for the mock cluster; None if the mock cannot do it
    floor      the same for bare brokers; None if they are not measured
    fresh      whether each cluster is started for this comparison alone
    on_kafka   whether a real Kafka is measured as well
    """

    name: str
    settings: str
    rows: tuple[Row, ...]
    measure: Measurement
    ceiling: Measurement | None = None
    floor: Measurement | None = None
    fresh: bool = False
    on_kafka: bool = True

    def figures(self) -> Sequence[Figure]:
        """Return the rows of the table, without the ceilings."""
        return [
            Figure(
                self._key(row),
                row.what,
                row.unit,
                row.aim,
                bound=self._key(row, "ceiling-") if row.has_ceiling else "",
                kafka=self._kafka(row) if self.on_kafka else "",
                same_client=True,
            )
            for row in self.rows
        ]

    def benchmark(self) -> Benchmark:
        """Return the benchmark of Tidelog and of the ceilings."""
        ceilings = [
            Figure(self._key(row, "ceiling-"), f"{row.what}: the client's ceiling", row.unit)
            for row in self.rows
            if row.has_ceiling
        ]
        floors = [
            Figure(self._key(row, "floor-"), f"{row.what}: bare brokers", row.unit)
            for row in self.rows
            if row.has_floor
        ]

        def measure(env: BenchEnvironment) -> Values:
            require_client()
            with env.fresh_cluster() if self.fresh else nullcontext(env.cluster) as cluster:
                target = TidelogTarget(cluster)
                found = self.measure(target, env)
                values = {self._key(row): found[row.value] for row in self.rows}
                if self.floor is not None:
                    with bare_broker(target) as bare:
                        lowest = self.floor(bare, env)
                    values |= {self._key(row, "floor-"): lowest[row.value] for row in self.rows if row.has_floor}
            if self.ceiling is not None:
                with mock_cluster() as mock:
                    highest = self.ceiling(mock, env)
                values |= {self._key(row, "ceiling-"): highest[row.value] for row in self.rows if row.has_ceiling}
            return values

        return Benchmark(self.name, self.settings, (*self.figures(), *ceilings, *floors), measure)

    def kafka_keys(self) -> set[str]:
        """Return the keys of the values of a real Kafka, as in `Figure.kafka`."""
        return {self._kafka(row) for row in self.rows} if self.on_kafka else set()

    def measure_kafka(self, kafka: Target, env: BenchEnvironment) -> Values:
        """Measure a real Kafka, and return its values by `Figure.kafka`."""
        found = self.measure(kafka, env)
        return {self._kafka(row): found[row.value] for row in self.rows}

    def _key(self, row: Row, prefix: str = "") -> str:
        return f"{self.name}.{prefix}{row.value.replace('_', '-')}"

    def _kafka(self, row: Row) -> str:
        return f"{self.name}:{row.value}"


def require_client() -> None:
    """Raise NotMeasured, which says what to install, if the client is missing."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise NotMeasured("the client is missing: pip install confluent-kafka") from None


def warm_up(target: Target, seconds: float) -> None:
    """Produce, read and delete for `seconds` in all."""
    for size, partitions in ((1000, 6), (100, 1)):
        throughput.measure(target, size, partitions, seconds / 4)


def _throughput(size: int, partitions: int) -> Comparison:
    values = f"{in_words(size)}, {partitions} partition{'s' if partitions > 1 else ''}"

    def measure(target: Target, env: BenchEnvironment) -> Values:
        return throughput.measure(target, size, partitions, env.seconds)

    def ceiling(target: Target, env: BenchEnvironment) -> Values:
        return throughput.measure_mock(target, size, partitions, env.seconds / 2)

    return Comparison(
        f"{PREFIX}-{size}B-{partitions}p",
        f"{values}: one producer with batches of 256 KiB, then one consumer that reads all of it; every record counted",
        (
            Row("produce_rate", f"produce {values}", "MB/s", "≥ 1.5 × Kafka", has_ceiling=True),
            Row("produce_cpu", "… CPU of the brokers for each GB", "s/GB", "≤ 0.5 × Kafka"),
            Row("consume_rate", f"consume {values}", "MB/s", "≥ 1 × Kafka", has_ceiling=True),
            Row("consume_cpu", "… CPU of the brokers for each GB", "s/GB", "≤ 1.5 × Kafka"),
        ),
        measure,
        ceiling,
    )


def _look_ups(partitions: int) -> Comparison:
    words = f"{partitions} partition{'s' if partitions > 1 else ''} a request"
    has_floor = partitions == 1
    name = f"`offsets_for_times`, {words}"
    rate = Row("rate", name, "look-ups/s", "≥ 1 × Kafka", has_ceiling=True, has_floor=has_floor)

    def unchecked(target: Target, env: BenchEnvironment) -> Values:
        return look_ups.measure(target, partitions, env.seconds / 2, filled=False)

    return Comparison(
        f"{PREFIX}-look-ups-{partitions}p",
        f"random times among 100,000 records of 100 B in each partition, {words}; every answer checked",
        (rate,),
        lambda target, env: look_ups.measure(target, partitions, env.seconds / 2),
        unchecked,
        unchecked if has_floor else None,
    )


def _measure_produce(target: Target, _: BenchEnvironment) -> Values:
    return latency.measure_produce(target)


def _many_partitions(count: int, *, on_kafka: bool) -> Comparison:
    return Comparison(
        f"scale-{count}",
        f"three brokers and a topic of {count:,} partitions, RF {REPLICAS}; the shipped settings",
        tuple(
            Row(value, f"{count:,} partitions: {what}", unit, many_partitions.AIMS[count][value])
            for value, (what, unit) in many_partitions.WHAT.items()
        ),
        lambda target, env: many_partitions.measure(target, count, env.say),
        fresh=True,
        on_kafka=on_kafka,
    )


COMPARISONS: list[Comparison] = [
    *(_throughput(size, partitions) for size in (100, 1000) for partitions in (1, 6)),
    Comparison(
        f"{PREFIX}-latency",
        f"produce(…), flush(): {latency.RECORDS} records of 100 B after a warm-up, linger.ms 0",
        (
            Row("p50", "synchronous produce, p50", "ms", "≤ 0.8 × Kafka", has_ceiling=True, has_floor=True),
            Row("p99", "… p99", "ms", "≤ 0.5 × Kafka", has_ceiling=True, has_floor=True),
        ),
        measure=_measure_produce,
        ceiling=_measure_produce,
        floor=_measure_produce,
    ),
    Comparison(
        f"{PREFIX}-end-to-end",
        f"one at a time, the consumer in the same process: {latency.RECORDS} records of 100 B after a warm-up",
        (
            Row("p50", "produce to consume, p50", "ms", "≤ 1 × Kafka"),
            Row("p99", "… p99", "ms", "≤ 0.5 × Kafka"),
        ),
        lambda target, _: latency.measure_end_to_end(target),
    ),
    _look_ups(1),
    _look_ups(6),
    Comparison(
        f"{PREFIX}-connections",
        f"{idle.CONNECTIONS:,} connections that have made one request; CPU over {idle.WATCH_S:.0f} s",
        (
            Row("memory", f"{idle.CONNECTIONS:,} idle connections: memory of all brokers, more", "MB", "≤ 60"),
            Row("cpu", "… CPU of all brokers", "% of a core", "≤ 2"),
            Row("cpu_before", "… without the connections", "% of a core"),
        ),
        lambda target, _: idle.measure_connections(target),
    ),
    Comparison(
        f"{PREFIX}-consumer",
        f"one confluent-kafka consumer of {idle.PARTITIONS:,} idle partitions, its defaults",
        (
            Row(
                "cpu", f"{idle.PARTITIONS:,} partitions in an idle consumer: CPU of all brokers", "% of a core", "≤ 10"
            ),
            Row("cpu_before", "… without the consumer", "% of a core"),
        ),
        lambda target, _: idle.measure_consumer(target),
    ),
    Comparison(
        f"{PREFIX}-java-consumer",
        f"one Java consumer of {idle.PARTITIONS:,} idle partitions, its defaults, with a fetch session for each broker",
        (Row("cpu", "… in an idle Java consumer", "% of a core", "≤ 3"),),
        lambda target, _: idle.measure_java_consumer(target),
    ),
    Comparison(
        f"{PREFIX}-failover",
        f"{failover.PARTITIONS} partitions, a record to each every {failover.PACE_S * 1e3:.0f} ms; default settings",
        (Row("gap", "SIGKILL of a leader to the next acknowledgement", "s", "≤ 0.5"),),
        lambda target, _: failover.measure(target),
    ),
    _many_partitions(1_000, on_kafka=True),
    _many_partitions(10_000, on_kafka=False),
    Comparison(
        "scale-groups",
        f"{many_groups.GROUPS:,} groups with one commit in flight each, on connections of their own, by asyncio on "
        f"uvloop, after {many_groups.WARM_UP_S:.0f} s that do not count",
        (
            Row("rate", f"commits of {many_groups.GROUPS:,} groups, one partition each", "/s", "≥ 1 × Kafka"),
            Row("p50", "… p50", "ms"),
            Row("p99", "… p99", "ms"),
            Row("cpu", "… CPU of the brokers for a thousand commits", "s"),
        ),
        lambda target, env: many_groups.measure(target, env.seconds),
    ),
]
