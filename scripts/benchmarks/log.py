"""One replica's log in this process, beside the system calls that it cannot do without."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.figures import Benchmark, Figure
from benchmarks.lab import Lab
from storage.config import LogConfig
from storage.files import RealFiles
from storage.log import Log
from tidelog.records.encode import encode_batch

_RECORDS = 2_000
_BATCHES = 800
_PIECE = 1 << 20

_WRITE = Figure("log.write", "bound: os.write of the same batches", "MB/s")
_APPEND = Figure("log.append", "append as leader: checked, indexed, written", "MB/s", bound=_WRITE.key)
_PREAD = Figure("log.pread", "bound: os.pread of the same bytes", "MB/s")
_READ = Figure("log.read", "read by offset, as a follower fetches", "MB/s", bound=_PREAD.key)


def measure(lab: Lab) -> dict[str, float]:
    now_ms = int(time.time() * 1e3)
    batch = encode_batch([(now_ms, None, os.urandom(100), ()) for _ in range(_RECORDS)])
    megabytes = len(batch) * _BATCHES / 1e6
    with lab.fresh_directory() as directory:
        writing, reading = _bare(directory / "bare", batch)
        log = Log.open(directory / "bench-0", LogConfig(), RealFiles(), recovery_point=0, clean=True)
        started = time.perf_counter()
        for _ in range(_BATCHES):
            log.append_as_leader(batch, 0, now_ms)
        appended = time.perf_counter()
        offset = 0
        while records := log.read(offset, _PIECE):
            offset += len(records) // len(batch) * _RECORDS
        read = time.perf_counter()
        assert offset == _BATCHES * _RECORDS
        log.abandon()
    return {
        _WRITE.key: megabytes / writing,
        _APPEND.key: megabytes / (appended - started),
        _PREAD.key: megabytes / reading,
        _READ.key: megabytes / (read - appended),
    }


def _bare(path: Path, batch: bytes) -> tuple[float, float]:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        started = time.perf_counter()
        for _ in range(_BATCHES):
            os.write(file, batch)
        written = time.perf_counter()
        at = 0
        while piece := os.pread(file, _PIECE, at):
            at += len(piece)
        return written - started, time.perf_counter() - written
    finally:
        os.close(file)


BENCHMARK = Benchmark(
    "log", f"{_BATCHES} batches of {_RECORDS} records of 100 B; page cache", (_WRITE, _APPEND, _PREAD, _READ), measure
)
