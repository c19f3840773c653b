"""Decode batches to columns, for readers of very many records.

Python steps from record to record by their lengths; then numpy reads each field of all records at once. The two steps
may be far apart: many small batches make one set of columns, because a call of numpy costs the same for ten records as
for a thousand.

No other module of the package needs numpy, which comes with the extras `arrow` and `spark`.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidelog.errors import CorruptMessageError
from tidelog.model import Buffer
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES
from tidelog.records.decode import most_headers, read_headers, records_block
from tidelog.records.encode import Header
from tidelog.records.header import HEADER_BYTES, BatchHeader, Codec, TimestampType, iter_headers
from tidelog.records.varint import read_folded

Int64s = npt.NDArray[np.int64]

#: Minimum number of consecutive records of one size for which a separate array is worthwhile.
_LONG_RUN = 16

_INT64_MIN = np.iinfo(np.int64).min


class Spans(NamedTuple):
    """The positions and lengths (bytes) of one field of each record in `RecordBuffers.data`. A null has length −1."""

    starts: Int64s
    lengths: Int64s

    @property
    def ends(self) -> Int64s:
        """The position after each record's field; after a null it is the start of the null."""
        return self.starts + np.maximum(self.lengths, 0)

    def between(self, low: int, high: int) -> Spans:
        """Return the spans of the rows from `low` up to but not including `high`, uncopied."""
        return Spans(self.starts[low:high], self.lengths[low:high])


class RecordBuffers(NamedTuple):
    """Records by column, in the order of the log; every array has one element per record.

    data              the encoded records, decompressed, and other bytes between them, such as the headers of batches;
                      a part of the decoded buffer if its batches are uncompressed
    offsets           int64
    timestamps        int64, ms; the broker's if the batch says LogAppendTime
    timestamp_types   int32, a `TimestampType`
    keys, values      spans of `data`, which has them in the records' order, each key before its value
    headers           the headers of records that have any, by the record's index
    """

    data: Buffer
    offsets: Int64s
    timestamps: Int64s
    timestamp_types: npt.NDArray[np.int32]
    keys: Spans
    values: Spans
    headers: dict[int, tuple[Header, ...]]

    def key(self, index: int) -> bytes | None:
        """Return the key of the record with this index; None if the record has none."""
        return self._field(self.keys, index)

    def value(self, index: int) -> bytes | None:
        """Return the value of the record with this index; None if the record has none."""
        return self._field(self.values, index)

    def between(self, low: int, high: int) -> RecordBuffers:
        """Return the rows from `low` up to but not including `high`; these very buffers if those are all rows.

        The result shares `data`, and its arrays are views of these arrays; its dict of headers is new, with indexes
        from 0.
        """
        if low == 0 and high == len(self.offsets):
            return self
        return RecordBuffers(
            self.data,
            self.offsets[low:high],
            self.timestamps[low:high],
            self.timestamp_types[low:high],
            self.keys.between(low, high),
            self.values.between(low, high),
            {row - low: headers for row, headers in self.headers.items() if low <= row < high},
        )

    def _field(self, spans: Spans, index: int) -> bytes | None:
        start, length = int(spans.starts[index]), int(spans.lengths[index])
        return None if length < 0 else bytes(self.data[start : start + length])


def decode_buffers(batches: Buffer) -> RecordBuffers:
    """Return the columns of all whole batches in the buffer, including control batches.

    The buffer must not change as long as the columns are used. An incomplete last batch is ignored. Raises the errors
    of `decode_records`, and UnsupportedForMessageFormatError for an older format.
    """
    collector = ColumnCollector()
    for position, header in iter_headers(batches):
        collector.add(batches, position, header)
    return collector.take()


class ColumnCollector:
    """Collects batches, and decodes them all at once to one set of columns.

    record_count   number of records of the batches that were added since the last `take`
    size_bytes     the decompressed size of these records
    """

    def __init__(self, limit: int = MAX_DECOMPRESSED_BYTES, *, checks_crcs: bool = True) -> None:
        """Begin without batches.

        limit         maximum number of bytes of one batch's decompressed records
        checks_crcs   whether `add` checks CRCs; False if they were checked before
        """
        self._limit = limit
        self._checks_crcs = checks_crcs
        self._clear()

    def add(self, batches: Buffer, position: int, header: BatchHeader) -> None:
        """Add the batch at `position`, whose header is `header`.

        The buffer must not change as long as the result of the next `take` is used. The call checks the decompressed
        size, and that the records fill the block; `take` checks the fields. Raises the errors of `decode_records`, and
        then adds nothing.
        """
        block = records_block(batches, position, header, self._limit, checks_crc=self._checks_crcs)
        starts = _starts(block, header.record_count)
        start = self._data.add_block(block, batches, position, header)
        self._blocks.append(_Block(header, start, start + len(block)))
        self._starts += starts
        self.record_count += header.record_count
        self.size_bytes += len(block)

    def take(self) -> RecordBuffers:
        """Return the columns of all batches that were added since the last call; the collector is empty afterwards.

        Raises CorruptMessageError for malformed records, and MessageTooLargeError for a batch with more headers than
        `most_headers`. After an error all added batches are lost.
        """
        data, blocks, all_starts = self._data.joined(), self._blocks, self._starts
        self._clear()
        headers = [block.header for block in blocks]
        counts = np.array([header.record_count for header in headers], np.int64)
        starts = np.concatenate([np.empty(0, np.int64), *all_starts])
        starts += np.repeat(np.array([block.start for block in blocks], np.int64), counts)
        # A record ends where the next one of its block starts, and the last one at the end of the block.
        ends = np.empty_like(starts)
        ends[:-1] = starts[1:]
        lasts = np.cumsum(counts) - 1
        ends[lasts[counts > 0]] = np.array([block.end for block in blocks], np.int64)[counts > 0]

        fields = _Fields(data)
        _, at = fields.varints(starts, 32)
        stamps, at = fields.varints(at + 1, 64)
        deltas, at = fields.varints(at, 32)
        keys = fields.spans(at)
        values = fields.spans(keys.ends)
        headers_at = values.ends
        header_counts, at = fields.varints(headers_at, 32)
        with_headers = {}
        rows = np.flatnonzero(header_counts)
        batches = np.repeat(np.arange(len(headers)), counts)[rows]
        headers_left = [most_headers(self._limit)] * len(headers)
        try:
            for row, batch in zip(rows.tolist(), batches.tolist(), strict=True):
                begin = int(headers_at[row])
                with_headers[row], size = read_headers(bytes(data[begin : ends[row]]), 0, headers_left[batch])
                at[row] = begin + size
                headers_left[batch] -= len(with_headers[row])
        except IndexError:
            raise CorruptMessageError("the headers of a record end too early") from None
        # Positions only increase, so a field that reads into the next record makes the end differ.
        if not np.array_equal(at, ends):
            raise CorruptMessageError(f"the record at byte {starts[np.argmax(at != ends)]} ends elsewhere")
        types = np.array([header.timestamp_type for header in headers], np.int32)
        return RecordBuffers(
            data,
            _offsets(headers, counts, _unfold(deltas)),
            _timestamps(headers, counts, _unfold(stamps)),
            np.repeat(types, counts),
            keys,
            values,
            with_headers,
        )

    def _clear(self) -> None:
        self._data = _JoinedData()
        self._blocks: list[_Block] = []
        self._starts: list[Int64s] = []
        self.record_count = 0
        self.size_bytes = 0


class _Block(NamedTuple):
    """The header of a batch, and the bounds of its records in the joined data."""

    header: BatchHeader
    start: int
    end: int


class _JoinedData:
    """Joins the blocks of batches to one buffer. Uncompressed batches of one buffer are that buffer, uncopied."""

    def __init__(self) -> None:
        self._pieces: list[Buffer] = []
        self._size = 0  # of all pieces
        self._source: Buffer | None = None  # the buffer that the last piece is a part of
        self._source_start = self._source_end = 0  # that part

    def add_block(self, block: bytes, batches: Buffer, position: int, header: BatchHeader) -> int:
        """Add the decompressed block of the batch at `position`, and return where it starts in the joined data."""
        if header.codec != Codec.NONE:
            self._source = None
            self._pieces.append(block)
        else:
            first, end = position + HEADER_BYTES, position + header.size_bytes
            if self._source is batches and first >= self._source_end:
                # The last piece grows to the end of this batch, so that the header is a gap between records.
                self._pieces.pop()
                self._size += first - self._source_end
            else:
                self._source, self._source_start = batches, first
            self._source_end = end
            self._pieces.append(memoryview(batches)[self._source_start : end])
        self._size += len(block)
        return self._size - len(block)

    def joined(self) -> Buffer:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _starts(block: bytes, record_count: int) -> list[Int64s]:
    """Return the position of each record in the block, as several arrays that follow each other.

    Raises CorruptMessageError if the records do not fill the block exactly.
    """
    pieces: list[Int64s] = []
    starts = array("q")
    at, left, previous = 0, record_count, 0
    try:
        while left:
            # Nearly every length has one byte or two, and a call for each would take longer than all other work.
            length, width = block[at], 1
            if length > 0x7F:
                second, width = block[at + 1], 2
                length = length & 0x7F | second << 7
                if second > 0x7F:
                    length, after = read_folded(block, at)
                    width = after - at
            if length & 1:
                raise CorruptMessageError(f"a record of negative length at byte {at}")
            size = width + (length >> 1)
            if size == previous:
                # Records of one size often follow each other: while the length bytes repeat, the positions are known.
                run = _run(block, at, width, size, left)
                after = at + run * size
                if run < _LONG_RUN:
                    starts.extend(range(at, after, size))
                else:
                    pieces += (np.frombuffer(starts, np.int64), np.arange(at, after, size))
                    starts = array("q")
                at = after
                left -= run
            else:
                starts.append(at)
                at += size
                left -= 1
                previous = size
    except IndexError:
        raise CorruptMessageError("the last record ends too early") from None
    if at != len(block):
        raise CorruptMessageError(f"{len(block) - at} bytes after the last record")
    return [*pieces, np.frombuffer(starts, np.int64)]


def _run(block: bytes, at: int, width: int, size: int, limit: int) -> int:
    """Return how many records follow each other from `at` on, at most `limit`, with the same length field.

    The length field has `width` bytes, and the whole record `size` bytes.
    """
    run = limit
    for byte in range(at, at + width):
        column = block[byte : byte + run * size : size]
        run = len(column) - len(column.lstrip(column[:1]))
    return run


class _Fields:
    """Reads one field of many records at once, from one position per record."""

    def __init__(self, data: Buffer) -> None:
        self._bytes = np.frombuffer(data, np.uint8) if data else np.zeros(1, np.uint8)

    def varints(self, at: Int64s, bits: int) -> tuple[npt.NDArray[np.uint64], Int64s]:
        """Return the varint at each position, still folded, and the positions after the varints.

        Raises CorruptMessageError for a number of more than `bits` bits. A position beyond the data reads its last
        byte; the caller detects that the position is outside its record.
        """
        byte = self._bytes.take(at, mode="clip")
        at = at + 1
        more = byte > 0x7F
        if not more.any():
            return byte.astype(np.uint64), at
        folded = (byte & 0x7F).astype(np.uint64)
        shift = 7
        while more.any():
            if shift >= bits:
                raise CorruptMessageError(f"a varint of more than {bits} bits")
            byte = self._bytes.take(at, mode="clip")
            digits = np.where(more, byte & 0x7F, 0)
            if bits - shift < 7 and (digits >> (bits - shift)).any():
                raise CorruptMessageError(f"a varint of more than {bits} bits")
            folded |= digits.astype(np.uint64) << np.uint64(shift)
            at += more
            more &= byte > 0x7F
            shift += 7
        return folded, at

    def spans(self, at: Int64s) -> Spans:
        folded, starts = self.varints(at, 32)
        lengths = _unfold(folded)
        if (lengths < -1).any():
            raise CorruptMessageError(f"a field of {lengths.min()} bytes")
        return Spans(starts, lengths)


def _unfold(folded: npt.NDArray[np.uint64]) -> Int64s:
    return (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)


def _offsets(headers: list[BatchHeader], counts: Int64s, deltas: Int64s) -> Int64s:
    firsts = np.cumsum(counts) - counts
    steps = np.diff(deltas, prepend=-1)
    # A batch's first delta has no predecessor.
    of_records = counts > 0
    steps[firsts[of_records]] = deltas[firsts[of_records]] + 1
    highest = np.array([header.last_offset_delta for header in headers], np.int64)
    if (steps < 1).any() or (deltas[(firsts + counts - 1)[of_records]] > highest[of_records]).any():
        raise CorruptMessageError("offset deltas that do not rise, or beyond the last one")
    return np.repeat(np.array([header.base_offset for header in headers], np.int64), counts) + deltas


def _timestamps(headers: list[BatchHeader], counts: Int64s, deltas: Int64s) -> Int64s:
    appended = np.array([header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in headers], bool)
    bases = [
        header.max_timestamp if broker else header.base_timestamp
        for header, broker in zip(headers, appended.tolist(), strict=True)
    ]
    if appended.any():
        deltas = np.where(np.repeat(appended, counts), 0, deltas)
    base = np.repeat(np.array(bases, np.int64), counts)
    timestamps = base + deltas
    # If two numbers of the same sign have a sum of the other sign, the sum exceeds 64 bits.
    if ((base ^ timestamps) & (deltas ^ timestamps) < 0).any() or (timestamps == _INT64_MIN).any():
        raise CorruptMessageError("timestamp deltas that leave 64 bits")
    return timestamps
