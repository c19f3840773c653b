"""Parses the positions in a topic that users type: beginning, end, an offset, or a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, TypeVar

import click

from tidelog.clock import SystemClock
from tidelog.quantities import format_duration
from tidelog.time_parsing import TIME_FORMS, parse_time, parse_zone
from tidelog.timestamps import format_time

F = TypeVar("F", bound=Callable[..., object])

_NUMBER = re.compile(r"[+-]?\d+\Z", re.ASCII)
#: A bare number from here on is a time (ms, September 2001), because no partition has so high an offset.
SMALLEST_BARE_TIME_MS = 10**12

TIME_HELP = TIME_FORMS


@dataclass(frozen=True, slots=True)
class Beginning:
    """The position of the first record in the log."""


@dataclass(frozen=True, slots=True)
class End:
    """The position after the last record that consumers may read now."""


@dataclass(frozen=True, slots=True)
class At:
    """The position of the first record with this timestamp (ms) or a later one."""

    timestamp_ms: int


Position = Beginning | End | At | int  # an int is an offset


def parse_position(text: str, now_ms: int, zone: tzinfo | None = None) -> Position:
    """Return the position for `beginning`, `end`, an offset, or a time.

    A number of at least SMALLEST_BARE_TIME_MS is a time, as is any text after `@`. Raises ValueError with a one-line
    reason for another text. `now_ms` and `zone` are for relative times and for times that name no zone (None: refused).
    """
    if text in ("beginning", "earliest"):
        return Beginning()
    if text in ("end", "latest"):
        return End()
    if text.isascii() and text.isdigit() and int(text) < SMALLEST_BARE_TIME_MS:
        return int(text)
    if _NUMBER.match(text) and int(text) < 0:
        raise ValueError(f"{text} is negative: offsets start at 0, and a time before now is written like -1h")
    return At(parse_time(text.removeprefix("@"), now_ms, zone))


def timezone_option(function: F) -> F:
    """Add `--timezone`, which becomes the parameter `zone` (tzinfo | None)."""
    return click.option(
        "--timezone",
        "zone",
        metavar="ZONE",
        callback=_zone,
        help="The time zone of times that name none: Europe/Berlin, +02:00 or Z [default: such times are refused]",
    )(function)


def time_or_usage_error(text: str, option: str, zone: tzinfo | None) -> int:
    """Return the time (ms since 1970) that the text of an option names. Raise BadParameter if the text is no time.

    Prints a line on standard error if the time is in the future, because few records have such a timestamp.
    """
    now_ms = SystemClock().now_ms()
    try:
        timestamp_ms = parse_time(text.removeprefix("@"), now_ms, zone)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from None
    if future := future_text(timestamp_ms, now_ms):
        click.echo(f"tidelog: {option} {future}", err=True)
    return timestamp_ms


def future_text(timestamp_ms: int, now_ms: int) -> str:
    """Return a clause about how far in the future the time is; empty if the time is not in the future."""
    ahead_ms = timestamp_ms - now_ms
    return f"{format_time(timestamp_ms)} is {format_duration(ahead_ms)} in the future" if ahead_ms > 0 else ""


def position_or_usage_error(text: str, option: str, zone: tzinfo | None) -> Position:
    """Return the position that the text of an option names (`parse_position`); BadParameter if it names none."""
    try:
        return parse_position(text, SystemClock().now_ms(), zone)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from None


def _zone(ctx: click.Context, param: Any, text: str | None) -> tzinfo | None:
    try:
        return None if text is None else parse_zone(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
