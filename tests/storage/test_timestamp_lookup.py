"""Look-ups by time and by offset compared with a scan of the whole log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log import timestamp_lookup
from storage.log.log import Log
from storage.segments import index_lookup
from storage.segments.fixed_entry_file import PAGE
from storage.segments.timestamp_search import TimestampOffset
from storage.steps import Steps
from tests.storage.log_twin import CaseCounts, LogWithTwin, step_sequences, timestamps
from tests.storage.logs import NOW, append, batch, count_steps, first_at_or_after, open_log, records_of
from tidelog.records import iter_headers


@settings(max_examples=100)
@given(
    step_sequences,
    st.lists(timestamps, max_size=3),
    st.floats(0, 1),
    st.sampled_from([timestamp_lookup.BATCHES_PER_STEP, 1]),
)
def _every_look_up_answers_what_the_list_answers(
    counts: CaseCounts, story: list[tuple[str, object]], targets: list[int], fraction: float, per_step: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        patched.setattr(timestamp_lookup, "BATCHES_PER_STEP", per_step)
        patched.setattr(index_lookup, "HEADERS_PER_STEP", per_step)
        both = LogWithTwin(Path(directory), counts)

        def answer(steps: Steps[TimestampOffset | None]) -> TimestampOffset | None:
            found, count = count_steps(steps)
            counts.add("a look-up in several steps", count)
            return found

        for step, value in story:
            both.run(step, value)
            log, end = both.log, both.log.log_end_offset
            for target in targets:
                assert answer(log.offset_for_timestamp_steps(target, end)) == both.first_at_or_after(target, end)
            assert answer(log.offset_of_max_timestamp_steps(end)) == both.largest(end)
        assert both.in_log() == both.readable()
        there = {timestamp for _, timestamp, _ in both.readable()}
        for bound in {log.log_end_offset, int(log.log_end_offset * fraction)}:
            for target in {*targets, *there, *(timestamp + 1 for timestamp in there)}:
                assert answer(log.offset_for_timestamp_steps(target, bound)) == both.first_at_or_after(target, bound)
            assert answer(log.offset_of_max_timestamp_steps(bound)) == both.largest(bound)
        for offset, _, _ in both.readable():
            log._reader.forget()
            first = next(iter_headers(log.read(offset, 1)))[1]
            assert first.base_offset <= offset <= first.last_offset
        counts.add("several segments", len(log.segments) > 2)
        counts.add("indexes with entries", all(len(s.offset_index) and len(s.time_index) for s in log.segments[:1]))
        log.abandon()


def test_every_look_up_agrees_with_a_list_of_all_records() -> None:
    CaseCounts().run_until_reached(
        _every_look_up_answers_what_the_list_answers,
        "several segments",
        "indexes with entries",
        "a compressed batch",
        "an index damaged",
        "a segment deleted",
        "records compacted away",
        "a look-up in several steps",
        least=5,
    )


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=3), min_size=8, max_size=30),
    st.integers(0, 10**6),
    st.sampled_from(["zero", "garbage"]),
    st.sampled_from([(".index", 8), (".timeindex", 12)]),
)
def test_look_up_notices_an_index_damaged_under_an_open_log(
    batches: list[list[int]], seed: int, how: str, index: tuple[str, int]
) -> None:
    suffix, size = index
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(Path(directory), segment_bytes=100_000, index_interval_bytes=80)
        for stamps in batches:
            append(log, *stamps)
        log.roll(NOW)
        records = records_of(log)
        path = Path(directory) / f"{0:020}{suffix}"
        data = bytearray(path.read_bytes())
        spot = seed % (len(data) // size) * size
        data[spot : spot + size] = bytes(size) if how == "zero" else bytes((seed + i * 7) % 23 for i in range(size))
        path.write_bytes(data)
        log.segments[0].close()  # so that the index is read again
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


def test_first_of_equal_timestamps_wins_across_segments_and_bounds(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    append(log, 5)
    log.roll(NOW)
    append(log, 5)
    append(log, 9)
    assert log.offset_of_max_timestamp(2) == TimestampOffset(5, 0, 0)
    log.raise_log_start(1)
    assert log.offset_of_max_timestamp(2) == TimestampOffset(5, 1, 0)


def test_largest_timestamp_ignores_a_trimmed_record(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 9, 1)
    append(log, 5)
    append(log, 3)
    log.raise_log_start(1)
    assert log.offset_of_max_timestamp(4) == TimestampOffset(5, 2, 0)
    assert log.offset_of_max_timestamp(2) == TimestampOffset(1, 1, 0)


def test_look_up_continues_past_a_trimmed_record(tmp_path: Path) -> None:
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

        target = NOW + 1 if spike else 1000 + batches // 2
        # The first look-up reads the indexes, and the headers over which the maximum does not rise.
        assert log.offset_for_timestamp(target, log.log_end_offset) is not None
        monkeypatch.setattr(RealFile, "read", counted)
        assert log.offset_for_timestamp(target, log.log_end_offset) is not None
        monkeypatch.setattr(RealFile, "read", read)
        log.abandon()
        return count.reads, count.bytes

    few, many = cost_with(1_000), cost_with(16_000)
    assert many[0] <= few[0] + 4  # each of four searches may read a page of an index; the few entries fit into one
    assert many[1] <= few[1] + 4 * PAGE * 12


def past_trimmed_records(log: Log) -> list[Callable[[], Steps[TimestampOffset | None]]]:
    """Return look-ups that lead to a trimmed record, with 2,500 batches after it."""
    append(log, NOW + 5)
    for _ in range(2_500):
        append(log, NOW)
    log.raise_log_start(1)
    return [
        lambda: log.offset_for_timestamp_steps(NOW + 1, log.log_end_offset),
        lambda: log.offset_of_max_timestamp_steps(log.log_end_offset),
    ]


def test_look_up_past_trimmed_records_takes_several_steps(tmp_path: Path) -> None:
    by_time, latest = past_trimmed_records(open_log(tmp_path))
    assert count_steps(by_time()) == (None, 2), "a thousand batches in one step"
    assert count_steps(latest()) == (TimestampOffset(NOW, 1, 0), 2)


def test_look_up_past_trimmed_records_finds_later_appends(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    both = past_trimmed_records(log)
    append(log, NOW + 3)
    assert [count_steps(ask()) for ask in both] == [(TimestampOffset(NOW + 3, 2_501, 0), 2)] * 2
    log.truncate_to(500)
    append(log, NOW + 2)
    while log.log_end_offset < 2_600:
        append(log, NOW)
    assert [count_steps(ask())[0] for ask in both] == [TimestampOffset(NOW + 2, 500, 0)] * 2


def test_large_or_decoded_batches_cost_more_than_one(tmp_path: Path) -> None:
    log = open_log(tmp_path, max_message_bytes=20 << 20)
    append(log, NOW + 9)
    log.append_as_leader(batch(NOW, value=bytes(17 << 20)), 0, NOW)
    append(log, *[NOW + 1] * 8_000)
    append(log)
    log.raise_log_start(1)
    end = log.log_end_offset
    assert count_steps(log.offset_for_timestamp_steps(NOW + 2, end)) == (None, 1)
    assert count_steps(log.offset_of_max_timestamp_steps(end)) == (TimestampOffset(NOW + 1, 2, 0), 2)
