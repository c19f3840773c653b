"""Prints the demo's progress, and at the end a table, a plot and the verdict."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tools.demo.counts.minute_counts import MinuteCounts
from tools.demo.counts.plain_count import MINUTE_MS, Counts
from tools.demo.verdict import Figures

_PLOT_COLUMNS = 64
_PLOT_ROWS = 6
_BLOCKS = " ▁▂▃▄▅▆▇█"
_QUIET_S = 8.0
#: An unchanged state is printed again after this time, so that a log stays short and still shows progress.
_UNCHANGED_S = 30.0
_SOURCES_SHOWN = 6


class ProgressReporter:
    """Prints progress. Each line begins with the seconds since the start.

    A terminal shows the present state in a line that changes. Otherwise the state is printed from time to time.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._last_print = self._began
        self._last_state = ""
        self._status = console.status("") if console.is_terminal else None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def step(self, text: str) -> None:
        """Print a line about something that has happened."""
        self._line(text)

    def state(self, text: str) -> None:
        """Show the present state: on a terminal at once, else at most every 8 s, or every 30 s if it is unchanged."""
        if self._status is not None:
            self._status.update(f"[dim]{self.seconds:5.1f} s[/dim]  {text}")
            self._status.start()
        elif time.monotonic() - self._last_print >= (_UNCHANGED_S if text == self._last_state else _QUIET_S):
            self._last_state = text
            self._line(f"… {text}")

    def quiet(self) -> None:
        """Remove the changing line of the terminal, until `state` is called again."""
        if self._status is not None:
            self._status.stop()

    def _line(self, text: str) -> None:
        self._last_print = time.monotonic()
        self._console.print(Text(f"{self.seconds:6.1f} s  {text}"), soft_wrap=True)


def table(figures: Figures) -> Table:
    """Return a table of the figures, with a row of name and value for each; figures not measured are left out."""
    rows = Table(show_header=False, box=None, padding=(0, 2))
    for name, value in _rows(figures):
        rows.add_row(Text(name, style="dim"), Text(value))
    return rows


def _rows(figures: Figures) -> list[tuple[str, str]]:
    input_figures, failover, audit, stream = figures.input, figures.failover, figures.audit, figures.stream
    rows = [
        ("lines sent", f"{input_figures.lines:,} from {input_figures.sources} sources"),
        ("acknowledged / read back", f"{audit.acknowledged:,} / {audit.read:,}"),
        ("lost / doubled", f"{audit.lost} / {audit.doubled}"),
        ("altered / misplaced / foreign", f"{audit.altered} / {audit.misplaced} / {audit.foreign}"),
    ]
    if input_figures.too_long:
        rows.insert(
            1,
            (
                "too long for a record, left out",
                f"{input_figures.too_long:,} ({'; '.join(input_figures.too_long_places[:3])})",
            ),
        )
    if failover.victim is not None:
        gap = "not measured" if failover.gap_s is None else f"{failover.gap_s:.3f} s"
        back = "not seen" if failover.in_sync_again_s is None else f"{failover.in_sync_again_s:.1f} s after its restart"
        led = ", ".join(map(str, failover.partitions))
        rows += [
            (
                "killed",
                f"broker {failover.victim}, leader of partitions {led} (controller: broker {failover.controller})",
            ),
            ("acknowledged in the second before", f"{failover.acks_in_second_before:,}"),
            ("records for it unacknowledged at the kill", f"{failover.unacknowledged:,}"),
            ("failover gap", gap),
            ("in sync again", back),
        ]
    if stream.starting_timestamp_ms is not None:
        rows += [
            ("counted from", f"{utc(stream.starting_timestamp_ms)} ({stream.excluded:,} older lines excluded)"),
            ("lines in Parquet + late", f"{stream.counted:,} + {stream.late:,}"),
            ("counted in plain Python", f"{stream.plain:,}"),
            (
                "stream batches before / during / after",
                f"{stream.batches_before} / {stream.batches_during} / {stream.batches_after}, "
                f"{stream.failed_tasks} failed tasks",
            ),
        ]
    return rows


def busiest_sources(counts: Counts) -> Table:
    """Return a table of the six sources with the most counted lines, and one row for all others together."""
    by_source = Counter({source: sum(by_minute.values()) for source, by_minute in counts.items()})
    rows = Table("source", "lines", box=None, padding=(0, 2), header_style="dim")
    rows.columns[1].justify = "right"
    for source, lines in by_source.most_common(_SOURCES_SHOWN):
        rows.add_row(Text(source), f"{lines:,}")
    if others := by_source.total() - sum(lines for _, lines in by_source.most_common(_SOURCES_SHOWN)):
        rows.add_row(Text(f"{len(by_source) - _SOURCES_SHOWN} others"), f"{others:,}")
    return rows


def plot(counts: Counts) -> str:
    """Return a plot of the lines per minute of all sources together, as lines of block characters.

    If necessary, several minutes share a column, which shows the busiest of them.
    """
    by_minute = MinuteCounts()
    for of_one_source in counts.values():
        for minute, lines in of_one_source.items():
            by_minute.add(minute, lines)
    if not by_minute:
        return "no lines to plot"
    first, last = min(by_minute), max(by_minute)
    minutes_each = -(-(last - first + 1) // _PLOT_COLUMNS)
    columns = [0] * (-(-(last - first + 1) // minutes_each))
    for minute, lines in by_minute.items():
        column = (minute - first) // minutes_each
        columns[column] = max(columns[column], lines)
    top = max(columns)
    label = f"{top:,}"
    rows = [f"lines per minute{f', the busiest of each {minutes_each:,} minutes' if minutes_each > 1 else ''}"]
    for row in range(_PLOT_ROWS - 1, -1, -1):
        margin = label if row == _PLOT_ROWS - 1 else ("0" if row == 0 else "")
        rows.append(f"{margin:>{len(label)}} │" + "".join(_block(lines, top, row) for lines in columns))
    begin, end = utc(first * MINUTE_MS), utc(last * MINUTE_MS)
    rows.append(" " * len(label) + " └" + "─" * len(columns))
    rows.append(" " * (len(label) + 2) + (begin if first == last else f"{begin} … {end}"))
    return "\n".join(rows)


def _block(lines: int, top: int, row: int) -> str:
    steps = len(_BLOCKS) - 1
    eighths = max(1, round(lines * _PLOT_ROWS * steps / top)) if lines else 0
    return _BLOCKS[min(steps, max(0, eighths - row * steps))]


def write_json(path: Path, figures: Figures) -> None:
    """Write verdict, failures and figures as JSON into the file, which is replaced as a whole. Raises OSError."""
    content: Mapping[str, object] = {
        "verdict": figures.verdict(),
        "ok": not figures.failures(),
        "failures": figures.failures(),
        **asdict(figures),
    }
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(content, indent=2) + "\n")
    new.replace(path)


def utc(timestamp_ms: int) -> str:
    """Return a time as text in the demo's format: 2026-01-31 12:00:00 UTC."""
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
