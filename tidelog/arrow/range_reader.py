"""Read ranges of offsets through a consumer, each record once, also while leaders move.

An error of one partition does not hold back the others. The reader handles these errors of a poll:

    A  LogTruncationError: an unclean election removed records of the range, which are lost
    B  OffsetOutOfRangeError with `made_anew`: the topic is another one of the same name; the rest of the range is lost
    C  OffsetOutOfRangeError: the offsets before the log start, or after the log's end, are lost
    D  UnknownTopicOrPartitionError, if the partition is gone: the rest of the range is lost
    E  other retriable errors: the poll is repeated for as long as `timeout_ms` without any record
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

import pyarrow as pa

from tidelog.arrow.arrow_rows import ArrowRows
from tidelog.arrow.offset_range import OffsetRange
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetching.fetch_buffer import FetchedBatches
from tidelog.clock import Clock
from tidelog.errors import (
    ClosedError,
    CorruptMessageError,
    LogTruncationError,
    OffsetOutOfRangeError,
    TidelogError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition

#: The longest wait for data in one poll. Between polls, a reader that is interrupted or killed notices that.
_POLL_MS = 1_000


class RangeReader:
    """Reads the ranges of some ArrowRows through one consumer.

    topic_id       the id of the ranges' topic, so that a topic which was created again under its name is not read; "":
                   not known, or the ranges are of several topics
    on_loss        is called with each range that is lost; if it returns, the reader continues after the range
    timeout_ms     how long the reader waits for the next records
    timeout_name   the user's name for `timeout_ms`, for errors
    is_eager       whether each answer's records are yielded at once, so that no records are held while others are read
    """

    def __init__(
        self,
        consumer: Consumer,
        rows: Iterable[ArrowRows],
        *,
        topic_id: str = "",
        on_loss: Callable[[OffsetRange], None],
        timeout_ms: int,
        timeout_name: str,
        clock: Clock,
        is_eager: bool,
    ) -> None:
        self._consumer = consumer
        self._rows: dict[TopicPartition, ArrowRows] = {each.span.topic_partition: each for each in rows}
        self._topic_id = topic_id
        self._on_loss = on_loss
        self._timeout_ms = timeout_ms
        self._timeout_name = timeout_name
        self._clock = clock
        self._is_eager = is_eager

    def read(self) -> Generator[pa.RecordBatch]:
        """Yield every record of the ranges once, in the order of each log. The consumer's assignment is replaced.

        Offsets without a record (compacted, control batches) are skipped silently. Raises TimeoutError if no record
        arrives for `timeout_ms`, the errors of `ArrowRows.add`, errors that a retry cannot mend, and those of
        `on_loss`.
        """
        consumer, failure = self._consumer, None
        consumer.assign(list(self._rows))
        for rows in self._rows.values():
            self._seek(rows)
        progress_ms = self._clock.monotonic_ms()
        try:
            while True:
                yield from self._finish()
                if not self._rows:
                    return
                polled, failure = self._poll(failure)
                for tp, fetched in polled.items():
                    yield from self._take(self._rows[tp], fetched)
                if polled:
                    progress_ms = self._clock.monotonic_ms()
                elif self._clock.monotonic_ms() - progress_ms >= self._timeout_ms:
                    self._give_up(failure)
        finally:
            # The reader may be left early (LIMIT, a kill), and the consumer's next user must not get these records. A
            # consumer that another thread has closed has no next user.
            with contextlib.suppress(ClosedError):
                consumer.assign([])

    def _take(self, rows: ArrowRows, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        yield from rows.add(fetched.records)
        rows.skip_to(fetched.next_offset)  # the answer may lack aborted records, also at its end
        if self._is_eager:
            yield from rows.rest()

    def _finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the last records of the ranges that are finished, and read only the others from now on."""
        finished = [tp for tp, rows in self._rows.items() if rows.is_finished]
        for tp in finished:
            yield from self._rows.pop(tp).rest()
        if finished:
            self._consumer.assign(list(self._rows))

    def _poll(
        self, failure: TidelogError | None
    ) -> tuple[Mapping[TopicPartition, FetchedBatches], TidelogError | None]:
        """Handle the error of the last poll, and return the next answers and the next error that a retry may mend."""
        try:
            if failure is not None:
                self._handle(failure)
            return self._consumer.poll_batches(timeout_ms=_POLL_MS), None
        except OffsetOutOfRangeError as error:
            return {}, error
        except TidelogError as error:
            # The consumer reports a damaged batch only after several attempts.
            if isinstance(error, CorruptMessageError) or not (error.retriable or isinstance(error, TimeoutError)):
                raise
            return {}, error

    def _handle(self, failure: TidelogError) -> None:
        if isinstance(failure, OffsetOutOfRangeError):
            known = failure.topic_partition
            for tp in list(self._rows) if known is None else [known] if known in self._rows else []:
                self._handle_out_of_range(self._rows[tp], failure)
        elif isinstance(failure, UnknownTopicOrPartitionError):
            for tp, rows in self._rows.items():
                if _is_gone(self._consumer, tp):  # D
                    self._report(rows, rows.skip_to(rows.span.until))

    def _handle_out_of_range(self, rows: ArrowRows, failure: OffsetOutOfRangeError) -> None:
        tp = rows.span.topic_partition
        if isinstance(failure, LogTruncationError):  # A
            self._report(rows, range(max(rows.span.start, failure.divergent_offset), rows.position))
        if failure.made_anew:  # B
            self._report(rows, rows.skip_to(rows.span.until))
            return
        earliest = self._consumer.beginning_offsets([tp])[tp]  # C
        latest = self._consumer.end_offsets([tp])[tp]
        if rows.position < earliest:
            self._report(rows, rows.skip_to(earliest))
        elif rows.position > latest:
            self._report(rows, rows.skip_to(rows.span.until))
        self._seek(rows)

    def _seek(self, rows: ArrowRows) -> None:
        tp = rows.span.topic_partition
        if self._topic_id:
            self._consumer._seek(tp, rows.position, self._topic_id)
        else:
            self._consumer.seek(tp, rows.position)

    def _give_up(self, failure: TidelogError | None) -> None:
        """Report the offsets that the logs do not have; raise TimeoutError if no log is too short."""
        ends: Mapping[TopicPartition, int] = {}
        try:
            if failure is None:
                ends = self._consumer.end_offsets(list(self._rows))
        except TidelogError as error:
            failure = error
        short = [rows for tp, rows in self._rows.items() if tp in ends and ends[tp] < rows.span.until]
        for rows in short:
            self._report(rows, rows.skip_to(rows.span.until))
        if not short:
            waiting = "; ".join(f"{rows.span}: no record at offset {rows.position}" for rows in self._rows.values())
            cause = f": {failure}" if failure else ""
            raise TimeoutError(f"{waiting} in {self._timeout_ms} ms ({self._timeout_name}){cause}") from failure

    def _report(self, rows: ArrowRows, lost: range) -> None:
        if lost:
            self._on_loss(OffsetRange(rows.span.topic_partition, lost.start, lost.stop))


def _is_gone(consumer: Consumer, partition: TopicPartition) -> bool:
    """Return whether the partition does not exist any more. Raises a TidelogError if that cannot be determined.

    After a restart of all brokers, a broker may not know a topic yet. Such a broker cannot list topics, so that the
    list is fetched first. The list itself does not decide, because internal topics are never listed, and one broker may
    be behind the others.
    """
    consumer.topics()
    return partition.partition not in (consumer.partitions_for_topic(partition.topic) or ())
