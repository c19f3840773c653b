"""Sums up partitions of a topic in one line, so that the output for a thousand partitions stays short."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import click

from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.quantities import count_of, format_count, ranges_of

#: A line names at most this many partitions, or ranges of partitions.
_MOST_NUMBERS = 8
#: This many partitions with the same note, or more, share a line.
SUMMED_UP_FROM = 2


def partitions_text(numbers: Sequence[int], total: int) -> str:
    """Return these of a topic's `total` partitions as text: partition 3, all 6 partitions, 2 of 6 partitions (0, 4).

    At most eight numbers are named, or ranges of more numbers.
    """
    if len(numbers) == total > 1:
        return f"all {count_of(total, 'partition')}"
    if len(numbers) == 1:
        return f"partition {numbers[0]}"
    named = ranges_of(sorted(numbers), _MOST_NUMBERS)
    return f"{format_count(len(numbers))} of {count_of(total, 'partition')} ({named})"


def show_partitions(kind: Kind, rows: Mapping[int, Row], empty: Collection[int], *, shows_all: bool) -> None:
    """Print a table with a row for each partition of a topic; empty partitions share one line below.

    `rows` has the rows by partition number, and `empty` the numbers of the empty partitions. A single empty partition
    has a row as the others, and with `shows_all` each has one. If all rows are left out, there is no table.
    """
    left_out = set(empty) if len(empty) >= SUMMED_UP_FROM and not shows_all else set()
    shown = [row for number, row in rows.items() if number not in left_out]
    if shown:
        show_rows(kind, shown, shows_all=shows_all)
    if left_out:
        click.echo(empty_text(sorted(left_out), len(rows)))


def empty_text(numbers: Sequence[int], total: int) -> str:
    """Return the clause that these of a topic's `total` partitions are empty, without a full stop."""
    return f"{partitions_text(numbers, total)} {'is' if len(numbers) == 1 else 'are'} empty"
