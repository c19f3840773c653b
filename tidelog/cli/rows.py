"""Decodes what one poll of `tidelog consume` fetched, batch by batch, so that one batch at a time is in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import BrokerError, MessageTooLargeError
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.records.decode import RecordColumns, decode_columns
from tidelog.records.header import iter_headers

if TYPE_CHECKING:
    from tidelog.fetch_buffer import FetchedBatches


class Rows(NamedTuple):
    """Records of one batch by column, in the order of their offsets; at least one.

    timestamp_type   of all of them: 0 for the producer's (CreateTime), 1 for the broker's
    """

    topic_partition: TopicPartition
    leader_epoch: int
    timestamp_type: int
    columns: RecordColumns

    @property
    def record_count(self) -> int:
        """How many records there are."""
        return len(self.columns.offsets)

    @property
    def next_position(self) -> OffsetAndMetadata:
        """What a reader commits that has read all of them."""
        return OffsetAndMetadata(
            self.columns.offsets[-1] + 1, "", self.leader_epoch if self.leader_epoch >= 0 else None
        )

    def between(self, low: int, high: int) -> Rows:
        """The rows from index `low` up to `high`."""
        if low == 0 and high >= self.record_count:
            return self
        offsets, timestamps, keys, values, headers = self.columns
        rows = slice(low, high)
        return self._replace(
            columns=RecordColumns(offsets[rows], timestamps[rows], keys[rows], values[rows], headers[rows])
        )


def read_rows(tp: TopicPartition, fetched: FetchedBatches, end: int, max_decompressed_bytes: int) -> Iterator[Rows]:
    """Yield the records from where the fetch began up to the offset `end`, without the markers of transactions.

    CorruptMessageError and MessageTooLargeError name the partition and the offsets of the batch.
    """
    for position, header in iter_headers(fetched.records):
        if header.base_offset >= end:
            return
        if header.is_control:
            continue
        try:
            columns = decode_columns(fetched.records, position, limit=max_decompressed_bytes)
        except BrokerError as error:
            hint = " (--max-decompressed-batch-bytes)" if isinstance(error, MessageTooLargeError) else ""
            offsets = f"offsets {header.base_offset} to {header.last_offset}"
            raise type(error)(f"{tp}: the batch of {offsets} cannot be read: {error}{hint}") from None
        rows = Rows(tp, header.partition_leader_epoch, int(header.timestamp_type), columns)
        low, high = bisect_left(columns.offsets, fetched.fetch_offset), bisect_left(columns.offsets, end)
        if low < high:
            yield rows.between(low, high)
