"""Which of the oldest segments a log may lose.

Pure rules over facts of the segments, oldest first. Whatever the rule, a segment goes only when all before it go, when
all of it lies below the high watermark, and never an empty active one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from storage.configs.log_config import LogConfig


class SegmentFacts(NamedTuple):
    """`end_offset`: where the next segment begins, of the active one the log end. Times in ms, −1 for none."""

    end_offset: int
    size_bytes: int
    largest_timestamp: int
    modified_ms: Callable[[], int]


def count_deletable(
    segments: Sequence[SegmentFacts], config: LogConfig, *, log_start_offset: int, high_watermark: int, now_ms: int
) -> int:
    """How many of the oldest segments go. Below the log start in any case, by size and age with `delete`."""
    removable = 0
    for segment in segments:
        if segment.end_offset > high_watermark or (segment is segments[-1] and not segment.size_bytes):
            break
        removable += 1
    candidates = segments[:removable]
    # The active segment stays where nothing of it is too old: it is where the log goes on.
    sealed = candidates[: len(segments) - 1]
    count = _leading(segment.end_offset <= log_start_offset for segment in sealed)
    if config.delete:
        count = max(count, _beyond_size(candidates, segments, config.retention_bytes))
        count = max(count, _beyond_age(candidates, config.retention_ms, now_ms))
    return count


def _beyond_size(candidates: Sequence[SegmentFacts], segments: Sequence[SegmentFacts], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    surplus = sum(segment.size_bytes for segment in segments) - retention_bytes
    sizes = accumulate(segment.size_bytes for segment in candidates)
    return _leading(total <= surplus for total in sizes) if surplus > 0 else 0


def _beyond_age(candidates: Sequence[SegmentFacts], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    return _leading(
        now_ms - written_ms(segment.largest_timestamp, segment.modified_ms, now_ms) > retention_ms
        for segment in candidates
    )


def written_ms(largest_timestamp: int, modified_ms: Callable[[], int], now_ms: int) -> int:
    """When a segment's youngest record is from.

    Where no record says it, or one claims to be from the future, the file tells: no record is younger than the last
    write. It is not asked otherwise, since it may be wrong too: a clock that was set back while the file was written
    would make good records look old.
    """
    return largest_timestamp if 0 <= largest_timestamp <= now_ms else modified_ms()


def _leading(verdicts: Iterable[bool]) -> int:
    return sum(1 for _ in takewhile(bool, verdicts))
