"""Runs the command line of `scripts/prove`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.prove.output import Progress, listing, status, table
from tools.prove.running import Ending, Result, run
from tools.prove.steps import Step, all_steps

PROJECT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/prove", description="Runs the proofs that take too long for CI, one command after the other."
    )
    parser.add_argument("names", nargs="*", metavar="STEP", help="beginnings of the names of steps [default: all]")
    parser.add_argument("--list", action="store_true", help="list the steps with the minutes that each takes, and exit")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of the chaos steps without a fixed seed [default: from the clock]"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="new directory for all output [default: proof/ and the time]"
    )
    arguments = parser.parse_args()
    if arguments.seed is not None and arguments.seed < 0:
        parser.error("--seed must not be negative")
    reports = (arguments.report or PROJECT / "proof" / time.strftime("%Y%m%d-%H%M%S")).absolute()
    seed = time.time_ns() % 1_000_000_000 if arguments.seed is None else arguments.seed
    steps = all_steps(reports, seed, os.cpu_count() or 1)
    for name in arguments.names:
        if not any(step.name.startswith(name) for step in steps):
            parser.error(f"no step's name begins with {name}: there are {', '.join(step.name for step in steps)}")
    steps = [step for step in steps if not arguments.names or step.name.startswith(tuple(arguments.names))]
    if arguments.list:
        print(listing(steps))
        return 0
    try:
        reports.mkdir(parents=True)
    except OSError as error:
        parser.error(f"--report: {error}")
    # A shell may have made this program ignore these signals, and its children would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    print(f"seed {seed}; all output goes to {reports}", flush=True)
    return prove(steps, PROJECT / "scripts", reports, seed, root=os.geteuid() == 0)


def prove(steps: Sequence[Step], scripts: Path, reports: Path, seed: int, *, root: bool) -> int:
    """Run the steps until one is stopped by Ctrl-C, print the outcome of each, and write `summary.txt`.

    Return the exit status of `status`. `reports` gets all output; `root` says whether this process is root.
    """
    results: list[Result] = []
    for number, step in enumerate(steps, 1):
        progress = Progress(f"{number} of {len(steps)}", step)
        result = run(step, scripts, reports, progress, root=root)
        progress.clear()
        print(f"{step.name}: {result.ending}  {result.last_line}", flush=True)
        results.append(result)
        if result.ending is Ending.STOPPED:
            break
    results += [Result(step, Ending.MISSING) for step in steps[len(results) :]]
    outcomes = table(results)
    (reports / "summary.txt").write_text(f"seed {seed}\n{outcomes}\n")
    print(f"\n{outcomes}")
    if unproved := [result.step.name for result in results if result.ending is not Ending.PASSED]:
        print(f"\nmissing: scripts/prove --seed {seed} {' '.join(unproved)}")
    return status(results)


if __name__ == "__main__":
    sys.exit(main())
