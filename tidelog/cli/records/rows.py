"""Decodes the batches that a poll of `tidelog consume` fetched. Only one decoded batch is in memory at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import BrokerError, MessageTooLargeError
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.records.decode import RecordColumns, decode_columns
from tidelog.records.header import iter_headers

if TYPE_CHECKING:
    from tidelog.client.consumer.fetching.fetch_buffer import FetchedBatches


class Rows(NamedTuple):
    """Records of one batch, at least one, by columns, in the order of the offsets.

    leader_epoch     the leader epoch of the batch; −1: not known
    timestamp_type   0 if the producer set the timestamps (CreateTime), 1 if the broker did (LogAppendTime)
    """

    topic_partition: TopicPartition
    leader_epoch: int
    timestamp_type: int
    columns: RecordColumns

    @property
    def record_count(self) -> int:
        """The number of records."""
        return len(self.columns.offsets)

    @property
    def next_position(self) -> OffsetAndMetadata:
        """The position after the last record, with the leader epoch of the batch, as a consumer commits it."""
        return OffsetAndMetadata(
            self.columns.offsets[-1] + 1, "", self.leader_epoch if self.leader_epoch >= 0 else None
        )

    def between(self, low: int, high: int) -> Rows:
        """Return the rows from index `low` up to but not including `high`, or up to the last if `high` is larger."""
        if low == 0 and high >= self.record_count:
            return self
        offsets, timestamps, keys, values, headers = self.columns
        rows = slice(low, high)
        return self._replace(
            columns=RecordColumns(offsets[rows], timestamps[rows], keys[rows], values[rows], headers[rows])
        )


def read_rows(tp: TopicPartition, fetched: FetchedBatches, end: int, max_decompressed_bytes: int) -> Iterator[Rows]:
    """Yield the records of each batch from the fetch's offset up to the offset `end` (exclusive).

    Batches without such records, and transaction markers, are left out. Raises CorruptMessageError or
    MessageTooLargeError, which name the partition and the offsets of the batch.
    """
    for position, header in iter_headers(fetched.records):
        if header.base_offset >= end:
            return
        if header.is_control:
            continue
        try:
            columns = decode_columns(fetched.records, position, limit=max_decompressed_bytes, checks_crc=False)
        except BrokerError as error:
            hint = " (--max-decompressed-batch-bytes)" if isinstance(error, MessageTooLargeError) else ""
            offsets = f"offsets {header.base_offset} to {header.last_offset}"
            raise type(error)(f"{tp}: the batch of {offsets} cannot be read: {error}{hint}") from None
        rows = Rows(tp, header.partition_leader_epoch, int(header.timestamp_type), columns)
        low, high = bisect_left(columns.offsets, fetched.fetch_offset), bisect_left(columns.offsets, end)
        if low < high:
            yield rows.between(low, high)
