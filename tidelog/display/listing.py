"""Define lists and dicts that a notebook shows as tables, and that are ordinary lists and dicts otherwise.

An object with several rows of its own has a method `_rows_`, which yields the cells of each row by their headings.
"""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ShownAsTable:
    """A result that a notebook shows as a table of its rows (`rows_of`)."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # Only notebooks need these modules.
        from tidelog.display.html_table import html_table
        from tidelog.display.rows import rows_of

        return html_table(rows_of(self))


class Listing(ShownAsTable, list[V]):
    """A list that a notebook shows as a table, with one row for each entry."""

    __slots__ = ()


class Table(ShownAsTable, dict[K, V]):
    """A dict that a notebook shows as a table, with one row for each entry, or for each entry of its value.

    key     the heading of keys that have no fields of their own
    value   the heading of values that have no fields of their own
    """

    __slots__ = ()
    key = "key"
    value = "value"


class Errors(Table[K, V]):
    """A table of errors; None: there is none."""

    __slots__ = ()
    value = "error"


class ByBroker(Table[int, V]):
    """A table whose keys are brokers' ids."""

    __slots__ = ()
    key = "broker"


class ByGroup(Table[str, V]):
    """A table whose keys are groups' names."""

    __slots__ = ()
    key = "group"


class ErrorsByGroup(Errors[str, V]):
    """A table of errors whose keys are groups' names."""

    __slots__ = ()
    key = "group"
