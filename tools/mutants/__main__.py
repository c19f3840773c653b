"""Runs the command line of `scripts/mutants`."""

from __future__ import annotations

import argparse
import difflib
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.detectors import DETECTORS, MOST_RUNS, Bounds
from tools.mutants.mutant import SUITE, Mutant, all_mutants
from tools.mutants.output import Progress, as_json, line, listing, listing_as_json, summary
from tools.mutants.runner import Outcome, passed, run_searches, searches
from tools.mutants.table import PAGE, table
from tools.mutants.worktree import NoCheckout, Worktree, copy_tree, uncommitted

_NAMED = 5


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.runs < 1 or (arguments.longest is not None and arguments.longest <= 0):
        parser.error("--runs and --longest must be positive")
    try:
        mutants = {mutant.name: mutant for mutant in all_mutants()}
        for name in arguments.names:
            if name not in mutants:
                parser.error(_unknown(name, list(mutants)))
        chosen = [mutants[name] for name in arguments.names] or list(mutants.values())
        if arguments.list:
            print(listing_as_json(chosen) if arguments.json else listing(chosen))
            return 0
        if arguments.table:
            print(table(all_mutants()), end="")
            return 0
        by = arguments.by or [SUITE]
        if not arguments.names and not arguments.try_all:
            chosen = [mutant for mutant in chosen if mutant.found_by.keys() & set(by)]
            if not chosen:
                parser.error(f"no patch says that {' or '.join(by)} finds it; --try-all searches for all bugs")
        if not arguments.dirty and (changed := uncommitted()):
            parser.error(_dirty(changed))
    except (ValueError, NoCheckout) as error:
        parser.error(str(error))
    # SIGTERM acts like Ctrl-C: a running search is ended, and the copy is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bounds = Bounds(arguments.runs, arguments.longest)
    try:
        with tempfile.TemporaryDirectory(prefix="tidelog-mutants-", ignore_cleanup_errors=True) as name:
            copy_tree(Path(name))
            worktree = Worktree(Path(name))
            return run(
                worktree, chosen, by, bounds, try_all=arguments.try_all, json=arguments.json, record=arguments.record
            )
    except KeyboardInterrupt:
        print("scripts/mutants: stopped", file=sys.stderr)
        return 130


def run(
    worktree: Worktree,
    chosen: Sequence[Mutant],
    by: Sequence[str] = (SUITE,),
    bounds: Bounds | None = None,
    *,
    try_all: bool = False,
    json: bool = False,
    record: bool = False,
) -> int:
    """Run all searches, print their outcomes, and return 0 if every bug was found, else 1.

    A bug counts as found if at least one detector finds it, and every detector in `by` that its patch names. With
    `record`, the outcomes are written into the patches, and the page of planted bugs is made anew.
    """
    width = max(len(mutant.name) for mutant in chosen)
    progress = Progress(len(searches(chosen, by, try_all=try_all)))
    outcomes: list[Outcome] = []
    try:
        for outcome in run_searches(worktree, chosen, by, bounds or Bounds(), try_all=try_all, follow=progress.follow):
            outcomes.append(outcome)
            progress.clear()
            if not json:
                print(line(outcome, width), flush=True)
            if record and (recorded := outcome.recorded) is not None:
                # Another detector may have changed the patch meanwhile.
                Mutant.read(outcome.mutant.path).record(recorded, outcome.arguments)
    finally:
        progress.clear()
        if record:
            PAGE.write_text(table(all_mutants()))
        if json or outcomes:
            print(as_json(chosen, outcomes) if json else summary(outcomes, len(chosen)), flush=True)
    return 0 if passed(chosen, outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/mutants", description="Plants known bugs and shows that they are found."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="bugs to plant [default: all]")
    parser.add_argument(
        "--by",
        action="append",
        choices=list(DETECTORS),
        help=f"what searches for them; may be repeated [default: {SUITE}]",
    )
    parser.add_argument("--try-all", action="store_true", help="also use detectors that the patches do not name")
    parser.add_argument(
        "--runs", type=int, default=MOST_RUNS, metavar="N", help=f"most seeds for each bug [default: {MOST_RUNS}]"
    )
    parser.add_argument(
        "--longest", type=float, metavar="S", help="most seconds for each bug and detector [default: 600; chaos: 3600]"
    )
    parser.add_argument("--dirty", action="store_true", help="use the tree with its uncommitted changes")
    parser.add_argument("--record", action="store_true", help="write the outcomes into the patches and the table")
    parser.add_argument("--table", action="store_true", help="print what found each bug and how fast, from the patches")
    parser.add_argument("--list", action="store_true", help="list the bugs, and exit")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    return parser


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.removesuffix(".patch").rpartition("/")[2], known, 3)
    advice = f"is it {', '.join(close)}?" if close else "--list shows them"
    return f"there is no bug {name}; {advice}"


def _dirty(changed: list[str]) -> str:
    named = ", ".join(changed[:_NAMED]) + (f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else "")
    return f"uncommitted changes: {named}; with --dirty the bugs are planted into the tree with its changes"


if __name__ == "__main__":
    sys.exit(main())
