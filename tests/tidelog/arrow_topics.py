"""Make topics of generated batches, and read them record by record, as the twin of the columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.tidelog.written import Written, maybe_bytes
from tidelog.records import Codec, decode_records, encode_batch, stamp_log_append_time
from tidelog.records.excerpt import excerpt_batch, outline_batch
from tidelog.records.header import assign_offsets, read_header

#: So few different times, so that runs and windows of all kinds occur.
TIMES = st.integers(-1, 12)


@dataclass(frozen=True)
class WrittenBatch:
    """A batch, the number of offsets that are missing before it, and the indexes of the records that were compacted."""

    records: list[Written]
    codec: Codec
    append_time: int | None
    gap: int
    removed: frozenset[int]


batches = st.builds(
    WrittenBatch,
    st.lists(
        st.tuples(TIMES, maybe_bytes, maybe_bytes, st.lists(st.tuples(st.text(max_size=3), maybe_bytes), max_size=2)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(Codec),
    st.none() | st.integers(0, 12),
    st.integers(0, 3),
    st.frozensets(st.integers(0, 11), max_size=3),
)


def write(partition: FakePartition, written: Iterable[WrittenBatch]) -> None:
    for each in written:
        batch = bytearray(encode_batch(each.records, codec=each.codec))
        if each.append_time is not None:
            stamp_log_append_time(batch, 0, each.append_time)
        kept = [index for index in range(len(each.records)) if index not in each.removed]
        if each.removed and kept:
            batch = bytearray(excerpt_batch(outline_batch(batch, read_header(batch)), kept))
        assign_offsets(batch, 0, partition.end_offset + each.gap, partition.epoch)
        partition.batches.append(bytes(batch))


def rows_of(partition: FakePartition) -> list[dict[str, Any]]:
    """Return each record of the partition as a row with all columns, in the order of the log."""
    return [
        {
            "topic": partition.topic,
            "partition": partition.number,
            "offset": record.offset,
            "timestamp": None if record.timestamp == -1 else record.timestamp,
            "timestamp_type": int(read_header(batch).timestamp_type),
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for batch in partition.batches
        for record in decode_records(batch)
    ]


def a_topic(partitions: Iterable[Iterable[WrittenBatch]]) -> FakeCluster:
    """Return a cluster with a topic "t" of these partitions."""
    cluster, written = FakeCluster(), list(partitions)
    for partition, each in zip(cluster.create("t", len(written)), written, strict=True):
        write(partition, each)
    return cluster
