"""How long things took: counted in buckets, so that remembering one costs a look at the clock and an addition."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from itertools import accumulate

#: Upper bounds of the buckets; what takes longer than the last is in one more.
BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BOUNDS_NS = tuple(round(bound * 1e9) for bound in BOUNDS_S)


class LatencyHistogram:
    """A histogram. `counts` has one number for each bound, and one for what lies beyond them."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_NS) + 1)
        self.total_ns = 0

    def add(self, duration_ns: int) -> None:
        """One more took so long."""
        self.counts[bisect_left(_BOUNDS_NS, duration_ns)] += 1
        self.total_ns += duration_ns

    @property
    def cumulated(self) -> list[int]:
        """How many took at most each bound; the last number is all of them."""
        return list(accumulate(self.counts))


class RequestTimes:
    """What one door of a broker answered: how long each API took, and what was refused how often.

    now_ns   a clock that never jumps; read twice for each request
    """

    __slots__ = ("by_api", "now_ns", "refused")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.by_api: defaultdict[int, LatencyHistogram] = defaultdict(LatencyHistogram)
        self.refused: dict[int, int] = {}

    def answered(self, api_key: int, begun_ns: int) -> None:
        """A request of that API, which came at `begun_ns`, has its answer, or wants none."""
        self.by_api[api_key].add(self.now_ns() - begun_ns)

    def refused_with(self, error_code: int) -> None:
        """A request as a whole was refused. Whoever asks nonsense must not make a table of it: it has no API."""
        self.refused[error_code] = self.refused.get(error_code, 0) + 1
