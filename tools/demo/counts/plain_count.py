"""Lines per minute and source, counted without Tidelog and Spark: what the job's Parquet is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tools.demo.counts.minute_counts import MinuteCounts

MINUTE_MS = 60_000

#: Source → minute since 1970 → lines
Counts = Mapping[str, Mapping[int, int]]


class PlainCount:
    """Counts lines from a point in time on that is chosen after the first of them were seen.

    excluded   lines older than that point
    total      lines that are counted; any thread may ask, while one adds
    counts     the same by source and minute
    """

    def __init__(self) -> None:
        self.excluded = 0
        self.total = 0
        self.counts: dict[str, MinuteCounts] = {}
        self.starting_timestamp_ms: int | None = None
        self._undecided: list[tuple[int, str]] = []

    def add(self, timestamp_ms: int, source: str) -> None:
        starting_ms = self.starting_timestamp_ms
        if starting_ms is None:
            self._undecided.append((timestamp_ms, source))
        elif timestamp_ms >= starting_ms:
            self.counts.setdefault(source, MinuteCounts()).add(timestamp_ms // MINUTE_MS)
            self.total += 1
        else:
            self.excluded += 1

    def undecided_ms(self) -> list[int]:
        """The times of the lines so far, while no starting point is chosen."""
        return [timestamp_ms for timestamp_ms, _ in self._undecided]

    def start_from(self, starting_timestamp_ms: int) -> None:
        """Decides for the lines so far and for all that come."""
        self.starting_timestamp_ms = starting_timestamp_ms
        undecided, self._undecided = self._undecided, []
        for timestamp_ms, source in undecided:
            self.add(timestamp_ms, source)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two counts of the same lines, of which the second left out those that came too late.

    missing   lines that the second lacks: it may lack as many as it reports late
    surplus   lines that it has and the first has not: never right
    """

    missing: int
    surplus: int


def compare(plain: Counts, parquet: Counts) -> Comparison:
    missing = surplus = 0
    for source in plain.keys() | parquet.keys():
        ours, theirs = plain.get(source, {}), parquet.get(source, {})
        missing += sum(max(0, lines - theirs.get(minute, 0)) for minute, lines in ours.items())
        surplus += sum(max(0, lines - ours.get(minute, 0)) for minute, lines in theirs.items())
    return Comparison(missing, surplus)


def total(counts: Counts) -> int:
    """All lines of all sources."""
    return sum(sum(by_minute.values()) for by_minute in counts.values())
