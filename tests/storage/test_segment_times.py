"""Offsets by the last write time of segments, the only look-up by time in Kafka before 0.10.1."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.timestamp_lookup import SegmentTime, offsets_by_segment_time, offsets_up_to
from tests.storage.log_twin import CaseCounts, LogWithTwin, step_sequences
from tests.storage.logs import NOW, append, open_log
from tests.storage.old_lookup import EARLIEST, LATEST, for_a_consumer, offsets_before, segment_files

_times = st.one_of(st.integers(0, 9), st.integers(NOW - 20, NOW + 5))


@settings(max_examples=60)
@given(step_sequences, st.lists(_times, min_size=60, max_size=60), st.lists(_times, max_size=5), st.floats(0, 1))
def _answers_are_those_of_the_old_procedure(
    counts: CaseCounts, story: list[tuple[str, object]], written: list[int], targets: list[int], bound: float
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        both = LogWithTwin(Path(directory), counts)
        for step, value in story:
            both.run(step, value)
        log = both.log
        for segment, time in zip(log.segments, written, strict=False):
            os.utime(segment.log.path, ns=(time * 10**6, time * 10**6))
        there = segment_files(Path(directory), log.log_start_offset)
        assert len(there) == len(log.segments)
        high_watermark = int(log.log_end_offset * bound)
        for target in (LATEST, EARLIEST, *targets, *(file.modified_ms for file in there)):
            for most in (0, 1, 2, 100):
                expected = offsets_before(there, log.log_end_offset, NOW, target, most)
                reported = log.segment_offsets(target, most, NOW)
                assert reported == expected
                assert offsets_up_to(reported, high_watermark) == for_a_consumer(expected, high_watermark)
                counts.add("nothing old enough", target >= 0 and most and not reported)
                counts.add("the high watermark in front", reported and reported[0] > high_watermark)
                counts.add("an older segment that was written later", reported and there[0].modified_ms > target >= 0)
        counts.add("several segments", len(log.segments) > 2)
        counts.add("an empty last segment", there[-1].size == 0)
        log.abandon()


def test_segment_offsets_agree_with_the_old_procedure() -> None:
    CaseCounts().run_until_reached(
        _answers_are_those_of_the_old_procedure,
        "several segments",
        "nothing old enough",
        "the high watermark in front",
        "an older segment that was written later",
        "an empty last segment",
        "a segment deleted",
        "records compacted away",
        least=3,
    )


def entries(*times: tuple[int, int]) -> list[SegmentTime]:
    return [(offset, lambda time=time: time) for offset, time in times]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, [14, 9, 6, 3, 1]),
        (-2, [1]),
        (399, []),
        (400, [1]),
        (650, [3, 1]),
        (10**15, [14, 9, 6, 3, 1]),
        (300, [6, 3, 1]),
    ],
    ids=[
        "latest",
        "earliest",
        "before all",
        "at the first",
        "backwards from the newest",
        "the future",
        "any before it",
    ],
)
def test_segment_offsets_begin_at_the_newest_segment_old_enough(timestamp: int, expected: list[int]) -> None:
    times = entries((1, 400), (3, 600), (6, 300 if timestamp == 300 else 700), (9, 800), (14, 900))
    for most in (10, 2, 0):
        assert offsets_by_segment_time(times, timestamp, most) == expected[:most]


def test_the_bound_stands_once_for_all_above_it() -> None:
    assert offsets_up_to([9, 6, 3, 0], 5) == [5, 3, 0]
    assert offsets_up_to([9, 6, 3, 0], 6) == [6, 3, 0] == offsets_up_to([6, 3, 0], 6)
    assert offsets_up_to([9], 5) == [5]
    assert offsets_up_to([], 5) == []


def test_only_the_times_that_the_answer_depends_upon_are_looked_at() -> None:
    def forbidden() -> int:
        raise AssertionError("this time must not be read")

    times: list[SegmentTime] = [(0, forbidden), (3, lambda: 10), (6, lambda: 20)]
    assert offsets_by_segment_time(times, 15, 9) == [3, 0]
    assert offsets_by_segment_time([(0, forbidden)], LATEST, 9) == [0] == offsets_by_segment_time(times, EARLIEST, 9)


def test_empty_log_returns_its_end_and_a_trimmed_log_its_start(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.segment_offsets(LATEST, 9, NOW) == [0]
    append(log, NOW)
    append(log, NOW)
    log.segments[-1].log.set_modified_ms(1000)
    log.roll(NOW)
    log.segments[-1].log.set_modified_ms(2000)
    log.raise_log_start(1)
    assert log.segment_offsets(EARLIEST, 9, NOW) == [1] == log.segment_offsets(1999, 9, NOW)
    assert log.segment_offsets(2000, 9, NOW) == [2, 1]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_restart_does_not_make_segments_younger(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path)
    for number in range(3):
        append(log, NOW)
        log.segments[-1].log.set_modified_ms(1000 * (number + 1))
        if number < 2:
            log.roll(NOW)
    if clean:
        log.flush()
        log.close()
    else:
        log.abandon()
    again = open_log(tmp_path, clean=clean)
    assert [again.segment_offsets(1000 * number, 1, NOW) for number in range(5)] == [[], [0], [1], [2], [2]]


def test_truncated_segment_has_the_time_of_the_truncation(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, NOW)
    append(log, NOW)
    log.segments[-1].log.set_modified_ms(1000)
    log.truncate_to(1)
    assert log.segment_offsets(1000, 1, NOW) == [], "a lower offset is harmless, a higher one hides records"
