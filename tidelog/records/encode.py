"""Records in, a RecordBatch v2 out.

record   length varint, attributes int8 (0), timestamp delta varlong, offset delta varint,
         key length varint (−1: null) + key, value length varint + value,
         header count varint, then for each header: key length varint + UTF-8 key, value as above
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index

from crc32c import crc32c

from tidelog.model import NO_TIMESTAMP
from tidelog.records.header import CRC_START, HEADER, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC
from tidelog.records.varint import INT32_MAX, INT64_MAX, VarintTable

#: One header of a record: a name, and bytes or null.
Header = tuple[str, bytes | None]

_VARINT = VarintTable()
_STAMP = VarintTable(prefix=b"\x00")  # the attributes byte stands before the timestamp delta
_NULL_KEY_THEN = VarintTable(prefix=b"\x01")  # the null key before the value's length
_NULL = b"\x01"
_NO_HEADERS = b"\x00"


class BatchBuilder:
    """One batch while it fills.

    `size_bytes` is at any time exactly the length of what `build` returns, and never above `max_bytes`: a record
    that does not fit is refused, the first one too. A refusal by an empty builder therefore means that the
    record is larger than the limit on its own; `single_record_bytes` says what it needs.
    """

    __slots__ = ("_base_timestamp", "_chunks", "_max_timestamp", "max_bytes", "record_count", "size_bytes")

    def __init__(self, max_bytes: int, base_timestamp: int | None = None) -> None:
        """`base_timestamp` (ms) is by default that of the first record."""
        if not HEADER_BYTES <= max_bytes <= INT32_MAX:
            raise ValueError(f"a batch has {HEADER_BYTES} to {INT32_MAX} bytes, not {max_bytes}")
        self.max_bytes = max_bytes
        self.record_count = 0
        self.size_bytes = HEADER_BYTES
        self._base_timestamp = base_timestamp
        self._max_timestamp = NO_TIMESTAMP
        self._chunks: list[bytes] = []

    def try_append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
    ) -> int | None:
        """The record's offset relative to the batch, or None (and nothing changed) where it does not fit.

        ValueError for a timestamp before −1 or beyond 64 bits, TypeError for what is not bytes.
        """
        if timestamp_ms > self._max_timestamp or self._base_timestamp is None:
            self._see_timestamp(timestamp_ms)
        delta = timestamp_ms - self._base_timestamp  # type: ignore[operator]
        count = self.record_count
        body = [_STAMP[delta], _VARINT[count]]
        _put_bytes(body, key)
        _put_bytes(body, value)
        _put_headers(body, headers)
        length = sum(map(len, body))
        prefix = _VARINT[length]
        size = self.size_bytes + len(prefix) + length
        if size > self.max_bytes:
            return None
        self._chunks.append(prefix)
        self._chunks += body
        self.size_bytes = size
        self.record_count = count + 1
        return count

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> bytes:
        """The whole batch; may be called again, with another sequence for example."""
        batch = bytearray(HEADER_BYTES)
        batch += b"".join(self._chunks)
        HEADER.pack_into(
            batch, 0, base_offset, len(batch) - LENGTH_OVERHEAD, leader_epoch, MAGIC, 0, 0,
            max(self.record_count - 1, 0), NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            self._max_timestamp, producer_id, producer_epoch, base_sequence, self.record_count,
        )  # fmt: skip
        crc = crc32c(memoryview(batch)[CRC_START:])
        batch[17:21] = crc.to_bytes(4, "big")
        return bytes(batch)

    def _see_timestamp(self, timestamp_ms: int) -> None:
        timestamp_ms = index(timestamp_ms)
        if not NO_TIMESTAMP <= timestamp_ms <= INT64_MAX:
            raise ValueError(f"timestamp {timestamp_ms} ms")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp_ms
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)


def _put_bytes(body: list[bytes], field: bytes | None) -> None:
    if field is None:
        body.append(_NULL)
    else:
        field = bytes(field)
        body.append(_VARINT[len(field)])
        body.append(field)


def _put_headers(body: list[bytes], headers: Sequence[Header]) -> None:
    body.append(_VARINT[len(headers)])
    for name, value in headers:
        _put_bytes(body, name.encode())
        _put_bytes(body, value)


def single_record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> int:
    """The size of a batch that holds this record alone: the smallest `max_bytes` that accepts it."""
    builder = BatchBuilder(INT32_MAX)
    builder.try_append(0, key, value, headers)
    return builder.size_bytes


def encode_batch(
    records: Iterable[tuple[int, bytes | None, bytes | None, Sequence[Header]]],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch of all the records (timestamp_ms, key, value, headers), whatever its size."""
    builder = BatchBuilder(INT32_MAX)
    for timestamp_ms, key, value, headers in records:
        builder.try_append(timestamp_ms, key, value, headers)
    return builder.build(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
