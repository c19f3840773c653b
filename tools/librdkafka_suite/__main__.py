"""Runs librdkafka's own C test suite against a cluster, one test at a time, and continues an interrupted run."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tools.librdkafka_suite.suite import (
    DEFAULT_SCENARIO,
    Suite,
    append_result,
    failed_here_only,
    read_results,
)


def main() -> int:
    arguments = _parser().parse_intermixed_args()
    suite = Suite(
        arguments.directory.resolve(), arguments.bootstrap_servers, arguments.scenario, quick=not arguments.full
    )
    numbers = arguments.tests or suite.numbers()
    ends_at = time.monotonic() + arguments.minutes * 60
    done = read_results(arguments.results)
    with tempfile.TemporaryDirectory(prefix="librdkafka-suite-") as scratch:
        for number in numbers:
            if number in done:
                continue
            if time.monotonic() >= ends_at:
                print(f"stopped after {arguments.minutes:g} minutes; repeat the command to continue", file=sys.stderr)
                return 3
            result = suite.run(number, arguments.kafka_version, Path(scratch), arguments.timeout)
            append_result(arguments.results, result)
            done[number] = result
            states = ", ".join(f"{name} {state}" for name, state in result.states.items()) or f"{number} did not end"
            print(f"{states} ({result.seconds:.0f} s)", flush=True)
            for failure in result.failures:
                print(f"    {failure}")
    chosen = [done[number] for number in numbers]
    print(dict(Counter(state for each in chosen for state in each.states.values())))
    failed = failed_here_only(chosen, read_results(arguments.control) if arguments.control else {})
    if failed:
        print("failed: " + " ".join(each.test for each in failed))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.librdkafka_suite", description=__doc__)
    parser.add_argument("directory", type=Path, help="librdkafka's source tree, built, also its tests")
    parser.add_argument("tests", nargs="*", metavar="NNNN", help="numbers of tests (default: all that need brokers)")
    parser.add_argument("--bootstrap-servers", required=True, help="addresses for Kafka clients")
    parser.add_argument("--results", type=Path, required=True, help="file of results; tests that it has are not run")
    parser.add_argument("--control", type=Path, help="results of another cluster; tests that failed there do not count")
    parser.add_argument("--scenario", default=DEFAULT_SCENARIO, help="noautocreate: brokers create no topics")
    parser.add_argument("--full", action="store_true", help="also the long parts of each test")
    parser.add_argument("--minutes", type=float, default=60, help="start no test after this time (default %(default)s)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one test (default %(default)s)")
    parser.add_argument("--kafka-version", default="3.9.1", help="the suite leaves out what is newer")
    return parser


if __name__ == "__main__":
    sys.exit(main())
