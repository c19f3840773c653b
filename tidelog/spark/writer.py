"""`df.write` and `df.writeStream` to Tidelog. Records are written at least once, because Spark repeats failed tasks.

Each row is a record. The column `value` is required; the columns `key`, `headers`, `topic` and `partition` are
optional. The option `topic` overrides the column. A task succeeds when the cluster has acknowledged all of its records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from tidelog.errors import ConfigError
from tidelog.spark.clients import Clients
from tidelog.spark.columns import HEADERS_TYPE
from tidelog.spark.options import WriteOptions

_BYTES: tuple[DataType, ...] = (BinaryType(), StringType())
_ALLOWED: dict[str, tuple[DataType, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS_TYPE,),
}


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of a task: the number of records that it wrote, all of which are acknowledged."""

    records: int


class _Rows:
    """Sends the rows of Arrow batches. Picklable; only `write` connects.

    The constructor raises ConfigError if the schema has no `value`, no topic is named, or a column has a wrong type.
    """

    def __init__(self, options: WriteOptions, clients: Clients, schema: StructType) -> None:
        _check_columns(schema, options.topic)
        self._topic = options.topic
        self._clients = clients

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Send each row as a record, wait until all are acknowledged, and return their number.

        Raises the first error of a record, or ConfigError for a row without a topic. Other records of the task may be
        written in that case.
        """
        producer = self._clients.producer()
        failures: list[BaseException] = []
        records = 0
        for batch in batches:
            for topic, partition, key, value, headers in zip(*self._columns(batch), strict=True):
                if topic is None:
                    raise ConfigError("a row has no topic: fill the column topic, or set the option topic")
                future = producer.send(topic, value, key=key, headers=headers, partition=partition)
                future.add_errback(failures.append)
            records += batch.num_rows
            if failures:
                break
        producer.flush()
        if failures:
            raise failures[0]
        return Written(records)

    def _columns(self, batch: pa.RecordBatch) -> Sequence[Sequence[Any]]:
        absent: list[Any] = [None] * batch.num_rows

        def column(name: str) -> list[Any]:
            if name not in batch.schema.names:
                return absent
            array = batch.column(name)
            if name in ("key", "value") and pa.types.is_string(array.type):
                array = array.cast(pa.binary())
            return array.to_pylist()  # type: ignore[no-any-return]

        topics = [self._topic] * batch.num_rows if self._topic is not None else column("topic")
        headers = [[(h["key"], h["value"]) for h in row] if row else None for row in column("headers")]
        return topics, column("partition"), column("key"), column("value"), headers


class TidelogBatchWriter(DataSourceArrowWriter):
    """The writer of `df.write`: each task sends its rows, and its records stay even if the job fails later."""

    def __init__(self, options: WriteOptions, clients: Clients, schema: StructType) -> None:
        self._rows = _Rows(options, clients, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._rows.write(iterator)


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`: each task of a micro-batch sends its rows, without a transaction."""

    def __init__(self, options: WriteOptions, clients: Clients, schema: StructType) -> None:
        self._rows = _Rows(options, clients, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._rows.write(iterator)


def _check_columns(schema: StructType, topic: str | None) -> None:
    names = schema.fieldNames()
    if "value" not in names:
        raise ConfigError(f"a column 'value' (binary or string) is required; the columns are {', '.join(names)}")
    if "topic" not in names and topic is None:
        raise ConfigError("no topic: set the option topic, or add a column 'topic'")
    for column in schema.fields:
        if column.name not in _ALLOWED:
            raise ConfigError(f"no column {column.name!r} can be written; the columns are {', '.join(_ALLOWED)}")
        if not any(_same_type(column.dataType, allowed) for allowed in _ALLOWED[column.name]):
            expected = " or ".join(allowed.simpleString() for allowed in _ALLOWED[column.name])
            raise ConfigError(f"column {column.name!r} must be {expected}, not {column.dataType.simpleString()}")


def _same_type(given: DataType, allowed: DataType) -> bool:
    # Types are compared by their text, because it does not matter whether an element may be null.
    return given.simpleString() == allowed.simpleString()
