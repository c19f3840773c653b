"""Make a batch with fewer of its records, as compaction does.

The remaining records are copied undecoded and keep their offsets. The header keeps its base offset, last offset,
producer fields and sequence number, so that readers and the leader's duplicate check see no difference. Only if the
base timestamp becomes a delete horizon, each record's timestamp delta is rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.errors import CorruptMessageError
from tidelog.model import NO_TIMESTAMP, Buffer
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, compress
from tidelog.records.decode import records_block, timestamps_of
from tidelog.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    seal,
)
from tidelog.records.varint import encode_varint, read_folded, read_folded_64, unfold

_NULL_FOLDED = 1
_KEPT_WHEN_EMPTY = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class BatchOutline(NamedTuple):
    """The positions of one batch's records in their block, and the fields that brokers need; a list for each field.

    block        the decompressed records
    offsets      each record's offset in the log
    keys         each record's key; None for a null
    tombstones   whether the record is a tombstone, which has a key and no value
    stamps       timestamp deltas (ms) to the header's base timestamp, still folded
    starts       the position in `block` at which each record begins, and one more: the end of the last record
    tails        the position in `block` after each record's timestamp delta
    """

    header: BatchHeader
    block: bytes
    offsets: list[int]
    keys: list[bytes | None]
    tombstones: list[bool]
    stamps: list[int]
    starts: list[int]
    tails: list[int]

    def timestamps(self) -> list[int]:
        """Return the records' timestamps (ms), the broker's in a LogAppendTime batch.

        Raises CorruptMessageError if one exceeds 64 bits.
        """
        return timestamps_of(self.header, self.stamps)


def outline_batch(
    batch: Buffer, header: BatchHeader, position: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES
) -> BatchOutline:
    """Return the outline of the batch at `position`, whose header is `header`.

    Checks and errors are those of `decode_records`, except that record headers are skipped without a check.
    """
    block = records_block(batch, position, header, limit)
    outline = BatchOutline(header, block, [], [], [], [], [0], [])
    _, _, offsets, keys, tombstones, stamps, starts, tails = outline
    base_offset, previous, end = header.base_offset, -1, 0
    try:
        for _ in range(header.record_count):
            # Nearly every number has one byte, and a call for each would be most of the work.
            length, at = block[end], end + 1
            if length > 0x7F:
                length, at = read_folded(block, end)
            end = at + (length >> 1)
            stamp, at = block[at + 1], at + 2
            if stamp > 0x7F:
                stamp, at = read_folded_64(block, at - 1)
            tails.append(at)
            delta, at = block[at], at + 1
            if delta > 0x7F:
                delta, at = read_folded(block, at - 1)
            key_length, at = block[at], at + 1
            if key_length > 0x7F:
                key_length, at = read_folded(block, at - 1)
            if key_length == _NULL_FOLDED:
                keys.append(None)
            else:
                after = at + (key_length >> 1)
                keys.append(block[at:after])
                at = after
            value_length, at = block[at], at + 1
            if value_length > 0x7F:
                value_length, at = read_folded(block, at - 1)
            if value_length != _NULL_FOLDED:
                at += value_length >> 1
            # An odd length is negative, and only −1, the length of null, is allowed.
            if (
                at >= end
                or length & 1
                or (key_length & 1 and key_length != 1)
                or (value_length & 1 and value_length != 1)
            ):
                raise CorruptMessageError(f"a record of {unfold(length)} bytes that ends elsewhere")
            if delta & 1 or not previous < delta >> 1 <= header.last_offset_delta:
                raise CorruptMessageError(f"offset delta {unfold(delta)} after {previous}")
            previous = delta >> 1
            offsets.append(base_offset + previous)
            stamps.append(stamp)
            tombstones.append(value_length == _NULL_FOLDED and key_length != _NULL_FOLDED)
            starts.append(end)
    except IndexError:
        raise CorruptMessageError("the last record ends too early") from None
    if end != len(block):
        raise CorruptMessageError(f"{len(block) - end} bytes after the last record, or too few for it")
    return outline


def excerpt_batch(outline: BatchOutline, kept: Sequence[int], delete_horizon_ms: int | None = None) -> bytes:
    """Return the batch with only the records at the `kept` indexes (increasing, at least one).

    The batch's max timestamp is the largest of the remaining records. `delete_horizon_ms` becomes the time from which
    the batch's tombstones may be removed (KIP-534); None leaves the header's mark as it is. Raises CorruptMessageError
    if a timestamp exceeds 64 bits.
    """
    header, block = outline.header, outline.block
    timestamps = outline.timestamps()
    max_timestamp = max(timestamps[slot] for slot in kept)
    if delete_horizon_ms is None:
        starts = outline.starts
        records = b"".join([block[starts[slot] : starts[slot + 1]] for slot in kept])
        header = header._replace(max_timestamp=max_timestamp)
    else:
        records = b"".join([_restamped(outline, slot, timestamps[slot] - delete_horizon_ms) for slot in kept])
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON_BIT,
            base_timestamp=delete_horizon_ms,
            max_timestamp=max_timestamp,
        )
    return _assemble(header, compress(Codec(header.codec), records), len(kept))


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch without records, uncompressed; its offsets, producer fields and sequence number stay.

    Readers still learn the producer's last sequence number and the batch's last offset.
    """
    attributes = header.attributes & _KEPT_WHEN_EMPTY
    return _assemble(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP), b"", 0)


def _restamped(outline: BatchOutline, slot: int, stamp: int) -> bytes:
    rest = outline.block[outline.tails[slot] : outline.starts[slot + 1]]
    body = b"".join((b"\x00", encode_varint(stamp), rest))
    return encode_varint(len(body)) + body


def _assemble(header: BatchHeader, records: bytes, record_count: int) -> bytes:
    size = HEADER_BYTES + len(records)
    batch = bytearray(HEADER_BYTES)
    batch += records
    HEADER.pack_into(batch, 0, *header._replace(batch_length=size - LENGTH_OVERHEAD, record_count=record_count))
    seal(batch, 0, size)
    return bytes(batch)
