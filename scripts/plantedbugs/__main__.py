"""The command line of `scripts/mutants`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from plantedbugs.mutant import Mutant, all_mutants
from plantedbugs.trial import NotApplicable, Trial, copy_tree


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description="Has the tests find bugs that are planted.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which bugs; all by default")
    parser.add_argument("--list", action="store_true", help="says what bugs there are")
    parser.add_argument("--json", action="store_true", help="the outcome as JSON")
    arguments = parser.parse_args()
    mutants = {mutant.name: mutant for mutant in all_mutants()}
    if unknown := [name for name in arguments.names if name not in mutants]:
        parser.error(f"no bug is called {', '.join(unknown)}; --list shows them")
    chosen = [mutants[name] for name in arguments.names] or list(mutants.values())
    if arguments.list:
        show_list(chosen, as_json=arguments.json)
        return 0
    with tempfile.TemporaryDirectory(prefix="tidelog-mutants-") as name:
        copy_tree(Path(name))
        return run(Trial(Path(name)), chosen, as_json=arguments.json)


def show_list(chosen: list[Mutant], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"name": mutant.name, "bug": mutant.bug, "tests": mutant.tests} for mutant in chosen]))
    else:
        width = max(len(mutant.name) for mutant in chosen)
        for mutant in chosen:
            print(f"{mutant.name:<{width}}  {mutant.bug}")


def run(trial: Trial, chosen: list[Mutant], *, as_json: bool) -> int:
    outcomes = []
    width = max(len(mutant.name) for mutant in chosen)
    green = trial.without_bug(test for mutant in chosen for test in mutant.tests)
    if not as_json:
        print(f"{'no bug':<{width}}  {green.seconds:5.1f} s  {green.red or 'green'}", flush=True)
    for mutant in chosen if not green.red else ():
        seconds = 0.0
        try:
            outcome = trial.with_bug(mutant)
            red, seconds = outcome.red, outcome.seconds
            verdict = "found" if red else "NOT FOUND"
        except NotApplicable as complaint:
            red, verdict = str(complaint), "DOES NOT FIT"
        outcomes.append({"name": mutant.name, "bug": mutant.bug, "verdict": verdict, "red": red, "seconds": seconds})
        if not as_json:
            print(f"{mutant.name:<{width}}  {seconds:5.1f} s  {verdict}  {red}", flush=True)
    passed = not green.red and all(outcome["verdict"] == "found" for outcome in outcomes)
    if as_json:
        print(json.dumps({"passed": passed, "without_bug": asdict(green), "mutants": outcomes}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
