"""Shorten the `repr` of values with many entries or many bytes. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from tidelog.quantities import count_of

#: A `repr` shows at most this many characters or bytes of one value, and this many entries of a collection.
MOST_CHARACTERS = 80
MOST_ENTRIES = 5


def short_repr(value: object) -> str:
    """Return the value's `repr`, in which long texts, bytes and collections end with "…" and their length.

    A collection's entries are shortened too. A memoryview is shown by its length only.
    """
    match value:
        case str():
            return _cut(value, "character")
        case bytes():
            return _cut(value, "byte")
        case memoryview():
            return f"<{count_of(value.nbytes, 'byte')}>"
        case tuple() if not hasattr(value, "_fields"):
            end = "," if len(value) == 1 else ""
            return f"({_entries(value, len(value), short_repr)}{end})"
        case list():
            return f"[{_entries(value, len(value), short_repr)}]"
        case Mapping():
            return f"{{{_entries(value.items(), len(value), _item)}}}"
    return repr(value)


def fields_repr(value: object, names: Iterable[str]) -> str:
    """Return `Name(field=…, …)` with these attributes of the value, each as in `short_repr`."""
    return f"{type(value).__qualname__}({', '.join(f'{each}={short_repr(getattr(value, each))}' for each in names)})"


def _cut(value: str | bytes, unit: str) -> str:
    if len(value) <= MOST_CHARACTERS:
        return repr(value)
    return f"{value[:MOST_CHARACTERS]!r}… ({count_of(len(value), unit)})"


def _entries(entries: Iterable[Any], number: int, shown: Callable[[Any], str]) -> str:
    more = [f"… ({number} in all)"] if number > MOST_ENTRIES else []
    return ", ".join([*map(shown, islice(entries, MOST_ENTRIES)), *more])


def _item(item: tuple[object, object]) -> str:
    return f"{short_repr(item[0])}: {short_repr(item[1])}"
