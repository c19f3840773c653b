"""One replica's log in this process, beside the bare system calls that write and read the same bytes."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from crc32c import crc32c

from benchmarks.figures import Benchmark, Figure
from benchmarks.lab import Lab
from storage.config import LogConfig
from storage.files import RealFiles
from storage.log import Log
from tidelog.records import encode_batch, read_header
from tidelog.records.header import HEADER, seal

_SMALL, _LARGE = 16 << 10, 1 << 20
_PAYLOAD = 512 << 20
_RECORD = 100
_FEW, _MANY = 10_000, 10_000_000
_LOOK_UPS = 2_000
_SEGMENTS = 1_000
_T0 = 1_700_000_000_000


def _batch(size_bytes: int) -> tuple[bytes, int]:
    """A batch of about that size and its records, 100 random bytes and a millisecond each."""
    count = size_bytes // (_RECORD + 9)
    return encode_batch([(_T0 + number, None, os.urandom(_RECORD), ()) for number in range(count)]), count


@contextmanager
def _fresh_log(directory: Path, **settings: int) -> Iterator[Log]:
    config = LogConfig(max_message_bytes=2 * _LARGE, **settings)
    log = Log.open(directory / "bench-0", config, RealFiles(), recovery_point=0, clean=True)
    try:
        yield log
    finally:
        log.abandon()


def _append_until(log: Log, batch: bytes, records: int, until: int) -> None:
    """Batches whose times go on from each other, so that a look-up by time has something to tell apart."""
    draft = bytearray(batch)
    header = read_header(batch)
    while log.log_end_offset < until:
        time_ms = _T0 + log.log_end_offset
        moved = header._replace(base_timestamp=time_ms, max_timestamp=time_ms + records - 1)
        HEADER.pack_into(draft, 0, *moved)
        seal(draft, 0, len(draft))
        log.append_as_leader(draft, 0, time_ms)


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


def measure_append(lab: Lab) -> dict[str, float]:
    figures: dict[str, float] = {}
    for size in (_LARGE, _SMALL):
        batch, _ = _batch(size)
        times = _PAYLOAD // len(batch)
        with lab.fresh_directory() as directory:
            figures[_WRITEV[size].key] = _megabytes(batch, times) / _bare_writes(directory / "bare", batch, times)
        with lab.fresh_directory() as directory, _fresh_log(directory) as log:
            started = time.perf_counter()
            for _ in range(times):
                log.append_as_leader(batch, 0, _T0)
            figures[_APPEND[size].key] = _megabytes(batch, times) / (time.perf_counter() - started)
    return figures


def _bare_writes(path: Path, batch: bytes, times: int) -> float:
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        started = time.perf_counter()
        for _ in range(times):
            os.writev(file, (batch,))
        return time.perf_counter() - started
    finally:
        os.close(file)


_PREAD = Figure("storage-read.pread", "bound: os.pread of the same file", "MB/s")
_READ = Figure("storage-read.read", "read by offset, one after the other", "MB/s", "≥ 0.8 × bound,", bound=_PREAD.key)


def measure_read(lab: Lab) -> dict[str, float]:
    batch, records = _batch(_SMALL)
    times = _PAYLOAD // len(batch)
    with lab.fresh_directory() as directory, _fresh_log(directory) as log:
        for _ in range(times):
            log.append_as_leader(batch, 0, _T0)
        bare = _bare_reads(log.segments[0].log.path)
        offset = 0
        started = time.perf_counter()
        while data := log.read(offset, _LARGE):
            offset += len(data) // len(batch) * records
        took = time.perf_counter() - started
        assert offset == times * records
    return {_PREAD.key: _megabytes(batch, times) / bare, _READ.key: _megabytes(batch, times) / took}


def _bare_reads(path: Path) -> float:
    file = os.open(path, os.O_RDONLY)
    try:
        started, at = time.perf_counter(), 0
        while piece := os.pread(file, _LARGE, at):
            at += len(piece)
        return time.perf_counter() - started
    finally:
        os.close(file)


def _megabytes(batch: bytes, times: int) -> float:
    return len(batch) * times / 1e6


# --- look-ups, recovery, opening ---------------------------------------------------------------------------------

_BY_OFFSET = {
    records: Figure(f"storage-look-up.offset-{records}", f"look-up by offset among {records:,} records", "µs", "≤ 100")
    for records in (_FEW, _MANY)
}
_BY_TIME = {
    records: Figure(f"storage-look-up.time-{records}", f"look-up by time among {records:,} records", "µs", "≤ 100")
    for records in (_FEW, _MANY)
}
_RECOVER = Figure("storage-look-up.recovery", "recovery of an unflushed log, 16 KiB batches", "s/GB", "≤ 2")
_SCAN = Figure("storage-look-up.scan", "bound: os.pread and CRC-32C of the same bytes", "s/GB")


def measure_look_ups(lab: Lab) -> dict[str, float]:
    """And, as the log is there already, its recovery."""
    batch, records = _batch(_SMALL)
    figures: dict[str, float] = {}
    for many in (_FEW, _MANY):
        with lab.fresh_directory() as directory:
            with _fresh_log(directory) as log:
                _append_until(log, batch, records, many)
                end = log.log_end_offset
                dice = random.Random(many)
                offsets = [dice.randrange(end) for _ in range(_LOOK_UPS)]
                figures[_BY_OFFSET[many].key] = _look_up_us(offsets, lambda offset: log.read(offset, 1))
                figures[_BY_TIME[many].key] = _look_up_us(offsets, partial(_by_time, log))
                size_bytes = log.size_bytes
            if many == _MANY:
                figures |= _recovery(directory / "bench-0", size_bytes, end)
    return figures


def _by_time(log: Log, offset: int) -> None:
    """The n-th record is of the n-th millisecond."""
    found = log.offset_for_timestamp(_T0 + offset, log.log_end_offset)
    assert found is not None and found.offset == offset


def _look_up_us(offsets: list[int], look_up: Callable[[int], object]) -> float:
    """The median of single look-ups, all of which were done once before: the pages are in memory."""
    for offset in offsets:
        look_up(offset)
    took = []
    for offset in offsets:
        started = time.perf_counter()
        look_up(offset)
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1e6


def _recovery(directory: Path, size_bytes: int, end: int) -> dict[str, float]:
    started = time.perf_counter()
    log = Log.open(directory, LogConfig(), RealFiles(), recovery_point=0, clean=False)
    took = time.perf_counter() - started
    assert log.log_end_offset == end
    log.abandon()
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


def measure_open(lab: Lab) -> dict[str, float]:
    batch, records = _batch(_SMALL)
    with lab.fresh_directory() as directory:
        with _fresh_log(directory, segment_bytes=4 * len(batch)) as log:
            _append_until(log, batch, records, 4 * _SEGMENTS * records)
            assert len(log.segments) == _SEGMENTS
            log.close()
            end = log.log_end_offset
        started = time.perf_counter()
        log = Log.open(directory / "bench-0", LogConfig(), RealFiles(), recovery_point=end, clean=True)
        took = time.perf_counter() - started
        assert (log.log_end_offset, len(log.segments)) == (end, _SEGMENTS)
        log.abandon()
    return {_OPEN.key: took}


BENCHMARKS = [
    Benchmark(
        "storage-append",
        f"{_PAYLOAD >> 20} MiB into the page cache, CRC checked, both indexes written",
        tuple(figure for size in (_LARGE, _SMALL) for figure in (_WRITEV[size], _APPEND[size])),
        measure_append,
    ),
    Benchmark(
        "storage-read", f"{_PAYLOAD >> 20} MiB of 16 KiB batches in pieces of 1 MiB", (_PREAD, _READ), measure_read
    ),
    Benchmark(
        "storage-look-up",
        f"16 KiB batches of 100 B records, {_LOOK_UPS:,} random places, warm, median; then recovery of the larger log",
        (*_BY_OFFSET.values(), *_BY_TIME.values(), _SCAN, _RECOVER),
        measure_look_ups,
    ),
    Benchmark("storage-open", f"{_SEGMENTS:,} segments of four 16 KiB batches", (_OPEN,), measure_open),
]
