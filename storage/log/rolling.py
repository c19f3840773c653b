"""Decides when the next batches begin a new segment.

A segment's age is the difference between its first timestamp and those of the batches to be appended. Without
`segment.jitter.ms`, all replicas therefore roll alike, whatever their clocks say. The broker's clock counts only if a
record has no timestamp.
"""

from __future__ import annotations

from zlib import crc32

from storage.configs.log_config import LogConfig
from storage.segments.offset_index import MAX_RELATIVE_OFFSET
from storage.segments.segment import Segment


def must_roll(
    active: Segment,
    config: LogConfig,
    held_bytes: int,
    added_bytes: int,
    last_offset: int,
    max_timestamp: int,
    waited_ms: int,
) -> bool:
    """Return whether a batch with this last offset and timestamp (ms) must begin a new segment after `active`.

    held_bytes    the size of `active` before the batch, including earlier batches of the same append
    added_bytes   the size of the batch
    waited_ms     the age of `active` by the broker's clock

    An empty segment takes every batch whose last offset its indexes can express.
    """
    if last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
        return True
    if not held_bytes:
        return False
    if held_bytes + added_bytes > config.segment_bytes or not active.indexes_fit(config.segment_index_bytes):
        return True
    first = active.first_timestamp
    age_ms = waited_ms if first is None or first < 0 or max_timestamp < 0 else max_timestamp - first
    longest_ms = config.segment_ms
    if config.compact and config.max_compaction_lag_ms < longest_ms:
        longest_ms = config.max_compaction_lag_ms  # the active segment cannot be compacted
    if config.segment_jitter_ms:
        longest_ms -= jitter_ms(active, config)
    return age_ms > longest_ms


def jitter_ms(active: Segment, config: LogConfig) -> int:
    """Return by how many ms the segment is rolled earlier: at least 0, and below `segment.jitter.ms` and `segment.ms`.

    A thousand logs therefore do not roll at the same moment.
    The value depends on the file name instead of a random number, so that it is the same after a restart.
    """
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return crc32(str(active.log.path).encode()) % bound if bound > 0 else 0
