"""Encode records to a RecordBatch v2.

record   length varint, attributes int8 (0), timestamp delta varlong, offset delta varint,
         key length varint (−1: null) + key, value length varint + value,
         header count varint, then for each header: key length varint + UTF-8 key, value as above
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import index

from tidelog import arguments
from tidelog.errors import MessageTooLargeError
from tidelog.model import NO_TIMESTAMP
from tidelog.records.compression import compress
from tidelog.records.header import HEADER, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, Codec, seal
from tidelog.records.varint import INT32_MAX, INT64_MAX, TABLED, encode_varint, varint_table
from tidelog.timestamps import Timestamp, to_timestamp_ms

#: One header of a record: a name, and bytes or None.
Header = tuple[str, bytes | None]

#: A record's headers as a user passes them; a dict has each name only once.
Headers = Sequence[Header] | Mapping[str, bytes | None]

#: The largest timestamp (ms) of a record: its delta to a batch's base timestamp of −1 still has 64 bits.
MAX_TIMESTAMP = INT64_MAX - 1

_ATTRIBUTES = b"\x00"
_NULL = b"\x01"
_NO_HEADERS = b"\x00"
_HEADER_ROOM = bytes(HEADER_BYTES)


@cache
def _tables() -> tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the tables of varints, of attributes with a timestamp delta, and of a null key with the value's length.

    Most records have no key, so that the bytes before their value are one look-up. The tables take 1.4 MB. They are
    made for the first batch, because a broker encodes records only for groups and for clients with old formats.
    """
    return varint_table(), varint_table(_ATTRIBUTES), varint_table(_NULL)


class BatchBuilder:
    """A batch that is being filled.

    `size_bytes` is always exactly the length of the batch that `build` returns without a codec, and never above
    `max_bytes`: a record that does not fit is rejected, also the first one. If an empty builder rejects a record, the
    record alone is larger than the limit; `single_record_bytes` returns the size that it needs. Limits count bytes
    before compression, because the compressed size is not known in advance; incompressible data grows by some bytes in
    a thousand.
    """

    __slots__ = (
        "_base_timestamp",
        "_chunks",
        "_delta_ms",
        "_joined",
        "_max_delta",
        "_null_keys",
        "_stamp",
        "_stamp_bytes",
        "_stamps",
        "_timestamp_ms",
        "_varints",
        "max_bytes",
        "record_count",
        "size_bytes",
    )

    def __init__(self, max_bytes: int, base_timestamp: int | None = None) -> None:
        """Begin an empty batch of at most `max_bytes` bytes, header included.

        `base_timestamp` (ms) is by default the timestamp of the first record. Raises ValueError for an impossible size
        or timestamp.
        """
        if not HEADER_BYTES <= max_bytes <= INT32_MAX:
            raise ValueError(f"a batch has {HEADER_BYTES} to {INT32_MAX} bytes, not {max_bytes}")
        if base_timestamp is not None and not NO_TIMESTAMP <= base_timestamp <= MAX_TIMESTAMP:
            raise ValueError(f"base timestamp {base_timestamp} ms")
        self.max_bytes = max_bytes
        self.record_count = 0
        self.size_bytes = HEADER_BYTES
        self._base_timestamp = base_timestamp
        self._max_delta = 0
        self._chunks = [_HEADER_ROOM]
        self._joined = 1
        self._timestamp_ms: int | None = None
        self._delta_ms = 0
        self._stamp = b""
        self._stamp_bytes = 0
        self._varints, self._stamps, self._null_keys = _tables()

    def try_append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
    ) -> int | None:
        """Append the record; return its index in the batch, or None, without a change, if the record does not fit.

        Key and value are bytes (or another buffer, which is copied), or None for null. Raises ValueError for a
        timestamp before −1 or after `MAX_TIMESTAMP`, and TypeError for a key, a value or headers of another type.
        """
        # This code runs for each record of a producer, so it is optimised for the interpreter. The encoded timestamp is
        # kept, because hundreds of records share a millisecond. Tables are tuples with explicit bounds checks, because
        # these are faster than dictionaries.
        varints = self._varints
        if timestamp_ms != self._timestamp_ms:
            self._turn_to(timestamp_ms)
        if value is None:
            value, value_length = b"", -1
        else:
            if type(value) is not bytes:
                value = _bytes_of("value", value)
            value_length = len(value)
        if key is None:
            head = self._null_keys[value_length] if value_length < TABLED else _NULL + encode_varint(value_length)
        else:
            if type(key) is not bytes:
                key = _bytes_of("key", key)
            head = _varint(varints, len(key)) + key + _varint(varints, value_length)
        tail = _encode_headers(varints, headers) if headers else _NO_HEADERS
        count = self.record_count
        offset_delta = varints[count] if count < TABLED else encode_varint(count)
        length = self._stamp_bytes + len(offset_delta) + len(head) + len(value) + len(tail)
        prefix = varints[length] if length < TABLED else encode_varint(length)
        size_bytes = self.size_bytes + len(prefix) + length
        if size_bytes > self.max_bytes:
            return None
        self._chunks += (prefix, self._stamp, offset_delta, head, value, tail)
        self.size_bytes = size_bytes
        self.record_count = count + 1
        delta_ms = self._delta_ms
        if not count:
            self._base_timestamp = timestamp_ms - delta_ms
            self._max_delta = delta_ms
        elif delta_ms > self._max_delta:
            self._max_delta = delta_ms
        return count

    def _turn_to(self, timestamp_ms: int) -> None:
        """Check and encode the timestamp of the next records, and keep it; ValueError if it is out of range."""
        if type(timestamp_ms) is not int:
            timestamp_ms = index(timestamp_ms)
        if not NO_TIMESTAMP <= timestamp_ms <= MAX_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp_ms} ms")
        base_timestamp = self._base_timestamp
        self._delta_ms = delta_ms = 0 if base_timestamp is None else timestamp_ms - base_timestamp
        self._stamp = self._stamps[delta_ms] if 0 <= delta_ms < TABLED else _ATTRIBUTES + encode_varint(delta_ms)
        self._stamp_bytes = len(self._stamp)
        self._timestamp_ms = timestamp_ms

    def join(self) -> None:
        """Join the parts of the records appended since the last call, so that small records take less memory."""
        self._chunks[self._joined :] = [b"".join(self._chunks[self._joined :])]
        self._joined = len(self._chunks)

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        base_offset: int = 0,
        leader_epoch: int = -1,
        codec: Codec = Codec.NONE,
    ) -> bytes:
        """Return the batch of all appended records, with its CRC; the builder is not changed and may be built again.

        producer_id, producer_epoch, base_sequence   −1: not idempotent
        base_offset, leader_epoch                    the leader overwrites both
        codec                                        compresses the records
        """
        base_timestamp = NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp
        max_timestamp = base_timestamp + self._max_delta if self.record_count else NO_TIMESTAMP
        if codec is Codec.NONE:
            batch = bytearray().join(self._chunks)
        else:
            batch = bytearray(_HEADER_ROOM + compress(codec, b"".join(self._chunks[1:])))
        HEADER.pack_into(
            batch, 0, base_offset, len(batch) - LENGTH_OVERHEAD, leader_epoch, MAGIC, 0, codec,
            max(self.record_count - 1, 0), base_timestamp, max_timestamp,
            producer_id, producer_epoch, base_sequence, self.record_count,
        )  # fmt: skip
        seal(batch, 0, len(batch))
        return bytes(batch)


def to_record_timestamp(time: Timestamp) -> int:
    """Return a record's timestamp in milliseconds since 1970.

    Raises the errors of `to_timestamp_ms`, also for a time after MAX_TIMESTAMP.
    """
    return to_timestamp_ms(time, "timestamp_ms", MAX_TIMESTAMP)


def _varint(varints: Sequence[bytes], number: int) -> bytes:
    return varints[number] if number < TABLED else encode_varint(number)


def _bytes_of(name: str, field: object) -> bytes:
    """Return a copy of any buffer; TypeError, which names the field, for anything else.

    The explicit check is needed because `bytes(5)` would return five zeros.
    """
    return bytes(arguments.buffer(name, field, "bytes or None"))


def _encode_headers(varints: Sequence[bytes], headers: Sequence[Header]) -> bytes:
    parts = [_varint(varints, len(headers))]
    try:
        for name, value in headers:
            encoded = name.encode()
            parts += (_varint(varints, len(encoded)), encoded)
            if value is None:
                parts.append(_NULL)
            else:
                if type(value) is not bytes:
                    value = _bytes_of("headers: a value", value)
                parts += (_varint(varints, len(value)), value)
    except (AttributeError, TypeError, ValueError):
        arguments.headers("headers", headers)  # raises an error that names the invalid header
        raise
    return b"".join(parts)


def single_record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> int:
    """Return the size (bytes) of an uncompressed batch with only this record: the smallest `max_bytes` that accepts it.

    Raises MessageTooLargeError beyond the 2 GiB of the format, and TypeError as `BatchBuilder.try_append`.
    """
    builder = BatchBuilder(INT32_MAX)
    if builder.try_append(0, key, value, headers) is None:
        raise MessageTooLargeError("the record is larger than any batch can be")
    return builder.size_bytes


def encode_batch(
    records: Iterable[tuple[int, bytes | None, bytes | None, Sequence[Header]]],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
) -> bytes:
    """Return one batch of all the records (timestamp_ms, key, value, headers) in their order.

    Raises MessageTooLargeError beyond the 2 GiB of the format, and the errors of `BatchBuilder.try_append`.
    """
    builder = BatchBuilder(INT32_MAX)
    for timestamp_ms, key, value, headers in records:
        if builder.try_append(timestamp_ms, key, value, headers) is None:
            raise MessageTooLargeError(f"more than {INT32_MAX} bytes in one batch")
    return builder.build(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
    )
