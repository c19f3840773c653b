"""Decides which of the oldest segments a log may delete.

Pure functions over facts of the segments, oldest first. A segment is deleted only if all segments before it are, and if
it lies below the high watermark. An empty active segment is never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from storage.configs.log_config import LogConfig


class SegmentFacts(NamedTuple):
    """The facts of one segment. `end_offset` is the base offset of the next segment, or the log end.

    largest_timestamp   ms; −1 if no record has one
    modified_ms         returns when the `.log` was last written
    """

    end_offset: int
    size_bytes: int
    largest_timestamp: int
    modified_ms: Callable[[], int]


def count_deletable(
    segments: Sequence[SegmentFacts], config: LogConfig, *, log_start_offset: int, high_watermark: int, now_ms: int
) -> int:
    """Return how many of the oldest segments may be deleted.

    Only segments below the high watermark may, and never an empty active one. Of these, segments below the log start
    may, except the active one. With `cleanup.policy=delete`, segments beyond `retention.bytes` or `retention.ms` may
    too, also the active one.
    """
    removable = 0
    for segment in segments:
        if segment.end_offset > high_watermark or (segment is segments[-1] and not segment.size_bytes):
            break
        removable += 1
    candidates = segments[:removable]
    # The log start alone never removes the active segment, because the log continues there.
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
    """Return the time (ms) of a segment's youngest record, which is in most cases its largest timestamp.

    If no record has a timestamp, or one lies in the future, the modification time of the file counts: no record is
    younger than the last write. In all other cases that time is not used, because it may be wrong too. If the clock was
    set back while the file was written, good records would look old.
    """
    return largest_timestamp if 0 <= largest_timestamp <= now_ms else modified_ms()


def _leading(verdicts: Iterable[bool]) -> int:
    return sum(1 for _ in takewhile(bool, verdicts))
