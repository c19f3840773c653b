"""Idempotence: repeated batches are recognised, missing ones are noticed, and a restart changes neither."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.files import File
from storage.log.log import Log
from storage.log.recovery import rebuild_producers
from storage.producers.producer_state import BATCHES_KEPT, ProducerState
from tests.storage.cleaning import keyed, with_attributes
from tests.storage.logs import NOW, UnsyncedFile, UnsyncedFiles, append, batch, config, open_log, read_all
from tidelog.errors import BrokerError, InvalidProducerEpochError, OutOfOrderSequenceError
from tidelog.records import BatchHeader, MarkerKind, encode_control_batch, iter_headers, read_header

DAY_MS = 24 * 60 * 60 * 1000


def produce(log: Log, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> tuple[int, bool]:
    """Return (base offset, whether the batch was a duplicate)."""
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
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 2, 2)
    assert log.log_end_offset == 14


@pytest.mark.parametrize(
    "settings",
    [{"max_message_bytes": 80}, {"segment_bytes": 80}, {"cleanup_policy": "compact"}],
    ids=["max.message.bytes", "segment.bytes", "cleanup.policy"],
)
def test_repeated_batch_is_answered_although_settings_now_forbid_it(tmp_path: Path, settings: dict[str, Any]) -> None:
    log = open_log(tmp_path)
    produce(log, 0, 3)
    log.config = config(**settings)
    assert produce(log, 0, 3) == (0, True)
    with pytest.raises(BrokerError):
        produce(log, 3, 3)
    repeated = batch(*[NOW] * 3, producer_id=7, epoch=0, sequence=0)
    for wrong in (repeated[:-1] + b"?", repeated + batch(NOW, producer_id=7, epoch=0, sequence=3), repeated[:60]):
        with pytest.raises(BrokerError):
            log.append_as_leader(wrong, 0, NOW)
    assert log.log_end_offset == 3


def test_a_gap_is_refused_and_other_producers_do_not_count(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0, 3)
    produce(log, 0, 3, producer_id=8)
    append(log)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 4)
    assert produce(log, 3) == (7, False)


def test_repetition_requires_the_same_first_and_last_sequence(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0, 3)
    for sequence in (0, 1, 2):
        with pytest.raises(OutOfOrderSequenceError):
            produce(log, sequence, 2)
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
    for sequence in range(3, 3 + BATCHES_KEPT):
        produce(log, sequence)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 2**31 - 2, 4)


def test_sequence_zero_follows_the_greatest_sequence(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 2**31 - 1)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 1)
    assert produce(log, 0) == (1, False)


def test_a_producer_that_the_log_does_not_know_begins_anywhere(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert produce(log, 17, epoch=3) == (0, False)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 19, epoch=3)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_restart_keeps_the_producers(tmp_path: Path, how: str) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for sequence in range(10):
        produce(log, sequence)
    log.close() if how == "closed" else log.abandon()
    log = open_log(tmp_path, clean=how == "closed", segment_bytes=300)
    assert produce(log, 9) == (9, True)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 11)
    assert produce(log, 10) == (10, False)


def test_follower_that_becomes_leader_knows_the_copied_producers(tmp_path: Path) -> None:
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


def test_truncated_batch_may_be_sent_again(tmp_path: Path) -> None:
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


def test_raising_the_log_start_keeps_all_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(3):
        produce(log, sequence)
    append(log)
    log.raise_log_start(log.log_end_offset)
    assert produce(log, 2) == (2, True)
    assert produce(log, 3) == (4, False)


def headed(
    sequence: int, *, producer_id: int = 7, epoch: int = 0, timestamp: int = NOW, attributes: int = 0
) -> BatchHeader:
    """Return the header of a batch of one record."""
    data = batch(timestamp, producer_id=producer_id, epoch=epoch, sequence=sequence)
    return read_header(data)._replace(attributes=attributes)


def test_idle_producer_is_forgotten_regardless_of_record_timestamps() -> None:
    state = ProducerState()
    state.update(headed(0, timestamp=NOW - 400 * DAY_MS))
    state.update(headed(0, producer_id=8, timestamp=NOW + 400 * DAY_MS))
    assert state.expire(NOW, DAY_MS) == 0
    state.update(headed(1, producer_id=8, timestamp=0))
    assert state.expire(NOW + DAY_MS - 1, DAY_MS) == 0
    assert state.expire(NOW + DAY_MS, DAY_MS) == 1
    assert set(state.producers) == {8}
    state.check(headed(55))  # as if the producer were unknown
    assert state.expire(NOW + 2 * DAY_MS - 2, DAY_MS) == 0
    assert state.expire(NOW + 2 * DAY_MS - 1, DAY_MS) == 1


def test_producer_expiration_is_a_setting_and_spares_open_transactions() -> None:
    state = ProducerState()
    state.update(headed(0, attributes=0x10)._replace(base_offset=40))
    assert state.producers[7].transaction_start == 40
    state.update(headed(1, attributes=0x10)._replace(base_offset=41))
    assert state.producers[7].transaction_start == 40
    state.expire(NOW, 10)
    assert state.expire(NOW + 10, 10) == 0
    state.update(headed(-1, attributes=0x30))
    assert state.producers[7].transaction_start == -1
    state.expire(NOW + 20, 10)
    assert (state.expire(NOW + 29, 10), state.expire(NOW + 30, 10)) == (0, 1)


def test_marker_of_a_newer_epoch_fences_the_old_epoch() -> None:
    state = ProducerState()
    state.update(headed(0))
    state.update(headed(-1, epoch=1, attributes=0x30))
    with pytest.raises(InvalidProducerEpochError):
        state.check(headed(1))
    assert state.find_duplicate(headed(0)) is None
    with pytest.raises(OutOfOrderSequenceError):
        state.check(headed(1, epoch=1))
    state.check(headed(0, epoch=1))


class Twin:
    """All batches ever appended, with the rules applied to all of them.

    Several outcomes are allowed: a snapshot keeps only the last batch, so earlier ones may be forgotten after a restart
    or a truncation. Batches from `sure_from` on must be remembered.
    """

    def __init__(self) -> None:
        self.batches: list[BatchHeader] = []
        self.sure_from = 0

    def follow(self, log: Log) -> None:
        """Drop truncated batches, and read new ones from the log's own bytes."""
        self.batches = [header for header in self.batches if header.last_offset < log.log_end_offset]
        known = max(self.batches[-1].next_offset if self.batches else 0, log.log_start_offset)
        if known < log.log_end_offset:
            self.batches += [header for _, header in iter_headers(log.read(known, 10_000))]

    def outcomes(self, new: BatchHeader, end: int) -> set[object]:
        mine = [header for header in self.batches if header.producer_id == new.producer_id]
        if not mine:
            return {(end, False)}
        epoch = mine[-1].producer_epoch
        if new.producer_epoch < epoch:
            return {InvalidProducerEpochError}
        if new.producer_epoch > epoch:
            return {(end, False)} if new.base_sequence == 0 else {OutOfOrderSequenceError}
        current = [header for header in mine if header.producer_epoch == epoch]
        remembered: set[object] = set()
        for age, header in enumerate(reversed(current)):
            same = (header.base_sequence, header.record_count) == (new.base_sequence, new.record_count)
            if same and age < BATCHES_KEPT:
                remembered.add((header.base_offset, True))
                if age == 0 or header.base_offset >= self.sure_from:
                    return remembered
        if new.base_sequence == (current[-1].base_sequence + current[-1].record_count) % 2**31:
            return {(end, False)}
        return remembered | {OutOfOrderSequenceError}


#: (what, producer, epoch, distance from the producer's next sequence, records), or what to do to the log.
SENDS = st.tuples(
    st.just("send"),
    st.integers(1, 2),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([0, 0, 0, 0, -1, -2, -3, -5, -8, 1, 4]),
    st.integers(1, 3),
)
EVENTS = st.one_of(
    SENDS,
    SENDS,
    SENDS,
    st.tuples(st.sampled_from(["close", "kill", "roll", "trim"])),
    st.tuples(st.just("truncate"), st.integers(1, 8)),
)


@given(st.integers(2**31 - 6, 2**31 - 1), st.lists(EVENTS, max_size=40))
def test_any_history_agrees_with_a_model_that_remembers_everything(
    tmp_path_factory: pytest.TempPathFactory, first: int, events: list[tuple[object, ...]]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log, twin = open_log(directory, segment_bytes=300), Twin()
    following = {1: first, 2: 0}
    for event in events:
        match event:
            case ("send", int(producer_id), int(epoch), int(distance), int(count)):
                sequence = (following[producer_id] + distance) % 2**31 if distance else following[producer_id]
                if epoch and not distance:
                    sequence = 0
                data = batch(*[NOW] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)
                allowed = twin.outcomes(read_header(data), log.log_end_offset)
                outcome: object
                try:
                    info = log.append_as_leader(data, 0, NOW)
                    outcome = info.base_offset, info.duplicate
                except BrokerError as error:
                    outcome = type(error)
                assert outcome in allowed
                if outcome == (log.log_end_offset - count, False):
                    following[producer_id] = (sequence + count) % 2**31
            case ("close",):
                log.close()
                log = open_log(directory, segment_bytes=300)
                twin.sure_from = log.log_end_offset
            case ("kill",):
                log.abandon()
                log = open_log(directory, clean=False, segment_bytes=300)
                twin.sure_from = log.log_end_offset
            case ("roll",):
                log.roll(NOW)
            case ("trim",):
                log.raise_log_start(log.log_end_offset)
            case ("truncate", int(records)):
                log.truncate_to(max(log.log_end_offset - records, log.log_start_offset))
                twin.sure_from = log.log_end_offset
        twin.follow(log)
    log.abandon()


def known(state: ProducerState) -> dict[int, tuple[object, ...]]:
    """Return everything that a snapshot holds of each producer."""
    return {
        producer_id: (
            each.epoch,
            list(each.batches)[-1:],
            each.timestamp,
            each.coordinator_epoch,
            each.transaction_start,
        )
        for producer_id, each in state.producers.items()
    }


def appended(log: Log, producer_id: int, epoch: int, kind: str) -> None:
    """Append as a follower one record of a producer, in a transaction or outside, or the marker that ends one."""
    at = log.log_end_offset
    header = {"producer_id": producer_id, "producer_epoch": epoch, "base_offset": at}
    if kind == "marker":
        data = encode_control_batch(MarkerKind.COMMIT, timestamp_ms=NOW + at, coordinator_epoch=3, **header)
    else:
        data = keyed((b"k", b"v"), timestamp=NOW + at, base_sequence=at, **header)
        data = with_attributes(data, 0x10) if kind == "transactional" else data
    log.append_as_follower(data)


#: (what, producer, the epochs to go up by, kind), or what to do to the log.
STEPS = st.one_of(
    *[
        st.tuples(
            st.just("append"),
            st.sampled_from([-1, 7, 7, 8, 9]),
            st.sampled_from([0, 0, 0, 1]),
            st.sampled_from(["plain"] * 8 + ["transactional", "marker"]),
        )
    ]
    * 4,
    st.tuples(st.sampled_from(["close", "roll"])),
    st.tuples(st.just("truncate"), st.integers(1, 9)),
)


@given(st.lists(STEPS, max_size=40))
@example([("append", 7, 0, "plain"), ("append", 7, 0, "marker"), ("append", 7, 0, "plain"), ("truncate", 1)])
def test_truncation_leaves_the_producers_that_a_rebuild_finds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log, epochs = open_log(directory), Counter[int]()
    for step in steps:
        match step:
            case ("append", -1, _, _):
                append(log)
            case ("append", int(producer_id), int(higher), str(kind)):
                epochs[producer_id] += higher
                appended(log, producer_id, epochs[producer_id], kind)
            case ("close",):
                log.close()
                log = open_log(directory)
            case ("roll",):
                log.roll(NOW)
            case ("truncate", int(records)):
                log.truncate_to(max(log.log_end_offset - records, 0))
                held = log._appender.producers
                reported = rebuild_producers(log._segments, log._snapshots)
                assert known(held) == known(reported)
                for producer_id, producer in held.producers.items():
                    batches, others = list(producer.batches), list(reported.producers[producer_id].batches)
                    assert batches[-len(others) :] == others[-len(batches) :]
    log.abandon()


class CountedFile(UnsyncedFile):
    bytes_read = 0

    def read(self, position: int, count: int) -> bytes:
        CountedFile.bytes_read += count
        return super().read(position, count)


class CountedFiles(UnsyncedFiles):
    def open(self, path: Path, *, create: bool = True) -> File:
        return CountedFile(path, create=create)


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_truncation_of_few_batches_reads_only_batches_near_the_end(tmp_path: Path, producer_id: int) -> None:
    log = Log.open(tmp_path, config(), CountedFiles(), recovery_point=0, clean=True)
    for sequence in range(1_000):
        data = batch(NOW + sequence, value=b"x" * 1_000, producer_id=producer_id, epoch=0, sequence=sequence)
        log.append_as_leader(data, 0, NOW)
    before = CountedFile.bytes_read
    log.truncate_to(998)
    assert log.log_end_offset == 998
    assert CountedFile.bytes_read - before < log.size_bytes // 4
    log.abandon()
