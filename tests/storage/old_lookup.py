"""The look-up of brokers before records had timestamps, step by step, over the files of a log."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

LATEST, EARLIEST = -1, -2


class SegmentFile(NamedTuple):
    """The base offset, time of the last write (ms) and bytes of a segment."""

    start: int
    modified_ms: int
    size: int


def segment_files(directory: Path, log_start: int = 0) -> list[SegmentFile]:
    files = sorted(path for path in directory.iterdir() if path.suffix == ".log")
    stats = [(int(path.stem), path.stat()) for path in files]
    return [SegmentFile(max(base, log_start), stat.st_mtime_ns // 10**6, stat.st_size) for base, stat in stats]


def offsets_before(segments: list[SegmentFile], log_end: int, now: int, timestamp: int, most: int) -> list[int]:
    times = [(0, 0)] * (len(segments) + 1 if segments[-1].size > 0 else len(segments))
    for i in range(len(segments)):
        times[i] = (segments[i].start, segments[i].modified_ms)
    if segments[-1].size > 0:
        times[len(segments)] = (log_end, now)
    if timestamp == LATEST:
        start = len(times) - 1
    elif timestamp == EARLIEST:
        start = 0
    else:
        found = False
        start = len(times) - 1
        while start >= 0 and not found:
            if times[start][1] <= timestamp:
                found = True
            else:
                start -= 1
    offsets = []
    for _ in range(min(most, start + 1)):
        offsets.append(times[start][0])
        start -= 1
    return sorted(offsets, reverse=True)


def for_a_consumer(offsets: list[int], high_watermark: int) -> list[int]:
    """Return the offsets with the high watermark once in place of all offsets at or above it."""
    if not any(offset > high_watermark for offset in offsets):
        return offsets
    while offsets and offsets[0] >= high_watermark:
        offsets = offsets[1:]
    return [high_watermark, *offsets]
