"""The rules of compaction: which records may be removed, when a round is due, and what remains of a batch.

Pure functions; `cleaner` does the work. A compacted log keeps the last record of each key, at its offset. The log has a
clean part, in which this holds, and a dirty part after it. A round of cleaning reads the keys of the dirty part into a
map (`offset_map`), and rewrites all segments up to there without the records that a later one replaces.

A tombstone, a record without a value, says that its key is deleted. The tombstone must stay for some time after the
older records of the key are gone, or a reader that began earlier would never see the deletion. The first round that
reads a tombstone marks its batch with the end of that time (the delete horizon). Rounds after the delete horizon remove
the tombstone.

Only a component that tracks transactions knows whether the records of a transaction count. Such records therefore
replace no others, their tombstones stay, and control batches are never changed. A transaction's record is removed when
a later record outside of transactions replaces it.

A batch without remaining records is removed, except in three cases. The batch stays if it holds the last sequence of
its producer, if a leader epoch begins with it, or if it ends its segment. A replica that copies this log then still
learns the start of each epoch, no segment ends before the next one begins, and a follower reaches the log end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage.compaction.offset_map import OffsetMap
from storage.configs.log_config import LogConfig
from storage.log.retention import written_ms
from storage.segments.offset_index import MAX_RELATIVE_OFFSET
from tidelog.model import Buffer
from tidelog.records import BatchHeader, BatchOutline, empty_batch, excerpt_batch, outline_batch, validate_batch

_LATEST_MS = 2**63 - 1
_LEAST_DELTA_MS = -(2**63)


class SealedSegment(NamedTuple):
    """The facts of a sealed segment. `end_offset` is the base offset of the next one. Times are in ms.

    Both timestamps are −1 without a time. `first_timestamp` is that of the first batch, and None without a batch.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int
    largest_timestamp: int
    first_timestamp: Callable[[], int | None]
    modified_ms: Callable[[], int]


class Stretch(NamedTuple):
    """The oldest `segments` of a log, which a round may clean; they are dirty from `first_dirty_offset` on."""

    segments: tuple[SealedSegment, ...]
    first_dirty_offset: int

    @property
    def dirty(self) -> tuple[SealedSegment, ...]:
        """Return the segments that end after the first dirty offset."""
        return tuple(segment for segment in self.segments if segment.end_offset > self.first_dirty_offset)

    @property
    def dirty_ratio(self) -> float:
        """Return the share of bytes in dirty segments, from 0 to 1; 0 if there are no bytes."""
        total = sum(segment.size_bytes for segment in self.segments)
        return sum(segment.size_bytes for segment in self.dirty) / total if total else 0.0


def first_dirty_offset(recorded: int, log_start_offset: int, log_end_offset: int) -> int:
    """Return the start of the dirty part, from the offset `recorded` after the last round.

    If that offset is below the log start or past the log end, everything is dirty.
    """
    return recorded if log_start_offset <= recorded <= log_end_offset else log_start_offset


def cleanable(
    sealed: Sequence[SealedSegment], first_dirty: int, upper_bound: int, config: LogConfig, now_ms: int
) -> Stretch:
    """Return the oldest segments that lie wholly below `upper_bound`.

    The result ends before the first dirty segment whose youngest record is younger than min.compaction.lag.ms.
    """
    taken: list[SealedSegment] = []
    for segment in sealed:
        dirty = segment.end_offset > first_dirty
        if segment.end_offset > upper_bound or (dirty and _too_young(segment, config, now_ms)):
            break
        taken.append(segment)
    return Stretch(tuple(taken), first_dirty)


def is_due(stretch: Stretch, config: LogConfig, now_ms: int) -> bool:
    """Return whether the dirty ratio reaches min.cleanable.dirty.ratio, or a dirty segment has waited for too long.

    Too long is more than max.compaction.lag.ms since the timestamp of the segment's first batch, or without one since
    the last write of the file. False if nothing is dirty.
    """
    if not stretch.dirty:
        return False
    return stretch.dirty_ratio >= config.min_cleanable_dirty_ratio or any(
        _waits_too_long(segment, config, now_ms) for segment in stretch.dirty
    )


def _too_young(segment: SealedSegment, config: LogConfig, now_ms: int) -> bool:
    if config.min_compaction_lag_ms <= 0:
        return False
    return written_ms(segment.largest_timestamp, segment.modified_ms, now_ms) > now_ms - config.min_compaction_lag_ms


def _waits_too_long(segment: SealedSegment, config: LogConfig, now_ms: int) -> bool:
    limit = now_ms - config.max_compaction_lag_ms
    if limit < 0:
        return False
    first = segment.first_timestamp()
    return (first if first is not None and first >= 0 else segment.modified_ms()) < limit


def grouped(segments: Sequence[SealedSegment], config: LogConfig) -> list[tuple[SealedSegment, ...]]:
    """Group neighbours that become one segment, within segment.bytes, segment.index.bytes and the range of an index.

    The limits apply to the sizes that the segments had before the cleaning. Without groups, every round would leave
    smaller segments.
    """
    groups: list[list[SealedSegment]] = []
    for segment in segments:
        group = [*groups[-1], segment] if groups else []
        if (
            group
            and sum(one.size_bytes for one in group) <= config.segment_bytes
            and sum(one.offset_index_bytes for one in group) <= config.segment_index_bytes
            and sum(one.time_index_bytes for one in group) <= config.segment_index_bytes
            and segment.end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1] = group
        else:
            groups.append([segment])
    return [tuple(group) for group in groups]


@dataclass(frozen=True, slots=True)
class Survival:
    """Decides what remains of the batches in one round.

    last_offsets         the last offset of each key, up to the end of this round's part of the log
    now_ms               the start of the round
    delete_retention_ms  how long a tombstone stays after that
    last_of_producers    the last offset that each remembered producer has written
    epoch_starts         the offsets at which the log's epochs begin
    """

    last_offsets: OffsetMap
    now_ms: int
    delete_retention_ms: int
    last_of_producers: Mapping[int, int]
    epoch_starts: Collection[int]

    def rewrite(self, batch: Buffer, header: BatchHeader, *, ends_segment: bool) -> Buffer:
        """Return what remains of a batch: `batch` itself if nothing changes, a new batch, or an empty buffer.

        A new batch lacks the removed records, or has a delete horizon for its tombstones. Control batches and batches
        that end after the key map are never changed. Errors as `outline_batch`.

        `ends_segment`: no batch follows this one in the new segment, so that its header stays even without records.
        """
        if header.is_control or header.next_offset > self.last_offsets.end_offset:
            validate_batch(batch, 0, header)
            return batch
        outline = outline_batch(batch, header)
        horizon = header.delete_horizon_ms
        expired = horizon is not None and horizon <= self.now_ms and replaces(header)
        kept = self.last_offsets.survivors(outline, tombstones=not expired)
        if kept:
            new_horizon = self._new_horizon(outline, kept)
            if new_horizon is None and len(kept) == header.record_count:
                return batch
            return excerpt_batch(outline, kept, new_horizon)
        if not (ends_segment or self._is_only_source(header)):
            return b""
        return batch if not header.record_count else empty_batch(header)

    def _new_horizon(self, outline: BatchOutline, kept: Sequence[int]) -> int | None:
        """Return the delete horizon (ms) that the batch gets now; None if it has one, or keeps no tombstone.

        None also for a transactional batch, and if the delta of some record's timestamp to the horizon exceeds 64 bits.
        No reader could decode that record, so the tombstones stay.
        """
        header = outline.header
        if header.delete_horizon_ms is not None or not replaces(header):
            return None
        if not any(outline.tombstones[slot] for slot in kept):
            return None
        horizon = min(self.now_ms + self.delete_retention_ms, _LATEST_MS)
        timestamps = outline.timestamps()
        return horizon if min(timestamps[slot] for slot in kept) - horizon >= _LEAST_DELTA_MS else None

    def _is_only_source(self, header: BatchHeader) -> bool:
        """Return whether this batch header is the only source of an epoch start or a producer's last sequence."""
        return (
            header.base_offset in self.epoch_starts
            or self.last_of_producers.get(header.producer_id) == header.last_offset
        )


def replaces(header: BatchHeader) -> bool:
    """Return whether the batch's records certainly replace earlier ones: it is neither control nor transactional."""
    return not (header.is_control or header.is_transactional)
