"""Define the time window of a scan, and parse the bounds that a user gives. Pure, without numpy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tidelog import arguments
from tidelog.errors import ArgumentValueError
from tidelog.time_parsing import parse_time
from tidelog.timestamps import LARGEST_TIMESTAMP_MS, Timestamp, format_time, to_target_ms, warn_of_seconds

#: Default of the allowed lateness. It is longer than the two minutes for which a producer tries to deliver a record,
#: and than the usual difference between clocks.
DEFAULT_LATENESS = timedelta(minutes=5)

#: A point in time as a user gives it: ms since 1970, an aware datetime, a timedelta (so long ago), or a text of
#: TIME_FORMS, with or without "@".
TimeBound = Timestamp | timedelta | str


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The times [since_ms, until_ms), both ms since 1970; None: unbounded on this side.

    lateness_ms   how much later than the window a record must be to end the reading; None: no record ends it

    A window that is bounded on a side leaves out records without a timestamp.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    lateness_ms: int | None = None

    @classmethod
    def of(
        cls, since: TimeBound | None, until: TimeBound | None, lateness: timedelta | int | None, now_ms: int
    ) -> TimeWindow:
        """Return the window of a user's arguments; `now_ms` is the present time on the wall clock.

        Raises ArgumentTypeError and ArgumentValueError, which name the argument: a naive datetime, a text that is no
        time, a negative time or duration, or a window that ends before it begins.
        """
        window = cls(to_ms("since", since, now_ms), to_ms("until", until, now_ms), _lateness_ms(lateness))
        begin, end = window.since_ms, window.until_ms
        if begin is not None and end is not None and begin > end:
            raise ArgumentValueError(f"since ({format_time(begin)}) must not be after until ({format_time(end)})")
        return window

    @property
    def is_whole(self) -> bool:
        """Return whether the window has all records, also those without a timestamp."""
        return self.since_ms is None and self.until_ms is None

    @property
    def ends_from_ms(self) -> int | None:
        """The smallest timestamp of a record that counts towards the end of the reading; None: no record counts."""
        if self.until_ms is None or self.lateness_ms is None:
            return None
        return min(self.until_ms + self.lateness_ms, LARGEST_TIMESTAMP_MS)


def to_ms(name: str, value: TimeBound | None, now_ms: int) -> int | None:
    """Return a bound as ms since 1970, a fraction of a millisecond rounded up; None stays None.

    Raises ArgumentTypeError and ArgumentValueError, which begin with `name`. An int that looks like seconds gets a
    SecondsForMillisecondsWarning.
    """
    if value is None:
        return None
    if isinstance(value, timedelta):
        time_ms = now_ms - _duration_ms(name, value)
        if time_ms < 0:
            raise ArgumentValueError(f"{name}: {value} ago is before 1970")
        return time_ms
    if isinstance(value, str):
        try:
            return parse_time(value.removeprefix("@"), now_ms)
        except ValueError as error:
            raise ArgumentValueError(f"{name}: {error}") from None
    time_ms = to_target_ms(value, name)
    warn_of_seconds(name, time_ms)
    return time_ms


def _lateness_ms(value: timedelta | int | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, timedelta):
        return _duration_ms("allowed_lateness", value)
    return arguments.whole("allowed_lateness", value, 0)


def _duration_ms(name: str, value: timedelta) -> int:
    if value < timedelta():
        raise ArgumentValueError(f"{name} must not be negative, not {value}")
    return -(-value // timedelta(milliseconds=1))
