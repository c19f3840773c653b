"""Finds offsets by time, exactly: the first offset whose timestamp is at or after a target.

Timestamps of records need not increase. The answer depends on the order of offsets, so a bisection over the records
would be wrong. The running maximum in the time index does increase (`storage.segments.time_index` states the two facts
that this module relies on). It leads to within one index interval of the first batch that may hold the answer. From
there on, headers are read, and the one batch that qualifies is decoded. An index entry
is written only when the maximum rises, so that a stretch without entries may also be one whose entries are missing. The
headers of such a stretch are read once, because only the log can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from storage.segments.index_lookup import Start
from storage.segments.log_segments import Segments
from storage.segments.segment import Question, Segment, Walked
from storage.segments.timestamp_search import RecordSearch, Searcher, TimestampOffset, Turn
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Buffer
from tidelog.records import BatchHeader, validate_batch

#: The base offset of a segment, and a function that returns when it was last written (ms). Called only if needed.
SegmentTime = tuple[int, Callable[[], int]]

#: The number of batches that are read in a few ms. After that many, the loop serves other requests.
AT_ONCE = 1_000
#: Work that takes as long as reading a batch: to check so many bytes, or to decode so many records.
_BYTES_LIKE_A_BATCH = 16 * 1024
_RECORDS_LIKE_A_BATCH = 8

Batch = tuple[int, BatchHeader, memoryview]


def offset_for_timestamp(
    segments: Segments, timestamp: int, start_offset: int, upper_bound: int, search: Searcher
) -> TimestampOffset | None:
    """Return the first record in [start_offset, upper_bound) with a timestamp ≥ `timestamp`.

    The largest timestamp in a batch header or an index is an upper bound only: its record may lie before `start_offset`
    or may have been compacted away. In that case the next batches and segments are searched too.
    """
    walk = _Walk(timestamp, start_offset, upper_bound, search)
    for segment in segments.from_timestamp(timestamp):
        if segment.next_offset <= start_offset or segment.largest.timestamp < timestamp:
            continue
        if segment.base_offset >= upper_bound:
            return None
        for header, batch in walk.through(segment, partial(segment.from_timestamp, timestamp, start_offset, search)):
            if header.max_timestamp >= timestamp and (found := walk.search(header, batch)) is not None:
                return found
    return None


def offset_of_max_timestamp(
    segments: Segments, start_offset: int, upper_bound: int, search: Searcher
) -> TimestampOffset | None:
    """Return the record with the largest timestamp in [start_offset, upper_bound); the first one of equals."""
    best: TimestampOffset | None = None
    walk = _Walk(None, start_offset, upper_bound, search)
    for segment in sorted(segments, key=lambda segment: -segment.largest.timestamp):
        largest = segment.largest.timestamp
        if largest < (best.timestamp if best is not None else 0):
            break
        if segment.next_offset <= start_offset or segment.base_offset >= upper_bound:
            continue
        found = _largest_in(segment, start_offset, upper_bound, search, walk)
        if found is not None and (best is None or (best.timestamp, -best.offset) < (found.timestamp, -found.offset)):
            best = found
    return best


def _largest_in(
    segment: Segment, start_offset: int, upper_bound: int, search: Searcher, walk: _Walk
) -> TimestampOffset | None:
    """Return the answer for one segment.

    A: take the batch that first reached the segment's maximum, or the maximum below the bound that the time index
       knows. If its record still exists and lies in the range, that record is the answer, or the best so far.
    B: if A found a record below a bound, only batches after the last index entry can hold a larger timestamp.
    C: if A found none, search all of the segment in the range.
    """
    whole = upper_bound >= segment.next_offset
    reached = segment.largest if whole else segment.confirmed_maximum_before(upper_bound, search)
    best: TimestampOffset | None = None
    if reached is not None and reached.offset >= start_offset:
        found = segment.find(reached.offset)
        if found is not None:
            position, header = found
            batch: Buffer = segment.log.read(position, header.size_bytes)
            validate_batch(batch, 0, header)
            best = search(_of_batch(batch, header, None, start_offset, upper_bound))
    if best is not None and reached is not None and best.timestamp == reached.timestamp:  # A
        if whole:
            return best
        start = segment.position_before(upper_bound - 1)  # B
    else:
        best = None
        start = segment.position_before(start_offset)  # C
    for header, batch in walk.through(segment, partial(segment.checked_from, start), best):
        best = walk.found
        if header.max_timestamp > (best.timestamp if best is not None else -1):
            found_here = walk.search(header, batch)
            if found_here is not None and (best is None or found_here.timestamp > best.timestamp):
                walk.found = found_here
    return walk.found


class _Walk:
    """The progress of one look-up through batches. After some ms other requests are served, and it continues later.

    found   the best answer so far in the current segment; the caller maintains it
    """

    def __init__(self, timestamp: int | None, start_offset: int, upper_bound: int, search: Searcher) -> None:
        self.found: TimestampOffset | None = None
        self._timestamp = timestamp
        self._start_offset = start_offset
        self._upper_bound = upper_bound
        self._search = search
        self._cost = 0

    def through(
        self, segment: Segment, begin: Callable[[], Iterator[Batch]], found: TimestampOffset | None = None
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches in the range, from the remembered position or from `begin` on.

        `found` lies before `begin`.
        """
        # The key uses the segment's base offset, so that it stays the same while older segments are deleted.
        # Nothing is remembered for a search that starts with an answer, because the answer may lie after that start.
        question = (self._timestamp, max(self._start_offset, segment.base_offset)) if found is None else None
        come_to = segment.walks.get(question) if question is not None else None
        if come_to is not None and come_to.rest.expected_offset <= self._upper_bound:
            batches, self.found = segment.checked_from(come_to.rest), come_to.found
        else:
            batches, self.found = begin(), found
        header: BatchHeader | None = None
        for position, header, batch in batches:
            if header.base_offset >= self._upper_bound:
                return
            if header.last_offset >= self._start_offset:
                yield header, batch
            self._cost += 1 + header.size_bytes // _BYTES_LIKE_A_BATCH
            if self._cost >= AT_ONCE:
                self._cost = 0
                self._note(segment, question, position, header)
                self._search(Turn((segment, position)))
        if header is not None:
            self._note(segment, question, position, header)

    def search(self, header: BatchHeader, batch: Buffer) -> TimestampOffset | None:
        """Search the records of the batch."""
        self._cost += header.record_count // _RECORDS_LIKE_A_BATCH
        return self._search(_of_batch(batch, header, self._timestamp, self._start_offset, self._upper_bound))

    def _note(self, segment: Segment, question: Question | None, position: int, header: BatchHeader) -> None:
        if (
            question is not None and header.next_offset <= self._upper_bound
        ):  # another upper bound may include more of a batch that this bound splits
            rest = Start(position + header.size_bytes, header.next_offset, header.partition_leader_epoch)
            segment.note_walk(question, Walked(rest, self.found))


def segment_times(
    segments: Sequence[Segment], log_start_offset: int, log_end_offset: int, now_ms: int
) -> list[SegmentTime]:
    """Return the base offset and last write time of every segment, then the log end with the current time.

    The last entry is omitted if the active segment is empty, because its base offset is the log end.
    """
    entries: list[SegmentTime] = [
        (max(segment.base_offset, log_start_offset), segment.log.modified_ms) for segment in segments
    ]
    if segments[-1].size:
        entries.append((log_end_offset, lambda: now_ms))
    return entries


def offsets_by_segment_time(entries: Sequence[SegmentTime], timestamp: int, max_num_offsets: int) -> list[int]:
    """Return the offsets from the newest entry at or before `timestamp` backwards, whatever the earlier times."""
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


def _of_batch(
    batch: Buffer, header: BatchHeader, timestamp: int | None, start_offset: int, upper_bound: int
) -> RecordSearch:
    """Return the search in the part of the batch within the range.

    The range is clipped to the batch, so that equal searches stay equal while the log grows or is trimmed elsewhere.
    """
    start, end = max(start_offset, header.base_offset), min(upper_bound, header.next_offset)
    return RecordSearch(timestamp, start, end, header, batch)
