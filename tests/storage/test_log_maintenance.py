"""The maintenance of a broker's logs: retention, removal of files, flushes that are due, and compaction."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from storage.checkpoints import RECOVERY_POINTS
from storage.compaction.offset_map import BYTES_PER_KEY
from storage.configs.log_config import LogConfig
from storage.files import Files
from storage.log.log import Log
from storage.log_maintenance import CleaningRound, LogMaintenance
from storage.log_manager import LogManager
from tests.storage.cleaning import COMPACT, put, with_base_timestamp
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, read_all, records_of
from tidelog.errors import RequestTimedOutError
from tidelog.model import TopicPartition
from tidelog.records import decode_records, encode_batch, iter_headers
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN

ORDERS, STATES = TopicPartition("orders", 0), TopicPartition("states", 0)
DELAY_MS = 60_000


class Broker:
    """Logs on one disk that can fail, and their maintenance."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self.files = FailingFiles(files or UnsyncedFiles())
        self.manager = LogManager.open([path], self.files, 1, "c1", "boot-1")
        self.manager.open_logs()
        self.maintenance = LogMaintenance(self.manager, self.files)

    def log(self, tp: TopicPartition, **settings: object) -> Log:
        return self.manager.get_or_create(tp, "id", config(**settings))

    def compacted(self, tp: TopicPartition, rounds: int = 3, **settings: object) -> Log:
        """Return a log with `rounds` values for each of two keys; all segments but the last are sealed."""
        log = self.log(tp, **{**COMPACT, **settings})
        for number in range(rounds):
            put(log, (b"a", b"%d" % number), (b"b", b"%d" % number))
            log.roll(NOW)
        return log

    def bounds(self) -> dict[TopicPartition, int]:
        return {tp: log.log_end_offset for tp, log in self.manager.logs().items()}

    def begin(self) -> CleaningRound | None:
        return self.maintenance.begin_cleaning(NOW, self.bounds())

    def names(self, suffix: str) -> list[str]:
        return sorted(path.name for path in self.path.rglob(f"*{suffix}"))


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def drive(round_: CleaningRound | None) -> None:
    assert round_ is not None
    while round_.write_next():
        round_.install(NOW)
    round_.end()


def values(log: Log) -> list[bytes | None]:
    data = read_all(log)
    return [record.value for position, _ in iter_headers(data) for record in decode_records(data, position)]


# --- retention -----------------------------------------------------------------------------------------------


def test_old_segments_are_deleted_and_their_files_after_the_delay(broker: Broker) -> None:
    log = broker.log(ORDERS, segment_bytes=300, retention_ms=1000, file_delete_delay_ms=DELAY_MS)
    for _ in range(20):
        append(log)
    assert broker.maintenance.delete_old_segments(ORDERS, NOW, 20, NOW) == 0
    count = broker.maintenance.delete_old_segments(ORDERS, NOW + 1001, 10, NOW + 1001)
    assert count > 0
    assert 0 < log.log_start_offset <= 10, "only replicated records are removed"
    assert len(broker.names(".log.deleted")) == count
    assert broker.maintenance.remove_deleted(NOW + 1000 + DELAY_MS) == 0
    assert broker.maintenance.remove_deleted(NOW + 1001 + DELAY_MS) == count
    assert broker.names(".deleted") == []
    assert broker.maintenance.remove_deleted(NOW + 10 * DELAY_MS) == 0


def test_files_are_removed_in_the_order_in_which_they_are_due(broker: Broker) -> None:
    slow = broker.log(ORDERS, segment_bytes=300, retention_bytes=0, file_delete_delay_ms=DELAY_MS)
    fast = broker.log(STATES, segment_bytes=300, retention_bytes=0, file_delete_delay_ms=10)
    for log in (slow, fast):
        for _ in range(9):
            append(log)
    of_slow = broker.maintenance.delete_old_segments(ORDERS, NOW, 9, NOW)
    of_fast = broker.maintenance.delete_old_segments(STATES, NOW + 1, 9, NOW + 1)
    assert broker.maintenance.remove_deleted(NOW + 11) == of_fast > 0
    assert broker.maintenance.remove_deleted(NOW + DELAY_MS) == of_slow > 0


def test_retention_on_a_disk_that_fails_takes_it_offline(broker: Broker) -> None:
    log = broker.log(ORDERS, segment_bytes=300, retention_bytes=0)
    for _ in range(9):
        append(log)
    broker.files.fail(Fault.READ_ONLY)
    assert broker.maintenance.delete_old_segments(ORDERS, NOW, 9, NOW) == 0
    assert [path for path, _ in broker.manager.failed()] == [broker.path]


def test_files_that_cannot_be_removed_take_the_disk_offline(broker: Broker) -> None:
    log = broker.log(ORDERS, segment_bytes=300, retention_bytes=0, file_delete_delay_ms=0)
    for _ in range(9):
        append(log)
    broker.maintenance.delete_old_segments(ORDERS, NOW, 9, NOW)
    broker.files.fail(Fault.READ_ONLY)
    broker.maintenance.remove_deleted(NOW)
    assert len(broker.manager.failed()) == 1


def test_a_log_that_is_not_here_has_nothing_to_delete(broker: Broker) -> None:
    assert broker.maintenance.delete_old_segments(ORDERS, NOW, 9, NOW) == 0


def test_producers_that_were_idle_for_too_long_are_forgotten(broker: Broker) -> None:
    log = broker.log(ORDERS)
    log.append_as_leader(batch(NOW, producer_id=7, epoch=0, sequence=0), 0, NOW)
    assert broker.maintenance.forget_idle_producers(ORDERS, NOW, 1000) == 0
    assert broker.maintenance.forget_idle_producers(ORDERS, NOW + 999, 1000) == 0
    assert broker.maintenance.forget_idle_producers(ORDERS, NOW + 5000, 1000) == 1
    assert log.last_offsets_of_producers == {}
    assert broker.maintenance.forget_idle_producers(STATES, NOW, 1000) == 0


# --- flushing ------------------------------------------------------------------------------------------------


def test_record_is_flushed_after_flush_ms(broker: Broker) -> None:
    log, other = broker.log(ORDERS, flush_ms=1000), broker.log(STATES)
    append(log)
    append(other)
    assert broker.maintenance.flush_due(NOW) == 0
    assert broker.maintenance.flush_due(NOW + 999) == 0
    assert log.recovery_point == 0
    assert broker.maintenance.flush_due(NOW + 1000) == 1
    assert (log.recovery_point, other.recovery_point) == (1, 0)
    append(log)
    assert broker.maintenance.flush_due(NOW + 1500) == 0, "the wait begins now"
    assert broker.maintenance.flush_due(NOW + 2500) == 1


def test_rolled_segments_are_flushed_by_the_next_check(broker: Broker) -> None:
    log = broker.log(ORDERS, segment_bytes=300)
    for _ in range(9):
        append(log)
    broker.maintenance.flush_due(NOW)
    assert log.recovery_point == log.segment_base_offsets[-1] > 0


def test_failed_flush_takes_the_directory_offline(broker: Broker) -> None:
    append(broker.log(ORDERS, flush_ms=0))
    broker.files.fail(Fault.SYNC_ERROR, matching=lambda path: path.suffix == ".log")
    broker.maintenance.flush_due(NOW)
    assert len(broker.manager.failed()) == 1


# --- compaction ----------------------------------------------------------------------------------------------


def test_compaction_removes_old_segments_after_the_delay(broker: Broker) -> None:
    log = broker.compacted(STATES, file_delete_delay_ms=DELAY_MS)
    drive(broker.begin())
    assert values(log) == [b"2", b"2"]
    assert broker.names(".log.deleted")
    assert broker.maintenance.remove_deleted(NOW + DELAY_MS) > 0
    assert broker.names(".deleted") == []
    assert broker.begin() is None, "nothing is left to do"


def test_cleaner_offset_survives_a_restart(broker: Broker, tmp_path: Path) -> None:
    broker.compacted(STATES)
    drive(broker.begin())
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nstates 0 6\n"
    broker.manager.close()
    again = Broker(tmp_path)
    again.log(STATES, **COMPACT)
    assert again.manager.cleaner_offset(STATES) == 6
    assert again.begin() is None


def test_compacted_records_never_reappear_below_the_cleaner_offset() -> None:
    files, path = CrashableFiles(), Path("/data")
    broker = Broker(path, files)
    log = broker.compacted(STATES)
    log.flush()
    broker.manager.checkpoint_recovery_points()
    drive(broker.begin())
    assert values(log) == [b"2", b"2"]
    again = Broker(path, files.crash(FORGOTTEN))
    assert again.manager.cleaner_offset(STATES) == 6
    assert values(again.log(STATES, **COMPACT)) == [b"2", b"2"]


def test_record_is_removed_only_after_its_replacement_is_flushed() -> None:
    files = CrashableFiles()
    broker = Broker(Path("/data"), files)
    log = broker.log(STATES, **COMPACT, segment_bytes=400)
    old, new = b"old" * 60, b"new" * 60
    put(log, (b"key", old))
    log.roll(NOW)
    log.flush()
    broker.manager.checkpoint_recovery_points()
    for key, value in ((b"key", new), (b"other", b"1")):
        put(log, (key, value))
        log.roll(NOW)
    round_ = broker.begin()
    assert round_ is not None
    while round_.write_next():
        round_.install(NOW)
        for seed in range(20):
            left = Broker(Path("/data"), files.crash(Random(seed)))
            assert {old, new} & set(values(left.log(STATES))), seed


def test_truncation_makes_later_records_dirty_again(broker: Broker, tmp_path: Path) -> None:
    log = broker.compacted(STATES)
    drive(broker.begin())
    log.flush()
    broker.manager.checkpoint_recovery_points()
    log.truncate_to(5)
    assert broker.manager.cleaner_offset(STATES) <= 5
    assert "states 0 6" not in (tmp_path / "cleaner-offset-checkpoint").read_text()


def test_cleaner_offset_of_a_longer_log_is_dropped_at_open(tmp_path: Path) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nstates 0 3\n")
    broker = Broker(tmp_path)
    log = broker.log(STATES, **COMPACT)
    while log.log_end_offset < 5:
        put(log, (b"a", b"again"))
    assert broker.manager.cleaner_offset(STATES) == 0
    assert "states 0 0" in (tmp_path / "cleaner-offset-checkpoint").read_text()


def test_records_appended_after_a_truncation_are_dirty(broker: Broker, tmp_path: Path) -> None:
    log = broker.compacted(STATES)
    drive(broker.begin())
    assert (broker.manager.cleaner_offset(STATES), log.recovery_point) == (6, 6), "a round ends with a sync"
    log.truncate_to(5)
    while log.log_end_offset < 8:
        put(log, (b"a", b"again"))
    assert broker.manager.cleaner_offset(STATES) <= 5
    assert "states 0 6" not in (tmp_path / "cleaner-offset-checkpoint").read_text()


def test_choice_of_a_log_to_clean_waits_for_no_checkpoint(broker: Broker) -> None:
    broker.compacted(STATES)
    rounds: list[CleaningRound | None] = []

    def begin_meanwhile(call: str, path: Path) -> None:
        if (call, path.name) == ("replace", RECOVERY_POINTS):
            rounds.append(elsewhere.submit(broker.begin).result(timeout=10))

    with ThreadPoolExecutor(1) as elsewhere:
        broker.files.watch = begin_meanwhile
        broker.manager.checkpoint_recovery_points()
    assert [round_ is not None for round_ in rounds] == [True]


def test_truncation_at_the_end_of_a_round_prevents_its_record(broker: Broker) -> None:
    log = broker.compacted(STATES)
    flush = log.flush

    def cut_meanwhile(*, rolled_only: bool = False) -> None:
        flush(rolled_only=rolled_only)
        log.truncate_to(4)

    log.flush = cut_meanwhile  # type: ignore[method-assign]
    drive(broker.begin())
    log.flush = flush  # type: ignore[method-assign]
    for value in (b"later", b"last"):
        put(log, (b"a", value), (b"b", value))
        log.roll(NOW)
    assert broker.manager.cleaner_offset(STATES) <= 4
    drive(broker.begin())
    assert values(log) == [b"last", b"last"]


def test_dirtiest_log_is_cleaned_first_and_never_twice_at_once(broker: Broker) -> None:
    broker.compacted(ORDERS)
    drive(broker.begin())
    put(broker.manager.logs()[ORDERS], (b"a", b"later"))
    broker.manager.logs()[ORDERS].roll(NOW)
    broker.compacted(STATES)  # all of it is dirty
    bounds = broker.bounds()
    for tps in ((ORDERS, STATES), (STATES, ORDERS)):
        round_ = broker.maintenance.begin_cleaning(NOW, {tp: bounds[tp] for tp in tps})
        assert round_ is not None and round_.topic_partition == STATES
        round_.end()
    first, second = broker.begin(), broker.begin()
    assert first is not None and second is not None
    assert (first.topic_partition, second.topic_partition) == (STATES, ORDERS)
    assert broker.begin() is None
    drive(first)
    drive(second)
    assert broker.begin() is None


def test_only_replicated_records_are_compacted(broker: Broker) -> None:
    log = broker.compacted(STATES)
    assert broker.maintenance.begin_cleaning(NOW, {STATES: 0}) is None
    assert broker.maintenance.begin_cleaning(NOW, {}) is None
    drive(broker.maintenance.begin_cleaning(NOW, {STATES: 4}))
    assert values(log) == [b"1", b"1", b"2", b"2"]


def test_a_log_with_a_damaged_batch_is_left_alone_until_the_next_start(broker: Broker) -> None:
    log = broker.compacted(STATES)
    file = broker.path / "states-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[-3] ^= 0xFF
    file.write_bytes(data)
    drive(broker.begin())
    assert broker.begin() is None
    assert broker.manager.failed() == []
    assert broker.manager.cleaner_offset(STATES) == 0
    assert log.log_end_offset == 6


def test_damaged_header_in_a_plan_does_not_stop_other_compactions(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = broker.compacted(ORDERS, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1)
    drive(broker.begin())
    put(damaged, (b"a", b"later"))
    damaged.roll(NOW)
    (broker.path / "orders-0" / f"{6:020d}.log").write_bytes(bytes(damaged.segments[-2].size))
    whole = broker.compacted(STATES)
    drive(broker.begin())
    assert broker.begin() is None
    assert values(whole) == [b"2", b"2"]
    reported = [record for record in caplog.records if "orders-0: not compacted until" in record.message]
    assert len(reported) == 1
    assert broker.manager.failed() == []


def test_overflowing_timestamps_do_not_stop_other_compactions(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    unreadable = broker.log(ORDERS, **COMPACT)
    pairs = [(5, b"a", b"1", ()), (0, b"b", b"1", ()), (6, b"c", b"1", ())]
    unreadable.append_as_follower(with_base_timestamp(encode_batch(pairs), 2**63 - 1))
    put(unreadable, (b"b", b"2"))
    unreadable.roll(NOW)
    whole = broker.compacted(STATES)
    drive(broker.begin())
    drive(broker.begin())
    assert broker.begin() is None
    assert values(whole) == [b"2", b"2"]
    assert [tp for tp in (ORDERS, STATES) if any(f"{tp}: compacted up to" in text for text in caplog.messages)] == [
        STATES
    ]
    assert sum("not compacted until" in text and "orders-0" in text for text in caplog.messages) == 1
    assert broker.manager.cleaner_offset(ORDERS) == 0


def test_unexpected_error_excludes_the_log_from_compaction(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker.compacted(STATES)

    def fail(call: str, path: Path) -> None:
        if ".cleaned" in path.name:
            raise ValueError("a case that was forgotten")

    broker.files.watch = fail
    drive(broker.begin())
    assert broker.begin() is None
    reported = [record for record in caplog.records if "states-0" in record.message]
    assert [(record.levelname, record.exc_info is not None) for record in reported] == [("ERROR", True)]
    assert "a case that was forgotten" in reported[0].message
    assert broker.manager.failed() == []


def test_codec_that_cannot_be_loaded_now_leaves_the_log_to_the_next_round(broker: Broker) -> None:
    log = broker.compacted(STATES)

    def fail(call: str, path: Path) -> None:
        if ".cleaned" in path.name:
            raise RequestTimedOutError("cannot load the module lz4.frame")

    broker.files.watch = fail
    drive(broker.begin())
    broker.files.watch = lambda call, path: None
    drive(broker.begin())
    assert values(log) == [b"2", b"2"]
    assert broker.manager.failed() == []


def test_excluded_log_is_released_when_its_topic_is_deleted(broker: Broker) -> None:
    log = broker.compacted(STATES)
    (broker.path / "states-0" / f"{0:020d}.log").write_bytes(bytes(log.segments[0].size))
    drive(broker.begin())
    assert broker.begin() is None and log in broker.maintenance._excluded
    broker.manager.delete(STATES)
    assert broker.begin() is None and log not in broker.maintenance._excluded


def test_a_disk_that_fails_under_the_cleaner_is_taken_offline(broker: Broker) -> None:
    broker.compacted(STATES)
    broker.files.fail(Fault.FULL, matching=lambda path: ".cleaned" in path.name)
    drive(broker.begin())
    assert len(broker.manager.failed()) == 1


def test_late_cleaner_offset_is_dropped_for_a_later_log_of_the_name(broker: Broker) -> None:
    earlier = broker.compacted(STATES)
    broker.manager.delete(STATES)
    later = broker.compacted(STATES)
    for log, recorded in ((earlier, 0), (later, 6)):
        broker.manager.record_cleaned(STATES, log, 6, log.truncation_count)
        assert broker.manager.cleaner_offset(STATES) == recorded


def test_deletion_of_a_log_during_its_compaction_fails_no_directory(broker: Broker) -> None:
    broker.compacted(STATES)
    round_ = broker.begin()
    assert round_ is not None
    assert round_.write_next()
    broker.manager.delete(STATES)
    round_.install(NOW)
    assert not round_.write_next()
    round_.end()
    broker.maintenance.remove_deleted(NOW)
    assert broker.manager.failed() == []
    assert list(broker.path.glob("states*")) == []


def test_files_of_deleted_logs_are_removed_until_the_broker_stops(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tp in (STATES, ORDERS):
        put(broker.log(tp), (b"a", b"1"))
    assert not broker.maintenance.is_removal_due(NOW)
    broker.manager.delete(STATES, ORDERS)
    assert broker.maintenance.is_removal_due(NOW) and len(broker.names("-delete")) == 2
    remove = broker.files.remove_directory

    def remove_and_stop(path: Path) -> None:
        remove(path)
        broker.maintenance.stop()

    with monkeypatch.context() as patched:
        patched.setattr(broker.files, "remove_directory", remove_and_stop)
        broker.maintenance.remove_deleted(NOW)
    assert len(broker.names("-delete")) == 1
    broker.manager.close()
    assert not broker.maintenance.is_removal_due(NOW), "the next start finishes it"


def test_a_round_ends_soon_when_the_broker_stops(broker: Broker) -> None:
    log = broker.compacted(STATES)
    round_ = broker.begin()
    broker.maintenance.stop()
    drive(round_)
    assert len(values(log)) == 6
    assert broker.names(".cleaned") == []
    assert broker.manager.failed() == []


def test_topics_that_keep_everything_are_not_compacted(broker: Broker) -> None:
    log = broker.manager.get_or_create(ORDERS, "id", LogConfig())
    for _ in range(3):
        put(log, (b"a", b"1"))
        log.roll(NOW)
    assert broker.begin() is None


@pytest.mark.parametrize("keys_at_once", [1, 2, 3, 5])
def test_rounds_with_a_small_map_leave_the_last_value_of_each_key(tmp_path: Path, keys_at_once: int) -> None:
    """Keys that do not fit into the map of one round stay dirty for the next one."""
    broker = Broker(tmp_path)
    broker.maintenance = LogMaintenance(broker.manager, broker.files, map_bytes=keys_at_once * BYTES_PER_KEY)
    log = broker.log(STATES, **COMPACT)
    for number in range(12):
        put(log, (b"%d" % (number % 4), b"%d" % number))
        log.roll(NOW)
    rounds = 0
    while (round_ := broker.begin()) is not None:
        while round_.write_next():
            round_.install(0)
        assert round_.end()
        rounds += 1
        assert rounds < 20, "each round gets further"
    kept = [(record.key, record.value) for record, _ in records_of(log)]
    assert sorted(kept) == [(b"%d" % key, b"%d" % (8 + key)) for key in range(4)]
