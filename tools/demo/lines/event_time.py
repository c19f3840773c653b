"""Chooses the stream job's starting time and watermark from the lines that are known before it starts."""

from __future__ import annotations

from collections.abc import Iterable

_SHORTEST_WATERMARK_MS = 600_000
_DAY_MS = 86_400_000


def choose_start(timestamps_ms: Iterable[int]) -> int:
    """Return a starting time (ms) that excludes about a twentieth of the known times, more only if many are equal.

    At least one time is excluded. Raises ValueError for no times.
    """
    ordered = sorted(timestamps_ms)
    if not ordered:
        raise ValueError("no line, no time")
    wanted = ordered[len(ordered) // 20]
    if wanted > ordered[0]:
        return wanted
    return next((stamp for stamp in ordered if stamp > ordered[0]), ordered[0] + 1)


def watermark(stamps_ms: list[int], mixed: bool, now_ms: int) -> str:
    """Return Spark's watermark delay, such as "10 minutes", from the times of the lines known before the stream starts.

    Later lines than that are not counted. The delay is at least ten minutes.

    Old logs are sent in seconds although they took days, and one partition may be ahead of another by what was read
    ahead. Lines without a time bear the time of their arrival. If such lines are among them (`mixed`), the watermark
    covers the whole span up to now.
    """
    if not stamps_ms:
        delay_ms = 0
    elif mixed:
        delay_ms = now_ms - min(stamps_ms) + _DAY_MS
    else:
        delay_ms = max(stamps_ms) - min(stamps_ms)
    return f"{max(_SHORTEST_WATERMARK_MS, delay_ms) // 60_000} minutes"
