"""Makes the page of planted bugs, with what found each and how fast, from the patches alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.mutants.mutant import CHAOS, PROJECT, SIMULATOR, SUITE, Mutant

PAGE = PROJECT / "docs" / "decisions" / "planted-bugs.md"

_HEAD = """\
# Planted bugs: what finds each, and how fast

`scripts/mutants --table` makes this page from the patches in `tests/mutants`, into which `scripts/mutants --record`
writes the outcome of each search. Each bug is planted alone. A finding counts only if the same test or seed finds
nothing without the bug. Runs: the seeds from 1 on until the bug was found. The suite runs only the few tests under
`Red:` in the patch, up to the first that fails. Seconds: CPU time for tests and the simulator, wall-clock time for
chaos. A dash: not tried; "not in N": N seeds found nothing.
"""


def table(mutants: Sequence[Mutant]) -> str:
    """Return the whole page of planted bugs, in Markdown."""
    rows = [
        "| bug | | in | the suite: which test | s | the simulator: what | runs | s | chaos |",
        "|-|-|-|-|-:|-|-:|-:|-|",
        *map(_row, sorted(mutants, key=_place)),
    ]
    return "\n".join([_HEAD, *_counts(mutants), "", *rows, ""])


def _counts(mutants: Sequence[Mutant]) -> list[str]:
    listed = sum(bool(mutant.row) for mutant in mutants)
    lines = [f"{len(mutants)} bugs: M1 to M{listed} of the list of faults, and {len(mutants) - listed} others.", ""]
    for finder in (SUITE, SIMULATOR, CHAOS):
        tried = [mutant.recorded[finder] for mutant in mutants if finder in mutant.recorded]
        found = [each for each in tried if each.said]
        if not tried:
            lines.append(f"- {finder}: not tried")
            continue
        most = max((each.runs for each in found), default=0)
        seconds = sorted(each.seconds for each in found)
        median = f", {seconds[len(seconds) // 2]:.1f} s in the median" if seconds else ""
        runs = f" within {most} run{'s' if most != 1 else ''}" if found else ""
        lines.append(f"- {finder}: {len(found)} found of {len(tried)} tried{runs}{median}")
    return lines


def _place(mutant: Mutant) -> tuple[int, str]:
    return int(mutant.row[1:]) if mutant.row else 1_000, mutant.name


def _row(mutant: Mutant) -> str:
    suite, simulator, chaos = (mutant.recorded.get(finder) for finder in (SUITE, SIMULATOR, CHAOS))
    cells = [f"{mutant.bug} (`{mutant.name}`)", mutant.row, ", ".join(f"`{name}`" for name in mutant.files)]
    cells += [f"`{_shortened(suite.said)}`", f"{suite.seconds:.1f}"] if suite else ["–", ""]
    if simulator is None:
        cells += ["named, not timed yet" if SIMULATOR in mutant.found_by else "–", "", ""]
    else:
        cells += [simulator.said, str(simulator.runs), f"{simulator.seconds:.0f}"] if simulator.said else [
            f"not in {simulator.runs}", "", f"{simulator.seconds:.0f}"
        ]  # fmt: skip
    if chaos is None:
        cells += ["–"]
    else:
        cells += [f"{chaos.said}: {chaos.runs} runs, {chaos.seconds:.0f} s" if chaos.said else f"not in {chaos.runs}"]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _shortened(test: str) -> str:
    """Return a test's name without its directories and parameters: `test_a.py::test_b`."""
    file, colons, name = test.partition("::")
    return f"{Path(file).name}{colons}{name.partition('[')[0]}"
