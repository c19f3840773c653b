"""Repeats benchmarks and collects their values. No benchmark asserts a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.kafka.reference import KafkaReference
from tools.bench.results import Figure, NotMeasured, Results
from tools.bench.table import number


def run(
    benchmarks: Sequence[Benchmark],
    rows: Sequence[Figure],
    env: BenchEnvironment,
    runs: int,
    kafka: KafkaReference | None,
    say: Callable[[str], None],
) -> Results:
    """Run all benchmarks `runs` times, one after the other in each run, and return their values and failures.

    Thus slow changes of the machine affect each benchmark alike. A benchmark that fails has no value in this run. Kafka
    comes last in each run, after our cluster has been stopped, so that both are never under load together. Only the
    figures in `rows` are asked of Kafka.
    """
    results = Results()
    for count in range(1, runs + 1):
        try:
            for benchmark in benchmarks:
                _measure(benchmark, env, f"run {count} of {runs}", results, say)
        finally:
            env.close()
        if kafka is not None:
            say(f"run {count} of {runs}  Kafka …")
            try:
                kafka.measure(rows, results.add_kafka)
            except Exception as error:
                results.failures.append(f"Kafka, run {count}: {error}")
                say(f"    not measured: {error}")
    return results


def _measure(
    benchmark: Benchmark, env: BenchEnvironment, where: str, results: Results, say: Callable[[str], None]
) -> None:
    say(f"{where}  {benchmark.name} …")
    started = time.monotonic()
    try:
        values = benchmark.measure(env)
        missing = [figure.key for figure in benchmark.figures if figure.key not in values]
        if missing:
            raise NotMeasured(f"no value for {', '.join(missing)}")
    except Exception as error:  # the other benchmarks go on after any error, and the exit status reports it
        why = str(error) or type(error).__name__
        results.failures.append(f"{benchmark.name}, {where}: {why}")
        say(f"    not measured: {why}")
        return
    results.add(values)
    reported = ", ".join(f"{figure.what} {number(values[figure.key])} {figure.unit}" for figure in benchmark.figures)
    say(f"    {reported}  ({time.monotonic() - started:.0f} s)")
