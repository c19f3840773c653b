"""A log that was moved to another log directory is the same as the log that it has replaced (KIP-113)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from storage.log_maintenance import LogMaintenance
from storage.moves.move_rules import TAIL_BYTES
from storage.steps import PAUSE, call
from tests.storage.cleaning import COMPACT, put
from tests.storage.logs import NOW, append, batch, config, read_all, remove_deleted
from tests.storage.moving_broker import LARGE, TP, Broker, advance, append_large, finish
from tests.storage.soundness import assert_sound
from tidelog.records import iter_headers


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_moved_log_has_the_records_and_the_old_one_is_deleted(broker: Broker) -> None:
    log = broker.create()
    for _ in range(3):
        append(log)
        append_large(log)
    before, broker.high_watermark = read_all(log), 4
    broker.move_to()
    assert broker.place() == "b" and broker.log is not log and log.closed
    assert read_all(broker.log) == before
    assert append(broker.log) == 6
    (deleted,) = [path for path in broker.paths[0].iterdir() if path.name.startswith("orders")]
    assert deleted.name.endswith("-delete")
    remove_deleted(broker.manager)
    assert not deleted.exists()
    assert sorted(path.name for path in broker.paths[1].iterdir() if path.is_dir()) == ["orders-0"]
    assert not (broker.paths[1] / "orders-0/moved-from").exists()
    broker.manager.close()
    broker.start()
    assert broker.place() == "b" and broker.log.log_end_offset == 7
    assert broker.manager.high_watermarks() == {TP: 4}


def test_records_that_are_appended_meanwhile_are_moved_too(broker: Broker) -> None:
    log = broker.create()
    for _ in range(40):
        append_large(log)
    work, appended = broker.begin(), 40

    def append_more() -> bool:
        nonlocal appended
        if broker.log is log and appended < 80:
            append(log)
            appended += 1
        return False

    advance(work, append_more)
    assert broker.place() == "b" and broker.log.log_end_offset == appended


def test_log_moves_back(broker: Broker) -> None:
    append(broker.create())
    broker.move_to()
    append(broker.log)
    broker.move_to(0)
    assert broker.place() == "a" and broker.log.log_end_offset == 2
    broker.manager.close()
    broker.start()
    assert broker.place() == "a" and broker.log.log_end_offset == 2


def test_truncated_records_are_removed_from_the_copy_too(broker: Broker) -> None:
    log = broker.create()
    for _ in range(6):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 5 * TAIL_BYTES)
    log.truncate_to(2)
    for _ in range(6):
        append_large(log, leader_epoch=1, value=b"x" * len(LARGE))
    expected = read_all(log)
    finish(work)
    assert broker.log is not log and read_all(broker.log) == expected
    assert broker.log.epochs == ((0, 0), (1, 2))


def test_piece_that_was_read_during_a_truncation_is_not_used(broker: Broker) -> None:
    log = broker.create()
    for _ in range(4):
        append_large(log)
    work = broker.begin()
    work.resume()
    while True:
        outcome = call(work.step)
        if isinstance(outcome.value, bytes):  # this step has read records
            break
        work.resume(outcome)
    log.truncate_to(1)
    append_large(log, leader_epoch=1, value=b"x" * len(LARGE))
    expected = read_all(log)
    work.resume(outcome)
    finish(work)
    assert read_all(broker.log) == expected


def test_deleted_records_are_deleted_from_the_copy_too(broker: Broker) -> None:
    broker.config = config(segment_bytes=2 * TAIL_BYTES)
    log = broker.create()
    for _ in range(8):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 5 * TAIL_BYTES)
    log.delete_records(4, 8)
    assert log.delete_old_segments(NOW, 8)
    finish(work)
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (4, 8)
    assert broker.log.segment_base_offsets[0] == 4
    assert not list(broker.paths[1].glob("orders-0/*.deleted"))


def test_copy_begins_again_if_all_its_records_are_deleted(broker: Broker) -> None:
    broker.config = config(segment_bytes=2 * TAIL_BYTES)
    log = broker.create()
    for _ in range(20):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 0)
    assert broker.move.future.log.log_end_offset < 18
    log.delete_records(18, 20)
    log.delete_old_segments(NOW, 20)
    expected = read_all(log)
    finish(work)
    assert (broker.log.log_start_offset, read_all(broker.log)) == (18, expected)


def test_records_deleted_within_a_batch_stay_deleted(broker: Broker) -> None:
    log = broker.create()
    log.append_as_leader(batch(*[NOW] * 10), 0, NOW)
    log.delete_records(4, 10)
    append(log)
    broker.move_to()
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (4, 11)


def test_epoch_without_records_is_moved(broker: Broker) -> None:
    log = broker.create()
    append(log)
    log.assign_leader_epoch(7)
    broker.move_to()
    assert broker.log.latest_epoch == 7
    broker.manager.close(clean=False)
    broker.start()
    assert broker.log.latest_epoch is not None, "the file was written"


def test_producer_is_known_although_its_batches_are_deleted(broker: Broker) -> None:
    log = broker.create()
    for sequence in range(7):
        log.append_as_leader(batch(NOW, producer_id=5, epoch=0, sequence=sequence), 0, NOW)
    append(log)
    log.roll(NOW)
    log.delete_records(8, 8)
    log.delete_old_segments(NOW, 8)
    broker.move_to()
    for _ in range(2):
        repeated = broker.log.append_as_leader(batch(NOW, producer_id=5, epoch=0, sequence=6), 0, NOW)
        assert (repeated.duplicate, repeated.base_offset) == (True, 6)
        broker.manager.close(clean=False)
        broker.start()


def test_log_that_ends_with_a_gap_of_compaction_is_moved(broker: Broker) -> None:
    log = broker.create()
    for _ in range(3):
        append(log)
    log.roll(NOW)
    broker.manager.close()
    path = broker.paths[0] / "orders-0"
    data = (path / f"{0:020}.log").read_bytes()
    (path / f"{0:020}.log").write_bytes(data[: 2 * len(data) // 3])  # as if the last record was compacted away
    for index in path.glob("*index"):
        index.unlink()
    (broker.paths[0] / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    broker.start()
    assert broker.log.log_end_offset == 3 and broker.log.locate(2) is None
    broker.move_to()
    assert broker.log.log_end_offset == 3 and append(broker.log) == 3
    assert len(list(iter_headers(read_all(broker.log)))) == 3
    broker.manager.close(clean=False)
    broker.start()
    assert broker.place() == "b" and broker.log.log_end_offset == 4
    assert broker.manager.cleaner_offset(TP) == 3


def test_move_waits_while_there_is_no_log_to_copy(broker: Broker) -> None:
    append(broker.create())
    broker.waits = True
    work = broker.begin()
    for _ in range(3):
        work.resume()
        assert work.step is PAUSE
    broker.waits = False
    finish(work)
    assert broker.place() == "b"


def test_acknowledged_flush_is_never_lost_by_the_move(broker: Broker) -> None:
    log = broker.create()
    append_large(log)
    work, flushed = broker.begin(), 0

    def append_and_flush() -> bool:
        nonlocal flushed
        if broker.log is log and not broker.move.holds_flushes:
            append(log)
            log.flush()
            flushed = log.recovery_point
        return False

    advance(work, append_and_flush)
    assert broker.log is not log and broker.log.recovery_point >= flushed > 1
    log.flush()  # a flush that waited for the move ends, and changes nothing


def test_log_is_not_compacted_while_it_moves(broker: Broker) -> None:
    broker.config = config(**COMPACT)
    log = broker.create()
    for _ in range(3):
        put(log, (b"k", b"v"))
    log.roll(NOW)
    maintenance = LogMaintenance(broker.manager, broker.files)
    round_ = maintenance.begin_cleaning(NOW, {TP: 3})
    assert round_ is not None and maintenance.is_cleaning(TP), "a move must wait for this round"
    round_.end()
    assert not maintenance.is_cleaning(TP)
    move = broker.begin()
    assert maintenance.begin_cleaning(NOW, {TP: 3}) is None
    finish(move)
    broker.log.roll(NOW)
    assert maintenance.begin_cleaning(NOW, {TP: 3}) is not None


def test_move_waits_until_the_previous_one_has_deleted_the_old_log(broker: Broker) -> None:
    append(broker.create())
    previous = broker.begin()
    advance(previous, lambda: broker.move.future.is_current)
    work = broker.begin(0)
    for _ in range(3):
        work.resume()
        assert work.step is PAUSE
    finish(previous)
    finish(work)
    assert broker.place() == "a" and append(broker.log) == 1


def test_new_log_is_created_in_the_directory_that_was_chosen(broker: Broker) -> None:
    broker.manager.futures.prefer(TP, broker.paths[1])
    broker.manager.get_or_create(TP, "id", broker.config)
    assert broker.place() == "b"
    assert broker.manager.futures.preferred(TP) is None


@pytest.mark.parametrize("seed", range(60))
def test_moved_log_is_the_same_whatever_happens_meanwhile(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    broker = Broker(tmp_path, segment_bytes=3 * TAIL_BYTES, retention_bytes=20 * TAIL_BYTES)
    log, epoch, sequence = broker.create(), 0, 0

    def change() -> bool:
        nonlocal epoch, sequence
        if broker.log is not log:
            return False
        match random.randrange(12):
            case 0 | 1 | 2 | 3:
                for _ in range(random.randrange(4)):
                    append_large(log, epoch, bytes([random.randrange(256)]) * random.choice((1, 100, len(LARGE))))
            case 4:
                header = {"producer_id": random.randrange(3), "epoch": sequence, "sequence": 0}
                log.append_as_leader(batch(NOW, NOW, **header), epoch, NOW)
                sequence += 1
            case 5:
                epoch += 1
                log.assign_leader_epoch(epoch)
            case 6:
                log.truncate_to(random.randint(log.log_start_offset, log.log_end_offset))
                epoch += 1
            case 7 if random.random() < 0.3:
                log.truncate_fully_and_start_at(random.randint(0, log.log_end_offset + 5))
                epoch += 1
            case 8:
                log.delete_records(random.randint(log.log_start_offset, log.log_end_offset), log.log_end_offset)
            case 9:
                log.delete_old_segments(NOW, log.log_end_offset)
            case 10:
                log.roll(NOW)
            case 11 if not broker.move.holds_flushes:
                log.flush()
        return False

    broker.begin()
    for _ in range(25):
        change()
    while broker.log is log:
        work = broker.begin()
        steps = random.randrange(60)

        def restart_or_change() -> bool:
            nonlocal steps
            steps -= 1
            change()
            return steps == 0

        advance(work, restart_or_change)
        if not work.finished:  # as if the process ended: the next move goes on with the same files
            broker.move.release_flushes()
            broker.move.future.close()
    old, new = log, broker.log
    for _, header in iter_headers(read_all(new)):
        epoch = max(epoch, header.partition_leader_epoch)
    assert_sound(new)
    assert (new.log_start_offset, new.log_end_offset) == (old.log_start_offset, old.log_end_offset)
    assert new.epochs == old.epochs and new.recovery_point >= old.recovery_point
    assert new.last_offsets_of_producers == old.last_offsets_of_producers
    assert read_all(new) == broker.replaced_contents
