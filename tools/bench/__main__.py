"""Runs the command line of `scripts/bench`."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from tools.bench import machine, table
from tools.bench.catalog import BENCHMARKS, TABLES, select
from tools.bench.environment import MIN_IN_SYNC, REPLICAS, BenchEnvironment
from tools.bench.kafka.reference import KafkaReference
from tools.bench.kafka_dump_check import KafkaDumpCheck
from tools.bench.results import Results
from tools.bench.runner import run


def main() -> int:
    options = _options()
    try:
        benchmarks, rows = select(options.names)
    except ValueError as error:
        sys.exit(f"bench: {error}")
    described = machine.describe()
    settings = (
        f"{REPLICAS} brokers, replication factor {REPLICAS}, min.insync.replicas {MIN_IN_SYNC}, acks=all, random "
        f"bytes; each figure is the median of {options.runs}"
    )
    print(f"machine: {machine.in_words(described)}\nsettings: {settings}", flush=True)
    for benchmark in benchmarks:
        print(f"  {benchmark.name}: {benchmark.settings}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=options.directory))
    env = BenchEnvironment(directory, options.seconds, _say, profile=options.profile)
    kafka = KafkaReference(options.kafka, rows, env) if options.kafka else None
    started = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        results = run(benchmarks, rows, env, options.runs, kafka, _say)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"\n{table.markdown(rows, results)}\n\n{time.monotonic() - started:.0f} s in all")
    if outcome := env.dump_check.in_words():
        print(outcome)
    if options.json:
        written = {
            "machine": described,
            "settings": settings,
            "benchmarks": {benchmark.name: benchmark.settings for benchmark in benchmarks},
            "runs": options.runs,
            "figures": table.as_json([figure for each in benchmarks for figure in each.figures], results),
            "kafka_dump": outcome,
            "failures": results.failures,
        }
        options.json.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for failure in results.failures:
        _say(f"bench: not measured: {failure}")
    missed = [row for row in rows if results.reached(row) is False] if options.aims else []
    for row in missed:
        _say(f"bench: not reached: {row.key} {table.aim_of(row)}")
    return 1 if missed else status(results, env.dump_check, dump_check_required=options.judge)


def status(results: Results, dump_check: KafkaDumpCheck, *, dump_check_required: bool) -> int:
    """Return the exit status: 1 if a benchmark failed, or if a required check by Kafka's tool did not run; else 0."""
    return 1 if results.failures or (dump_check_required and dump_check.missing) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures Tidelog on this machine.")
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="a table, or a benchmark's name or its beginning; see --list"
    )
    parser.add_argument("--list", action="store_true", help="show the names of the benchmarks, and exit")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="how often each benchmark runs [default: 3]")
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="how long a benchmark of a rate produces [default: 5]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value to this file")
    parser.add_argument(
        "--judge", action="store_true", help="fail if Kafka's dump tool cannot be run over the written logs"
    )
    parser.add_argument("--aims", action="store_true", help="fail if an aim that is a number is not reached")
    parser.add_argument("--profile", action="store_true", help="show where the CPU goes (with py-spy, by function)")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where clusters are made [default: the temporary directory]"
    )
    parser.add_argument(
        "--kafka",
        type=Path,
        metavar="DIR",
        help="also measure a real Kafka, by the jars or the scripts in this directory",
    )
    options = parser.parse_args()
    if options.list:
        for benchmark in BENCHMARKS:
            print(f"{benchmark.name:<20} {benchmark.settings}")
        for name, keys in TABLES.items():
            print(f"{name:<20} a table of {len(keys)} rows from those above")
        sys.exit(0)
    if options.runs < 1 or options.seconds <= 0:
        parser.error("--runs and --seconds must be positive")
    return options


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
