"""Finds offsets by time, exactly: the first offset whose timestamp is at or after a target.

Timestamps of records need not increase. The answer depends on the order of offsets, so a bisection over the records
would be wrong. The running maximum in the time index does increase (`storage.segments.time_index` states the two facts
that this module relies on). It leads to within one index interval of the first batch that may hold the answer. From
there on, headers are read, and the one batch that qualifies is decoded. An index entry is written only when the maximum
rises, so a stretch without entries may also be one whose entries are missing. Only the log can tell. The headers of
such a stretch are read once, because `TimeIndex.confirmed_to` remembers the result for later look-ups.

A look-up runs in steps (`storage.steps`) and keeps its position between them. Nothing else is remembered for later
look-ups. If the record with the largest timestamp of a segment was deleted or compacted away, the indexes cannot lead
past it. Each look-up of a time after the remaining records then reads the rest of that segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.segments.log_segments import Segments
from storage.segments.segment import Segment
from storage.segments.timestamp_search import RecordSearch, TimestampOffset
from storage.steps import PAUSE, Steps
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Buffer
from tidelog.records import BatchHeader, validate_batch

#: The base offset of a segment, and a function that returns when it was last written (ms). Called only if needed.
SegmentTime = tuple[int, Callable[[], int]]

#: The number of batches that are read in a few ms. A look-up pauses after that many.
BATCHES_PER_STEP = 1_000
#: Work that takes as long as reading a batch: to check so many bytes, or to decode so many records.
_BYTES_LIKE_A_BATCH = 16 * 1024
_RECORDS_LIKE_A_BATCH = 8


def offset_for_timestamp(
    segments: Segments, timestamp: int, start_offset: int, upper_bound: int
) -> Steps[TimestampOffset | None]:
    """Return the first record in [start_offset, upper_bound) with a timestamp ≥ `timestamp` (ms), or None.

    The largest timestamp in a batch header or an index is an upper bound only: its record may lie before `start_offset`
    or may have been compacted away. In that case the next batches and segments are searched too.
    """
    budget = _StepBudget()
    for segment in segments.from_timestamp(timestamp):
        if segment.next_offset <= start_offset or segment.largest.timestamp < timestamp:
            continue
        if segment.base_offset >= upper_bound:
            return None
        batches = yield from segment.from_timestamp(timestamp, start_offset)
        for _, header, batch in batches:
            if header.base_offset >= upper_bound:
                return None
            searched = header.last_offset >= start_offset and header.max_timestamp >= timestamp
            if searched:
                found = yield from RecordSearch(timestamp, start_offset, upper_bound, header, batch).steps()
                if found is not None:
                    return found
            if budget.is_spent_by(header, searched):
                yield PAUSE
    return None


def offset_of_max_timestamp(segments: Segments, start_offset: int, upper_bound: int) -> Steps[TimestampOffset | None]:
    """Return the record with the largest timestamp in [start_offset, upper_bound); the first one of equals.

    None if no record there has a timestamp.
    """
    best: TimestampOffset | None = None
    budget = _StepBudget()
    for segment in sorted(segments, key=lambda segment: -segment.largest.timestamp):
        largest = segment.largest.timestamp
        if largest < (best.timestamp if best is not None else 0):
            break
        if segment.next_offset <= start_offset or segment.base_offset >= upper_bound:
            continue
        found = yield from _largest_in(segment, start_offset, upper_bound, budget)
        if found is not None and (best is None or (best.timestamp, -best.offset) < (found.timestamp, -found.offset)):
            best = found
    return best


def _largest_in(
    segment: Segment, start_offset: int, upper_bound: int, budget: _StepBudget
) -> Steps[TimestampOffset | None]:
    """Return the answer of `offset_of_max_timestamp` for one segment.

    A: take the batch that first reached the segment's maximum, or the maximum below the bound that the time index
       knows. If its record still exists and lies in the range, that record is the answer, or the best so far.
    B: if A found a record below a bound, only batches after the last index entry can hold a larger timestamp.
    C: if A found none, search all of the segment in the range.
    """
    whole = upper_bound >= segment.next_offset
    reached = segment.largest if whole else (yield from segment.confirmed_maximum_before(upper_bound))
    best: TimestampOffset | None = None
    if reached is not None and reached.offset >= start_offset:
        found = segment.find(reached.offset)
        if found is not None:
            position, header = found
            checked: Buffer = segment.log.read(position, header.size_bytes)
            validate_batch(checked, 0, header)
            best = yield from RecordSearch(None, start_offset, upper_bound, header, checked).steps()
    if best is not None and reached is not None and best.timestamp == reached.timestamp:  # A
        if whole:
            return best
        start = segment.position_before(upper_bound - 1)  # B
    else:
        best = None
        start = segment.position_before(start_offset)  # C
    for _, header, batch in segment.checked_from(start):
        if header.base_offset >= upper_bound:
            break
        least = best.timestamp if best is not None else -1
        searched = header.last_offset >= start_offset and header.max_timestamp > least
        if searched:
            larger = yield from RecordSearch(None, start_offset, upper_bound, header, batch).steps()
            if larger is not None and larger.timestamp > least:
                best = larger
        if budget.is_spent_by(header, searched):
            yield PAUSE
    return best


class _StepBudget:
    """The work that a look-up may still do before it pauses, counted in batches."""

    def __init__(self) -> None:
        self._left = BATCHES_PER_STEP

    def is_spent_by(self, header: BatchHeader, searched: bool) -> bool:
        """Charge one batch that was read, and perhaps searched. Return whether the look-up must pause now.

        The next budget then begins.
        """
        self._left -= 1 + header.size_bytes // _BYTES_LIKE_A_BATCH
        if searched:
            self._left -= header.record_count // _RECORDS_LIKE_A_BATCH
        if self._left > 0:
            return False
        self._left = BATCHES_PER_STEP
        return True


def segment_times(
    segments: Sequence[Segment], log_start_offset: int, log_end_offset: int, now_ms: int
) -> list[SegmentTime]:
    """Return the base offset and last write time of every segment, then the log end with the current time.

    The log start replaces a lower base offset. The last entry is omitted if the active segment is empty, because its
    base offset is the log end.
    """
    entries: list[SegmentTime] = [
        (max(segment.base_offset, log_start_offset), segment.log.modified_ms) for segment in segments
    ]
    if segments[-1].size:
        entries.append((log_end_offset, lambda: now_ms))
    return entries


def offsets_by_segment_time(entries: Sequence[SegmentTime], timestamp: int, max_num_offsets: int) -> list[int]:
    """Return the offsets from the newest entry at or before `timestamp` backwards, whatever the earlier times.

    `timestamp` −1 means from the last entry backwards, −2 the first entry alone. At most `max_num_offsets` are
    returned.
    """
    if timestamp == LATEST_TIMESTAMP:
        count = len(entries)
    elif timestamp == EARLIEST_TIMESTAMP:
        count = 1
    else:
        count = next((slot for slot in range(len(entries), 0, -1) if entries[slot - 1][1]() <= timestamp), 0)
    return [offset for offset, _ in reversed(entries[:count])][: max(max_num_offsets, 0)]


def offsets_up_to(offsets: Sequence[int], upper_bound: int) -> list[int]:
    """Return the descending offsets at or below the bound. The bound itself, once, replaces all offsets above it."""
    if not offsets or offsets[0] <= upper_bound:
        return list(offsets)
    return [upper_bound, *(offset for offset in offsets if offset < upper_bound)]
