"""Defines the columns of Spark's Kafka source, or those of a user's schema, as Arrow columns."""

from __future__ import annotations

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

from tidelog.arrow.arrays import MAKERS, Rows
from tidelog.arrow.arrow_rows import ArrowRows
from tidelog.arrow.offset_range import OffsetRange
from tidelog.errors import ConfigError
from tidelog.records import MAX_DECOMPRESSED_BYTES

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


def arrow_rows(
    schema: StructType, span: OffsetRange, max_decompressed_batch_bytes: int = MAX_DECOMPRESSED_BYTES
) -> ArrowRows:
    """Return the collector of a range's records, which makes Arrow batches with Spark's types."""
    # Spark compares the first batch's schema with the result of `to_arrow_schema`.
    return ArrowRows(to_arrow_schema(schema, timezone="UTC"), span, max_decompressed_batch_bytes, makers=_MAKERS)


def _microseconds(rows: Rows, kind: pa.DataType) -> pa.Array:
    """Return the timestamps as Spark's Kafka source does: −1 ms if a record has none."""
    return pa.array(rows.records.timestamps).view(pa.timestamp("ms", "UTC")).cast(kind)


_MAKERS = {**MAKERS, "timestamp": _microseconds, "timestampType": MAKERS["timestamp_type"]}
