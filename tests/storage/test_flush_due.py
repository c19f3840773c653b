"""Periodic flushes visit only logs that have changed or wait, and flush as a twin does that visits every log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from storage.configs.parsers import INT64_MAX
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.log.log import Log
from storage.log_maintenance import LogMaintenance
from storage.log_manager import LogManager
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config
from tidelog.errors import StorageError
from tidelog.model import TopicPartition

TPS = [TopicPartition("orders", partition) for partition in range(2)]
FLUSH_MS = [INT64_MAX, 0, 10]
partitions = st.sampled_from(TPS)


class InterruptedFiles(UnsyncedFiles):
    """Files that call `during_flush` once, during the next flush of a directory."""

    during_flush: Callable[[], object] | None = None

    def fsync_directory(self, path: Path) -> None:
        interrupt, self.during_flush = self.during_flush, None
        if interrupt is not None:
            interrupt()
        super().fsync_directory(path)


class Broker:
    """Logs in one directory, and their maintenance."""

    def __init__(self, path: Path) -> None:
        self.files = InterruptedFiles()
        self.manager = LogManager.open([path], self.files, 1, "c1", "boot-1")
        self.manager.open_logs()
        self.maintenance = LogMaintenance(self.manager, self.files)

    def log(self, tp: TopicPartition, flush_ms: int = INT64_MAX) -> Log:
        return self.manager.get_or_create(tp, "id", config(segment_bytes=300, flush_ms=flush_ms))

    def recovery_points(self) -> dict[TopicPartition, int]:
        return {tp: log.recovery_point for tp, log in self.manager.every_log()}


class EveryLog:
    """The twin: returns the recovery points after a flush, from the facts of all logs."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, int] = {}

    def after_flush(self, broker: Broker, now_ms: int) -> dict[TopicPartition, int]:
        found, before, self._since = {}, self._since, {}
        for tp, log in broker.manager.every_log():
            waits = log.config.flush_ms < INT64_MAX and log.recovery_point < log.log_end_offset
            since_ms = before.get(tp, now_ms)
            if waits and now_ms - since_ms >= log.config.flush_ms:
                found[tp] = log.log_end_offset
                continue
            found[tp] = max(log.recovery_point, log.segment_base_offsets[-1])
            if waits:
                self._since[tp] = since_ms
        return found


class FlushDue(RuleBasedStateMachine):
    """Any changes of two logs, in any order, with flushes between them."""

    @initialize()
    def start(self) -> None:
        self.directory = TemporaryDirectory()
        self.broker, self.twin, self.now_ms = Broker(Path(self.directory.name)), EveryLog(), NOW
        for tp in TPS:
            self.broker.log(tp)

    def teardown(self) -> None:
        self.broker.manager.close()
        self.directory.cleanup()

    @rule(tp=partitions, count=st.integers(1, 8))
    def append(self, tp: TopicPartition, count: int) -> None:
        for _ in range(count):
            append(self.broker.manager.logs()[tp])

    @rule(tp=partitions, count=st.integers(1, 8))
    def append_as_follower(self, tp: TopicPartition, count: int) -> None:
        log = self.broker.manager.logs()[tp]
        for _ in range(count):
            log.append_as_follower(batch(NOW, base_offset=log.log_end_offset), NOW)

    @rule(tp=partitions, by=st.integers(1, 30))
    def raise_end(self, tp: TopicPartition, by: int) -> None:
        log = self.broker.manager.logs()[tp]
        log.raise_end(log.log_end_offset + by)

    @rule(tp=partitions, flush_ms=st.sampled_from(FLUSH_MS))
    def configure(self, tp: TopicPartition, flush_ms: int) -> None:
        self.broker.log(tp, flush_ms)

    @rule(tp=partitions)
    def roll(self, tp: TopicPartition) -> None:
        self.broker.manager.logs()[tp].roll(NOW)

    @rule(tp=partitions, offset=st.integers(0, 30))
    def truncate(self, tp: TopicPartition, offset: int) -> None:
        self.broker.manager.logs()[tp].truncate_to(offset)

    @rule(tp=partitions, offset=st.integers(0, 30))
    def restart(self, tp: TopicPartition, offset: int) -> None:
        self.broker.manager.logs()[tp].truncate_fully_and_start_at(offset)

    @rule(tp=partitions)
    def delete(self, tp: TopicPartition) -> None:
        self.broker.manager.delete(tp)
        self.broker.log(tp)

    @rule(tp=partitions)
    def flush(self, tp: TopicPartition) -> None:
        self.broker.manager.logs()[tp].flush()

    @rule(elapsed_ms=st.integers(0, 12))
    def flush_due(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        expected = self.twin.after_flush(self.broker, self.now_ms)
        self.broker.maintenance.flush_due(self.now_ms)
        assert self.broker.recovery_points() == expected


TestFlushDue = FlushDue.TestCase
TestFlushDue.settings = settings(max_examples=50)


def test_unchanged_logs_are_not_visited(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for tp in TPS:
        append(broker.log(tp))
    broker.maintenance.flush_due(NOW)
    assert broker.manager.take_changed() == set()
    append(broker.manager.logs()[TPS[1]])
    assert broker.manager.take_changed() == {TPS[1]}


def test_log_is_flushed_after_its_recovery_point_was_lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(tmp_path)
    log = broker.log(TPS[0], flush_ms=0)
    append(log)
    broker.maintenance.flush_due(NOW)
    damaged = StorageError("the checkpoint cannot be written")
    monkeypatch.setattr(broker.manager.directories[0].checkpoints, "lower_to", Mock(side_effect=damaged))
    with pytest.raises(StorageError):
        log.truncate_to(0)
    assert log.recovery_point == 0
    assert broker.maintenance.flush_due(NOW) == 1
    assert log.recovery_point == 1


def test_flush_that_a_truncation_overtook_is_repeated(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log(TPS[0], flush_ms=0)
    append(log)
    broker.files.during_flush = log.lower_checkpoints_to_end
    broker.maintenance.flush_due(NOW)
    assert log.recovery_point == 0
    assert broker.maintenance.flush_due(NOW) == 1
    assert log.recovery_point == 1


def test_unexpected_error_leaves_the_other_logs_to_the_next_call(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    logs = [broker.log(tp, flush_ms=0) for tp in TPS]
    for log in logs:
        append(log)

    def fail() -> None:
        raise MemoryError

    broker.files.during_flush = fail
    with pytest.raises(MemoryError):
        broker.maintenance.flush_due(NOW)
    broker.maintenance.flush_due(NOW)
    assert [log.recovery_point for log in logs] == [1, 1]


def test_unflushed_segments_of_a_crash_are_flushed_after_it(tmp_path: Path) -> None:
    crashed = Broker(tmp_path)
    for _ in range(9):
        append(crashed.log(TPS[0]))
    crashed.manager.close(clean=False)
    broker = Broker(tmp_path)
    broker.maintenance.flush_due(NOW)
    log = broker.manager.logs()[TPS[0]]
    assert log.recovery_point == log.segment_base_offsets[-1] > 0


def test_new_flush_ms_holds_for_records_of_before(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log(TPS[0])
    append(log)
    assert broker.maintenance.flush_due(NOW) == 0
    broker.log(TPS[0], flush_ms=0)
    assert broker.maintenance.flush_due(NOW) == 1
    assert log.recovery_point == 1


def test_flush_that_lacked_a_descriptor_is_tried_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log(TPS[0], flush_ms=0)
    append(log)
    broker.files.during_flush = Mock(side_effect=OutOfDescriptorsError("none is left"))
    assert broker.maintenance.flush_due(NOW) == 0
    assert broker.maintenance.flush_due(NOW) == 1
    assert log.recovery_point == 1
