"""The command line of `scripts/mutants`."""

from __future__ import annotations

import argparse
import difflib
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.detectors import FINDERS, MOST_RUNS, Bounds
from tools.mutants.mutant import SUITE, Mutant, all_mutants
from tools.mutants.output import Progress, as_json, line, listing, listing_as_json, summary
from tools.mutants.runner import Outcome, hunt, passed, searches
from tools.mutants.table import PAGE, table
from tools.mutants.worktree import NoCheckout, Trial, copy_tree, uncommitted

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
                parser.error(f"no patch says that {' or '.join(by)} finds it; --try-all has them look for all")
        if not arguments.dirty and (changed := uncommitted()):
            parser.error(_dirty(changed))
    except (ValueError, NoCheckout) as error:
        parser.error(str(error))
    # As Ctrl-C: who is looking for a bug is ended, too, and the copy goes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bounds = Bounds(arguments.runs, arguments.longest)
    try:
        with tempfile.TemporaryDirectory(prefix="tidelog-mutants-", ignore_cleanup_errors=True) as name:
            copy_tree(Path(name))
            trial = Trial(Path(name))
            return run(
                trial, chosen, by, bounds, try_all=arguments.try_all, json=arguments.json, record=arguments.record
            )
    except KeyboardInterrupt:
        print("scripts/mutants: stopped", file=sys.stderr)
        return 130


def run(
    trial: Trial,
    chosen: Sequence[Mutant],
    by: Sequence[str] = (SUITE,),
    bounds: Bounds | None = None,
    *,
    try_all: bool = False,
    json: bool = False,
    record: bool = False,
) -> int:
    """0 where each bug is found by all of `by` that its patch names, and by one at least; else 1. Tells all of it."""
    width = max(len(mutant.name) for mutant in chosen)
    progress = Progress(len(searches(chosen, by, try_all=try_all)))
    outcomes: list[Outcome] = []
    try:
        for outcome in hunt(trial, chosen, by, bounds or Bounds(), try_all=try_all, follow=progress.follow):
            outcomes.append(outcome)
            progress.clear()
            if not json:
                print(line(outcome, width), flush=True)
            if record and (recorded := outcome.recorded) is not None:
                # By another finder it may have been written to meanwhile.
                Mutant.read(outcome.mutant.path).record(recorded, outcome.arguments)
    finally:
        progress.clear()
        if record:
            PAGE.write_text(table(all_mutants()))
        if json or outcomes:
            print(as_json(chosen, outcomes) if json else summary(outcomes, len(chosen)), flush=True)
    return 0 if passed(chosen, outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description="Has bugs found that are planted.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which bugs; all by default")
    parser.add_argument(
        "--by", action="append", choices=list(FINDERS), help=f"who is to find them; may be repeated [default: {SUITE}]"
    )
    parser.add_argument(
        "--try-all", action="store_true", help="has bugs looked for also by whom their patches do not name"
    )
    parser.add_argument(
        "--runs", type=int, default=MOST_RUNS, metavar="N", help=f"seeds for each bug, at most ({MOST_RUNS})"
    )
    parser.add_argument(
        "--longest", type=float, metavar="S", help="seconds for each bug and finder (600; of chaos an hour)"
    )
    parser.add_argument("--dirty", action="store_true", help="takes the tree as it stands, with what is not committed")
    parser.add_argument("--record", action="store_true", help="writes the outcomes into the patches and the table")
    parser.add_argument("--table", action="store_true", help="who found what and how fast, as the patches say it")
    parser.add_argument("--list", action="store_true", help="says what bugs there are")
    parser.add_argument("--json", action="store_true", help="the outcome as JSON")
    return parser


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.removesuffix(".patch").rpartition("/")[2], known, 3)
    advice = f"is it {', '.join(close)}?" if close else "--list shows them"
    return f"no bug is called {name}; {advice}"


def _dirty(changed: list[str]) -> str:
    named = ", ".join(changed[:_NAMED]) + (f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else "")
    return f"not committed: {named}; with --dirty the bugs are planted into the tree as it stands"


if __name__ == "__main__":
    sys.exit(main())
