"""Counts lines per minute and source without Tidelog and Spark, to check the job's Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tools.demo.counts.minute_counts import MinuteCounts

MINUTE_MS = 60_000

#: Source → minute since 1970 → lines
Counts = Mapping[str, Mapping[int, int]]


class PlainCount:
    """Counts lines from a starting time on, which is chosen after the first lines were added.

    excluded                lines older than the starting time
    total                   counted lines; one thread adds and any thread may read
    counts                  the counted lines by source and minute
    starting_timestamp_ms   None until it is chosen; lines are only kept until then
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
        """Return the times of the lines that were added so far; empty once the starting time is chosen."""
        return [timestamp_ms for timestamp_ms, _ in self._undecided]

    def start_from(self, starting_timestamp_ms: int) -> None:
        """Choose the starting time, for the lines so far and for all later ones."""
        self.starting_timestamp_ms = starting_timestamp_ms
        undecided, self._undecided = self._undecided, []
        for timestamp_ms, source in undecided:
            self.add(timestamp_ms, source)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference between two counts of the same lines, of which the second leaves out lines that came too late.

    missing   lines that the second count lacks, which may be as many as it reports late
    surplus   lines that only the second count has, which is always an error
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
    """Return the number of counted lines of all sources and minutes together."""
    return sum(sum(by_minute.values()) for by_minute in counts.values())
