"""Read and change the header of a RecordBatch v2, the only part of a batch that a broker must read or change.

    byte  field                   type
    0     base_offset             int64   assigned by the leader
    8     batch_length            int32   bytes after this field (= size − 12)
    12    partition_leader_epoch  int32   assigned by the leader
    16    magic                   int8    2
    17    crc                     uint32  CRC-32C from byte 21 to the end of the batch
    21    attributes              int16   bits 0–2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
    23    last_offset_delta       int32   of the last record written, which compaction may have removed since
    27    base_timestamp          int64   ms; record timestamps are deltas to it; with a delete horizon it is that time
    35    max_timestamp           int64   ms; with LogAppendTime the timestamp of every record
    43    producer_id             int64   −1: not idempotent
    51    producer_epoch          int16
    53    base_sequence           int32   sequences wrap from 2³¹−1 to 0
    57    record_count            int32
    61    the records, compressed as one block where the codec is not 0

The CRC does not cover the two fields that the leader assigns. Therefore a broker stores a producer's batch by
overwriting twelve bytes, and decodes no record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog.errors import CorruptMessageError, UnsupportedForMessageFormatError
from tidelog.model import Buffer
from tidelog.records.varint import INT64_MAX

HEADER_BYTES = 61
LENGTH_OVERHEAD = 12  # base_offset and batch_length itself
MAGIC = 2
MIN_RECORD_BYTES = 7  # length, attributes, two deltas, null key, null value, no headers

HEADER = Struct(">qiibIhiqqqhii")
_CRC_START = 21
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_CRC = Struct(">I")
_EPOCH_AT, _CRC_AT, _ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = 12, 17, 21, 35

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40


class Codec(IntEnum):
    """The compression of a batch's block of records, with Kafka's numbers."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """The clock of a batch's timestamps: the producer's (CREATE_TIME), or the broker's at the append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header's fields in their order on disk; timestamps in ms, lengths in bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch in bytes, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, also if compaction has removed it; −1 for a batch without sequence.

        Sequence numbers wrap from 2³¹−1 to 0.
        """
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def codec(self) -> int:
        """The number of the compression: a `Codec`, or one of the undefined numbers 5–7."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records, such as transaction markers, instead of user records."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time (ms) from which compaction may remove the batch's tombstones and markers (KIP-534).

        None if compaction has not set it yet.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


#: Makes a BatchHeader from the fields that `HEADER` unpacks, without checks.
header_of: Callable[[tuple[int, ...]], BatchHeader] = partial(tuple.__new__, BatchHeader)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of the batch at `position`; the rest of its batch need not be present. The CRC is not checked.

    Raises CorruptMessageError if no batch can begin there, and UnsupportedForMessageFormatError for a magic other than
    2, as old formats have.
    """
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptMessageError(f"{len(buffer) - position} bytes at {position} cannot hold a batch header")
    fields = HEADER.unpack_from(buffer, position)
    base_offset, length, _, magic, _, _, last_offset_delta = fields[:7]
    # Zero bytes also read as magic 0, so only a plausible length makes it an old message.
    if length <= 0:
        raise CorruptMessageError(f"batch length {length} at {position}")
    if magic != MAGIC:
        raise UnsupportedForMessageFormatError(f"message format {magic} at {position}; only {MAGIC} is supported")
    if length < HEADER_BYTES - LENGTH_OVERHEAD:
        raise CorruptMessageError(f"batch length {length} at {position} is shorter than a header")
    if base_offset < 0 or last_offset_delta < 0 or base_offset + last_offset_delta >= INT64_MAX:
        raise CorruptMessageError(f"base offset {base_offset} with last offset delta {last_offset_delta} at {position}")
    return header_of(fields)


def validate_batch(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check that the batch is complete, that its CRC matches, and that its counts of records and offsets agree.

    The records themselves are not checked.

    Fewer records than offsets are allowed, even none, because compaction leaves such batches.
    Raises CorruptMessageError with the reason.
    """
    check_crc(buffer, position, header)
    check_counts(header)


def check_counts(header: BatchHeader) -> None:
    """Raise CorruptMessageError if the batch cannot have as many records as its header says."""
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptMessageError(f"{header.record_count} records on {header.last_offset_delta + 1} offsets")
    if header.codec == Codec.NONE and header.record_count * MIN_RECORD_BYTES > header.size_bytes - HEADER_BYTES:
        raise CorruptMessageError(f"{header.record_count} records in {header.size_bytes - HEADER_BYTES} bytes")


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptMessageError if the batch at `position` is incomplete, or its CRC does not match."""
    end = position + header.batch_length + LENGTH_OVERHEAD
    if end > len(buffer):
        raise CorruptMessageError(
            f"a batch of {header.size_bytes} bytes at {position}, {len(buffer) - position} present"
        )
    actual = crc32c(memoryview(buffer)[position + _CRC_START : end])
    if actual != header.crc:
        raise CorruptMessageError(
            f"CRC {actual:#010x} of the batch at offset {header.base_offset}, not {header.crc:#010x}"
        )


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch from `position` on. CRCs are not checked.

    An incomplete last batch ends the iteration without an error, as at the end of a fetch answer. A caller for which
    this is an error compares the end of the last batch with the end of the buffer. Errors as `read_header`.
    """
    size = len(buffer)
    while size - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        end = position + header.size_bytes
        if end > size:
            return
        yield position, header
        position = end


def assign_offsets(batch: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch into the batch at `position`, in place.

    The CRC stays valid, because it covers neither.
    """
    _INT64.pack_into(batch, position, base_offset)
    _INT32.pack_into(batch, position + _EPOCH_AT, leader_epoch)


def stamp_log_append_time(batch: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Make the batch at `position` one with LogAppendTime and this timestamp, in place, and update its CRC.

    The records keep their deltas, because readers of a LogAppendTime batch use `max_timestamp` for each record.
    """
    header = read_header(batch, position)
    end = position + header.size_bytes
    view = memoryview(batch)
    _INT16.pack_into(view, position + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(view, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    seal(view, position, end)


def seal(batch: bytearray | memoryview, position: int, end: int) -> None:
    """Compute the CRC of the batch between `position` and `end`, and write it into the header."""
    _CRC.pack_into(batch, position + _CRC_AT, crc32c(memoryview(batch)[position + _CRC_START : end]))
