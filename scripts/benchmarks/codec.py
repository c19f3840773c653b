"""Records to batches and back, beside the cheapest thing that could be done to the same values."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from benchmarks.figures import Benchmark, Figure
from benchmarks.lab import Lab
from tidelog.records.decode import decode_columns
from tidelog.records.encode import BatchBuilder

_RECORDS = 2_000
_REPEAT = 100

_JOIN = Figure("codec.join", "bound: b''.join of the values, one append each", "records/s")
_ENCODE = Figure("codec.encode", "encode records of 100 B", "records/s", "≥ 1,000,000", bound=_JOIN.key)
_SLICE = Figure("codec.slice", "bound: one slice for each value", "records/s")
_DECODE = Figure("codec.decode", "decode records of 100 B to columns", "records/s", bound=_SLICE.key)


def measure(lab: Lab) -> dict[str, float]:
    values = [os.urandom(100) for _ in range(_RECORDS)]
    batch = _encode(values)
    return {
        _JOIN.key: _rate(lambda: _join(values)),
        _ENCODE.key: _rate(lambda: _encode(values)),
        _SLICE.key: _rate(lambda: [batch[at : at + 100] for at in range(0, _RECORDS * 100, 100)]),
        _DECODE.key: _rate(lambda: decode_columns(batch)),
    }


def _rate(work: Callable[[], object]) -> float:
    work()
    started = time.perf_counter()
    for _ in range(_REPEAT):
        work()
    return _RECORDS * _REPEAT / (time.perf_counter() - started)


def _join(values: list[bytes]) -> bytes:
    parts: list[bytes] = []
    for value in values:
        parts.append(value)  # noqa: PERF402
    return b"".join(parts)


def _encode(values: list[bytes]) -> bytes:
    builder = BatchBuilder(1 << 20)
    for number, value in enumerate(values):
        builder.try_append(1_700_000_000_000 + number, None, value)
    return builder.build()


BENCHMARK = Benchmark(
    "codec", f"batches of {_RECORDS} records in this process", (_JOIN, _ENCODE, _SLICE, _DECODE), measure
)
