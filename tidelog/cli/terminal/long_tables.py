"""Shows tables of any length: a short one as it is, a long one as a summary and its worst rows.

A table of at most `MOST_ROWS` rows is shown in the order of its rows. For a longer one, a command shows how many rows
are in each state, ranges and sums of numbers, and the `WORST_ROWS` worst rows. A line on standard error says how many
rows are left out. `--all` shows all rows, and `--json` always has everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import click

from tidelog.cli.terminal.table import format_table
from tidelog.quantities import count_of, format_count, ranges_of

MOST_ROWS, WORST_ROWS = 50, 20
#: A summary names at most this many numbers and ranges of partitions for each state.
_MOST_RANGES = 5


class Row(NamedTuple):
    """A row of a table, or a line of text as its only cell.

    state    what the row counts as in the summary, such as "without a leader"
    weight   the row with the greatest weight is the worst one of its state
    number   the partition, which the summary names; None if the numbers of several topics would be mixed
    """

    cells: Sequence[object]
    state: str = ""
    weight: float = 0
    number: int | None = None


class Kind(NamedTuple):
    """A kind of table: its columns, and what its rows are counted as.

    headings   the headings of the columns; () if each row is a line of text
    states     the states of its rows, the worst one first; the rows of ("",) are not counted by state
    noun       what a row describes
    ranges     the headings of the columns whose smallest and largest numbers are in the summary
    sums       the headings of the columns whose sums are in the summary as well
    """

    headings: tuple[str, ...]
    states: tuple[str, ...] = ("",)
    noun: str = "partition"
    ranges: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()


def show_rows(
    kind: Kind, rows: Sequence[Row], *, shows_all: bool, whole: str = "--all shows them", err: bool = False
) -> None:
    """Print the rows, or the summary and the worst rows of a long table unless `shows_all` is given.

    whole   the clause that says how to see the rows that were left out
    err     whether all lines go to standard error
    """
    shown = rows
    if is_long := len(rows) > MOST_ROWS and not shows_all:
        for line in _summary(kind, rows):
            click.echo(line, err=err)
        severity = {state: number for number, state in enumerate(kind.states)}
        shown = sorted(rows, key=lambda row: (severity[row.state], -row.weight))[:WORST_ROWS]
    cells = [row.cells for row in shown]
    for line in format_table(kind.headings, cells) if kind.headings else (str(text) for (text,) in cells):
        click.echo(line, err=err)
    if is_long:
        left = len(rows) - len(shown)
        click.echo(f"{format_count(left)} of {count_of(len(rows), kind.noun)} are not shown: {whole}", err=True)


def _summary(kind: Kind, rows: Sequence[Row]) -> Iterator[str]:
    if kind.states != ("",):
        by_state = {state: [row for row in rows if row.state == state] for state in kind.states}
        present = {state: mine for state, mine in by_state.items() if mine}
        if len(present) == 1:
            yield f"{count_of(len(rows), kind.noun)}, all {next(iter(present))}"
        else:
            counts = ", ".join(f"{format_count(len(mine))} {state}{_where(mine)}" for state, mine in present.items())
            yield f"{count_of(len(rows), kind.noun)}: {counts}"
    measured = [text for heading in (*kind.ranges, *kind.sums) if (text := _range(kind, heading, rows))]
    if measured:
        yield "; ".join(measured)


def _where(rows: Iterable[Row]) -> str:
    numbers = sorted(row.number for row in rows if row.number is not None)
    return f" ({ranges_of(numbers, _MOST_RANGES)})" if numbers else ""


def _range(kind: Kind, heading: str, rows: Iterable[Row]) -> str:
    """Return the smallest and the largest number of a column, and its sum if the kind asks for it; "" without one."""
    column = kind.headings.index(heading)
    numbers = [cell for row in rows if isinstance(cell := row.cells[column], int | float)]
    if not numbers:
        return ""
    least, most = min(numbers), max(numbers)
    text = f"{heading} {least:,}" if least == most else f"{heading} {least:,}–{most:,}"
    return f"{text}, {round(sum(numbers), 1):,} in all" if heading in kind.sums else text
