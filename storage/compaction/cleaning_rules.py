"""What compaction may touch, when it is worth it, and what it leaves of a batch. Pure rules; `cleaner` does it.

A compacted log keeps the last record of each key, at its offset. It has a clean part, in which that is so, and a dirty
one behind it. A round of cleaning takes the keys of the dirty part into a map (`offset_map`) and writes all
segments up to there anew, without the records that a later one replaces.

A tombstone, a key without a value, says that the key is gone. It must be there for a while after the key's older
records are not, or a reader that began before would never learn of it: the round that first comes past it marks its
batch with the time at which that while ends (the delete horizon), and a later round drops it from then on.

Whether a transaction's records count, only who tracks transactions can tell. So they replace nothing, their tombstones
stay, and control batches are not touched at all; but a transaction's record goes when another's later one replaces it.
A batch left without records goes, unless it says where its producer's sequence has got to, where a leader's epoch
begins, or where the segment ends: so a replica that copies this log later knows from where on each epoch is, no segment
ends before the next begins, and a follower reaches the log end.
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
    """Facts of a segment that changes no more. `end_offset`: where the next one begins. Times in ms, −1 for none."""

    base_offset: int
    end_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int
    largest_timestamp: int
    first_timestamp: Callable[[], int | None]
    modified_ms: Callable[[], int]


class Stretch(NamedTuple):
    """What a round may clean: the oldest `segments` of the log, dirty from `first_dirty_offset` on."""

    segments: tuple[SealedSegment, ...]
    first_dirty_offset: int

    @property
    def dirty(self) -> tuple[SealedSegment, ...]:
        """The segments that hold something dirty."""
        return tuple(segment for segment in self.segments if segment.end_offset > self.first_dirty_offset)

    @property
    def dirty_ratio(self) -> float:
        """Dirty bytes of all that may be cleaned, 0 to 1."""
        total = sum(segment.size_bytes for segment in self.segments)
        return sum(segment.size_bytes for segment in self.dirty) / total if total else 0.0


def first_dirty_offset(noted: int, log_start_offset: int, log_end_offset: int) -> int:
    """Where the dirty part begins, by what was `noted` after the last round.

    A note past the log end speaks of another log than this one: all of it is dirty then.
    """
    return noted if log_start_offset <= noted <= log_end_offset else log_start_offset


def cleanable(
    sealed: Sequence[SealedSegment], first_dirty: int, upper_bound: int, config: LogConfig, now_ms: int
) -> Stretch:
    """Whole segments up to `upper_bound`, and before the first dirty one that is younger than min.compaction.lag.ms."""
    taken: list[SealedSegment] = []
    for segment in sealed:
        dirty = segment.end_offset > first_dirty
        if segment.end_offset > upper_bound or (dirty and _too_young(segment, config, now_ms)):
            break
        taken.append(segment)
    return Stretch(tuple(taken), first_dirty)


def is_due(stretch: Stretch, config: LogConfig, now_ms: int) -> bool:
    """Dirty enough, or with a record that waits longer than max.compaction.lag.ms."""
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
    """Neighbours that become one segment, within segment.bytes, segment.index.bytes and the range of an index.

    Judged by what they are before the cleaning; without merging, every round would leave smaller segments.
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
    """What is left of the batches of one round.

    last_offsets         of the keys, up to the end of what this round cleans
    now_ms               when the round began
    delete_retention_ms  how long a tombstone stays from then on
    last_of_producers    the last offset that each producer which the log remembers has written
    epoch_starts         where the log's epochs begin
    """

    last_offsets: OffsetMap
    now_ms: int
    delete_retention_ms: int
    last_of_producers: Mapping[int, int]
    epoch_starts: Collection[int]

    def rewrite(self, batch: Buffer, header: BatchHeader, *, ends_segment: bool) -> Buffer:
        """The batch as it stands, a smaller one, or nothing. Errors as `outline_batch`.

        `ends_segment`: no batch follows it in the new segment.
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
        if not (ends_segment or self._tells(header)):
            return b""
        return batch if not header.record_count else empty_batch(header)

    def _new_horizon(self, outline: BatchOutline, kept: Sequence[int]) -> int | None:
        """The delete horizon of a batch whose tombstones this is the first round to come past.

        None also where a record is so old that its delta to the horizon leaves 64 bits: nobody could read it any more,
        so the tombstones stay.
        """
        header = outline.header
        if header.delete_horizon_ms is not None or not replaces(header):
            return None
        if not any(outline.tombstones[slot] for slot in kept):
            return None
        horizon = min(self.now_ms + self.delete_retention_ms, _LATEST_MS)
        timestamps = outline.timestamps()
        return horizon if min(timestamps[slot] for slot in kept) - horizon >= _LEAST_DELTA_MS else None

    def _tells(self, header: BatchHeader) -> bool:
        """Whether the log knows of something by this batch's header alone."""
        return (
            header.base_offset in self.epoch_starts
            or self.last_of_producers.get(header.producer_id) == header.last_offset
        )


def replaces(header: BatchHeader) -> bool:
    """Whether the batch's records replace earlier ones of their keys for sure."""
    return not (header.is_control or header.is_transactional)
