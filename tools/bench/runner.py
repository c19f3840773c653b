"""Repeats benchmarks and gathers what they yield. Nothing here or below ever asserts a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tools.bench.environment import Lab
from tools.bench.kafka.cluster import Kafka
from tools.bench.results import Benchmark, Figure, NotMeasured, Results
from tools.bench.table import number


def run(
    benchmarks: Sequence[Benchmark],
    rows: Sequence[Figure],
    lab: Lab,
    runs: int,
    kafka: Kafka | None,
    say: Callable[[str], None],
) -> Results:
    """All benchmarks once, then all again, so that what drifts on the machine touches each alike.

    Kafka, of which only what stands in `rows` is asked, comes last in each run, when our cluster has been stopped:
    never are both under load.
    """
    results = Results()
    for count in range(1, runs + 1):
        try:
            for benchmark in benchmarks:
                _measure(benchmark, lab, f"run {count} of {runs}", results, say)
        finally:
            lab.close()
        if kafka is not None:
            say(f"run {count} of {runs}  Kafka …")
            try:
                kafka.measure(rows, results.add_kafka)
            except Exception as error:
                results.failures.append(f"Kafka, run {count}: {error}")
                say(f"    not measured: {error}")
    return results


def _measure(benchmark: Benchmark, lab: Lab, where: str, results: Results, say: Callable[[str], None]) -> None:
    say(f"{where}  {benchmark.name} …")
    started = time.monotonic()
    try:
        values = benchmark.measure(lab)
        missing = [figure.key for figure in benchmark.figures if figure.key not in values]
        if missing:
            raise NotMeasured(f"no value for {', '.join(missing)}")
    except Exception as error:  # whatever it was, the others go on, and the exit status tells
        why = str(error) or type(error).__name__
        results.failures.append(f"{benchmark.name}, {where}: {why}")
        say(f"    not measured: {why}")
        return
    results.add(values)
    told = ", ".join(f"{figure.what} {number(values[figure.key])} {figure.unit}" for figure in benchmark.figures)
    say(f"    {told}  ({time.monotonic() - started:.0f} s)")
