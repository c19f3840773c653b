"""When the next batches begin a new segment.

A segment's age is counted between timestamps of its batches, from its first one to those that are to be appended, so
that replicas roll alike whatever their clocks say. Only where a record without a timestamp leaves nothing to count by,
the broker's clock is taken.
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
    """Whether a batch of `added_bytes`, up to this offset and timestamp (ms), belongs into the segment after `active`.

    `held_bytes` are in `active`, or will be before it. `waited_ms` since the segment was begun, by the broker's clock.
    An empty segment takes any size and age.
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
        longest_ms = config.max_compaction_lag_ms  # what is in the active segment cannot be compacted
    if config.segment_jitter_ms:
        longest_ms -= jitter_ms(active, config)
    return age_ms > longest_ms


def jitter_ms(active: Segment, config: LogConfig) -> int:
    """By how much a segment is rolled earlier, so that a thousand logs do not roll at the same moment.

    Spread by the names of the files instead of by chance: the same again after a restart.
    """
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return crc32(str(active.log.path).encode()) % bound if bound > 0 else 0
