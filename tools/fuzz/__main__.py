"""Runs the command line of `scripts/fuzz`."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from tools.fuzz.catalogue import TARGETS
from tools.fuzz.watch import Ending, Limits, Outcome, fuzz
from tools.fuzz.worker import engines

_PRINT_EVERY_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Gives readers of bytes arbitrary inputs.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="targets to fuzz [default: all]")
    parser.add_argument("--list", action="store_true", help="list the targets, and exit")
    parser.add_argument(
        "--cases", type=int, default=100_000, metavar="N", help="inputs for each target [default: 100,000]"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the inputs [default: 1]")
    parser.add_argument(
        "--engine", choices=engines(), default=engines()[0], help=f"what generates inputs [default: {engines()[0]}]"
    )
    parser.add_argument(
        "--case-seconds", type=float, default=5.0, metavar="S", help="time limit of one input [default: 5]"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.targets if name not in TARGETS]:
        parser.error(f"no target is called {', '.join(unknown)}; --list shows them")
    if arguments.cases < 1 or arguments.case_seconds <= 0:
        parser.error("--cases and --case-seconds must be positive")
    chosen = [TARGETS[name] for name in arguments.targets] or list(TARGETS.values())
    width = max(len(target.name) for target in chosen)
    if arguments.list:
        for target in chosen:
            print(f"{target.name:<{width}}  {target.reads}")
        return 0
    # SIGTERM acts like Ctrl-C: the worker is ended, and the outcome so far is printed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found = 0
    print(f"inputs by {arguments.engine}", flush=True)
    for target in chosen:
        outcome = fuzz(
            target,
            arguments.engine,
            arguments.cases,
            arguments.seed,
            Limits(case_s=arguments.case_seconds),
            _Progress(target.name),
        )
        print(f"{target.name:<{width}}  {summary(outcome)}", flush=True)
        if outcome.ending is Ending.STOPPED:
            return 130
        if outcome.ending is not Ending.DONE:
            found += 1
            print(outcome.traceback, flush=True)
    return 1 if found else 0


def summary(outcome: Outcome) -> str:
    """Return the outcome in one line."""
    rate = outcome.cases / max(outcome.seconds, 1e-9)
    line = f"{outcome.cases:>9,} cases  {rate:>8,.0f}/s  +{outcome.growth_bytes / (1 << 20):.0f} MiB  {outcome.ending}"
    return f"{line}: {outcome.kept}" if outcome.kept else line


class _Progress:
    def __init__(self, name: str) -> None:
        self._name = name
        self._next_s = time.monotonic() + _PRINT_EVERY_S

    def __call__(self, cases: int, seconds: float, growth_bytes: int) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s += _PRINT_EVERY_S
            rate = cases / max(seconds, 1e-9)
            print(
                f"  {self._name}: {cases:,} cases, {rate:,.0f}/s, +{growth_bytes >> 20} MiB",
                file=sys.stderr,
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
