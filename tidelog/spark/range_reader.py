"""Reads one range of one partition for a task, exactly, as Arrow batches, also while its leader moves."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tidelog import Consumer
from tidelog.clock import Clock, SystemClock
from tidelog.errors import (
    DataLossError,
    LogTruncationError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    TidelogError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.records import MAX_DECOMPRESSED_BYTES
from tidelog.spark.clients import Clients
from tidelog.spark.columns import ArrowRows
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.options import ReadOptions

_log = logging.getLogger(__name__)

#: The longest wait for data in one poll. Between polls, a killed task notices that it is killed.
_POLL_MS = 1_000
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
        partition = span.topic_partition
        rows = ArrowRows(
            self.schema,
            *partition,
            span.start,
            span.until,
            max_decompressed_batch_bytes=self.max_decompressed_batch_bytes,
        )
        consumer.assign([partition])
        consumer.seek(partition, span.start)
        try:
            progress_ms = clock.monotonic_ms()
            failure: TidelogError | None = None
            while rows.position < span.until:
                try:
                    if isinstance(failure, LogTruncationError):
                        self._report(partition, range(max(span.start, failure.divergent_offset), rows.position))
                    if isinstance(failure, OffsetOutOfRangeError) and failure.made_anew:
                        self._report(partition, rows.skip_to(span.until))
                        break
                    if isinstance(failure, OffsetOutOfRangeError):
                        self._skip_lost(consumer, partition, rows)
                    if isinstance(failure, UnknownTopicOrPartitionError) and _is_gone(consumer, partition):
                        self._report(partition, rows.skip_to(span.until))
                        break
                    fetched = consumer.poll_batches(timeout_ms=_POLL_MS).get(partition)
                    failure = None
                except OffsetOutOfRangeError as error:
                    fetched, failure = None, error
                except TidelogError as error:
                    if not error.retriable and not isinstance(error, TimeoutError):
                        raise
                    fetched, failure = None, error
                if fetched is not None:
                    yield from rows.add(fetched.records)
                    progress_ms = clock.monotonic_ms()
                elif clock.monotonic_ms() - progress_ms >= self.poll_timeout_ms:
                    self._give_up(consumer, span, rows, failure)
            yield from rows.rest()
        except MessageTooLargeError as error:
            raise MessageTooLargeError(f"{span}: {error} (option tidelog.max.decompressed.batch.bytes)") from None
        finally:
            # A task may end early (LIMIT, a kill), and the next task of this worker must not receive its records.
            consumer.assign([])

    def _skip_lost(self, consumer: Consumer, partition: TopicPartition, rows: ArrowRows) -> None:
        earliest = consumer.beginning_offsets([partition])[partition]
        latest = consumer.end_offsets([partition])[partition]
        if rows.position < earliest:
            self._report(partition, rows.skip_to(earliest))
        elif rows.position > latest:
            self._report(partition, rows.skip_to(rows.until))
        consumer.seek(partition, rows.position)

    def _give_up(self, consumer: Consumer, span: OffsetRange, rows: ArrowRows, failure: TidelogError | None) -> None:
        partition = span.topic_partition
        if failure is None and consumer.end_offsets([partition])[partition] < span.until:
            self._report(partition, rows.skip_to(span.until))
            return
        cause = f": {failure}" if failure else ""
        raise TimeoutError(
            f"{span}: no record at offset {rows.position} in {self.poll_timeout_ms} ms (option pollTimeoutMs){cause}"
        ) from failure

    def _report(self, partition: TopicPartition, lost: range) -> None:
        if not lost:
            return
        message = data_loss([OffsetRange(partition, lost.start, lost.stop)], "no record has these offsets")
        if self.fail_on_data_loss:
            raise DataLossError(message)
        _log.warning(message)


def _is_gone(consumer: Consumer, partition: TopicPartition) -> bool:
    """Return whether the partition does not exist any more. Raises a TidelogError if that cannot be determined.

    After a restart of all brokers, a broker may not know a topic yet. Such a broker cannot list topics, so that the
    list is fetched first. The list itself does not decide, because internal topics are never listed, and one broker may
    be behind the others.
    """
    consumer.topics()
    return partition.partition not in (consumer.partitions_for_topic(partition.topic) or ())


def data_loss(lost: Iterable[OffsetRange], reason: str) -> str:
    """Return an error message that names the lost ranges and the reason, and the option that permits the loss."""
    ranges = ", ".join(map(str, lost))
    return f"records were lost: {ranges}: {reason}. To continue without them set failOnDataLoss to false"
