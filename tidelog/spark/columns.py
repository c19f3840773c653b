"""Record batches in, Arrow batches out: Kafka's schema, or the part of it that a user's schema asks for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.errors import ConfigError
from tidelog.model import Buffer
from tidelog.records import BatchHeader, decode_columns, iter_headers

#: Arrow batches of about this many rows keep the transport busy without holding much (≈ 1 MB of 100-byte values).
ROWS_PER_BATCH = 10_000
#: Large values end a batch earlier.
BYTES_PER_BATCH = 4 << 20

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}


def kafka_schema(*, include_headers: bool) -> StructType:
    """The columns of Spark's Kafka source, in its order."""
    names = [name for name in _TYPES if name != "headers" or include_headers]
    return StructType([StructField(name, _TYPES[name]) for name in names])


def check_schema(schema: StructType) -> None:
    """ConfigError for a user's schema with a column that we do not have, or not of that type."""
    for column in schema.fields:
        if column.name not in _TYPES:
            raise ConfigError(f"no column {column.name!r}: format tidelog has {', '.join(_TYPES)}")
        if column.dataType != _TYPES[column.name]:
            expected = _TYPES[column.name].simpleString()
            raise ConfigError(f"column {column.name!r} is {expected}, not {column.dataType.simpleString()}")


class ArrowRows:
    """Collects one partition's records until they make an Arrow batch.

    `position` is the offset of the next record that is wanted: it starts at `start`, and never passes `until`.
    """

    def __init__(self, schema: StructType, topic: str, partition: int, start: int, until: int) -> None:
        self.position = start
        #: Offsets [from, to) inside the range that no record had, in the order in which they were met.
        self.gaps: list[tuple[int, int]] = []
        # The one call that Spark itself compares the first batch's schema with.
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._topic = topic
        self._partition = partition
        self.until = until
        self._timestamp_type = 0
        self._clear()

    def add(self, batches: Buffer) -> Iterator[pa.RecordBatch]:
        """Takes whole record batches, in the log's order; yields each Arrow batch that fills up."""
        for at, header in iter_headers(batches):
            if header.next_offset <= self.position or self.position >= self.until:
                continue
            if header.timestamp_type != self._timestamp_type:
                yield from self.rest()
                self._timestamp_type = int(header.timestamp_type)
            self._take(batches, at, header)
            self.position = min(header.next_offset, self.until)
            self._bytes += header.size_bytes
            if len(self._offsets) >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What has been collected and not yet been yielded, if anything."""
        if self._offsets:
            yield pa.RecordBatch.from_arrays([self._array(column) for column in self._schema], schema=self._schema)
        self._clear()

    def skip_to(self, offset: int) -> None:
        """Goes on at `offset`; what lies before it is a gap."""
        target = min(offset, self.until)
        if target > self.position:
            self.gaps.append((self.position, target))
            self.position = target

    def _take(self, batches: Buffer, at: int, header: BatchHeader) -> None:
        until = min(header.next_offset, self.until)
        if header.is_control:
            # A marker is no row, but its offset is not missing either.
            self._find_gaps(range(max(header.base_offset, self.position), until), until)
            return
        offsets, timestamps, keys, values, headers = decode_columns(batches, at)
        low, high = bisect_left(offsets, self.position), bisect_left(offsets, until)
        wanted = offsets[low:high]
        self._find_gaps(wanted, until)
        self._offsets += wanted
        self._timestamps += timestamps[low:high]
        self._keys += keys[low:high]
        self._values += values[low:high]
        self._headers += headers[low:high]

    def _find_gaps(self, present: Sequence[int], until: int) -> None:
        if len(present) == until - self.position:
            return
        for offset in (*present, until):
            if offset > self.position:
                self.gaps.append((self.position, offset))
            self.position = offset + 1

    def _clear(self) -> None:
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[tuple[tuple[str, bytes | None], ...]] = []
        self._bytes = 0

    def _array(self, column: pa.Field) -> pa.Array:
        rows = len(self._offsets)
        match column.name:
            case "key":
                return pa.array(self._keys, column.type)
            case "value":
                return pa.array(self._values, column.type)
            case "topic":
                return pa.repeat(pa.scalar(self._topic, column.type), rows)
            case "partition":
                return pa.repeat(pa.scalar(self._partition, column.type), rows)
            case "offset":
                return pa.array(self._offsets, column.type)
            case "timestamp":
                return pa.array(self._timestamps, pa.timestamp("ms", "UTC")).cast(column.type)
            case "timestampType":
                return pa.repeat(pa.scalar(self._timestamp_type, column.type), rows)
            case _:
                # None, as in Spark's Kafka source, where a record has no headers.
                return pa.array([headers or None for headers in self._headers], column.type)
