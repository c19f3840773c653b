"""Collect the record batches of one partition, and make Arrow batches of their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from tidelog.arrow.arrays import MAKERS, MakeArray, Rows, to_record_batch
from tidelog.arrow.offset_range import OffsetRange
from tidelog.arrow.time_window import TimeWindow
from tidelog.arrow.window_reading import WindowReading
from tidelog.errors import BrokerError
from tidelog.model import Buffer
from tidelog.records import MAX_DECOMPRESSED_BYTES, iter_headers
from tidelog.records.columns import ColumnCollector, RecordBuffers

#: An Arrow batch costs its reader the same whatever its size. Batches larger than this (≈ 2 MB of 100-byte values)
#: save no more time.
ROWS_PER_BATCH = 20_000
#: Large values end an Arrow batch before it has ROWS_PER_BATCH rows.
BYTES_PER_BATCH = 4 << 20


class ArrowRows:
    """Collects the records of a range of offsets, and makes Arrow batches of those in the time window.

    position   the offset of the next record to read: at first the start of the range, never more than its end
    """

    def __init__(
        self,
        schema: pa.Schema,
        span: OffsetRange,
        max_decompressed_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
        *,
        makers: Mapping[str, MakeArray] = MAKERS,
        window: TimeWindow | None = None,
    ) -> None:
        self.span = span
        self.position = span.start
        self._schema = schema
        self._makers = makers
        self._window = None if window is None or window.is_whole else WindowReading(window)
        self._collector = ColumnCollector(max_decompressed_batch_bytes, checks_crcs=False)
        self._from = span.start

    @property
    def is_finished(self) -> bool:
        """Return whether all records of the range and the window were added."""
        return self.position >= self.span.until

    def add(self, batches: Buffer) -> Iterator[pa.RecordBatch]:
        """Add whole record batches, in the log's order; advance `position`, and yield each Arrow batch that is full.

        CRCs are not checked here, because the consumer checks them when the batches arrive. Records outside the range,
        records before `position`, and control batches are skipped. Raises the errors of
        `tidelog.records.decode_records`, with the partition and the offsets.
        """
        for at, header in iter_headers(batches):
            if header.next_offset <= self.position or self.is_finished:
                continue
            if header.base_offset < self.position:
                yield from self.rest()  # the collected records are yielded now, because `_from` will skip the next ones
            if not header.is_control:
                try:
                    self._collector.add(batches, at, header)
                except BrokerError as error:
                    raise self._unreadable(error, header.base_offset, header.next_offset) from error
            self.position = min(header.next_offset, self.span.until)
            if self._collector.record_count >= ROWS_PER_BATCH or self._collector.size_bytes >= BYTES_PER_BATCH:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield one Arrow batch of the collected records that were not yielded yet; nothing if there are none."""
        try:
            columns = self._collector.take()
        except BrokerError as error:
            raise self._unreadable(error, self._from, self.position) from error
        low, high = np.searchsorted(columns.offsets, (self._from, self.span.until)).tolist()
        self._from = self.position
        selected, mask = columns.between(low, high), None
        if self._window is not None:
            selected, mask = self._in_window(self._window, selected)
        if len(selected.offsets):
            arrow = to_record_batch(Rows(self.span.topic_partition, selected), self._schema, self._makers)
            yield arrow if mask is None else arrow.filter(mask)

    def _in_window(self, window: WindowReading, records: RecordBuffers) -> tuple[RecordBuffers, pa.Array | None]:
        """Return the records from the first to the last one in the window, and a mask of those between them, or None.

        If the records end the reading of the partition, the range is finished.
        """
        low, high, mask = window.select(records.timestamps)
        if window.has_ended:
            self.position = self.span.until
        return records.between(low, high), None if mask is None else pa.array(mask)

    def _unreadable(self, error: BrokerError, first: int, end: int) -> BrokerError:
        """Return the error with the partition and the offsets [first, end), some of which cannot be read."""
        return type(error)(f"{self.span.topic_partition}: offsets {first} to {end - 1} cannot be read: {error}")

    def skip_to(self, offset: int) -> range:
        """Set `position` to `offset`, or to the range's end if that is less; return the offsets that are skipped.

        An `offset` before `position` changes nothing and returns an empty range.
        """
        skipped = range(self.position, min(offset, self.span.until))
        self.position = max(self.position, skipped.stop)
        return skipped
