"""Generate the timestamps of producers' records."""

from __future__ import annotations

import random

from verify.chaos.load import Times

_DAY_MS = 86_400_000
#: Records within one interval of this length often have the same timestamp.
_GRAIN_MS = 20
#: The range of the timestamps of neighbouring records.
_WAVE_MS = 2_500
_FAR_AHEAD_MS = 600_000


def timestamp_ms(times: Times, now_ms: int, rng: random.Random) -> int:
    """Return the timestamp of the next record in ms: `now_ms` for `Times.NOW`, otherwise a random one, usually near
    `now_ms`.

    The timestamp is never more than ten minutes ahead, which every topic accepts by default.
    """
    if times is Times.NOW:
        return now_ms
    kind = rng.random()
    if kind < 0.01:
        return rng.choice((1, now_ms - 7 * _DAY_MS, now_ms - _DAY_MS))
    if kind < 0.015:
        return now_ms + rng.randrange(_FAR_AHEAD_MS)
    if kind < 0.2:
        return now_ms + 1_500 + rng.randrange(7)
    return (now_ms + rng.randrange(-_WAVE_MS, 1_500)) // _GRAIN_MS * _GRAIN_MS
