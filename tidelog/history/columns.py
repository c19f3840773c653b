"""Columns of a history: ints of 64 bits, one place an operation; and the ids that stand in them.

An id names a record for ever: `producer << 40 | sequence`. A record whose payload is damaged has the id −1.
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
    """TypeError, OverflowError where it is no list of ints of 64 bits."""
    if type(value) is not list:
        raise TypeError("a list is wanted")
    return array("q", value)


def consecutive(offsets: Column) -> Column:
    """The same offsets, as a range where they follow one another."""
    if not offsets or isinstance(offsets, range):
        return offsets
    first, count = offsets[0], len(offsets)
    if offsets[-1] != first + count - 1:
        return offsets
    run = range(first, first + count)
    return run if as_array(run) == offsets or list(run) == offsets else offsets


def as_array(values: Column) -> array[int]:
    """The same as an array; by way of a list, since one made of a range itself takes two and a half times as long."""
    return values if isinstance(values, array) else array("q", list(values))
