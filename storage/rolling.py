"""When the next batches begin a new segment.

A segment's age is counted between timestamps of its batches, from its first one to those that are to be appended, so
that replicas roll alike whatever their clocks say. Only where a record without a timestamp leaves nothing to count by,
the broker's clock is taken.
"""

from __future__ import annotations

from zlib import crc32

from storage.config import LogConfig
from storage.offset_index import LAYOUT as OFFSET_ENTRY
from storage.segment import MAX_RELATIVE_OFFSET, Segment
from storage.time_index import LAYOUT as TIME_ENTRY


def must_roll(
    active: Segment, config: LogConfig, *, added_bytes: int, last_offset: int, max_timestamp: int, waited_ms: int
) -> bool:
    """Whether batches of this size, up to this offset and timestamp, belong into the segment after `active`.

    `waited_ms` since the segment was begun, by the broker's clock. An empty segment takes any size and age.
    """
    if last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
        return True
    if not active.size:
        return False
    index_bytes = config.segment_index_bytes
    if (
        active.size + added_bytes > config.segment_bytes
        or active.offset_index.size_bytes + OFFSET_ENTRY.size > index_bytes
        or active.time_index.size_bytes + TIME_ENTRY.size * 2 > index_bytes  # one is kept for the entry at closing
    ):
        return True
    first = active.first_timestamp
    age_ms = waited_ms if first is None or first < 0 or max_timestamp < 0 else max_timestamp - first
    return age_ms > longest_ms(config) - jitter_ms(active, config)


def longest_ms(config: LogConfig) -> int:
    """How long a segment may be written to: what is in the active one cannot be compacted, and some must be in time."""
    if "compact" in config.cleanup_policy:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms


def jitter_ms(active: Segment, config: LogConfig) -> int:
    """By how much a segment is rolled earlier, so that a thousand logs do not roll at the same moment.

    Spread by the names of the files instead of by chance: the same again after a restart.
    """
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return crc32(str(active.log.path).encode()) % bound if bound > 0 else 0
