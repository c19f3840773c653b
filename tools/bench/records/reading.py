"""Reads what was written with one consumer, record by record or as columns, for rates and to check each load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tidelog import Consumer, TopicPartition
from tidelog.records.columns import decode_buffers
from tools.bench.results import NotMeasured

_POLL_MS = 1_000
_TIMEOUT_S = 300.0

#: Yields for each partition of one poll the number of records and the bytes of their values.
_Polled = Callable[[Consumer], Iterator[tuple[int, int]]]


class Read(NamedTuple):
    """The number of records that were read, the bytes of their values, and the seconds that it took."""

    records: int
    size_bytes: int
    seconds: float

    @property
    def megabytes_per_s(self) -> float:
        return self.size_bytes / 1e6 / self.seconds


def read_records(bootstrap_servers: str, tps: Sequence[TopicPartition], count: int) -> Read:
    """Read the partitions from their start until `count` records are read, at most 300 s; return what was read.

    Reads by `Consumer.poll` with its defaults, and takes the length of each record's value.
    """

    def polled(consumer: Consumer) -> Iterator[tuple[int, int]]:
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            yield len(records), sum(len(record.value or b"") for record in records)

    return _read(bootstrap_servers, tps, count, polled)


def read_columns(bootstrap_servers: str, tps: Sequence[TopicPartition], count: int) -> Read:
    """Read as `read_records` does, but by `Consumer.poll_batches`, and decode the batches to columns."""

    def polled(consumer: Consumer) -> Iterator[tuple[int, int]]:
        for batches in consumer.poll_batches(timeout_ms=_POLL_MS).values():
            columns = decode_buffers(batches.records)
            yield len(columns.offsets), int(columns.values.lengths.sum())

    return _read(bootstrap_servers, tps, count, polled)


def check(bootstrap_servers: str, tps: Sequence[TopicPartition], count: int, size: int) -> None:
    """Raise NotMeasured unless the partitions hold exactly `count` readable records with values of `size` bytes."""
    read = read_columns(bootstrap_servers, tps, count)
    with Consumer(bootstrap_servers=bootstrap_servers, client_id="bench") as consumer:
        ends = sum(consumer.end_offsets(tps).values())
    if not read.records == ends == count or read.size_bytes != count * size:
        raise NotMeasured(f"{count} records acknowledged, {ends} in the log, {read.records} read")


def _read(bootstrap_servers: str, tps: Sequence[TopicPartition], count: int, polled: _Polled) -> Read:
    found = size_bytes = 0
    with Consumer(bootstrap_servers=bootstrap_servers, client_id="bench", auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        started = time.perf_counter()
        while found < count and time.perf_counter() - started < _TIMEOUT_S:
            for records, taken_bytes in polled(consumer):
                found += records
                size_bytes += taken_bytes
        return Read(found, size_bytes, time.perf_counter() - started)
