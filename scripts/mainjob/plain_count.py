"""Lines per minute and source, counted without Tidelog and Spark: what the job's Parquet is held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MINUTE_MS = 60_000

#: (start of the minute in ms, source) → lines
Counts = Mapping[tuple[int, str], int]


class PlainCount:
    """Counts lines from a point in time on that is chosen after the first of them were seen.

    excluded   lines older than that point
    counts     (minute, source) → lines; memory grows with the minutes that occur, not with the lines
    """

    def __init__(self) -> None:
        self.excluded = 0
        self.counts: Counter[tuple[int, str]] = Counter()
        self.starting_timestamp_ms: int | None = None
        self._undecided: list[tuple[int, str]] = []

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, timestamp_ms: int, source: str) -> None:
        starting_ms = self.starting_timestamp_ms
        if starting_ms is None:
            self._undecided.append((timestamp_ms, source))
        elif timestamp_ms >= starting_ms:
            self.counts[timestamp_ms // MINUTE_MS * MINUTE_MS, source] += 1
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


def choose_start(timestamps_ms: Iterable[int]) -> int:
    """A time a twentieth into what is known, and later than at least one of it; ValueError for no times at all."""
    ordered = sorted(timestamps_ms)
    if not ordered:
        raise ValueError("no line, no time")
    wanted = ordered[len(ordered) // 20]
    if wanted > ordered[0]:
        return wanted
    return next((stamp for stamp in ordered if stamp > ordered[0]), ordered[0] + 1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two counts of the same lines, of which the second left out those that came too late.

    missing   lines that the second lacks: it may lack as many as it reports late
    surplus   lines that it has and the first has not: never right
    """

    missing: int
    surplus: int


def compare(plain: Counts, parquet: Counts) -> Comparison:
    differences = [plain.get(key, 0) - parquet.get(key, 0) for key in plain.keys() | parquet.keys()]
    return Comparison(sum(d for d in differences if d > 0), -sum(d for d in differences if d < 0))
