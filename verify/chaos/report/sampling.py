"""Reduce the data of a run, so that long runs are drawn with no more marks than short ones."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import TypeVar

from verify.chaos.report.facts import Level, Moments, Span

L = TypeVar("L", bound=Level | Span)


class Slices:
    """The interval [begin, end) in `count` parts of equal length. The object maps a time to the index of its part.
    Times outside belong to the first or last part.
    """

    def __init__(self, begin: int, end: int, count: int) -> None:
        self.begin, self.count = begin, count
        self.width = max(1, -(-(end - begin) // count))

    def __call__(self, time: int) -> int:
        return min(max((time - self.begin) // self.width, 0), self.count - 1)

    def middle(self, index: int) -> int:
        """Return the time in the middle of a part."""
        return self.begin + index * self.width + self.width // 2


def counted(times: Sequence[int], slices: Slices) -> list[int]:
    """Return how many of the times are in each part."""
    counts = [0] * slices.count
    for time in times:
        counts[slices(time)] += 1
    return counts


def summed(moments: Moments, slices: Slices) -> list[int]:
    """Return the sum of the values in each part."""
    sums = [0] * slices.count
    for time, value in zip(moments.times, moments.values, strict=True):
        sums[slices(time)] += value
    return sums


def percentiles(moments: Moments, slices: Slices, shares: Sequence[float]) -> list[list[int] | None]:
    """Return for each part the values below which these shares of its values lie (1.0: the greatest), or None for a
    part without values.

    `moments` must be in order of time.
    """
    gathered: list[list[int] | None] = [None] * slices.count
    pairs = zip(moments.times, moments.values, strict=True)
    for index, group in groupby(pairs, key=lambda pair: slices(pair[0])):
        values = sorted(value for _, value in group)
        gathered[index] = [values[min(int(share * len(values)), len(values) - 1)] for share in shares]
    return gathered


def thinned(moments: Moments, slices: Slices) -> list[tuple[int, int]]:
    """Return the first, lowest, highest and last (time, value) of each part, in order of time. A line through them
    looks like one through all values.
    """
    kept = []
    pairs = zip(moments.times, moments.values, strict=True)
    for _, group in groupby(pairs, key=lambda pair: slices(pair[0])):
        members = list(group)
        lowest = min(range(len(members)), key=lambda index: members[index][1])
        highest = max(range(len(members)), key=lambda index: members[index][1])
        kept += [members[index] for index in sorted({0, lowest, highest, len(members) - 1})]
    return kept


def thinned_spans(spans: Sequence[Span], slices: Slices) -> list[Span]:
    """Return at most two spans per part, by their begins. The last one is preceded by the only other one, or by a
    combined one without a broker.
    """

    def several(others: Sequence[Span]) -> Span:
        return Span(others[0].begin, others[-1].end, f"several: {others[0].what} … {others[-1].what}")

    return _thinned(spans, slices, several)


def thinned_levels(levels: Sequence[Level], slices: Slices) -> list[Level]:
    """Return at most two levels per part, by their begins. The last one is preceded by the only other one, or by one
    with the lowest height of the others.
    """

    def several(others: Sequence[Level]) -> Level:
        lowest = min(others, key=lambda level: level.height)
        description = f"{len(others)} changes, the lowest {lowest.what}"
        return Level(others[0].begin, others[-1].end, lowest.height, description)

    return _thinned(levels, slices, several)


def _thinned(drawn: Sequence[L], slices: Slices, several: Callable[[Sequence[L]], L]) -> list[L]:
    """Return for each part the last element, preceded by the only other one or by `several` of the others."""
    kept: list[L] = []
    for _, group in groupby(drawn, key=lambda each: slices(each.begin)):
        *others, last = group
        if len(others) > 1:
            others = [several(others)]
        kept += [*others, last]
    return kept


def gaps(times: array[int], begin: int, end: int, longest: int) -> list[tuple[int, int]]:
    """Return the intervals of [begin, end) longer than `longest` without a time, including those at both ends. `times`
    must be in order.
    """
    inside = times[bisect_left(times, begin) : bisect_left(times, end)]
    marks = [begin, *inside, end]
    return [(earlier, later) for earlier, later in pairwise(marks) if later - earlier > longest]
