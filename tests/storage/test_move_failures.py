"""An error during a move of a log harms only what has failed, and a move ends with its log."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from storage.files import RealFiles
from storage.moves.log_move import MoveEndedError
from storage.steps import PAUSE
from tests.storage.logs import UnsyncedFiles, append, read_all, remove_deleted
from tests.storage.moving_broker import TP, Broker, advance, append_large, begin_and_hold_flushes, finish
from tests.storage.system_calls import Call, SystemCalls
from tidelog.errors import CorruptMessageError, StorageError
from verify.simulation.disks.failing_files import FailingFiles, Fault


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_full_target_ends_only_the_move(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files)
    log = broker.create()
    for _ in range(4):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 0)
    append_large(log)
    files.fail(Fault.FULL, broker.paths[1])
    with pytest.raises(StorageError, match="No space left"):
        finish(work)
    files.heal()
    broker.move.future.discard()
    remove_deleted(broker.manager)
    assert [each.works for each in broker.manager.directories] == [True, True]
    assert not list(broker.paths[1].glob("orders-0*"))
    assert append(log) == 5
    log.flush()


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.WRITE_ERROR, Fault.SYNC_ERROR, Fault.READ_ONLY])
@pytest.mark.parametrize("after", range(0, 60, 3))
def test_failing_target_never_harms_the_replica(tmp_path: Path, fault: Fault, after: int) -> None:
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(tmp_path, files)
    log = broker.create()
    for _ in range(4):
        append_large(log)
    expected = read_all(log)
    files.fail(fault, broker.paths[1], after=after)
    work = broker.begin()
    try:
        finish(work)
    except StorageError:
        assert broker.log is log
    files.heal()
    if broker.log is log:
        assert broker.manager.directories[0].works
        append(log)
        log.flush()
        assert read_all(log)[: len(expected)] == expected
    broker.manager.close(clean=False)
    broker.start()
    assert read_all(broker.log)[: len(expected)] == expected


def test_damaged_record_ends_the_move_and_stays_where_it_is(broker: Broker) -> None:
    log = broker.create()
    for _ in range(3):
        append_large(log)
    path = broker.paths[0] / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptMessageError):
        broker.move_to()
    assert broker.log is log


def move_from_a_disk_that_fails(root: Path, after: int) -> bool:
    """Move a log whose disk fails all reads of the move after so many. Return whether the move came to its end."""
    files = FailingFiles(UnsyncedFiles())
    broker = Broker(root, files)
    log = broker.create()
    append_large(log)
    source, target = broker.manager.directories
    work, moves = broker.begin(), True
    future = broker.move.future
    files.fail(Fault.READ_ERROR, source.path, matching=lambda _: moves and not future.is_current, after=after)
    advance(work, lambda: not source.works or future.end_offset == log.log_end_offset)
    if source.works:
        moves = False
        append(log)  # the tail, which the last step copies
        moves = True
        advance(work, lambda: not source.works)
    assert target.works and (broker.place() == "b") is work.finished
    assert work.finished or (work.step is PAUSE and not source.works)
    return work.finished


def test_unreadable_log_fails_its_directory_in_each_step(tmp_path: Path) -> None:
    """The target directory is not to blame, and the replica goes offline as after each other failed read."""
    reads = next(number for number in count() if move_from_a_disk_that_fails(tmp_path / str(number), number))
    assert reads > 3


def test_move_without_a_descriptor_goes_on_when_one_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nothing here depends on the disk
    for number in count():
        with SystemCalls(tmp_path) as calls:
            broker, left = Broker(tmp_path / str(number), RealFiles()), number
            log = broker.create()
            for _ in range(3):
                append_large(log)
            log.flush()
            append(log)
            expected = read_all(log)

            def refuse(call: Call) -> int:
                nonlocal left
                left -= call.name == "open"
                return errno.EMFILE if call.name == "open" and left == -1 else 0

            calls.refuse, interrupted = refuse, False
            try:
                broker.move_to()
            except StorageError as error:
                interrupted = "while segments of" in str(error)  # a truncation, before a record is copied
                assert interrupted and broker.move.copied_bytes == 0 and broker.log is log
            calls.refuse = lambda call: 0
            assert all(each.works for each in broker.manager.directories)
            assert read_all(broker.log) == expected
            if not interrupted:
                assert broker.place() == "b" and not (broker.paths[0] / "orders-0").exists()
                assert broker.move.copied_bytes == len(expected), "nothing is copied twice"
                assert not broker.manager.waits_for_deletion(TP)
        if left >= 0:
            break
    assert number > 10


# --- the end of a move ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["deleted", "set aside", "offline"])
def test_move_ends_with_its_log(broker: Broker, end: str) -> None:
    log = broker.create()
    for _ in range(4):
        append_large(log)
    work = broker.begin()
    advance(work, lambda: broker.move.copied_bytes > 0)
    match end:
        case "deleted":
            broker.manager.delete(TP)
        case "set aside":
            broker.manager.set_aside(TP)
        case "offline":
            broker.manager.take_offline(broker.paths[0], StorageError("burnt"))
    assert TP not in broker.manager.futures
    with pytest.raises(MoveEndedError):
        finish(work)
    broker.move.future.discard()
    assert not list(broker.paths[1].glob("*-future"))
    with suppress(StorageError):  # the log is closed or offline
        log.flush()  # no flush waits for the move


def test_flushes_go_on_when_a_move_ends_that_let_them_wait(broker: Broker) -> None:
    append_large(broker.create())
    work = begin_and_hold_flushes(broker)
    flush = threading.Thread(target=broker.log.flush, daemon=True)
    flush.start()
    broker.manager.futures.cancel(TP)
    with pytest.raises(MoveEndedError):
        finish(work)
    flush.join(5)
    assert not flush.is_alive()


def test_flush_of_the_old_log_is_no_failure_after_the_move(tmp_path: Path) -> None:
    broker = Broker(tmp_path, RealFiles())
    old = broker.create()
    append_large(old)
    work = begin_and_hold_flushes(broker)
    append(old)
    advance(work, lambda: broker.move.future.is_current)
    assert read_all(old) == broker.replaced_contents, "a fetch may have begun to read it"
    shutil.rmtree(broker.paths[0] / "orders-0")
    old.flush()
    assert not broker.manager.directories[0].data_loss_marker.flush_failed


def test_new_topic_of_the_name_never_opens_the_old_log(broker: Broker) -> None:
    append_large(broker.create())
    work = broker.begin()
    advance(work, lambda: broker.move.future.is_current)
    assert (broker.paths[0] / "orders-0").exists(), "the old log is deleted in the next step"
    broker.manager.delete(TP)
    broker.manager.futures.prefer(TP, broker.paths[0])
    log = broker.manager.get_or_create(TP, "later", broker.config)
    assert (log.log_end_offset, broker.place()) == (0, "b")
    finish(work)
    assert not (broker.paths[0] / "orders-0").exists() and append(log) == 0
    broker.manager.delete(TP)
    broker.manager.futures.prefer(TP, broker.paths[0])
    broker.manager.get_or_create(TP, "latest", broker.config)
    assert broker.place() == "a"
