"""Looking up offsets by time, exactly: the earliest offset whose timestamp is at or after a target.

Timestamps of records need not increase, so the answer is about the order of offsets, and a bisection over the records
would be wrong. What does increase is the running maximum that the time index holds (`storage.time_index` has the
two facts that this stands on): it leads to within one index interval of the first batch that can hold the answer.
From there headers are read, and the one batch that qualifies is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from storage.scan import scan_headers
from storage.segment import Segment
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_TIMESTAMP
from tidelog.records import BatchHeader, Record, decode_records, first_record_at_or_after


class TimestampOffset(NamedTuple):
    """A record's timestamp (ms), its offset and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp: int, start_offset: int, upper_bound: int
) -> TimestampOffset | None:
    """The first record in [start_offset, upper_bound) with a timestamp ≥ `timestamp`.

    A segment whose records all lie before `start_offset`, or in which the records that reached the target do, does not
    end the search: the next segments are searched too.
    """
    for segment in segments:
        if segment.next_offset <= start_offset or segment.largest.timestamp < timestamp:
            continue
        if segment.base_offset >= upper_bound:
            return None
        for position, header in scan_headers(segment.log, segment.start_for_timestamp(timestamp), segment.size):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            if header.base_offset >= upper_bound:
                return None
            record = first_record_at_or_after(_batch(segment, position, header), timestamp, start_offset)
            if record is not None:
                return _answer(record, header) if record.offset < upper_bound else None
    return None


def offset_of_max_timestamp(segments: Sequence[Segment], start_offset: int, upper_bound: int) -> TimestampOffset | None:
    """The record with the largest timestamp in [start_offset, upper_bound); the earliest of equals."""
    largest = NO_TIMESTAMP
    best: tuple[Segment, int, BatchHeader] | None = None
    for segment in segments:
        if segment.next_offset <= start_offset or segment.base_offset >= upper_bound:
            continue
        for position, header in _candidates(segment, start_offset, upper_bound):
            if header.max_timestamp <= largest or header.last_offset < start_offset:
                continue
            if header.base_offset >= upper_bound:
                break
            timestamp = header.max_timestamp
            if header.base_offset < start_offset or header.last_offset >= upper_bound:
                record = _largest_inside(segment, position, header, start_offset, upper_bound)
                timestamp = record.timestamp if record is not None else NO_TIMESTAMP
            if timestamp > largest:
                largest, best = timestamp, (segment, position, header)
    if best is None:
        return None
    record = _largest_inside(*best, start_offset, upper_bound)
    return _answer(record, best[2]) if record is not None else None


def segment_times(
    segments: Sequence[Segment], log_start_offset: int, log_end_offset: int, now_ms: int
) -> list[tuple[int, int]]:
    """(offset, ms) of every segment: where it begins and when it was last written; then (log end, now).

    Without the last where the active segment is empty: the log end is where that begins.
    """
    entries = [(max(segment.base_offset, log_start_offset), segment.log.modified_ms()) for segment in segments]
    if segments[-1].size:
        entries.append((log_end_offset, now_ms))
    return entries


def offsets_by_segment_time(
    entries: Sequence[tuple[int, int]], timestamp: int, max_num_offsets: int, upper_bound: int
) -> list[int]:
    """From the newest entry at or before `timestamp` backwards, whatever the times of those before it.

    Offsets above the bound give way to the bound itself.
    """
    if timestamp == LATEST_TIMESTAMP:
        count = len(entries)
    elif timestamp == EARLIEST_TIMESTAMP:
        count = 1
    else:
        count = next((slot for slot in range(len(entries), 0, -1) if entries[slot - 1][1] <= timestamp), 0)
    offsets = [offset for offset, _ in reversed(entries[:count])][: max(max_num_offsets, 0)]
    if offsets and offsets[0] > upper_bound:
        return [upper_bound, *(offset for offset in offsets if offset <= upper_bound)]
    return offsets


def _candidates(segment: Segment, start_offset: int, upper_bound: int) -> Iterator[tuple[int, BatchHeader]]:
    """Batches among which the one with the largest timestamp in the range is."""
    if start_offset > segment.base_offset:
        # The running maximum may stem from before the range: it says nothing about the rest.
        yield from _scan_from(segment, start_offset)
        return
    if upper_bound >= segment.next_offset:
        found = segment.find(segment.largest.offset)
        if found is not None:
            yield found
        return
    # The entry in force at the last offset index entry below the bound covers all batches up to that one.
    reached = segment.confirmed_maximum_before(upper_bound)
    if reached is not None:
        found = segment.find(reached.offset)
        if found is not None:
            yield found
    yield from scan_headers(segment.log, segment.start_before(upper_bound), segment.size)


def _scan_from(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    found = segment.find(offset)
    if found is not None:
        yield from scan_headers(segment.log, found[0], segment.size)


def _largest_inside(
    segment: Segment, position: int, header: BatchHeader, start_offset: int, upper_bound: int
) -> Record | None:
    records = decode_records(_batch(segment, position, header))
    inside = [record for record in records if start_offset <= record.offset < upper_bound]
    return max(inside, key=lambda record: (record.timestamp, -record.offset), default=None)


def _batch(segment: Segment, position: int, header: BatchHeader) -> bytes:
    return segment.log.read(position, header.size_bytes)


def _answer(record: Record, header: BatchHeader) -> TimestampOffset:
    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
