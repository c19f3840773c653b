"""The rules for rolling a segment."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.log.log import Log
from storage.log.rolling import jitter_ms, must_roll
from storage.segments.segment import Segment
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, open_log, read_all
from tidelog.model import NO_TIMESTAMP

HOUR = 3_600_000
SIZE = len(batch(NOW))


@pytest.fixture
def active(tmp_path: Path) -> Segment:
    """Return a segment with one batch at offset 0, from NOW, and empty indexes."""
    log = open_log(tmp_path)
    append(log, NOW)
    return log.segments[-1]


def rolls(
    active: Segment, *, size: int = SIZE, last_offset: int = 1, at: int = NOW, waited: int = 0, **settings: object
) -> bool:
    return must_roll(active, config(**settings), active.size, size, last_offset, at, waited)


def append_at(log: Log, now_ms: int, *timestamps: int) -> int:
    return log.append_as_leader(batch(*timestamps), 0, now_ms).base_offset


def test_a_segment_takes_exactly_its_size(active: Segment) -> None:
    assert not rolls(active, segment_bytes=2 * SIZE)
    assert rolls(active, segment_bytes=2 * SIZE - 1)


def test_an_empty_segment_takes_any_size_but_not_any_offset(tmp_path: Path) -> None:
    empty = Segment(tmp_path, 7, UnsyncedFiles())
    assert not rolls(empty, size=10**6, segment_bytes=100, segment_ms=1, at=NOW + 10**9, waited=10**9)
    assert not rolls(empty, last_offset=7 + 2**31 - 1)
    assert rolls(empty, last_offset=7 + 2**31)


def test_segment_age_is_the_span_of_its_batch_timestamps(active: Segment) -> None:
    assert not rolls(active, at=NOW + HOUR, waited=10 * HOUR, segment_ms=HOUR)
    assert rolls(active, at=NOW + HOUR + 1, segment_ms=HOUR)
    assert not rolls(active, at=NOW - 10 * HOUR, segment_ms=HOUR)


def test_broker_clock_gives_the_age_without_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=HOUR)
    assert append_at(log, NOW, NO_TIMESTAMP) == 0
    assert append_at(log, NOW + HOUR, NO_TIMESTAMP) == 1
    assert append_at(log, NOW + HOUR + 1, NO_TIMESTAMP) == 2
    assert append_at(log, NOW + 2 * HOUR + 1, NO_TIMESTAMP) == 3
    assert log.segment_base_offsets == (0, 2)


def test_a_record_from_the_first_millisecond_of_1970_has_a_timestamp_too(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=HOUR, message_timestamp_after_max_ms=2**62)
    assert append_at(log, NOW, 0) == 0
    assert append_at(log, NOW + 9 * HOUR, HOUR) == 1
    assert append_at(log, NOW + 9 * HOUR, 0) == 2
    assert log.segment_base_offsets == (0,)
    append_at(log, NOW, HOUR + 1)
    assert log.segment_base_offsets == (0, 3)


def test_a_record_must_not_wait_longer_for_its_compaction_than_allowed(active: Segment) -> None:
    settings = {"segment_ms": 10 * HOUR, "max_compaction_lag_ms": HOUR}
    assert not rolls(active, at=NOW + 2 * HOUR, **settings)
    assert rolls(active, at=NOW + 2 * HOUR, cleanup_policy="compact", **settings)


def test_jitter_rolls_logs_apart_and_the_same_way_every_time(tmp_path: Path) -> None:
    settings = config(segment_ms=HOUR, segment_jitter_ms=HOUR // 2)
    segments = [Segment(tmp_path, number, UnsyncedFiles()) for number in range(50)]
    jitters = [jitter_ms(segment, settings) for segment in segments]
    assert len(set(jitters)) > 25
    assert all(0 <= jitter < HOUR // 2 for jitter in jitters)
    assert jitters == [jitter_ms(segment, settings) for segment in segments]
    assert jitter_ms(segments[0], config(segment_ms=HOUR)) == 0


def test_jitter_rolls_earlier_and_never_later(active: Segment) -> None:
    settings = {"segment_ms": HOUR, "segment_jitter_ms": HOUR // 2}
    jitter = jitter_ms(active, config(**settings))
    assert jitter > 0
    assert not rolls(active, at=NOW + HOUR - jitter, **settings)
    assert rolls(active, at=NOW + HOUR - jitter + 1, **settings)


def test_a_log_rolls_by_age_and_again_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=HOUR)
    append_at(log, NOW, NOW)
    log.close()
    log = open_log(tmp_path, segment_ms=HOUR)
    append_at(log, NOW + HOUR, NOW + HOUR)
    append_at(log, NOW + HOUR + 1, NOW + HOUR + 1)
    append_at(log, NOW + HOUR + 1, NOW)
    assert log.segment_base_offsets == (0, 2)


def test_a_follower_rolls_by_age_where_its_leader_did(tmp_path: Path) -> None:
    leader, follower = (open_log(tmp_path / name, segment_ms=HOUR) for name in ("leader", "follower"))
    for number in range(12):
        append_at(leader, NOW + number * HOUR, NOW + number * HOUR // 4)
    while data := leader.read(follower.log_end_offset, 3 * SIZE):
        follower.append_as_follower(data)
    assert follower.segment_base_offsets == leader.segment_base_offsets == (0, 5, 10)


def test_roll_on_demand_seals_the_active_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert not log.roll(NOW)
    append(log)
    assert log.roll(NOW)
    assert not log.roll(NOW)
    assert append(log) == 1
    assert log.segment_base_offsets == (0, 1)
    data = read_all(log)
    log.close()
    assert read_all(open_log(tmp_path)) == data


def test_gap_too_wide_for_relative_offsets_begins_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(batch(NOW, base_offset=3, leader_epoch=0))
    far = 2**31 + 3
    log.append_as_follower(
        batch(NOW, base_offset=far, leader_epoch=0) + batch(NOW, base_offset=3 * far, leader_epoch=0)
    )
    assert log.segment_base_offsets == (0, 4, 3 * far)
    assert log.log_end_offset == 3 * far + 1
    assert log.read(4, 1000)[:8] == far.to_bytes(8, "big")
    log.close()


def test_the_time_index_of_a_closed_segment_ends_with_its_largest_time(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, NOW + 5)
    append(log, NOW)
    assert log.segments[0].time_index.last is None, "too little for an entry on the way"
    log.roll(NOW)
    assert log.segments[0].time_index.last == (NOW + 5, 0)
