"""Helpers of the storage tests: fast files, small logs, and a simple model of a log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from storage.configs.log_config import LogConfig
from storage.files import File, RealFile, RealFiles
from storage.log.log import Log
from storage.log_manager import LogManager
from storage.segments.timestamp_search import TimestampOffset
from storage.steps import SteppedWork, Steps, call
from tidelog.records import Codec, Record, decode_records, encode_batch, iter_headers

NOW = 1_700_000_000_000


class UnsyncedFile(RealFile):
    """A file whose fsync returns at once, because these tests end processes and not machines."""

    __slots__ = ()

    def fsync(self) -> None:
        pass


class UnsyncedFiles(RealFiles):
    def open(self, path: Path, *, create: bool = True) -> File:
        return UnsyncedFile(path, create=create)

    def replace(self, path: Path, data: bytes, *, fsync: bool = True) -> None:
        super().replace(path, data, fsync=False)

    def fsync_directory(self, path: Path) -> None:
        pass


def config(**settings: object) -> LogConfig:
    """Return a configuration; `segment_bytes=100` sets `segment.bytes=100`."""
    return LogConfig.from_topic_configs({name.replace("_", "."): str(value) for name, value in settings.items()})


def open_log(
    directory: Path, *, clean: bool = True, recovery_point: int = 0, cleaned_to: int = 0, **settings: object
) -> Log:
    return Log.open(
        directory,
        config(**settings),
        UnsyncedFiles(),
        recovery_point=recovery_point,
        clean=clean,
        cleaned_to=cleaned_to,
    )


def remove_deleted(manager: LogManager) -> None:
    """Remove files as long as any can be removed."""
    while manager.remove_deleted_log():
        pass


def batch(
    *timestamps: int,
    key: bytes | None = None,
    value: bytes = b"v",
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
) -> bytes:
    """Return a batch of one record for each timestamp."""
    return encode_batch(
        [(timestamp, key, value, ()) for timestamp in timestamps],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
    )


def append(log: Log, *timestamps: int, leader_epoch: int = 0) -> int:
    """Append a batch with these timestamps (one record at `NOW` by default). Return its base offset."""
    return log.append_as_leader(batch(*(timestamps or (NOW,))), leader_epoch, NOW).base_offset


def read_all(log: Log) -> bytes:
    """Return every byte from the log start on."""
    parts = []
    offset = log.log_start_offset
    while data := log.read(offset, 1_000):
        parts.append(data)
        offset = list(iter_headers(data))[-1][1].next_offset
    return b"".join(parts)


def records_of(log: Log) -> list[tuple[Record, int]]:
    """Return every record with its leader epoch, by reading the whole log."""
    data = read_all(log)
    return [
        (record, header.partition_leader_epoch)
        for position, header in iter_headers(data)
        for record in decode_records(data, position)
        if record.offset >= log.log_start_offset
    ]


def first_at_or_after(
    records: Iterable[tuple[Record, int]], timestamp: int, upper_bound: int
) -> TimestampOffset | None:
    """Look up by time with a scan, exactly as the contract states it."""
    for record, epoch in records:
        if record.timestamp >= timestamp and record.offset < upper_bound:
            return TimestampOffset(record.timestamp, record.offset, epoch)
    return None


def largest(records: Iterable[tuple[Record, int]], upper_bound: int) -> TimestampOffset | None:
    best = None
    for record, epoch in records:
        if record.offset < upper_bound and (best is None or record.timestamp > best.timestamp):
            best = TimestampOffset(record.timestamp, record.offset, epoch)
    return best


def count_steps(steps: Steps[TimestampOffset | None]) -> tuple[TimestampOffset | None, int]:
    """Return the answer of a look-up, and the number of its steps."""
    work, count = SteppedWork(steps), 0
    work.resume()
    while not work.finished:
        work.resume(call(work.step))
        count += 1
    return work.result, count
