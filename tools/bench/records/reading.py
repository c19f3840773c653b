"""One consumer reads what was written, record by record or as columns: rates of consuming, and every load's check."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tidelog import Consumer, TopicPartition
from tidelog.records.columns import decode_buffers
from tools.bench.results import NotMeasured

_POLL_MS = 1_000
_PATIENCE_S = 300.0

#: Of each partition in one poll: records, and the bytes of their values.
_Polled = Callable[[Consumer], Iterator[tuple[int, int]]]


class Read(NamedTuple):
    """Records, the bytes of their values, and the seconds from the first poll to the last record."""

    records: int
    size_bytes: int
    seconds: float

    @property
    def megabytes_per_s(self) -> float:
        return self.size_bytes / 1e6 / self.seconds


def read_records(bootstrap_servers: str, tps: Sequence[TopicPartition], count: int) -> Read:
    """By `Consumer.poll` with its defaults, each record's value looked at."""

    def polled(consumer: Consumer) -> Iterator[tuple[int, int]]:
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            yield len(records), sum(len(record.value or b"") for record in records)

    return _read(bootstrap_servers, tps, count, polled)


def read_columns(bootstrap_servers: str, tps: Sequence[TopicPartition], count: int) -> Read:
    """By `Consumer.poll_batches`, decoded to columns."""

    def polled(consumer: Consumer) -> Iterator[tuple[int, int]]:
        for batches in consumer.poll_batches(timeout_ms=_POLL_MS).values():
            columns = decode_buffers(batches.records)
            yield len(columns.offsets), int(columns.values.lengths.sum())

    return _read(bootstrap_servers, tps, count, polled)


def check(bootstrap_servers: str, tps: Sequence[TopicPartition], count: int, size: int) -> None:
    """NotMeasured unless the partitions hold so many records with values of that size, and can be read."""
    read = read_columns(bootstrap_servers, tps, count)
    with Consumer(bootstrap_servers, client_id="bench") as consumer:
        ends = sum(consumer.end_offsets(tps).values())
    if not read.records == ends == count or read.size_bytes != count * size:
        raise NotMeasured(f"{count} records acknowledged, {ends} in the log, {read.records} read")


def _read(bootstrap_servers: str, tps: Sequence[TopicPartition], count: int, polled: _Polled) -> Read:
    found = size_bytes = 0
    with Consumer(bootstrap_servers, client_id="bench", auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        started = time.perf_counter()
        while found < count and time.perf_counter() - started < _PATIENCE_S:
            for records, taken_bytes in polled(consumer):
                found += records
                size_bytes += taken_bytes
        return Read(found, size_bytes, time.perf_counter() - started)
