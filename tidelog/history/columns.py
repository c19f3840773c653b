"""Define the columns of a history: one 64-bit integer per operation; and the ids of records.

An id identifies a record for ever: `producer << 40 | sequence`. A record whose payload is damaged has the id −1.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

Column: TypeAlias = Sequence[int]

#: The id of a record whose payload does not decode.
DAMAGED: Final = -1
#: The bits of an id that hold the sequence.
SEQUENCE_BITS: Final = 40


def column(value: Any) -> array[int]:
    """Return the list as an array of signed 64-bit integers; TypeError or OverflowError if it is no list of these."""
    if type(value) is not list:
        raise TypeError("the column is not a list")
    return array("q", value)


def consecutive(offsets: Column) -> Column:
    """Return a range with the same offsets if each is one more than the one before, else the argument itself."""
    if not offsets or isinstance(offsets, range):
        return offsets
    first, count = offsets[0], len(offsets)
    if offsets[-1] != first + count - 1:
        return offsets
    run = range(first, first + count)
    return run if as_array(run) == offsets or list(run) == offsets else offsets


def as_array(values: Column) -> array[int]:
    """Return the same values as an array, via a list, because an array from a range takes 2.5 times as long."""
    return values if isinstance(values, array) else array("q", list(values))
