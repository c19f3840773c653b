"""Make the HTML of a table for a notebook. Every text is escaped, and the number of rows is bounded. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from html import escape
from itertools import islice
from math import isnan

from tidelog.quantities import count_of, format_count
from tidelog.timestamps import format_time

#: A table shows at most this many rows, and a cell this many characters.
MOST_ROWS = 60
MOST_CHARACTERS = 120

#: Columns of points in time, in milliseconds since 1970.
_TIMES = frozenset({"timestamp", "old_time", "new_time"})
_UNKNOWN = "–"
_LEFT = ' style="text-align:left"'
_ON_ONE_LINE = ' style="text-align:left;white-space:nowrap"'


def html_table(rows: Iterable[Mapping[str, object]], *, caption: str = "", most: int = MOST_ROWS) -> str:
    """Return a table with a column for each heading of the shown rows, in the order of their first occurrence.

    rows      the cells of each row by their headings; a cell that a row lacks is empty
    caption   a line above the table
    most      the number of rows that are shown; the last line says how many others there are
    """
    each_one = iter(rows)
    shown = list(islice(each_one, most))
    more = sum(1 for _ in each_one)
    headings = list(dict.fromkeys(heading for row in shown for heading in row))
    of_numbers = {each for each in headings if all(_is_number(row[each]) for row in shown if each in row)}
    head = "".join(f"<th{_aligned(each in of_numbers)}>{escape(each)}</th>" for each in headings)
    rows_of_cells = ("".join(_cell(each, row, each in of_numbers) for each in headings) for row in shown)
    body = "".join(f"<tr>{cells}</tr>" for cells in rows_of_cells)
    if more:
        body += f'<tr><td colspan="{len(headings)}"{_LEFT}>… and {format_count(more)} more</td></tr>'
    if not shown:
        body = f"<tr><td{_LEFT}>no entries</td></tr>"
    above = f"<caption{_ON_ONE_LINE}>{escape(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool | Enum))


def _aligned(to_right: bool) -> str:
    return "" if to_right else _LEFT  # a notebook aligns to the right by default


def _cell(heading: str, row: Mapping[str, object], to_right: bool) -> str:
    if heading not in row:
        return "<td></td>"
    value = row[heading]
    if heading in _TIMES and isinstance(value, int):
        text = format_time(value) if value >= 0 else _UNKNOWN
    else:
        text = cell_text(value)
    cut = _printable(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…")
    return f"<td{_aligned(to_right)}>{escape(cut)}</td>"


def _printable(text: str) -> str:
    """Return the text with escapes for its control characters, which a page would not show."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def cell_text(value: object) -> str:
    """Return a value as the text of a cell.

    None and NaN are "–", and a fraction has three digits. Bytes are decoded as UTF-8, with escapes for other bytes, and
    a memoryview is shown by its length. Entries of a collection are separated by commas.
    """
    match value:
        case None:
            return _UNKNOWN
        case float():
            return _UNKNOWN if isnan(value) else f"{value:,.{0 if value.is_integer() else 3}f}"
        case Enum():
            return value.value if isinstance(value.value, str) else value.name.lower()
        case bytes() | bytearray():
            # A record may have megabytes, of which the cell shows the beginning.
            return value[: MOST_CHARACTERS + 1].decode(errors="backslashreplace")
        case memoryview():
            return count_of(value.nbytes, "byte")
        case BaseException():
            return f"{type(value).__name__}: {value}"
        case Mapping():
            return ", ".join(
                f"{cell_text(key)}: {cell_text(each)}" for key, each in islice(value.items(), MOST_CHARACTERS)
            )
        case tuple() if hasattr(value, "_fields"):
            return str(value)
        case tuple() | list() | set() | frozenset():
            return ", ".join(map(cell_text, islice(value, MOST_CHARACTERS)))
    return str(value)
