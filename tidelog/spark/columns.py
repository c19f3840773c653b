"""Record batches in, Arrow batches out: Kafka's schema, or the part of it that a user's schema asks for."""

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

#: Each Arrow batch costs Spark's JVM the same again, whatever is in it; larger ones than this (≈ 2 MB of 100-byte
#: values) save no more.
ROWS_PER_BATCH = 20_000
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
        # The one call that Spark itself compares the first batch's schema with.
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._topic = topic
        self._partition = partition
        self._collector = ColumnCollector(max_decompressed_batch_bytes)
        self._from = start

    def add(self, batches: Buffer) -> Iterator[pa.RecordBatch]:
        """Takes whole record batches, in the log's order; yields each Arrow batch that fills up.

        Offsets that no record has are stepped over: compaction leaves such holes, and markers of transactions.
        """
        for at, header in iter_headers(batches):
            if header.next_offset <= self.position or self.position >= self.until:
                continue
            if header.base_offset < self.position:
                yield from self.rest()  # this batch's first records are not wanted, those of the collected ones are
            if not header.is_control:
                self._collector.add(batches, at, header)
            self.position = min(header.next_offset, self.until)
            if self._collector.record_count >= ROWS_PER_BATCH or self._collector.size_bytes >= BYTES_PER_BATCH:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What has been collected and not yet been yielded, if anything."""
        columns = self._collector.take()
        low, high = np.searchsorted(columns.offsets, (self._from, self.until)).tolist()
        self._from = self.position
        if low < high:
            wanted = columns.between(low, high)
            yield pa.RecordBatch.from_arrays([self._array(each, wanted) for each in self._schema], schema=self._schema)

    def skip_to(self, offset: int) -> range:
        """Goes on at `offset`; the offsets that were still wanted before it."""
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
                # None, as in Spark's Kafka source, where a record has no headers.
                return pa.array(map(records.headers.get, range(rows)), column.type, size=rows)


def _binary(data: bytes, spans: Spans) -> pa.Array:
    """The bytes of each span, copied together, as Arrow wants them."""
    rows = len(spans.starts)
    nulls = spans.lengths < 0
    if nulls.all():
        return pa.nulls(rows, pa.binary())
    # Spans rise and do not overlap: together with what lies between them they are an array without a copy, of which
    # every other element is wanted. Taking these is one pass of Arrow's own.
    edges = np.empty(2 * rows + 1, np.int32)
    edges[:-1:2], edges[1::2] = spans.starts, spans.ends
    edges[-1] = edges[-2]
    whole = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    wanted = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return whole.take(pa.array(wanted, mask=nulls if nulls.any() else None))
