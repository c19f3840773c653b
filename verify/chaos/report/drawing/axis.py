"""The time axis of the report."""

from __future__ import annotations

from dataclasses import dataclass

from verify.chaos.report.drawing.markup import Markup, element

_SECOND_NS = 1_000_000_000
#: The approximate number of marks on the visible part of the axis.
_MARKS = 12
#: The zoom factor between two levels of marks.
_CLOSER = 6
LEVELS = 3
#: Runs of at least this length are labelled in minutes, and marks that are further apart than this are at whole
#: minutes.
_MINUTES_FROM_S, _HALF_A_MINUTE_S = 600, 30


@dataclass(frozen=True, slots=True)
class Axis:
    """The axis from `begin` to `end`, in monotonic nanoseconds. `end` must be later."""

    begin: int
    end: int

    def share(self, time: int) -> float:
        """Return the position of a time from 0 to 1. Times outside of the axis are at its ends."""
        return min(max((time - self.begin) / (self.end - self.begin), 0.0), 1.0)

    def percent(self, time: int) -> str:
        """Return the position of a time as a CSS percentage."""
        return f"{100 * self.share(time):.3f}%"

    def place(self, begin: int, end: int) -> str:
        """Return the CSS style of a bar between two times."""
        return f"left:{self.percent(begin)};width:{100 * (self.share(end) - self.share(begin)):.3f}%"

    def seconds(self, time: int) -> str:
        """Return the seconds from the begin of the axis to a time, as text such as "12.34 s"."""
        return f"{(time - self.begin) / _SECOND_NS:,.2f} s"

    def marks(self) -> Markup:
        """Return the labelled marks of all zoom levels. The style sheet shows those of one level."""
        return Markup("".join(self._level(level) for level in range(LEVELS)))

    def _level(self, level: int) -> Markup:
        length = (self.end - self.begin) / _SECOND_NS
        least = length / _CLOSER**level / _MARKS
        step = 60 * _round_step(least / 60) if least > _HALF_A_MINUTE_S else _round_step(least)
        marks = []
        for number in range(int(length / step) + 1):
            after = round(number * step, 6)
            text = f"{after:.10g} s" if length < _MINUTES_FROM_S else _in_minutes(after)
            marks.append(element("i", element("b", text), style=f"left:{100 * after / length:.3f}%"))
        return element("div", *marks, class_="marks", data_level=level)


def _in_minutes(seconds: float) -> str:
    """Format seconds as minutes: 90.5 → 1:30.5."""
    whole, rest = divmod(seconds, 60)
    return f"{whole:.0f}:{rest:02.0f}" if rest.is_integer() else f"{whole:.0f}:{rest:04.1f}"


def _round_step(least: float) -> float:
    """Return the smallest value of 1, 2 or 5 times a power of ten that is at least `least`."""
    power = 1e-6
    while True:
        for digit in (1, 2, 5):
            if digit * power >= least:
                return digit * power
        power *= 10
