"""Turn results into the rows of a table: fields become columns. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from tidelog.display.listing import Table

#: The cells of one row by their headings.
Row = dict[str, object]


def rows_of(value: object) -> Iterator[Row]:
    """Yield the rows of a result.

    A value with a method `_rows_` gives its own rows. A mapping gives the rows of its values, with the columns of their
    keys in front. Another collection gives the rows of its entries, an object with fields one row.
    """
    if hasattr(value, "_rows_"):
        yield from value._rows_()
    elif isinstance(value, Mapping):
        key_heading, value_heading = (value.key, value.value) if isinstance(value, Table) else ("key", "value")
        for key, each in value.items():
            keys = _fields(key) or {key_heading: key}
            for row in _rows_of_entry(each, value_heading):
                yield keys | row
    elif _fields(value) is None and isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray):
        for each in value:
            yield from _rows_of_entry(each, "value")
    else:
        yield from _rows_of_entry(value, "value")


def _rows_of_entry(entry: object, heading: str) -> Iterator[Row]:
    if isinstance(entry, BaseException):
        yield {"error": entry}
    elif entry is None:
        yield {"error": None} if heading == "error" else {}
    elif (fields := _fields(entry)) is not None and not hasattr(entry, "_rows_"):
        yield fields
    elif isinstance(entry, Mapping | list | tuple | set | frozenset) or hasattr(entry, "_rows_"):
        yield from rows_of(entry)
    else:
        yield {heading: entry}


def _fields(value: object) -> Row | None:
    """Return the fields of a named tuple or a dataclass by their names; None for other values."""
    names = getattr(value, "_fields", None)
    if isinstance(value, tuple) and names is not None:
        return dict(zip(names, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return None
