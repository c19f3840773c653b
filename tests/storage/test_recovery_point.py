"""Flushing: one flush at a time covers all waiting appends and no truncated records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.files import File
from storage.log.log import Log, LogOwner
from storage.log.recovery_point import RecoveryPoint
from storage.segments import segment
from tests.storage.logs import NOW, UnsyncedFile, UnsyncedFiles, append, batch, config
from tidelog.errors import StorageError
from tidelog.records import HEADER_BYTES, BatchHeader, Codec, decode_records, read_header
from tidelog.records.header import HEADER, seal

DEADLINE_S = 10


class HeldFiles(UnsyncedFiles):
    """A `.log` whose fsync signals its start and waits until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.syncs = 0
        self.failures = 0

    def open(self, path: Path, *, create: bool = True) -> File:
        return HeldFile(path, self, create=create) if path.suffix == ".log" else super().open(path, create=create)


class HeldFile(UnsyncedFile):
    __slots__ = ("_held",)

    def __init__(self, path: Path, held: HeldFiles, *, create: bool) -> None:
        super().__init__(path, create=create)
        self._held = held

    def fsync(self) -> None:
        self._held.syncs += 1
        self._held.begun.release()
        assert self._held.go.acquire(timeout=DEADLINE_S)
        if self._held.failures:
            self._held.failures -= 1
            raise StorageError(f"{self.path}: Input/output error")


def opened(directory: Path, files: UnsyncedFiles, **settings: object) -> Log:
    return Log.open(directory, config(**settings), files, recovery_point=0, clean=True)


def flushing(log: Log) -> threading.Thread:
    thread = threading.Thread(target=log.flush)
    thread.start()
    return thread


def test_recovery_point_rises_only_after_the_flush_has_returned(tmp_path: Path) -> None:
    files = HeldFiles()
    log = opened(tmp_path, files)
    append(log)
    thread = flushing(log)
    assert files.begun.acquire(timeout=DEADLINE_S)
    append(log)
    assert log.recovery_point == 0
    files.go.release()
    thread.join(DEADLINE_S)
    assert (log.recovery_point, log.log_end_offset) == (1, 2)


def test_flush_that_waited_for_a_failed_one_raises_too(tmp_path: Path) -> None:
    """The kernel reports an error once, marks the pages clean, and has nothing to write at the next fsync."""
    files = HeldFiles()
    log = opened(tmp_path, files)
    append(log)
    outcomes = list[object]()
    asking = threading.Semaphore(0)

    def flush() -> None:
        asking.release()
        try:
            log.flush()
            outcomes.append(log.recovery_point)
        except StorageError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=flush) for _ in range(2)]
    threads[0].start()
    assert files.begun.acquire(timeout=DEADLINE_S)
    threads[1].start()
    for _ in threads:
        assert asking.acquire(timeout=DEADLINE_S)
    files.failures = 1
    files.go.release(2)
    for thread in threads:
        thread.join(DEADLINE_S)
    assert [type(each) for each in outcomes] == [StorageError, StorageError]
    assert (files.syncs, log.recovery_point) == (1, 0)


def test_hundred_appends_during_a_flush_need_one_more_flush(tmp_path: Path) -> None:
    files = HeldFiles()
    log = opened(tmp_path, files)
    append(log)
    threads = [flushing(log)]
    assert files.begun.acquire(timeout=DEADLINE_S)
    for _ in range(100):
        append(log)
        threads.append(flushing(log))
    files.go.release(200)
    for thread in threads:
        thread.join(DEADLINE_S)
    assert (files.syncs, log.recovery_point) == (2, 101)


def test_truncation_during_a_flush_limits_the_recovery_point(tmp_path: Path) -> None:
    files = HeldFiles()
    log = opened(tmp_path, files)
    for _ in range(3):
        append(log)
    thread = flushing(log)
    assert files.begun.acquire(timeout=DEADLINE_S)
    log.truncate_to(1)
    append(log)
    append(log)
    files.go.release()
    thread.join(DEADLINE_S)
    assert log.recovery_point <= 1


def test_flush_that_begins_during_a_truncation_raises_no_recovery_point(tmp_path: Path) -> None:
    files = HeldFiles()
    threads: list[threading.Thread] = []

    class Owner(LogOwner):
        def truncation(self, offset: int) -> None:
            if not threads:  # called again after the truncation
                threads.append(flushing(log))
                assert files.begun.acquire(timeout=DEADLINE_S)

    log = Log.open(tmp_path, config(), files, recovery_point=0, clean=True, owner=Owner())
    for _ in range(3):
        append(log)
    files.go.release()
    log.flush()
    assert files.begun.acquire(timeout=DEADLINE_S)
    append(log)
    log.truncate_to(1)
    files.go.release()
    threads[0].join(DEADLINE_S)
    assert log.recovery_point <= log.log_end_offset == 1


def test_flush_during_an_index_rebuild_flushes_the_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = HeldFiles()
    files.go.release(DEADLINE_S)
    log = opened(tmp_path, files)
    for _ in range(5):
        append(log)
    log.flush()
    append(log)
    synced, scan = files.syncs, segment.scan_headers

    def synced_midway(*where: Any) -> Iterator[tuple[int, BatchHeader]]:
        for count, found in enumerate(scan(*where)):
            if count == 2:
                flushing(log).join(DEADLINE_S)
            yield found

    monkeypatch.setattr(segment, "scan_headers", synced_midway)
    log.segments[0].rebuild_indexes()
    assert (files.syncs, log.recovery_point) == (synced + 1, 6)


def test_flush_messages_counts_unflushed_records(tmp_path: Path) -> None:
    log = opened(tmp_path, UnsyncedFiles(), flush_messages=3)
    for due in (False, False, True, True):
        append(log)
        assert log.must_flush is due
    log.flush()
    assert not log.must_flush
    assert not opened(tmp_path / "default", UnsyncedFiles()).must_flush


def test_a_topic_that_names_a_codec_stores_every_batch_with_it(tmp_path: Path) -> None:
    for kind, codec in (("gzip", Codec.GZIP), ("zstd", Codec.ZSTD), ("lz4", Codec.LZ4), ("snappy", Codec.SNAPPY)):
        log = opened(tmp_path / kind, UnsyncedFiles(), compression_type=kind, message_timestamp_type="LogAppendTime")
        sent = batch(NOW, NOW, value=b"v" * 500, producer_id=4, epoch=0, sequence=0)
        log.append_as_leader(sent, 3, NOW + 7)
        assert log.append_as_leader(sent, 3, NOW + 8).duplicate
        stored = log.read(0, 10_000)
        header = read_header(stored)
        assert (header.codec, header.size_bytes, header.partition_leader_epoch) == (codec, len(stored), 3)
        assert [(r.offset, r.timestamp, r.value) for r in decode_records(stored)] == [
            (0, NOW + 7, b"v" * 500),
            (1, NOW + 7, b"v" * 500),
        ]
        plain = opened(tmp_path / f"plain-{kind}", UnsyncedFiles(), compression_type="uncompressed")
        plain.append_as_leader(changed_to_client(stored), 0, NOW)
        assert read_header(plain.read(0, 10_000)).codec == Codec.NONE


def changed_to_client(stored: bytes) -> bytes:
    """Return the batch as a producer sends it: without LogAppendTime and offsets."""
    header = read_header(stored)
    sent = bytearray(HEADER.pack(*header._replace(attributes=header.codec)) + stored[HEADER_BYTES:])
    seal(sent, 0, len(sent))
    return bytes(sent)


def test_flush_without_unflushed_data_calls_no_fsync() -> None:
    syncs: list[tuple[int, int]] = []
    point = RecoveryPoint(3)
    assert not point.advance(lambda: 3, lambda start, end: syncs.append((start, end)))
    assert not point.advance(lambda: 2, lambda start, end: syncs.append((start, end)))
    assert point.advance(lambda: 4, lambda start, end: syncs.append((start, end)))
    assert (syncs, point.offset) == ([(3, 4)], 4)
