"""Idempotence: what is repeated is recognised, what is missing is noticed, and a restart changes neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log import Log
from storage.producer_state import ProducerState
from tests.storage.logs import NOW, append, batch, open_log, read_all
from tidelog.errors import DuplicateSequenceError, InvalidProducerEpochError, OutOfOrderSequenceError
from tidelog.records import read_header


def produce(log: Log, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> tuple[int, bool]:
    """(base offset, whether it was there already)."""
    data = batch(*[NOW] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)
    info = log.append_as_leader(data, 0, NOW)
    assert info.last_offset == info.base_offset + count - 1
    return info.base_offset, info.duplicate


def test_each_of_the_last_five_batches_is_answered_with_its_first_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(0, 14, 2):
        assert produce(log, sequence, 2) == (sequence, False)
    for sequence in range(4, 14, 2):
        assert produce(log, sequence, 2) == (sequence, True)
    with pytest.raises(DuplicateSequenceError):
        produce(log, 2, 2)
    assert log.log_end_offset == 14


def test_a_gap_is_refused_and_other_producers_do_not_count(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0, 3)
    produce(log, 0, 3, producer_id=8)
    append(log)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 4)
    assert produce(log, 3) == (7, False)


def test_only_the_very_batch_is_a_repetition_and_not_one_that_ends_alike(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0, 3)
    with pytest.raises(DuplicateSequenceError):
        produce(log, 1, 2)
    assert log.log_end_offset == 3


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 1, epoch=1)
    assert produce(log, 0, epoch=1) == (1, False)
    for sequence in (0, 1):
        with pytest.raises(InvalidProducerEpochError):
            produce(log, sequence, epoch=0)


def test_sequences_wrap(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 2**31 - 2, 4)
    assert produce(log, 2**31 - 2, 4) == (0, True)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 3)
    assert produce(log, 2) == (4, False)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_restart_remembers(tmp_path: Path, how: str) -> None:
    settings = {"segment_bytes": 300}
    log = open_log(tmp_path, **settings)
    for sequence in range(10):
        produce(log, sequence)
    log.close() if how == "closed" else log.abandon()
    log = open_log(tmp_path, clean=how == "closed", **settings)
    assert produce(log, 9) == (9, True)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 11)
    assert produce(log, 10) == (10, False)


def test_a_follower_that_becomes_leader_remembers_what_it_copied(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "a"), open_log(tmp_path / "b")
    for sequence in range(4):
        produce(leader, sequence)
    follower.append_as_follower(read_all(leader))
    assert [produce(follower, sequence) for sequence in range(5)] == [
        (0, True),
        (1, True),
        (2, True),
        (3, True),
        (4, False),
    ]


def test_what_is_truncated_may_be_sent_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for sequence in range(10):
        produce(log, sequence)
    log.truncate_to(4)
    assert produce(log, 3) == (3, True)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 5)
    assert produce(log, 4) == (4, False)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_producer_is_remembered_when_its_segments_are_gone(tmp_path: Path, how: str) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    produce(log, 0)
    while len(log.segment_base_offsets) < 3:
        append(log)
    log.close() if how == "closed" else log.abandon()
    for path in tmp_path.glob("00000000000000000000.*"):
        path.unlink()  # as retention does
    log = open_log(tmp_path, clean=how == "closed", segment_bytes=300)
    assert log.log_start_offset > 0
    assert produce(log, 0) == (0, True)


def test_a_damaged_snapshot_is_replaced_by_the_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for sequence in range(10):
        produce(log, sequence)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1] + b"\x00x")
    log = open_log(tmp_path, segment_bytes=300)
    assert produce(log, 8) == (8, True)


def test_snapshots_are_kept_for_segments_and_the_end_only(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for _ in range(3):
        for _ in range(5):
            append(log)
        log.close()
        log = open_log(tmp_path, segment_bytes=300)
    offsets = {int(path.stem) for path in tmp_path.glob("*.snapshot")}
    assert offsets <= {*log.segment_base_offsets, log.log_end_offset}
    assert log.log_end_offset in offsets


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62),
            st.integers(0, 2**15 - 1),
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**62),
            st.integers(1, 9),
        )
    )
)
def test_a_snapshot_reads_back_and_any_cut_of_it_does_not(batches: list[tuple[int, int, int, int, int]]) -> None:
    state = ProducerState()
    for producer_id, epoch, sequence, offset, count in batches:
        data = batch(*range(count), producer_id=producer_id, epoch=epoch, sequence=sequence, base_offset=offset)
        state.update(read_header(data))
    data = state.to_snapshot()
    again = ProducerState.from_snapshot(data)
    assert again is not None
    assert again.to_snapshot() == data
    assert {i: (p.epoch, p.batches[-1]) for i, p in again.producers.items()} == {
        i: (p.epoch, p.batches[-1]) for i, p in state.producers.items()
    }
    for end in range(len(data)):
        assert ProducerState.from_snapshot(data[:end]) is None
    assert ProducerState.from_snapshot(data + b"\0") is None
