"""Counts lines by minute in little memory, for logs of any length."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

_MINUTES = 60
_EMPTY_HOUR = array("q", [0] * _MINUTES)


class MinuteCounts(Mapping[int, int]):
    """Maps minutes since 1970 to numbers of lines, without minutes that have none.

    A minute takes 8 bytes in the array of its hour, a tenth of a dict's entry. Memory grows with the hours that occur,
    half a kilobyte each. A year of one source therefore takes at most 6 MB for any number of lines.
    """

    def __init__(self) -> None:
        self._hours: dict[int, array[int]] = {}

    def add(self, minute: int, lines: int = 1) -> None:
        hour, within = divmod(minute, _MINUTES)
        by_minute = self._hours.get(hour)
        if by_minute is None:
            by_minute = self._hours[hour] = _EMPTY_HOUR[:]
        by_minute[within] += lines

    def __getitem__(self, minute: int) -> int:
        hour, within = divmod(minute, _MINUTES)
        if hour in self._hours and (lines := self._hours[hour][within]):
            return lines
        raise KeyError(minute)

    def __iter__(self) -> Iterator[int]:
        for hour, by_minute in self._hours.items():
            for within, lines in enumerate(by_minute):
                if lines:
                    yield hour * _MINUTES + within

    def __len__(self) -> int:
        return sum(1 for _ in self)
