"""Parse `auto_offset_reset`: where a reader starts if it has no position, or an invalid one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.time_parsing import parse_time
from tidelog.timestamps import format_time, to_target_ms, warn_of_seconds

#: The prefix of KIP-1106. As in Java, durations have units up to days, because a month has no fixed length.
BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?\Z",
    re.ASCII | re.IGNORECASE,
)
_ALLOWED = (
    "'earliest', 'latest', 'none', a duration (a timedelta, or such as 'by_duration:PT1H') or a time (an aware "
    "datetime, or such as '@2026-11-21T09:30:00Z')"
)

ResetSetting = str | timedelta | datetime


@dataclass(frozen=True, slots=True)
class ResetStrategy:
    """The validated setting.

    name       the text for log messages
    at_ms      the timestamp to look up (−2 the earliest, −1 the latest offset); None for "none" and for a duration
    ago_ms     for a duration: how long before the look-up that timestamp lies
    """

    name: str
    at_ms: int | None = None
    ago_ms: int | None = None

    def target_ms(self, now_ms: int) -> int | None:
        """Return the timestamp to look up now (−2 the earliest, −1 the latest offset), given the wall clock's time.

        None for "none": the reader gets the error.
        """
        return self.at_ms if self.ago_ms is None else max(0, now_ms - self.ago_ms)


_WORDS = {
    "earliest": ResetStrategy("earliest", EARLIEST_TIMESTAMP),
    "latest": ResetStrategy("latest", LATEST_TIMESTAMP),
    "none": ResetStrategy("none"),
}


def parse_strategy(setting: ResetSetting, now_ms: int) -> ResetStrategy:
    """Return the strategy; ValueError says what is wrong with the setting.

    `now_ms` resolves texts such as "@-1h" once, so that they mean the same instant for ever. A time that looks like
    seconds issues a warning.
    """
    if isinstance(setting, timedelta):
        return _by_duration(setting, f"{BY_DURATION}{setting}")
    if isinstance(setting, datetime):
        return _at(to_target_ms(setting, "auto_offset_reset"))
    if not isinstance(setting, str):
        raise ValueError(f"auto_offset_reset must be {_ALLOWED}, not {setting!r}")
    if known := _WORDS.get(setting):
        return known
    if setting.startswith("@"):
        try:
            return _at(parse_time(setting[1:], now_ms))
        except ValueError as error:
            raise ValueError(f"auto_offset_reset: {error}") from None
    if setting.startswith(BY_DURATION):
        text = setting.removeprefix(BY_DURATION)
        if found := _DURATION.match(text):
            parts = {unit: float(number) for unit, number in found.groupdict(default="0").items()}
            try:
                return _by_duration(timedelta(**parts), setting)
            except OverflowError:
                raise ValueError(f"auto_offset_reset: {text} is too long for a duration") from None
        raise ValueError(
            f"auto_offset_reset: {text!r} is not an ISO 8601 duration with days or smaller units, such as PT1H or P1D"
        )
    raise ValueError(f"auto_offset_reset must be {_ALLOWED}, not {setting!r}")


def _by_duration(duration: timedelta, name: str) -> ResetStrategy:
    if duration < timedelta():
        raise ValueError(f"auto_offset_reset: the duration {duration} is negative")
    return ResetStrategy(name, ago_ms=duration // timedelta(milliseconds=1))


def _at(timestamp_ms: int) -> ResetStrategy:
    warn_of_seconds("auto_offset_reset", timestamp_ms)
    return ResetStrategy(f"time {format_time(timestamp_ms)}", timestamp_ms)
