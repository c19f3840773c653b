"""Measures a real Kafka for the rows of a run: the comparisons through one client here, all other rows by scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.bench.environment import BenchEnvironment
from tools.bench.kafka.brokers import jars_in, kafka_brokers
from tools.bench.kafka.cluster import Kafka
from tools.bench.kafka_clients.comparisons import COMPARISONS, WARM_UP_S, Comparison, warm_up
from tools.bench.results import Figure, NotMeasured
from tools.bench.table import number


class KafkaReference:
    """A Kafka that each run measures once.

    The directory holds Kafka's jars, or a distribution with the jars in `libs`, or the scripts that `Kafka` names. The
    constructor exits the process if the directory has nothing that the rows need.
    """

    def __init__(self, directory: Path, rows: Sequence[Figure], env: BenchEnvironment) -> None:
        self._env = env
        self._jars = jars_in(directory.absolute())
        others = [row for row in rows if row.kafka and not any(row.kafka in each.kafka_keys() for each in COMPARISONS)]
        self._scripts = Kafka(directory, env) if others or self._jars is None else None

    def measure(self, rows: Sequence[Figure], add: Callable[[Mapping[str, float]], None]) -> None:
        """Measure the rows that have a key of Kafka's once, and pass values to `add` as soon as they are known.

        Comparisons that need a cluster of their own come last. Raises NotMeasured, after all other comparisons, if one
        failed.
        """
        wanted = {row.kafka for row in rows if row.kafka}
        compared = [each for each in COMPARISONS if wanted & each.kafka_keys()]
        others = [row for row in rows if not any(row.kafka in each.kafka_keys() for each in compared)]
        if self._scripts is not None:
            self._scripts.measure(others, add)
        if compared:
            self._compare(compared, add)

    def _compare(self, compared: Sequence[Comparison], add: Callable[[Mapping[str, float]], None]) -> None:
        jars = self._jars
        if jars is None:
            assert self._scripts is not None
            jars = self._scripts.jars()
        failures = []
        together = [each for each in compared if not each.fresh]
        for group in filter(None, (together, *([each] for each in compared if each.fresh))):
            with self._env.fresh_directory() as directory, kafka_brokers(directory, jars) as kafka:
                warm_up(kafka, WARM_UP_S)
                for comparison in group:
                    try:
                        values = comparison.measure_kafka(kafka, self._env)
                    except Exception as error:  # the other comparisons go on after any error, as those of Tidelog do
                        failures.append(f"{comparison.name}: {error or type(error).__name__}")
                        continue
                    add(values)
                    self._env.say(f"    {', '.join(f'{name} {number(value)}' for name, value in values.items())}")
        if failures:
            raise NotMeasured("; ".join(failures))
