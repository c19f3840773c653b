"""Measures one replica's log in this process, beside the bare system calls that write and read the same bytes."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from crc32c import crc32c

from storage.configs.log_config import LogConfig
from storage.files import RealFiles
from storage.log.log import Log
from tidelog.model import Buffer
from tidelog.records import encode_batch, read_header
from tidelog.records.header import HEADER, seal
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure

_SMALL, _LARGE = 16 << 10, 1 << 20
_PAYLOAD = 256 << 20
_TURN = 16 << 20
_RECORD = 100
_FEW, _MANY = 10_000, 10_000_000
_PLACES, _LOOK_UPS = 64, 2_000
_SEGMENTS = 1_000
_T0 = 1_700_000_000_000
_CONFIG = LogConfig(max_message_bytes=2 * _LARGE)


def _batch(size_bytes: int) -> tuple[bytes, int]:
    """Return a batch of about that size, and the number of its records.

    Each record has 100 random bytes, and the timestamp of the n-th record (from 0) is _T0 + n ms.
    """
    count = size_bytes // (_RECORD + 9)
    return encode_batch([(_T0 + number, None, os.urandom(_RECORD), ()) for number in range(count)]), count


@contextmanager
def _fresh_log(directory: Path, config: LogConfig = _CONFIG) -> Iterator[Log]:
    log = Log.open(directory / "bench-0", config, RealFiles(), recovery_point=0, clean=True)
    try:
        yield log
    finally:
        log.abandon()


def _moved(batch: bytes, first_ms: int) -> bytearray:
    """Return a copy of the batch whose first record has the timestamp `first_ms`.

    With later timestamps both indexes grow, and look-ups have different answers.
    """
    draft = bytearray(batch)
    header = read_header(batch)
    last_ms = first_ms + header.last_offset_delta
    HEADER.pack_into(draft, 0, *header._replace(base_timestamp=first_ms, max_timestamp=last_ms))
    seal(draft, 0, len(draft))
    return draft


def _append_until(log: Log, batch: bytes, until: int) -> None:
    while log.log_end_offset < until:
        time_ms = _T0 + log.log_end_offset
        log.append_as_leader(_moved(batch, time_ms), 0, time_ms)


# --- append and read ---------------------------------------------------------------------------------------------

_WRITEV = {size: Figure(f"storage-append.writev-{size}", f"bound: os.writev of {name} batches", "MB/s")
           for size, name in ((_LARGE, "1 MiB"), (_SMALL, "16 KiB"))}  # fmt: skip
_APPEND = {
    _LARGE: Figure(
        "storage-append.1MiB", "append as leader, 1 MiB batches", "MB/s", "≥ 0.8 × bound,", bound=_WRITEV[_LARGE].key
    ),
    _SMALL: Figure(
        "storage-append.16KiB", "append as leader, 16 KiB batches", "MB/s", "≥ 0.5 × bound,", bound=_WRITEV[_SMALL].key
    ),
}


def measure_append(env: BenchEnvironment) -> dict[str, float]:
    """Measure appends as leader and bare writes in turns, so that slow changes of the machine affect both alike."""
    figures: dict[str, float] = {}
    for size in (_LARGE, _SMALL):
        batch, records = _batch(size)
        each = _TURN // len(batch)
        turns = _PAYLOAD // _TURN
        bare_s = ours_s = 0.0
        with env.fresh_directory() as directory, _fresh_log(directory) as log:
            bare = os.open(directory / "bare", os.O_WRONLY | os.O_CREAT)
            for turn in range(turns):
                first_ms = _T0 + turn * each * records
                batches = [_moved(batch, first_ms + number * records) for number in range(each)]
                if turn % 2:
                    bare_s += _write_bare(bare, batches)
                ours_s += _append(log, batches, first_ms)
                if not turn % 2:
                    bare_s += _write_bare(bare, batches)
            os.close(bare)
            log.close()
            env.dump_check.read(f"log of {size >> 10} KiB batches", directory)
        figures[_WRITEV[size].key] = _megabytes(batch, turns * each) / bare_s
        figures[_APPEND[size].key] = _megabytes(batch, turns * each) / ours_s
    return figures


def _append(log: Log, batches: Sequence[Buffer], now_ms: int) -> float:
    started = time.perf_counter()
    for batch in batches:
        log.append_as_leader(batch, 0, now_ms)
    return time.perf_counter() - started


def _write_bare(file: int, batches: Sequence[Buffer]) -> float:
    started = time.perf_counter()
    for batch in batches:
        os.writev(file, (batch,))
    return time.perf_counter() - started


_PREAD = Figure("storage-read.pread", "bound: os.pread of the same file", "MB/s")
_READ = Figure("storage-read.read", "read by offset, one after the other", "MB/s", "≥ 0.8 × bound,", bound=_PREAD.key)


def measure_read(env: BenchEnvironment) -> dict[str, float]:
    """Measure reads of the log and bare reads of its file in turns, over the same number of bytes."""
    batch, records = _batch(_SMALL)
    each = _TURN // len(batch)
    turns = _PAYLOAD // _TURN
    bare_s = ours_s = 0.0
    with env.fresh_directory() as directory, _fresh_log(directory) as log:
        for _ in range(turns * each):
            log.append_as_leader(batch, 0, _T0)
        bare = os.open(log.segments[0].log.path, os.O_RDONLY)
        for turn in range(turns):
            first = turn * each
            if turn % 2:
                bare_s += _read_bare(bare, first * len(batch), each * len(batch))
            ours_s += _read(log, first * records, (first + each) * records, records / len(batch))
            if not turn % 2:
                bare_s += _read_bare(bare, first * len(batch), each * len(batch))
        os.close(bare)
    return {
        _PREAD.key: _megabytes(batch, turns * each) / bare_s,
        _READ.key: _megabytes(batch, turns * each) / ours_s,
    }


def _read(log: Log, offset: int, end: int, records_per_byte: float) -> float:
    started = time.perf_counter()
    while offset < end:
        offset += round(len(log.read(offset, _LARGE, end)) * records_per_byte)
    return time.perf_counter() - started


def _read_bare(file: int, at: int, size_bytes: int) -> float:
    end = at + size_bytes
    started = time.perf_counter()
    while at < end:
        at += len(os.pread(file, min(_LARGE, end - at), at))
    return time.perf_counter() - started


def _megabytes(batch: bytes, times: int) -> float:
    return len(batch) * times / 1e6


# --- look-ups, recovery, opening ---------------------------------------------------------------------------------


def _look_ups(by: str) -> dict[int, Figure]:
    few = Figure(f"storage-look-up.{by}-{_FEW}", f"look-up by {by} among {_FEW:,} records", "µs", "≤ 100")
    many = Figure(f"storage-look-up.{by}-{_MANY}", f"… among {_MANY:,}", "µs", "≤ 100, ≤ 1.3 × that", bound=few.key)
    return {_FEW: few, _MANY: many}


_BY_OFFSET, _BY_TIME = _look_ups("offset"), _look_ups("time")
_RECOVER = Figure("storage-look-up.recovery", "recovery of an unflushed log, 16 KiB batches", "s/GB", "≤ 2")
_SCAN = Figure("storage-look-up.scan", "bound: os.pread and CRC-32C of the same bytes", "s/GB")


def measure_look_ups(env: BenchEnvironment) -> dict[str, float]:
    """Measure look-ups by offset and by time in a short and a long log, then the recovery of the long log."""
    batch, _ = _batch(_SMALL)
    figures: dict[str, float] = {}
    for many in (_FEW, _MANY):
        with env.fresh_directory() as directory:
            with _fresh_log(directory) as log:
                _append_until(log, batch, many)
                end = log.log_end_offset
                rng = random.Random(many)
                offsets = [rng.randrange(end) for _ in range(_PLACES)]
                figures[_BY_OFFSET[many].key] = _look_up_us(offsets, lambda offset: log.read(offset, 1))
                figures[_BY_TIME[many].key] = _look_up_us(offsets, partial(_by_time, log))
                size_bytes = log.size_bytes
            if many == _MANY:
                figures |= _recovery(directory / "bench-0", size_bytes, end)
            env.dump_check.read(f"log of {many:,} records", directory)
    return figures


def _by_time(log: Log, offset: int) -> None:
    """Look up the timestamp of the record at this offset, and check that the answer is this offset."""
    found = log.offset_for_timestamp(_T0 + offset, log.log_end_offset)
    assert found is not None and found.offset == offset


def _look_up_us(offsets: list[int], look_up: Callable[[int], object]) -> float:
    """Return the median time (µs) of single look-ups at these offsets, all of which were looked up once before.

    A short and a long log are measured at the same number of places, so that the same number of bytes is warm for both.
    Otherwise the longer log would also be charged for misses of the processor's caches, which hold the whole shorter
    log.
    """
    for offset in offsets:
        look_up(offset)
    took = []
    for offset in islice(cycle(offsets), _LOOK_UPS):
        started = time.perf_counter()
        look_up(offset)
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1e6


def _recovery(directory: Path, size_bytes: int, end: int) -> dict[str, float]:
    started = time.perf_counter()
    log = Log.open(directory, LogConfig(), RealFiles(), recovery_point=0, clean=False)
    took = time.perf_counter() - started
    assert log.log_end_offset == end
    log.close()
    return {_RECOVER.key: took / (size_bytes / 1e9), _SCAN.key: _bare_scan(directory) / (size_bytes / 1e9)}


def _bare_scan(directory: Path) -> float:
    started = time.perf_counter()
    for path in sorted(directory.glob("*.log")):
        file = os.open(path, os.O_RDONLY)
        at = 0
        while piece := os.pread(file, _LARGE, at):
            crc32c(piece)
            at += len(piece)
        os.close(file)
    return time.perf_counter() - started


_OPEN = Figure("storage-open.clean", f"opening a clean log of {_SEGMENTS:,} segments", "s", "≤ 1")


def measure_open(env: BenchEnvironment) -> dict[str, float]:
    batch, records = _batch(_SMALL)
    with env.fresh_directory() as directory:
        with _fresh_log(directory, LogConfig(max_message_bytes=2 * _LARGE, segment_bytes=4 * len(batch))) as log:
            _append_until(log, batch, 4 * _SEGMENTS * records)
            assert len(log.segments) == _SEGMENTS
            log.close()
            end = log.log_end_offset
        started = time.perf_counter()
        log = Log.open(directory / "bench-0", LogConfig(), RealFiles(), recovery_point=end, clean=True)
        took = time.perf_counter() - started
        assert (log.log_end_offset, len(log.segments)) == (end, _SEGMENTS)
        log.abandon()
        env.dump_check.read(f"log of {_SEGMENTS:,} segments", directory)
    return {_OPEN.key: took}


BENCHMARKS = [
    Benchmark(
        "storage-append",
        f"{_PAYLOAD >> 20} MiB into the page cache, in turns; Tidelog checks CRCs and both indexes grow",
        tuple(figure for size in (_LARGE, _SMALL) for figure in (_WRITEV[size], _APPEND[size])),
        measure_append,
    ),
    Benchmark(
        "storage-read", f"{_PAYLOAD >> 20} MiB of 16 KiB batches in pieces of 1 MiB", (_PREAD, _READ), measure_read
    ),
    Benchmark(
        "storage-look-up",
        f"16 KiB batches of 100 B records, {_PLACES} random places of each, repeatedly, median of {_LOOK_UPS:,}; "
        "then recovery of the larger log",
        (*_BY_OFFSET.values(), *_BY_TIME.values(), _SCAN, _RECOVER),
        measure_look_ups,
    ),
    Benchmark("storage-open", f"{_SEGMENTS:,} segments of four 16 KiB batches", (_OPEN,), measure_open),
]
