"""The command line of `scripts/bench`."""

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
from tools.bench.catalog import BENCHMARKS, TABLES, chosen
from tools.bench.environment import MIN_IN_SYNC, REPLICAS, Lab
from tools.bench.kafka.cluster import Kafka
from tools.bench.kafka_dump_check import Judge
from tools.bench.results import Results
from tools.bench.runner import run


def main() -> int:
    options = _options()
    try:
        benchmarks, rows = chosen(options.names)
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
    lab = Lab(directory, options.seconds, _say, profile=options.profile)
    kafka = Kafka(options.kafka, lab) if options.kafka else None
    started = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        results = run(benchmarks, rows, lab, options.runs, kafka, _say)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"\n{table.markdown(rows, results)}\n\n{time.monotonic() - started:.0f} s in all")
    if judged := lab.judge.in_words():
        print(judged)
    if options.json:
        written = {
            "machine": described,
            "settings": settings,
            "benchmarks": {benchmark.name: benchmark.settings for benchmark in benchmarks},
            "runs": options.runs,
            "figures": table.as_json([figure for each in benchmarks for figure in each.figures], results),
            "kafka_dump": judged,
            "failures": results.failures,
        }
        options.json.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for failure in results.failures:
        _say(f"bench: not measured: {failure}")
    missed = [row for row in rows if row.misses(results.median(row.key))] if options.aims else []
    for row in missed:
        _say(f"bench: not reached: {row.key} {row.aim} {row.unit}")
    return 1 if missed else status(results, lab.judge, judge_asked_for=options.judge)


def status(results: Results, judge: Judge, *, judge_asked_for: bool) -> int:
    """What could not be measured, and a judge that was asked for and is missing, is no success."""
    return 1 if results.failures or (judge_asked_for and judge.missing) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures Tidelog on this machine.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="a table, or what benchmarks begin with; see --list")
    parser.add_argument("--list", action="store_true", help="the benchmarks by name, and no more")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="how often each is measured [default: 3]")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of producing, for rates [default: 5]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there")
    parser.add_argument(
        "--judge", action="store_true", help="fail where Kafka's tool is not here to read what was written"
    )
    parser.add_argument("--aims", action="store_true", help="fail where an aim that is a number is not reached")
    parser.add_argument("--profile", action="store_true", help="show where the CPU goes (with py-spy, which functions)")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where clusters are made [default: the system's]")
    parser.add_argument(
        "--kafka",
        type=Path,
        metavar="DIR",
        help="measure a real Kafka too, by the scripts that lie there",
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
