"""As much of a run as can be seen: long ones are drawn with no more marks than short ones."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import TypeVar

from verify.chaos.report.facts import Level, Moments, Span

L = TypeVar("L", bound=Level | Span)


class Slices:
    """[begin, end) in `count` parts of one length; what lies outside belongs to the first or last."""

    def __init__(self, begin: int, end: int, count: int) -> None:
        self.begin, self.count = begin, count
        self.width = max(1, -(-(end - begin) // count))

    def __call__(self, time: int) -> int:
        return min(max((time - self.begin) // self.width, 0), self.count - 1)

    def middle(self, index: int) -> int:
        """The moment in the middle of a part."""
        return self.begin + index * self.width + self.width // 2


def counted(times: Sequence[int], slices: Slices) -> list[int]:
    """How many of the times lie in each part."""
    counts = [0] * slices.count
    for time in times:
        counts[slices(time)] += 1
    return counts


def summed(moments: Moments, slices: Slices) -> list[int]:
    """The sum of the values in each part."""
    sums = [0] * slices.count
    for time, value in zip(moments.times, moments.values, strict=True):
        sums[slices(time)] += value
    return sums


def percentiles(moments: Moments, slices: Slices, shares: Sequence[float]) -> list[list[int] | None]:
    """For each part the values below which these shares of its own lie; None where there is none."""
    gathered: list[list[int] | None] = [None] * slices.count
    pairs = zip(moments.times, moments.values, strict=True)
    for index, group in groupby(pairs, key=lambda pair: slices(pair[0])):
        values = sorted(value for _, value in group)
        gathered[index] = [values[min(int(share * len(values)), len(values) - 1)] for share in shares]
    return gathered


def thinned(moments: Moments, slices: Slices) -> list[tuple[int, int]]:
    """Of each part the first, lowest, highest and last value: a line through them looks as one through all."""
    kept = []
    pairs = zip(moments.times, moments.values, strict=True)
    for _, group in groupby(pairs, key=lambda pair: slices(pair[0])):
        members = list(group)
        lowest = min(range(len(members)), key=lambda index: members[index][1])
        highest = max(range(len(members)), key=lambda index: members[index][1])
        kept += [members[index] for index in sorted({0, lowest, highest, len(members) - 1})]
    return kept


def thinned_spans(spans: Sequence[Span], slices: Slices) -> list[Span]:
    """Spans of which at most two begin in each part: the last, and one of no broker's for those before it."""

    def several(others: Sequence[Span]) -> Span:
        return Span(others[0].begin, others[-1].end, f"several: {others[0].what} … {others[-1].what}")

    return _thinned(spans, slices, several)


def thinned_levels(levels: Sequence[Level], slices: Slices) -> list[Level]:
    """Levels of which at most two begin in each part: the last, and one as low as the lowest of those before it."""

    def several(others: Sequence[Level]) -> Level:
        lowest = min(others, key=lambda level: level.height)
        said = f"{len(others)} changes, the lowest {lowest.what}"
        return Level(others[0].begin, others[-1].end, lowest.height, said)

    return _thinned(levels, slices, several)


def _thinned(drawn: Sequence[L], slices: Slices, several: Callable[[Sequence[L]], L]) -> list[L]:
    """In each part the last, and before it the only other one, or `several` of the others."""
    kept: list[L] = []
    for _, group in groupby(drawn, key=lambda each: slices(each.begin)):
        *others, last = group
        if len(others) > 1:
            others = [several(others)]
        kept += [*others, last]
    return kept


def gaps(times: array[int], begin: int, end: int, longest: int) -> list[tuple[int, int]]:
    """Where no time lies for longer than `longest`; at both ends of [begin, end) too."""
    inside = times[bisect_left(times, begin) : bisect_left(times, end)]
    marks = [begin, *inside, end]
    return [(earlier, later) for earlier, later in pairwise(marks) if later - earlier > longest]
