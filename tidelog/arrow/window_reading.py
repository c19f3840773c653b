"""Select the records of a time window from a partition, exactly by record, and decide where its reading ends. Pure.

Timestamps need not rise: producers' clocks differ, and a retried batch is late. A record of the window may therefore
stand behind records that are later than the window, and one wrong clock may put a record of next year before all
others. A look-up by time finds the first record at or after a time, so that the start of the window is exact. The
protocol has no look-up for the last record before a time. The end is decided while the records are read:

    Reading of a partition ends after END_AFTER consecutive records that are later than the window by the allowed
    lateness or more, and at its end offset at the latest.

A record of the window is missed only if it stands behind such a run. Without an allowed lateness, reading goes on to
the end offset, and no record is missed. The rule depends on the records alone, and not on sizes of answers or batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidelog.arrow.time_window import TimeWindow
from tidelog.model import NO_TIMESTAMP
from tidelog.records.columns import Int64s

#: Number of consecutive records after which reading ends. A producer with a wrong clock seldom writes so many in one
#: piece, and to read so many more costs little in comparison with a window that is worth a scan.
END_AFTER = 1_000


def are_in_window(window: TimeWindow, timestamps: Int64s) -> npt.NDArray[np.bool_]:
    """Return for each timestamp (ms) whether it is in the window."""
    found = np.ones(len(timestamps), np.bool_) if window.is_whole else timestamps != NO_TIMESTAMP
    if window.since_ms is not None:
        found &= timestamps >= window.since_ms
    if window.until_ms is not None:
        found &= timestamps < window.until_ms
    return found


class Selection(NamedTuple):
    """The rows [low, high) of the records that were read. `mask` says which of these rows are selected; None: all."""

    low: int
    high: int
    mask: npt.NDArray[np.bool_] | None


class WindowReading:
    """The reading of one partition: selects the records of the window, and finds the end.

    has_ended   whether the last records ended the reading; no later record is selected
    """

    def __init__(self, window: TimeWindow) -> None:
        self._window = window
        self._run = 0
        self.has_ended = False

    def select(self, timestamps: Int64s) -> Selection:
        """Return which of the next records are in the window. The timestamps (ms) are in the order of the log."""
        read = self._until_end(timestamps)
        inside = are_in_window(self._window, timestamps[:read])
        rows = np.flatnonzero(inside)
        if not len(rows):
            return Selection(0, 0, None)
        low, high = int(rows[0]), int(rows[-1]) + 1
        return Selection(low, high, None if high - low == len(rows) else inside[low:high])

    def _until_end(self, timestamps: Int64s) -> int:
        """Return how many of these records are read until the reading ends, and count the run at their end."""
        limit = self._window.ends_from_ms
        if self.has_ended or limit is None or not len(timestamps):
            return 0 if self.has_ended else len(timestamps)
        # The edges of runs: the places of the records that are not late enough, and the end.
        others = np.flatnonzero(timestamps < limit)
        begins = np.concatenate(([-self._run], others + 1))
        ends = np.append(others, len(timestamps))
        long_enough = np.flatnonzero(ends - begins >= END_AFTER)
        self._run = int(ends[-1] - begins[-1])
        if not len(long_enough):
            return len(timestamps)
        self.has_ended = True
        return int(begins[long_enough[0]]) + END_AFTER
