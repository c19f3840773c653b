"""Measures a Spark job that reads a whole topic into the `noop` sink, with two tasks at a time."""

from __future__ import annotations

import json
import sys

from tools.bench.command_output import output_of
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.records.load import topic_of
from tools.bench.results import Figure, NotMeasured

_ROWS = 4_000_000
_SIZE = 100
_PARTITIONS = 6
_TIMEOUT_S = 600

_READ = Figure("spark-read.rate", "Spark batch read of 100 B rows, local[2], warm", "rows/s", "≥ 1,500,000")
_COLD = Figure("spark-read.cold", "… the first read of the session", "rows/s")


def measure(env: BenchEnvironment) -> dict[str, float]:
    cluster = env.cluster
    topic = topic_of(cluster, _ROWS, _SIZE, _PARTITIONS)[0].topic
    with env.fresh_directory() as directory:
        job = [
            sys.executable,
            "-P",
            "-m",
            "tools.bench.spark.spark_job",
            cluster.bootstrap_servers,
            topic,
            str(directory),
        ]
        output = json.loads(output_of(job, "Spark", timeout_s=_TIMEOUT_S).splitlines()[-1])
    if output["rows"] != _ROWS:
        raise NotMeasured(f"Spark read {output['rows']} of {_ROWS} rows")
    cold, *_, warm = output["seconds"]
    return {_READ.key: _ROWS / warm, _COLD.key: _ROWS / cold}


BENCHMARK = Benchmark(
    "spark-read", f"{_ROWS:,} rows in {_PARTITIONS} partitions; the last of four reads", (_READ, _COLD), measure
)
