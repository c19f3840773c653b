"""Converts record batches to Arrow batches, with Kafka's schema or the columns of a user's schema."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
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
from tidelog.records import MAX_DECOMPRESSED_BYTES, iter_headers
from tidelog.records.columns import ColumnCollector, RecordBuffers, Spans

#: An Arrow batch costs Spark's JVM the same whatever its size. Batches larger than this (≈ 2 MB of 100-byte values)
#: save
#: no more time.
ROWS_PER_BATCH = 20_000
#: Large values end an Arrow batch before it has ROWS_PER_BATCH rows.
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
    """Return the schema of Spark's Kafka source, with its columns in its order; `headers`, if included, is last."""
    names = [name for name in _TYPES if name != "headers" or include_headers]
    return StructType([StructField(name, _TYPES[name]) for name in names])


def check_schema(schema: StructType) -> None:
    """Raise ConfigError if a user's schema has an unknown column, or a column of another type than Kafka's schema.

    The schema may have fewer columns, in any order.
    """
    for column in schema.fields:
        if column.name not in _TYPES:
            raise ConfigError(f"no column {column.name!r}: format tidelog has {', '.join(_TYPES)}")
        if column.dataType != _TYPES[column.name]:
            expected = _TYPES[column.name].simpleString()
            raise ConfigError(f"column {column.name!r} is {expected}, not {column.dataType.simpleString()}")


class ArrowRows:
    """Collects the records from `start` to `until` (exclusive) of one partition, and makes Arrow batches of them.

    `position` is the offset of the next record to read: at first `start`, never more than `until`.
    """

    def __init__(
        self,
        schema: StructType,
        topic: str,
        partition: int,
        start: int,
        until: int,
        max_decompressed_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.position = start
        self.until = until
        # Spark compares the first batch's schema with the result of this call.
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._topic = topic
        self._partition = partition
        self._collector = ColumnCollector(max_decompressed_batch_bytes)
        self._from = start

    def add(self, batches: Buffer) -> Iterator[pa.RecordBatch]:
        """Add whole record batches, in the log's order; advance `position`, and yield each Arrow batch that is full.

        Records outside the range, records before `position`, and control batches are skipped. Raises the errors of
        `tidelog.records.decode_records`.
        """
        for at, header in iter_headers(batches):
            if header.next_offset <= self.position or self.position >= self.until:
                continue
            if header.base_offset < self.position:
                yield from self.rest()  # the collected records are yielded now, because `_from` will skip the next ones
            if not header.is_control:
                self._collector.add(batches, at, header)
            self.position = min(header.next_offset, self.until)
            if self._collector.record_count >= ROWS_PER_BATCH or self._collector.size_bytes >= BYTES_PER_BATCH:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected records that were not yielded yet as one Arrow batch; nothing if there are none."""
        columns = self._collector.take()
        low, high = np.searchsorted(columns.offsets, (self._from, self.until)).tolist()
        self._from = self.position
        if low < high:
            selected = columns.between(low, high)
            yield pa.RecordBatch.from_arrays(
                [self._array(each, selected) for each in self._schema], schema=self._schema
            )

    def skip_to(self, offset: int) -> range:
        """Set `position` to `offset`, or to `until` if that is less; return the range of offsets that is skipped.

        An `offset` before `position` changes nothing and returns an empty range.
        """
        skipped = range(self.position, min(offset, self.until))
        self.position = max(self.position, skipped.stop)
        return skipped

    def _array(self, column: pa.Field, records: RecordBuffers) -> pa.Array:
        rows = len(records.offsets)
        match column.name:
            case "key":
                return _binary(records.data, records.keys)
            case "value":
                return _binary(records.data, records.values)
            case "topic":
                return pa.repeat(pa.scalar(self._topic, column.type), rows)
            case "partition":
                return pa.repeat(pa.scalar(self._partition, column.type), rows)
            case "offset":
                return pa.array(records.offsets)
            case "timestamp":
                return pa.array(records.timestamps).cast(pa.timestamp("ms", "UTC")).cast(column.type)
            case "timestampType":
                return pa.array(records.timestamp_types)
            case _:
                # A record without headers has None, as in Spark's Kafka source.
                return pa.array(map(records.headers.get, range(rows)), column.type, size=rows)


def _binary(data: bytes, spans: Spans) -> pa.Array:
    """Return the bytes of each span as a binary Arrow array; a span of length −1 is a null."""
    rows = len(spans.starts)
    nulls = spans.lengths < 0
    if nulls.all():
        return pa.nulls(rows, pa.binary())
        # Spans rise and do not overlap. Spans and the gaps between them form an array without a copy, and `take`
        # selects every other element of it in one pass.
    edges = np.empty(2 * rows + 1, np.int32)
    edges[:-1:2], edges[1::2] = spans.starts, spans.ends
    edges[-1] = edges[-2]
    whole = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    indices = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return whole.take(pa.array(indices, mask=nulls if nulls.any() else None))
