"""Reads one range of one partition for a task, exactly, as Arrow batches, also while its leader moves."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tidelog import Consumer
from tidelog.arrow.offset_range import OffsetRange
from tidelog.arrow.range_reader import RangeReader as Reader
from tidelog.clock import Clock, SystemClock
from tidelog.errors import DataLossError, MessageTooLargeError
from tidelog.model import TopicPartition
from tidelog.records import MAX_DECOMPRESSED_BYTES
from tidelog.spark.clients import Clients
from tidelog.spark.columns import arrow_rows
from tidelog.spark.options import ReadOptions

_log = logging.getLogger(__name__)

#: The size of a fetch. A larger one saves no time, and costs the broker memory for each task on long logs.
_FETCH_BYTES = 1 << 20


class RangePartition(InputPartition):
    """The range of offsets that one task reads. Picklable, because the driver sends it to an executor."""

    def __init__(self, span: OffsetRange) -> None:
        super().__init__((*span.topic_partition, span.start, span.until))

    @property
    def span(self) -> OffsetRange:
        topic, partition, start, until = self.value
        return OffsetRange(TopicPartition(topic, partition), start, until)


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges of offsets on an executor. Picklable; connects only in `read`.

    fail_on_data_loss   False: log lost offsets and continue after them
    poll_timeout_ms     how long `read` waits for the next records
    """

    clients: Clients
    schema: StructType
    fail_on_data_loss: bool
    poll_timeout_ms: int
    max_decompressed_batch_bytes: int = MAX_DECOMPRESSED_BYTES

    @classmethod
    def of(cls, options: ReadOptions, clients: Clients, schema: StructType) -> RangeReader:
        limit = options.client.get("max_decompressed_batch_bytes", MAX_DECOMPRESSED_BYTES)
        return cls(clients, schema, options.fail_on_data_loss, options.poll_timeout_ms, limit)

    def read(self, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield every record of the range once, in order, as Arrow batches.

        Offsets without a record (compacted, control batches) are skipped silently. Raises DataLossError if the log no
        longer has offsets of the range; without `fail_on_data_loss` these are logged and skipped. Raises TimeoutError
        if no records arrive for `poll_timeout_ms`, MessageTooLargeError for a batch that is larger than
        `max_decompressed_batch_bytes` when decompressed, and errors that a retry cannot mend.
        """
        consumer = self.clients.consumer(max_partition_fetch_bytes=_FETCH_BYTES, fetch_max_bytes=_FETCH_BYTES)
        return self.read_with(consumer, span, SystemClock())

    def read_with(self, consumer: Consumer, span: OffsetRange, clock: Clock) -> Iterator[pa.RecordBatch]:
        """Read as `read` does, through the given consumer, whose assignment is replaced and empty at the end."""
        reader = Reader(
            consumer,
            [arrow_rows(self.schema, span, self.max_decompressed_batch_bytes)],
            on_loss=self._report,
            timeout_ms=self.poll_timeout_ms,
            timeout_name="option pollTimeoutMs",
            clock=clock,
            is_eager=False,
        )
        try:
            yield from reader.read()
        except MessageTooLargeError as error:
            raise MessageTooLargeError(f"{span}: {error} (option tidelog.max.decompressed.batch.bytes)") from None

    def _report(self, lost: OffsetRange) -> None:
        message = data_loss([lost], "no record has these offsets")
        if self.fail_on_data_loss:
            raise DataLossError(message)
        _log.warning(message)


def data_loss(lost: Iterable[OffsetRange], reason: str) -> str:
    """Return an error message that names the lost ranges and the reason, and the option that permits the loss."""
    ranges = ", ".join(map(str, lost))
    return f"records were lost: {ranges}: {reason}. To continue without them set failOnDataLoss to false"
