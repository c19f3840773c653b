"""Look up the running maximum of values over time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate, islice


class RunningMax:
    """The running maximum. Times are of one clock, in any unit.

    Values may be added in any order. If they are not in order of time, the next query sorts them.
    """

    def __init__(self, events: Iterable[tuple[float, int]] = ()) -> None:
        self._times: list[float] = []
        self._greatest: list[int] = []
        #: The values added since the last query.
        self._new_times: list[float] = []
        self._new_values: list[int] = []
        for moment, value in events:
            self.add(moment, value)

    def add(self, moment: float, value: int) -> None:
        """Add the value at that time."""
        self._new_times.append(moment)
        self._new_values.append(value)

    def extend(self, moments: Iterable[float], values: Iterable[int]) -> None:
        """Add values. Both sequences have the same length."""
        self._new_times.extend(moments)
        self._new_values.extend(values)

    def before(self, moment: float) -> int | None:
        """Return the maximum of the values whose times are before `moment`, or None if there are none."""
        if self._new_times:
            self._settle()
        count = bisect_left(self._times, moment)
        return self._greatest[count - 1] if count else None

    def until(self, moment: float) -> int | None:
        """Return the maximum of the values whose times are at or before `moment`, or None if there are none."""
        if self._new_times:
            self._settle()
        count = bisect_right(self._times, moment)
        return self._greatest[count - 1] if count else None

    def settled(self) -> tuple[list[float], list[int]]:
        """Return all times in order with the maximum up to each. The caller must not change the lists."""
        if self._new_times:
            self._settle()
        return self._times, self._greatest

    def _settle(self) -> None:
        times, values = self._new_times, self._new_values
        self._new_times, self._new_values = [], []
        last = self._times[-1] if self._times else times[0]
        if len(times) == 1 and times[0] >= last:
            self._times.append(times[0])
            self._greatest.append(max(values[0], self._greatest[-1]) if self._greatest else values[0])
            return
        if self._times and min(times) < last:
            # The running maxima replace the values that they came from, because later maxima stay the same.
            times, values = self._times + times, self._greatest + values
            self._times, self._greatest = [], []
        order = sorted(range(len(times)), key=times.__getitem__)
        self._times += [times[place] for place in order]
        least = self._greatest[-1:]
        greatest = accumulate([*least, *(values[place] for place in order)], max)
        self._greatest += islice(greatest, len(least), None)
