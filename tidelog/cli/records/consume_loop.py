"""The loop of `tidelog consume`: what a reading brings is written out, until there is no more of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import click

from tidelog.cli.records.consume_range import Offsets, Span
from tidelog.cli.records.output import Sink
from tidelog.cli.records.rows import Rows, read_rows
from tidelog.cli.terminal.stdout_reader import stop_if_nobody_reads
from tidelog.clock import SystemClock
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.quantities import format_duration
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from tidelog.client.consumer.consumer import Consumer
    from tidelog.client.consumer.fetch_buffer import FetchedBatches

#: The position behind the last written record of each partition of a poll; None if no record of it was written.
Written = Mapping[TopicPartition, OffsetAndMetadata | None]

_POLL_MS = 500
#: While nothing comes, how often to make sure that the cluster is still there.
_ASSURE_EVERY_MS = 5_000


class Reading(Protocol):
    """What is read, and up to where; `ends` None: with what is still to come.

    over      there is no more of it
    unread    the partitions that something may come from
    written   what a poll brought, up to the ends, has left this process
    """

    ends: Offsets | None

    def over(self) -> bool: ...

    def unread(self) -> Sequence[TopicPartition]: ...

    def written(self, polled: Written) -> None: ...


class Alone:
    """The partitions of a span, from its starts."""

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


def copy(
    consumer: Consumer,
    reading: Reading,
    sink: Sink,
    count: int | None,
    timeout_ms: int,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> None:
    """Until the reading is over, or `count` records are written.

    ClickException where nothing comes for `timeout_ms`; BrokenPipeError where nobody reads us any more.
    """
    clock = SystemClock()
    left = sys.maxsize if count is None else count
    last_progress_ms = clock.monotonic_ms()
    while left and not reading.over():
        arrived = consumer.poll_batches(_POLL_MS)
        now_ms = clock.monotonic_ms()
        if not arrived:
            stop_if_nobody_reads()
            unread = reading.unread()
            if reading.ends is None and now_ms - last_progress_ms > min(_ASSURE_EVERY_MS, timeout_ms):
                consumer.end_offsets(unread)
                last_progress_ms = now_ms
            elif now_ms - last_progress_ms > timeout_ms:
                missing = ", ".join(map(str, unread))
                if not missing:
                    raise click.ClickException(
                        f"no partition came from the group for {format_duration(timeout_ms)}: "
                        "see tidelog group describe"
                    )
                raise click.ClickException(
                    f"nothing came from {missing} for {format_duration(timeout_ms)}: see tidelog status"
                )
            continue
        last_progress_ms = now_ms
        written: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(arrived)
        try:
            for rows in _rows(arrived, reading.ends, max_decompressed_bytes):
                wanted = rows.between(0, left)
                sink.write(wanted)
                written[wanted.topic_partition] = wanted.next_position
                left -= wanted.record_count
                if not left:
                    break
        finally:  # an unreadable batch or Ctrl-C ends the loop, and the records before count as written
            sink.flush()
            reading.written(written)


def _rows(
    arrived: Mapping[TopicPartition, FetchedBatches], ends: Offsets | None, max_decompressed_bytes: int
) -> Iterator[Rows]:
    for tp, fetched in arrived.items():
        end = sys.maxsize if ends is None else ends.get(tp, 0)
        yield from read_rows(tp, fetched, end, max_decompressed_bytes)
