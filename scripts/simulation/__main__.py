"""The command line of `scripts/simulate`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from simulation.run import JUDGED, Outcome
from simulation.seeds import tell, tell_all
from simulation.shrinking import shrink
from simulation.story import Story

STORIES = Path(__file__).resolve().parents[2] / "tests" / "simulation" / "stories"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate", description="Whole clusters of brokers on virtual time, with faults from a seed."
    )
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="so many of them (100)")
    parser.add_argument("--seed", type=int, help="this one; the first of --seeds (1)")
    parser.add_argument("--seconds", type=float, default=60, help="simulated seconds of each (60)")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at once (2)")
    parser.add_argument("--story", type=Path, metavar="FILE", help="tells this one again")
    parser.add_argument("--trace", action="store_true", help="one line for each event")
    parser.add_argument("--shrink", action="store_true", help="makes what fails short, and keeps it as a test")
    parser.add_argument("--keep-going", action="store_true", help="does not end at the first failure")
    arguments = parser.parse_args()
    if arguments.seconds <= 0 or arguments.seeds < 0 or arguments.jobs < 1:
        parser.error("--seconds, --seeds and --jobs must be above 0")
    try:
        if arguments.story:
            story = Story.from_json(arguments.story.read_text())
            return _tell_one(story, trace=arguments.trace, short=arguments.shrink)
        if arguments.seed is not None and not arguments.seeds:
            story = Story.of_seed(arguments.seed, arguments.seconds)
            return _tell_one(story, trace=arguments.trace, short=arguments.shrink)
        first = 1 if arguments.seed is None else arguments.seed
        seeds = range(first, first + (arguments.seeds or 100))
        return _tell_many(seeds, arguments.seconds, arguments.jobs, arguments.keep_going, short=arguments.shrink)
    except KeyboardInterrupt:
        return 130


def _tell_one(story: Story, *, trace: bool, short: bool) -> int:
    print(story)
    outcome = tell(story, print if trace else None)
    print(f"trace {outcome.digest}: {outcome.messages} messages, {outcome.turns} turns")
    if not outcome.wrong:
        print("  ".join(f"{key} {count}" for key, count in outcome.rows))
        print("nothing went wrong")
        return 0
    _report(outcome)
    if short:
        _shrink(outcome)
    return 1


def _tell_many(seeds: range, seconds: float, jobs: int, keep_going: bool, *, short: bool) -> int:
    begun = time.monotonic()
    failed: list[Outcome] = []
    observations: Counter[str] = Counter()
    for done, outcome in enumerate(tell_all((Story.of_seed(seed, seconds) for seed in seeds), jobs), 1):
        observations.update(dict(outcome.rows))
        if outcome.wrong:
            failed.append(outcome)
            print(f"\r{'':78}\rseed {outcome.story.seed} fails: {outcome.wrong[0]}", flush=True)
            if not keep_going:
                break
        took = time.monotonic() - begun
        rate = f"{done / took * 60:.0f} seeds a minute, {done * seconds / took:.0f} simulated seconds a second"
        print(f"\r{done} of {len(seeds)} seeds, {len(failed)} failed, {rate}", end="", flush=True)
    print()
    for outcome in failed if short else failed[:1]:
        _report(outcome)
        if short:
            _shrink(outcome)
    print("  ".join(f"{key} {observations[key]:,}" for key in JUDGED))
    without = [key for key in JUDGED if not observations[key]]
    if without:
        print(f"without an observation: {', '.join(without)}")
    return 1 if failed else 2 if without else 0


def _report(outcome: Outcome) -> None:
    print(outcome.story)
    for each in outcome.wrong[:10]:
        print(f"WRONG {each}")
    print(f"again: scripts/simulate --seed {outcome.story.seed} --seconds {outcome.story.seconds:g} --trace")


def _shrink(outcome: Outcome) -> None:
    def step(better: Outcome) -> None:
        clients = sum(map(bool, better.story.clients))
        told = f"shrinking: {len(better.story.faults)} faults, {clients} clients, {better.story.seconds:g} s"
        print(f"\r{told:<78}", end="", flush=True)

    short = shrink(outcome, tell, step)
    STORIES.mkdir(parents=True, exist_ok=True)
    path = STORIES / f"seed-{short.story.seed}.json"
    path.write_text(short.story.to_json())
    print(f"\n{short.story}")
    for each in short.wrong[:5]:
        print(f"WRONG {each}")
    print(f"kept as {path}")


if __name__ == "__main__":
    sys.exit(main())
