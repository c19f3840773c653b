"""Find the first record of a batch at or after a time, by a linear search, because timestamps need not increase.

One step in the interpreter costs as much as comparing a thousand bytes in C. Therefore, if two consecutive records have
the same size, the records after them are compared together, column by column, for as long as they have that size.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tidelog.errors import CorruptMessageError
from tidelog.model import Buffer
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES
from tidelog.records.decode import block_of, offsets_of, timestamps_of
from tidelog.records.header import MIN_RECORD_BYTES, BatchHeader, TimestampType, read_header, validate_batch
from tidelog.records.varint import read_folded, read_folded_64, unfold

#: The smallest possible length of a record, folded, without the byte of the length itself.
_LEAST_FOLDED_LENGTH = 2 * (MIN_RECORD_BYTES - 1)
#: Maximum number of records that are compared together.
_TOGETHER = 128
#: If fewer records than this could be skipped, the comparison cost more than it saved, so that more single steps are
#: made before the next comparison, up to the maximum.
_WORTH_LOOKING, _MOST_STEPS = 8, 64
#: Maximum bytes of a varint for which records are compared together.
_LONGEST = 4


class RecordTime(NamedTuple):
    """The offset of a record, and its timestamp (ms) as in `Record`."""

    offset: int
    timestamp: int


def first_record_at_or_after(
    batch: Buffer, timestamp: int, min_offset: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES
) -> RecordTime | None:
    """Return the first record of the batch with a timestamp ≥ `timestamp` (ms) and an offset ≥ `min_offset`, or None.

    The buffer begins with the batch, whose CRC is checked. Raises the errors of `decode_records`, but only for the
    records up to the result; their other fields are not checked.
    """
    header = read_header(batch)
    validate_batch(batch, 0, header)
    return first_in_checked_batch(batch, header, timestamp, min_offset, limit=limit)


def first_in_checked_batch(
    batch: Buffer, header: BatchHeader, timestamp: int, min_offset: int, *, limit: int
) -> RecordTime | None:
    """Return the same as `first_record_at_or_after`, without its check of the batch.

    The caller has called `validate_batch` with this header.
    """
    if timestamp > header.max_timestamp or min_offset > header.last_offset:
        return None
    data = block_of(batch, 0, header, limit)
    log_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    min_delta, min_stamp = min_offset - header.base_offset, timestamp - header.base_timestamp
    # Folded numbers below it are too old: even ones are ordered like the numbers, and odd ones are negative numbers.
    least_folded = 0 if log_append_time else 2 * min_stamp
    number, end, steps = 0, 0, 1
    try:
        while number < header.record_count:
            for _ in range(min(steps, header.record_count - number)):
                # Nearly every number here has one byte or two, and a call for each would be most of a look-up's work.
                start = end
                length, at = data[end], end + 1
                if length > 0x7F:
                    length, at = length & 0x7F | data[at] << 7, at + 1
                    if length > 0x3FFF:
                        length, at = read_folded(data, end)
                if length & 1 or length < _LEAST_FOLDED_LENGTH:
                    raise CorruptMessageError(f"a record of {unfold(length)} bytes")
                end = at + (length >> 1)
                stamp = data[at + 1]
                if stamp > 0x7F:
                    stamp = stamp & 0x7F | data[at + 2] << 7
                    if stamp > 0x3FFF:
                        stamp, _ = read_folded_64(data, at + 1)
                if stamp < least_folded:
                    continue
                if not log_append_time and stamp >> 1 ^ -(stamp & 1) < min_stamp:
                    continue
                stamp, stamp_end = read_folded_64(data, at + 1)
                delta, delta_end = read_folded(data, stamp_end)
                if unfold(delta) >= min_delta:
                    [record_timestamp] = timestamps_of(header, [stamp])
                    last = _after_bytes(data, _after_bytes(data, delta_end))
                    if not last < end <= len(data) or (not data[last] and last + 1 != end):
                        raise CorruptMessageError(f"a record of {unfold(length)} bytes that ends elsewhere")
                    [offset] = offsets_of(header, [delta])
                    return RecordTime(offset, record_timestamp)
            number += steps
            if number < header.record_count:
                skipped = 0
                if data[end] == data[start] and least_folded > 0:
                    most = min(_TOGETHER, header.record_count - number)
                    skipped = _too_old(data, start, end, at + 1, most, least_folded)
                    number, end = number + skipped, end + skipped * (end - start)
                steps = 1 if skipped >= _WORTH_LOOKING else min(2 * steps, _MOST_STEPS)
    except IndexError:
        raise CorruptMessageError("the last record ends too early") from None
    return None


def _too_old(data: bytes, start: int, end: int, stamp_at: int, most: int, least_folded: int) -> int:
    """Return how many records from `end` on have the size of the one in [start, end), and are certainly too old.

    stamp_at       the position of that record's timestamp, after its length and its attributes
    most           the maximum number of records to compare
    least_folded   the smallest folded timestamp that is not too old
    """
    size = end - start
    count = min(most, (len(data) - end) // size)
    stop = end + count * size
    for place in range(start, stamp_at - 1):  # the bytes of the length
        column = data[place + size : stop : size]
        count = min(count, len(column) - len(column.lstrip(data[place : place + 1])))
    stop = end + count * size
    last = stamp_at
    while data[last] > 0x7F:
        last += 1
    width = last - stamp_at + 1
    columns = [data[place + size : stop : size] for place in range(stamp_at, last + 1)]
    # A shorter number among them is less than a target of this width; a longer one has the top bit set in this column.
    most_significant = least_folded >> 7 * (width - 1)
    if not most_significant or width > _LONGEST or not columns[-1].isascii():
        return 0
    if most_significant > 0x7F:
        return count
    # From the most significant byte on: records before `first` are less than the target, up to `count` they are equal.
    first = 0
    for place in reversed(range(width)):
        bound = least_folded >> 7 * place & 0x7F | (0x80 if place < width - 1 else 0)
        column = columns[place][first:count]
        found = column.translate(_not_below(bound)).find(1)
        if found < 0:
            return count
        first += found
        count = first + len(column) - found - len(column[found:].lstrip(bytes((bound,))))
    return first


@cache
def _not_below(bound: int) -> bytes:
    """Return a translation table that maps each byte from `bound` on to 1, and the others to 0."""
    return bytes(byte >= bound for byte in range(0x100))


def _after_bytes(data: bytes, position: int) -> int:
    """Return the position after a field, without decoding it."""
    length, start = read_folded(data, position)
    if length & 1 and length != 1:
        raise CorruptMessageError(f"a field of {unfold(length)} bytes")
    return start + (length >> 1)
