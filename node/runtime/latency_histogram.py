"""Histograms of durations. Adding a duration costs one read of the clock and one addition."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from itertools import accumulate

#: Upper bounds of the buckets. One more bucket counts durations above the last bound.
BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BOUNDS_NS = tuple(round(bound * 1e9) for bound in BOUNDS_S)


class LatencyHistogram:
    """A histogram of durations.

    counts     how many durations lie between each bound (inclusive) and the one before; the last: above all bounds
    total_ns   the sum of all durations
    """

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_NS) + 1)
        self.total_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one duration, also in `total_ns`."""
        self.counts[bisect_left(_BOUNDS_NS, duration_ns)] += 1
        self.total_ns += duration_ns

    @property
    def cumulated(self) -> list[int]:
        """Return, for each bound, the number of durations up to that bound; the last number counts all durations."""
        return list(accumulate(self.counts))


class RequestTimes:
    """The durations and the refusals of one listener's requests.

    by_api    a histogram of durations for each API key; requests that were refused as a whole are left out
    now_ns    a monotonic clock, read twice for each request
    refused   the number of requests that were refused as a whole, by error code
    """

    __slots__ = ("by_api", "now_ns", "refused")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.by_api: defaultdict[int, LatencyHistogram] = defaultdict(LatencyHistogram)
        self.refused: dict[int, int] = {}

    def answered(self, api_key: int, begun_ns: int) -> None:
        """Add a request of this API that arrived at `begun_ns`, and that was answered now or needs no answer."""
        self.by_api[api_key].add(self.now_ns() - begun_ns)

    def refused_with(self, error_code: int) -> None:
        """Count a request that was refused as a whole.

        Refusals are not counted per API, because a client could fill the table with invented APIs.
        """
        self.refused[error_code] = self.refused.get(error_code, 0) + 1
