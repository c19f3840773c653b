"""Follows reassignments to their end, and shows how much is left to copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click

from tidelog.cli.reassignments.progress import Progress, Trend, total_left
from tidelog.cli.terminal.progress import is_terminal, terminal_width
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.quantities import count_of, format_duration

#: The pause between two queries of the progress is at least `_PAUSE_MS`, and `_TIMES_A_LOOK` times as long as the last
#: query took, because a query costs the brokers work.
_PAUSE_MS, _TIMES_A_LOOK = 1000, 10
_ERASE = "\r\x1b[K"

InProgress = Mapping[TopicPartition, Progress]


def follow(
    progress: InProgress, look: Callable[[], InProgress], clock: Clock, sleep_s: Callable[[float], object]
) -> InProgress:
    """Show the progress on standard error until `look` finds no reassignment in progress. Return its last answer.

    A terminal shows the progress in one line. Another output gets a line whenever the elapsed time has doubled.
    """
    if not progress:
        return progress
    erase = _ERASE if is_terminal() else ""
    began_ms = due_ms = clock.monotonic_ms()
    trend = Trend()
    trend.note(began_ms, total_left(progress.values()))
    looking_ms = 0
    try:
        while True:
            sleep_s(max(_PAUSE_MS, _TIMES_A_LOOK * looking_ms) / 1000)
            now_ms = clock.monotonic_ms()
            progress = look()
            if not progress:
                break
            looking_ms = clock.monotonic_ms() - now_ms
            trend.note(now_ms, total_left(progress.values()))
            if erase or now_ms >= due_ms:
                line = f"{count_of(len(progress), 'reassignment')}: {trend.sentence()}"
                click.echo(erase + line[: terminal_width() - 1], err=True, nl=not erase)
                due_ms = 2 * now_ms - began_ms
    except (KeyboardInterrupt, TidelogError):
        text = (
            "the reassignments go on: tidelog topic reassign --status --wait waits, and removes a throttle at the end"
        )
        click.echo(erase + text, err=True)
        raise
    click.echo(
        f"{erase}the reassignments have ended after {format_duration(clock.monotonic_ms() - began_ms)}", err=True
    )
    return progress
