"""The command line of `scripts/mutants`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from plantedbugs.finders import FINDERS, Finding
from plantedbugs.mutant import SUITE, Mutant, all_mutants
from plantedbugs.trial import NotApplicable, Trial, copy_tree


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description="Has bugs found that are planted.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which bugs; all by default")
    parser.add_argument(
        "--by", action="append", choices=list(FINDERS), help=f"who is to find them; may be repeated [default: {SUITE}]"
    )
    parser.add_argument(
        "--try-all", action="store_true", help="has bugs looked for also by whom their patches do not name"
    )
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
        return run(
            Trial(Path(name)), chosen, arguments.by or [SUITE], try_all=arguments.try_all, as_json=arguments.json
        )


def show_list(chosen: list[Mutant], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_told(mutant) | {"found_by": dict(mutant.found_by)} for mutant in chosen]))
    else:
        width = max(len(mutant.name) for mutant in chosen)
        for mutant in chosen:
            print(f"{mutant.name:<{width}}  {mutant.row:<3}  {', '.join(mutant.found_by)}: {mutant.bug}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one finder said to one bug. `verdict`: found, NOT FOUND, DOES NOT FIT, or RED WITHOUT IT."""

    mutant: Mutant
    by: str
    verdict: str
    finding: Finding


def run(
    trial: Trial, chosen: Sequence[Mutant], by: Sequence[str] = (SUITE,), *, try_all: bool = False, as_json: bool
) -> int:
    """0 where each bug is found by all of `by` that its patch names, and by one at least.

    With `try_all` the others of `by` may look for it, too: where one finds it, the patch should name him.
    """
    width = max(len(mutant.name) for mutant in chosen)
    outcomes = []
    green = Finding("", 0, 0.0)
    if SUITE in by:
        green = FINDERS[SUITE].look(trial.tree, sorted({test for mutant in chosen for test in mutant.tests}))
        if not as_json:
            print(f"{'no bug':<{width}}       {SUITE:<9}  {green.seconds:6.1f} s  {green.said or 'green'}", flush=True)
    for outcome in _outcomes(trial, chosen, by, try_all=try_all) if not green.said else ():
        outcomes.append(outcome)
        if not as_json:
            print(_line(outcome, width), flush=True)
    found = {each.mutant.name for each in outcomes if each.verdict == "found"}
    missed = [each for each in outcomes if each.verdict != "found" and each.by in each.mutant.found_by]
    passed = not green.said and not missed and all(mutant.name in found for mutant in chosen)
    if as_json:
        told = [
            _told(each.mutant) | {"by": each.by, "verdict": each.verdict} | asdict(each.finding) for each in outcomes
        ]
        print(json.dumps({"passed": passed, "without_bug": asdict(green), "mutants": told}))
    else:
        _summarize(outcomes, chosen)
    return 0 if passed else 1


def _outcomes(trial: Trial, chosen: Sequence[Mutant], by: Sequence[str], *, try_all: bool) -> Iterator[Outcome]:
    for mutant in chosen:
        for name in by:
            if try_all or name in mutant.found_by:
                yield _tried(trial, mutant, name)


def _tried(trial: Trial, mutant: Mutant, by: str) -> Outcome:
    finder, arguments = FINDERS[by], mutant.found_by.get(by, ())
    try:
        with trial.planted(mutant):
            finding = finder.look(trial.tree, arguments)
    except NotApplicable as complaint:
        return Outcome(mutant, by, "DOES NOT FIT", Finding(str(complaint), 0, 0.0))
    if not finding.said:
        return Outcome(mutant, by, "NOT FOUND", finding)
    # What a seed finds must be the bug's doing.
    if finding.seed is not None and (without := finder.look(trial.tree, arguments, finding.seed)).said:
        return Outcome(mutant, by, "RED WITHOUT IT", without)
    return Outcome(mutant, by, "found", finding)


def _told(mutant: Mutant) -> dict[str, object]:
    return {"name": mutant.name, "row": mutant.row, "bug": mutant.bug}


def _line(outcome: Outcome, width: int) -> str:
    mutant, finding = outcome.mutant, outcome.finding
    runs = f"{finding.runs:>3} run{'s' if finding.runs != 1 else ' '}"
    return (
        f"{mutant.name:<{width}}  {mutant.row:<3}  {outcome.by:<9}  {finding.seconds:6.1f} s  {runs}"
        f"  {outcome.verdict}  {finding.said}"
    )


def _summarize(outcomes: Sequence[Outcome], chosen: Sequence[Mutant]) -> None:
    by_finder: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_finder[outcome.by].append(outcome)
    for name, theirs in by_finder.items():
        found = sum(outcome.verdict == "found" for outcome in theirs)
        seconds = sum(outcome.finding.seconds for outcome in theirs)
        most = max(outcome.finding.runs for outcome in theirs)
        print(f"{name}: {found} of {len(chosen)} bugs found, in at most {most} runs each, {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
