"""The command line of `scripts/prove`."""

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
        prog="scripts/prove", description="Runs what CI has no time for, one command after the other."
    )
    parser.add_argument(
        "names", nargs="*", metavar="STEP", help="which, by what their names begin with; all by default"
    )
    parser.add_argument("--list", action="store_true", help="says what steps there are, and how long each takes")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of the chaos that is not always the same [default: from the clock]"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="where all is kept, a new directory [default: proof/ and the time]"
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
    # Also where a shell has had it ignored for us, and so for all that we start.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    print(f"seed {seed}; all is kept in {reports}", flush=True)
    return prove(steps, PROJECT / "scripts", reports, seed, root=os.geteuid() == 0)


def prove(steps: Sequence[Step], scripts: Path, reports: Path, seed: int, *, root: bool) -> int:
    """One after the other, until one is stopped; tells what came of them, there and on the screen."""
    results: list[Result] = []
    for number, step in enumerate(steps, 1):
        progress = Progress(f"{number} of {len(steps)}", step)
        result = run(step, scripts, reports, progress, root=root)
        progress.clear()
        print(f"{step.name}: {result.ending}  {result.said}", flush=True)
        results.append(result)
        if result.ending is Ending.STOPPED:
            break
    results += [Result(step, Ending.MISSING) for step in steps[len(results) :]]
    told = table(results)
    (reports / "summary.txt").write_text(f"seed {seed}\n{told}\n")
    print(f"\n{told}")
    if open_ := [result.step.name for result in results if result.ending is not Ending.PASSED]:
        print(f"\nwhat is missing: scripts/prove --seed {seed} {' '.join(open_)}")
    return status(results)


if __name__ == "__main__":
    sys.exit(main())
