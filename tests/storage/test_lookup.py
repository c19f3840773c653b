"""Look-ups by time and by offset against a scan of the whole log."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log import Log
from storage.lookup import TimestampOffset
from tests.storage.logs import NOW, append, first_at_or_after, largest, open_log, records_of
from tidelog.records import iter_headers

SMALL = {"segment_bytes": 700, "index_interval_bytes": 150, "segment_index_bytes": 60}

timestamps = st.one_of(
    st.integers(1, 12),  # many equal ones
    st.integers(NOW - 1000, NOW),
    st.sampled_from([1, NOW, NOW - 10**9]),
)
steps = st.one_of(
    st.tuples(st.just("append"), st.lists(timestamps, min_size=1, max_size=4)),
    st.tuples(st.just("append"), st.lists(timestamps, min_size=1, max_size=4)),
    st.tuples(st.just("append"), st.lists(timestamps, min_size=1, max_size=4)),
    st.tuples(st.just("truncate"), st.floats(0, 1)),
    st.tuples(st.just("trim"), st.floats(0, 1)),
    st.tuples(st.just("epoch"), st.just(0)),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("kill"), st.booleans()),
    st.tuples(st.just("damage"), st.tuples(st.sampled_from(["remove", "zero", "cut", "garbage"]), st.integers(0, 999))),
)


def damage_index(directory: Path, how: str, seed: int) -> None:
    files = sorted(directory.glob("*index"))
    path = files[seed % len(files)]
    data = path.read_bytes()
    if how == "remove":
        path.unlink()
    elif how == "zero":
        path.write_bytes(bytes(len(data) + 12 * (seed % 3)))
    elif how == "cut":
        path.write_bytes(data[: seed % (len(data) + 1)])
    else:
        spot = seed % (len(data) + 1)
        path.write_bytes(data[:spot] + bytes((b * 31 + seed) % 256 for b in data[spot : spot + 9]) + data[spot + 9 :])


def run(directory: Path, story: list[tuple[str, object]]) -> Log:
    log, epoch, start = open_log(directory, **SMALL), 0, 0
    for step, value in story:
        if step == "append":
            append(log, *value, leader_epoch=epoch)  # type: ignore[misc]
        elif step == "truncate":
            log.truncate_to(log.log_start_offset + int((log.log_end_offset - log.log_start_offset) * value))  # type: ignore[operator]
        elif step == "trim":
            log.raise_log_start(int(log.log_end_offset * value))  # type: ignore[operator]
        elif step == "epoch":
            epoch += 1
            log.assign_leader_epoch(epoch)
        else:
            start, recovery_point = log.log_start_offset, log.recovery_point
            if step == "kill" and not value:
                log.flush(rolled_only=True)
                recovery_point = log.recovery_point
            if step == "reopen":
                log.close()
            else:
                log.abandon()
            if step == "damage":
                damage_index(directory, *value)  # type: ignore[misc]
            log = open_log(directory, clean=step != "kill", recovery_point=recovery_point, **SMALL)
            log.raise_log_start(start)
    return log


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40), st.lists(timestamps, max_size=3), st.floats(0, 1))
def test_every_look_up_answers_what_a_scan_of_the_whole_log_answers(
    story: list[tuple[str, object]], targets: list[int], bound: float
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = run(Path(directory), story)
        records = records_of(log)
        upper_bounds = {log.log_end_offset, int(log.log_end_offset * bound)}
        there = {record.timestamp for record, _ in records}
        for upper_bound in upper_bounds:
            for target in {*targets, *there, *(timestamp + 1 for timestamp in there)}:
                assert log.offset_for_timestamp(target, upper_bound) == first_at_or_after(records, target, upper_bound)
            assert log.offset_of_max_timestamp(upper_bound) == largest(records, upper_bound)
        for record, _ in records:
            log._reader.forget()
            first = next(iter_headers(log.read(record.offset, 1)))[1]
            assert first.base_offset <= record.offset <= first.last_offset
        log.abandon()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=3), min_size=8, max_size=30),
    st.integers(0, 10**6),
    st.sampled_from(["zero", "garbage"]),
    st.sampled_from([(".index", 8), (".timeindex", 12)]),
)
def test_an_index_that_is_damaged_under_an_open_log_is_noticed_at_the_look_up(
    batches: list[list[int]], seed: int, how: str, index: tuple[str, int]
) -> None:
    suffix, size = index
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(Path(directory), segment_bytes=100_000, index_interval_bytes=80)
        for stamps in batches:
            append(log, *stamps)
        records = records_of(log)
        path = next(Path(directory).glob(f"*{suffix}"))
        data = bytearray(path.read_bytes())
        if data:
            spot = seed % (len(data) // size) * size
            data[spot : spot + size] = bytes(size) if how == "zero" else bytes((seed + i * 7) % 23 for i in range(size))
            path.write_bytes(data)
        for target in range(32):
            expected = first_at_or_after(records, target, log.log_end_offset)
            assert log.offset_for_timestamp(target, log.log_end_offset) == expected
        log.abandon()


def test_the_earliest_of_equal_timestamps_wins(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    for _ in range(20):
        append(log, 5, 5)
    assert log.offset_for_timestamp(5, 40) == TimestampOffset(5, 0, 0)
    assert log.offset_of_max_timestamp(40) == TimestampOffset(5, 0, 0)


def test_a_look_up_goes_on_when_the_record_that_reached_the_target_was_trimmed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=150)
    append(log, 100)
    append(log, 7)
    append(log, 50)
    log.raise_log_start(1)
    assert log.offset_for_timestamp(40, 3) == TimestampOffset(50, 2, 0)


def test_a_record_at_the_upper_bound_is_not_found(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1)
    append(log, 9)
    assert log.offset_for_timestamp(5, 1) is None
    assert log.offset_for_timestamp(5, 2) == TimestampOffset(9, 1, 0)
    assert log.offset_of_max_timestamp(1) == TimestampOffset(1, 0, 0)


def test_an_empty_log_has_no_answer(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.offset_for_timestamp(0, 0) is None
    assert log.offset_of_max_timestamp(0) is None


class CountingFile:
    def __init__(self) -> None:
        self.reads = 0
        self.bytes = 0


@pytest.mark.parametrize("spike", [False, True], ids=["times increase", "one record from the future comes first"])
def test_the_cost_of_a_look_up_does_not_grow_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spike: bool
) -> None:
    from storage.files import RealFile

    def cost_with(batches: int) -> tuple[int, int]:
        log = open_log(tmp_path / str(batches), index_interval_bytes=4096)
        append(log, NOW if spike else 0)
        for number in range(batches):
            append(log, 1000 + number)
        append(log, NOW + 1)
        count = CountingFile()
        read = RealFile.read

        def counted(self: RealFile, position: int, size: int) -> bytes:
            data = read(self, position, size)
            count.reads += 1
            count.bytes += len(data)
            return data

        monkeypatch.setattr(RealFile, "read", counted)
        target = NOW + 1 if spike else 1000 + batches // 2
        assert log.offset_for_timestamp(target, log.log_end_offset) is not None
        monkeypatch.setattr(RealFile, "read", read)
        log.abandon()
        return count.reads, count.bytes

    few, many = cost_with(1_000), cost_with(16_000)
    assert many[0] <= few[0] + 5 * 4  # four binary searches, sixteen times the entries: log₂ 16 probes more each
    assert many[1] <= few[1] + 1000
