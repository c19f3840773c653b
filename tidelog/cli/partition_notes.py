"""Sums up what many partitions have in common, so that a topic of a thousand gets one line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tidelog.cli.table import format_table
from tidelog.quantities import count_of, first_of, format_count

#: A line with more of them would not be read.
_MOST_NUMBERS = 8
#: So many partitions that have the same note are summed up; fewer keep a line of their own.
WORTH_SUMMING_UP = 2


def some_of(numbers: Sequence[int], total: int) -> str:
    """Return which partitions of a topic with so many: partition 3, all 6 partitions, 2 of 6 partitions (0, 4)."""
    if len(numbers) == total > 1:
        return f"all {count_of(total, 'partition')}"
    if len(numbers) == 1:
        return f"partition {numbers[0]}"
    named = first_of(list(map(str, numbers)), _MOST_NUMBERS)
    return f"{format_count(len(numbers))} of {count_of(total, 'partition')} ({named})"


def format_partitions(
    headings: Sequence[str], rows: Mapping[int, Sequence[object]], empty: Collection[int]
) -> Iterator[str]:
    """Yield a table with a row for each partition of a topic, and one line for the empty ones if they are several."""
    left_out = set(empty) if len(empty) >= WORTH_SUMMING_UP else set()
    shown = [row for number, row in rows.items() if number not in left_out]
    if shown:
        yield from format_table(headings, shown)
    if left_out:
        yield empty_ones(sorted(left_out), len(rows))


def empty_ones(numbers: Sequence[int], total: int) -> str:
    """Return the sentence that these partitions are empty."""
    return f"{some_of(numbers, total)} {'is' if len(numbers) == 1 else 'are'} empty"
