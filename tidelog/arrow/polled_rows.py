"""Decode what one poll of a consumer takes to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from tidelog.arrow.arrow_rows import ArrowRows
from tidelog.arrow.offset_range import OffsetRange
from tidelog.client.consumer.fetching.fetch_buffer import FetchedBatches
from tidelog.model import TopicPartition


class PolledRows(NamedTuple):
    """The Arrow batches of one fetch answer, which begins at `fetch_offset`; none if the answer has no records."""

    fetch_offset: int
    batches: tuple[pa.RecordBatch, ...]

    @property
    def record_count(self) -> int:
        """The number of rows of all batches."""
        return sum(batch.num_rows for batch in self.batches)


def decode_answer(
    schema: pa.Schema, max_decompressed_batch_bytes: int, partition: TopicPartition, fetched: FetchedBatches
) -> PolledRows:
    """Return the records of the answer from its `fetch_offset` on. Raises the errors of `ArrowRows.add`."""
    span = OffsetRange(partition, fetched.fetch_offset, fetched.next_offset)
    rows = ArrowRows(schema, span, max_decompressed_batch_bytes)
    return PolledRows(fetched.fetch_offset, (*rows.add(fetched.records), *rows.rest()))


def to_table(schema: pa.Schema, polled: Iterable[PolledRows]) -> pa.Table:
    """Return one table of all rows; without rows an empty one with this schema."""
    return pa.Table.from_batches([batch for rows in polled for batch in rows.batches], schema)
