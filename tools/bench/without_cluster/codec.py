"""Measures encoding and decoding of record batches, beside the cheapest operation on the same values."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from tidelog.arrow.offset_range import OffsetRange
from tidelog.model import TopicPartition
from tidelog.records import BatchBuilder, decode_columns
from tidelog.records.columns import decode_buffers
from tidelog.spark.columns import arrow_rows, kafka_schema
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure, NotMeasured

_RECORDS = 10_000
_SIZE = 100
_BATCH_BYTES = 16 << 10
_REPEAT = 20
_T0 = 1_700_000_000_000

_JOIN = Figure("codec.join", "bound: b''.join of the values, one append each", "records/s")
_ENCODE = Figure(
    "codec.encode",
    "encode records of 100 B into batches, one call of the builder each, as a producer does",
    "records/s",
    "≥ 2,000,000",
    bound=_JOIN.key,
)
_SLICE = Figure("codec.slice", "bound: one slice for each value", "records/s")
_LISTS = Figure("codec.lists", "decode them to lists, as a consumer does", "records/s", bound=_SLICE.key)
_COLUMNS = Figure("codec.columns", "decode them to columns", "records/s", "≥ 3,000,000")
_ARROW = Figure("codec.arrow", "… and to Arrow batches with all of Kafka's columns", "records/s")


def measure(env: BenchEnvironment) -> dict[str, float]:
    values = [os.urandom(_SIZE) for _ in range(_RECORDS)]
    stamped = [(_T0 + number, value) for number, value in enumerate(values)]
    batches = _encode(stamped)
    whole = b"".join(batches)
    columns = decode_buffers(whole)
    if [columns.value(row) for row in range(_RECORDS)] != values or columns.offsets.tolist() != list(range(_RECORDS)):
        raise NotMeasured("the columns are not what was encoded")
    if [value for arrow in _to_arrow(whole) for value in arrow.column("value").to_pylist()] != values:
        raise NotMeasured("the Arrow batches are not what was encoded")
    return {
        _JOIN.key: _rate(lambda: _join(values)),
        _ENCODE.key: _rate(lambda: _encode(stamped)),
        _SLICE.key: _rate(lambda: [whole[at : at + _SIZE] for at in range(0, _RECORDS * _SIZE, _SIZE)]),
        _LISTS.key: _rate(lambda: [decode_columns(batch) for batch in batches]),
        _COLUMNS.key: _rate(lambda: decode_buffers(whole)),
        _ARROW.key: _rate(lambda: _to_arrow(whole)),
    }


def _rate(work: Callable[[], object]) -> float:
    """Run `work` several times on _RECORDS records, and return the records per second of CPU time of the fastest run.

    Other processes disturbed that run least.
    """
    took = []
    for _ in range(_REPEAT):
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
    return _RECORDS / min(took)


def _join(values: list[bytes]) -> bytes:
    parts: list[bytes] = []
    for value in values:
        parts.append(value)  # noqa: PERF402
    return b"".join(parts)


def _encode(stamped: list[tuple[int, bytes]]) -> list[bytes]:
    """Return the records (timestamp in ms, value) in batches, each as full as its limit allows."""
    batches = []
    builder, base_offset = BatchBuilder(_BATCH_BYTES), 0
    for timestamp_ms, value in stamped:
        if builder.try_append(timestamp_ms, None, value) is None:
            batches.append(builder.build(base_offset=base_offset))
            base_offset += builder.record_count
            builder = BatchBuilder(_BATCH_BYTES)
            builder.try_append(timestamp_ms, None, value)
    return [*batches, builder.build(base_offset=base_offset)]


def _to_arrow(batches: bytes) -> list[Any]:
    span = OffsetRange(TopicPartition("bench", 0), 0, _RECORDS)
    rows = arrow_rows(kafka_schema(include_headers=False), span)
    return [*rows.add(batches), *rows.rest()]


BENCHMARK = Benchmark(
    "codec",
    f"{_RECORDS:,} keyless records in batches of {_BATCH_BYTES >> 10} KiB, CRCs checked; CPU, the best of {_REPEAT}",
    (_JOIN, _ENCODE, _SLICE, _LISTS, _COLUMNS, _ARROW),
    measure,
)
