"""Points in a topic as people type them: beginning, end, an offset, or a time."""

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
#: A bare number from here on is a time (September 2001 in ms): no partition holds a million million records.
SMALLEST_BARE_TIME_MS = 10**12

TIME_HELP = TIME_FORMS


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class End:
    """Behind the last record that may be read now."""


@dataclass(frozen=True, slots=True)
class At:
    """The first record with this timestamp (ms) or a later one."""

    timestamp_ms: int


Position = Beginning | End | At | int  # an int is an offset


def parse_position(text: str, now_ms: int, zone: tzinfo | None = None) -> Position:
    """`beginning`, `end`, an offset, or a time; ValueError says in one line what is wrong."""
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
    """`--timezone`, handed on as `zone` (tzinfo | None)."""
    return click.option(
        "--timezone",
        "zone",
        metavar="ZONE",
        callback=_zone,
        help="Of times that name none: Europe/Berlin, +02:00 or Z [default: such times are refused]",
    )(function)


def time_or_misused(text: str, option: str, zone: tzinfo | None) -> int:
    """Return the time (ms) that an option names; click.BadParameter says what is wrong with it.

    A line on standard error points out a time in the future, because records rarely have one.
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
    """Return a clause about how far in the future the time lies; empty if the time has come."""
    ahead_ms = timestamp_ms - now_ms
    return f"{format_time(timestamp_ms)} is {format_duration(ahead_ms)} in the future" if ahead_ms > 0 else ""


def position_or_misused(text: str, option: str, zone: tzinfo | None) -> Position:
    """As `time_or_misused`, for any position."""
    try:
        return parse_position(text, SystemClock().now_ms(), zone)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from None


def _zone(ctx: click.Context, param: Any, text: str | None) -> tzinfo | None:
    try:
        return None if text is None else parse_zone(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
