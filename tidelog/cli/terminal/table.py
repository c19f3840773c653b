"""Formats plain tables: columns are separated by spaces, numbers are aligned to the right, and `awk` can split rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Quantity(str):
    """A number with its unit, as a text without spaces (`12MiB`), which a table aligns to the right."""

    __slots__ = ()

    def __new__(cls, text: str) -> Quantity:
        return super().__new__(cls, text.replace(" ", ""))


def format_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of the table, of which the first has the headings in upper case.

    None is shown as `-`. A column that has only integers, quantities and None is aligned to the right. Unprintable
    characters in cells are escaped.
    """
    cells = [["-" if cell is None else _shown(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    right = [all(isinstance(cell, int | Quantity | None) for cell in column) for column in zip(*rows, strict=True)]
    right = right or [False] * len(headings)
    for line in ([heading.upper() for heading in headings], *cells):
        aligned = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        )
        yield "  ".join(aligned).rstrip()


def _shown(text: str) -> str:
    """Escape unprintable characters, so that a name from the cluster cannot break lines or control the terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
