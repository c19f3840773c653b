"""The command line of `scripts/simulate`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

from tidelog.extras import missing

if line := missing("local", "the simulator"):
    sys.exit(f"scripts/simulate: {line}")

from verify.simulation.run import Outcome
from verify.simulation.scenario import Scenario
from verify.simulation.scenario_generator import DENSE, USUAL
from verify.simulation.seeds import simulate, simulate_all
from verify.simulation.shrinking import shrink
from verify.simulation.summary import Summary

SCENARIOS = Path(__file__).resolve().parents[2] / "tests" / "simulation" / "scenarios"
#: The interval of progress lines if standard output is no terminal.
_PROGRESS_EVERY_S = 15.0
_FIRST_PROGRESS_S = 1.0
#: The exit status after Ctrl-C. The results until then are printed nevertheless.
_STOPPED = 130


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Simulate whole clusters on virtual time, with faults and clients derived from a seed.",
    )
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="simulate N seeds (100)")
    parser.add_argument("--seed", type=int, help="simulate this seed; with --seeds, begin at this seed (1)")
    parser.add_argument("--seconds", type=float, default=60, help="simulated seconds per seed (60)")
    parser.add_argument("--dense", action="store_true", help="more faults, and more faults at the same time")
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="number of parallel processes (2)"
    )
    parser.add_argument(
        "--story", dest="scenario", type=Path, metavar="FILE", help="simulate the scenario saved in FILE"
    )
    parser.add_argument("--trace", action="store_true", help="print one line per event (a single scenario only)")
    parser.add_argument("--shrink", action="store_true", help="shorten each failing scenario and save it as a test")
    parser.add_argument("--name", help="name of the file of the shortened scenario (seed-N)")
    parser.add_argument("--keep-going", action="store_true", help="continue after the first failure")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args()
    if arguments.seconds <= 0 or arguments.seeds < 0 or arguments.jobs < 1:
        parser.error("--seconds must be above 0, --seeds at least 0 and --jobs at least 1")
    if arguments.name and "/" in arguments.name:
        parser.error(f"--name {arguments.name}: must be a file name without a directory")
    try:
        if arguments.scenario:
            scenarios = [Scenario.from_json(arguments.scenario.read_text())]
        else:
            first = 1 if arguments.seed is None else arguments.seed
            count = arguments.seeds or (100 if arguments.seed is None else 1)
            density = DENSE if arguments.dense else USUAL
            scenarios = [Scenario.of_seed(seed, arguments.seconds, density) for seed in range(first, first + count)]
    except (OSError, ValueError) as error:
        parser.error(f"{arguments.scenario}: {error}")
    except KeyboardInterrupt:  # generating thousands of scenarios takes a while
        return _STOPPED
    one = len(scenarios) == 1 and not arguments.seeds
    try:
        return _run(scenarios, arguments, one=one)
    except KeyboardInterrupt:
        return _STOPPED


def _run(scenarios: list[Scenario], arguments: argparse.Namespace, *, one: bool) -> int:
    summary, screen = Summary(len(scenarios)), _Screen(quiet=arguments.json)
    if one:
        screen.say(str(scenarios[0]))
        show = print if arguments.trace else None
        outcomes: Generator[Outcome, None, None] = (simulate(scenario, show) for scenario in scenarios)
    else:
        outcomes = simulate_all(scenarios, arguments.jobs)
    stopped = False
    try:
        with closing(outcomes):
            for outcome in outcomes:
                summary.add(outcome)
                if outcome.wrong:
                    screen.say(f"seed {outcome.scenario.seed} failed: {outcome.wrong[0]}")
                screen.show(summary.progress())
                if outcome.wrong and not arguments.keep_going:
                    break
    except KeyboardInterrupt:
        stopped = True
    screen.say(summary.progress())
    if one and not stopped:
        screen.say(f"trace {outcome.digest}: {outcome.messages} messages, {outcome.turns} turns")
    for failed in summary.failed if arguments.shrink else summary.failed[:1]:
        _report(failed, screen, arguments, is_printed=one)
        if arguments.shrink and not stopped:
            _shrink(failed, screen, arguments.name)
    for line in summary.lines():
        screen.say(line)
    if not summary.failed:
        screen.say("no failures")
    if arguments.json:
        print(summary.to_json())
    return _STOPPED if stopped else summary.status


class _Screen:
    """A printer of permanent lines and of progress: on a terminal one line below them, else a line from time to time.

    quiet   print nothing
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stdout.isatty()
        self._shown = ""
        self._show_from = time.monotonic() + _FIRST_PROGRESS_S

    def say(self, line: str) -> None:
        if not self._quiet:
            self._wipe()
            print(line, flush=True)

    def show(self, line: str) -> None:
        if self._quiet:
            return
        if self._terminal:
            self._wipe()
            self._shown = line
            print(line, end="", flush=True)
        elif time.monotonic() > self._show_from:
            self._show_from = time.monotonic() + _PROGRESS_EVERY_S
            print(line, flush=True)

    def _wipe(self) -> None:
        if self._shown:
            print(f"\r{'':{len(self._shown)}}\r", end="")
            self._shown = ""


def _report(outcome: Outcome, screen: _Screen, arguments: argparse.Namespace, *, is_printed: bool) -> None:
    if not is_printed:
        screen.say(str(outcome.scenario))
    for each in outcome.wrong[:10]:
        screen.say(f"WRONG {each}")
    seed = f"--seed {outcome.scenario.seed} --seconds {outcome.scenario.seconds:g}{' --dense' * arguments.dense}"
    again = f"--story {arguments.scenario}" if arguments.scenario else seed
    screen.say(f"to repeat this run: scripts/simulate {again} --trace")


def _shrink(outcome: Outcome, screen: _Screen, name: str | None) -> None:
    def step(better: Outcome) -> None:
        clients = sum(map(bool, better.scenario.clients))
        screen.show(
            f"shrinking: {len(better.scenario.faults)} faults, {clients} clients, {better.scenario.seconds:g} s"
        )

    short = shrink(outcome, simulate, step)
    SCENARIOS.mkdir(parents=True, exist_ok=True)
    path = SCENARIOS / f"{name or f'seed-{short.scenario.seed}'}.json"
    path.write_text(short.scenario.to_json())
    screen.say(str(short.scenario))
    for each in short.wrong[:5]:
        screen.say(f"WRONG {each}")
    screen.say(f"saved as {path}")


if __name__ == "__main__":
    sys.exit(main())
