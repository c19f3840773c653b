"""The time axis under which everything of a run stands."""

from __future__ import annotations

from dataclasses import dataclass

from verify.chaos.report.markup import Markup, element

_SECOND_NS = 1_000_000_000
#: About so many marks are on the axis, however far it is zoomed in.
_MARKS = 12
#: Each level of marks is for a view so many times closer than the one before it.
_CLOSER = 6
LEVELS = 3
#: What lasts so long is told in minutes, and where marks are further apart, they are at whole ones.
_MINUTES_FROM_S, _HALF_A_MINUTE_S = 600, 30


@dataclass(frozen=True, slots=True)
class Axis:
    """From `begin` until `end`, nanoseconds."""

    begin: int
    end: int

    def share(self, time: int) -> float:
        """Where a moment lies, from 0 to 1; what is outside lies at an end."""
        return min(max((time - self.begin) / (self.end - self.begin), 0.0), 1.0)

    def percent(self, time: int) -> str:
        """The same for a style."""
        return f"{100 * self.share(time):.3f}%"

    def place(self, begin: int, end: int) -> str:
        """The style of what goes from one moment to another."""
        return f"left:{self.percent(begin)};width:{100 * (self.share(end) - self.share(begin)):.3f}%"

    def seconds(self, time: int) -> str:
        """How long after the begin, for people."""
        return f"{(time - self.begin) / _SECOND_NS:,.2f} s"

    def marks(self) -> Markup:
        """The marks of all levels; the style sheet shows those of one."""
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
    """90.5 → 1:30.5"""
    whole, rest = divmod(seconds, 60)
    return f"{whole:.0f}:{rest:02.0f}" if rest.is_integer() else f"{whole:.0f}:{rest:04.1f}"


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, and not less."""
    power = 1e-6
    while True:
        for digit in (1, 2, 5):
            if digit * power >= least:
                return digit * power
        power *= 10
