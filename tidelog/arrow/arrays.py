"""Make the Arrow array of each column from decoded records. No field is copied twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.model import NO_TIMESTAMP, Buffer, TopicPartition
from tidelog.records.columns import RecordBuffers, Spans


class Rows(NamedTuple):
    """Decoded records of one partition."""

    topic_partition: TopicPartition
    records: RecordBuffers


#: Returns the array of one column, which has this type.
MakeArray = Callable[[Rows, pa.DataType], pa.Array]


def to_record_batch(rows: Rows, schema: pa.Schema, makers: Mapping[str, MakeArray]) -> pa.RecordBatch:
    """Return the rows with the columns of the schema. `makers` has a function for the name of each column."""
    return pa.RecordBatch.from_arrays([makers[field.name](rows, field.type) for field in schema], schema=schema)


def _topic(rows: Rows, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(rows.topic_partition.topic, kind), len(rows.records.offsets))


def _partition(rows: Rows, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(rows.topic_partition.partition, kind), len(rows.records.offsets))


def _timestamp(rows: Rows, kind: pa.DataType) -> pa.Array:
    stamps = rows.records.timestamps
    missing = stamps == NO_TIMESTAMP
    return pa.array(stamps, mask=missing if missing.any() else None).view(kind)


def _headers(rows: Rows, kind: pa.DataType) -> pa.Array:
    """Return the headers; a record without headers has a null, as in Spark's Kafka source."""
    count = len(rows.records.offsets)
    return pa.array(map(rows.records.headers.get, range(count)), kind, size=count)


def _binary(data: Buffer, spans: Spans) -> pa.Array:
    """Return the bytes of each span as a binary Arrow array; a span of length −1 is a null."""
    rows = len(spans.starts)
    nulls = spans.lengths < 0
    if nulls.all():
        return pa.nulls(rows, pa.binary())
    # Spans rise and do not overlap. Spans and the gaps between them form an array without a copy, and `take` selects
    # every other element of it in one pass.
    edges = np.empty(2 * rows + 1, np.int32)
    edges[:-1:2], edges[1::2] = spans.starts, spans.ends
    edges[-1] = edges[-2]
    whole = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    indices = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return whole.take(pa.array(indices, mask=nulls if nulls.any() else None))


#: The functions for the columns of `tidelog.arrow.schema`.
MAKERS: Mapping[str, MakeArray] = {
    "topic": _topic,
    "partition": _partition,
    "offset": lambda rows, kind: pa.array(rows.records.offsets, kind),
    "timestamp": _timestamp,
    "timestamp_type": lambda rows, kind: pa.array(rows.records.timestamp_types, kind),
    "key": lambda rows, kind: _binary(rows.records.data, rows.records.keys),
    "value": lambda rows, kind: _binary(rows.records.data, rows.records.values),
    "headers": _headers,
}
