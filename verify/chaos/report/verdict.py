"""Summarize the verdict in one sentence with its reasons, in the words of the terminal output."""

from __future__ import annotations

from collections.abc import Sequence

from verify.chaos.results.verdict import RowCount, shortcomings
from verify.checker.verdict import Verdict


def headline(
    verdict: Verdict | None, counts: Sequence[RowCount], troubles: Sequence[str] = ()
) -> tuple[bool | None, str, list[str]]:
    """Return whether the run passed, one sentence, and the reasons against it: violations, then shortcomings.

    None instead of a bool: no violation was found, but something was not proved. `troubles` are the failures of the run
    itself.
    """
    hits = f"{_count(sum(count.bit for count in counts), 'fault')} hit the cluster"
    broken = verdict.violated if verdict is not None else ()
    against = [f"{row.key} is broken: {_count(row.violations, 'violation')}" for row in broken]
    against += shortcomings(counts, verdict, troubles)
    if broken:
        promises = "a promise was" if len(broken) == 1 else f"{len(broken)} promises were"
        return False, f"Failed: {promises} broken ({hits}).", against
    if verdict is None:
        return None, "There is no verdict: the run ended before its histories were checked.", against
    if against:
        return None, f"Not proved: {hits}, no promise was seen broken, but part of the request was not proved.", against
    return True, f"Passed: {hits}, and every promise was kept.", []


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
