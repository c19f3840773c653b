"""The loop of `tidelog consume`: polls records and writes them, until the reading is complete."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import click

from tidelog.cli.records.consume_range import Offsets, Span
from tidelog.cli.records.output import RecordWriter
from tidelog.cli.records.rows import Rows, read_rows
from tidelog.cli.terminal.stdout_reader import stop_if_stdout_is_closed
from tidelog.clock import SystemClock
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.quantities import MOST_NAMED, first_of, format_duration
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from tidelog.client.consumer.consumer import Consumer
    from tidelog.client.consumer.fetching.fetch_buffer import FetchedBatches

#: The position after the last written record of each partition of a poll; None if no record of it was written.
Written = Mapping[TopicPartition, OffsetAndMetadata | None]

_POLL_MS = 500
#: While no records arrive, how often to check that the cluster still answers.
_ASSURE_EVERY_MS = 5_000


class Reading(Protocol):
    """The partitions to read, and their ends; `ends` is None if the reading follows new records.

    over      returns whether every record up to the ends is written; never if `ends` is None
    unread    returns the partitions that may have more records
    written   is called with the position after the records of each poll, once these have left this process
    """

    ends: Offsets | None

    def over(self) -> bool: ...

    def unread(self) -> Sequence[TopicPartition]: ...

    def written(self, polled: Written) -> None: ...


class SpanReading:
    """Reads the partitions of a span from their start offsets, without a group.

    The constructor assigns the partitions that have records to read, and each is unassigned when its end is reached.
    """

    def __init__(self, consumer: Consumer, span: Span) -> None:
        self.ends = span.ends
        self._consumer = consumer
        self._unread = list(span.unread)
        consumer.assign(self._unread)
        for tp, offset in span.unread.items():
            consumer.seek(tp, offset)

    def over(self) -> bool:
        return not self._unread

    def unread(self) -> Sequence[TopicPartition]:
        return self._unread

    def written(self, polled: Written) -> None:
        if self.ends is None:
            return
        done = [tp for tp in polled if self._consumer.position(tp) >= self.ends[tp]]
        if done:
            self._unread = [tp for tp in self._unread if tp not in done]
            self._consumer.assign(self._unread)


def write_records(
    consumer: Consumer,
    reading: Reading,
    writer: RecordWriter,
    count: int | None,
    timeout_ms: int,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> None:
    """Poll and write records until the reading is complete, or `count` (None: no limit) records are written.

    The records before an error or Ctrl-C are written, too. Raises ClickException if no record arrives for `timeout_ms`,
    and BrokenPipeError if the reader of standard output has closed it. A reading without ends waits for records without
    a limit, as long as the cluster answers.
    """
    clock = SystemClock()
    left = sys.maxsize if count is None else count
    last_progress_ms = clock.monotonic_ms()
    while left and not reading.over():
        arrived = consumer.poll_batches(_POLL_MS)
        now_ms = clock.monotonic_ms()
        if not arrived:
            stop_if_stdout_is_closed()
            unread = reading.unread()
            if reading.ends is None and now_ms - last_progress_ms > min(_ASSURE_EVERY_MS, timeout_ms):
                consumer.end_offsets(unread)
                last_progress_ms = now_ms
            elif now_ms - last_progress_ms > timeout_ms:
                missing = first_of(list(map(str, unread)), MOST_NAMED)
                if not missing:
                    raise click.ClickException(
                        f"the group assigned no partition to this member for {format_duration(timeout_ms)}: "
                        "see tidelog group describe"
                    )
                raise click.ClickException(
                    f"no record came from {missing} for {format_duration(timeout_ms)}: see tidelog status"
                )
            continue
        last_progress_ms = now_ms
        written: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(arrived)
        try:
            for rows in _rows(arrived, reading.ends, max_decompressed_bytes):
                selected = rows.between(0, left)
                writer.write(selected)
                written[selected.topic_partition] = selected.next_position
                left -= selected.record_count
                if not left:
                    break
        finally:  # also after an unreadable batch or Ctrl-C, because the records before it are written
            writer.flush()
            reading.written(written)


def _rows(
    arrived: Mapping[TopicPartition, FetchedBatches], ends: Offsets | None, max_decompressed_bytes: int
) -> Iterator[Rows]:
    for tp, fetched in arrived.items():
        end = sys.maxsize if ends is None else ends.get(tp, 0)
        yield from read_rows(tp, fetched, end, max_decompressed_bytes)
