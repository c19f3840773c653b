"""The plan of a round: when a log is cleaned, how much of it, and which segments are merged."""

from __future__ import annotations

from pathlib import Path

from storage.compaction.cleaner import plan_cleaning
from tests.storage.cleaning import clean, compacted, keyed, put, roll, values_of
from tests.storage.logs import NOW, first_at_or_after, records_of
from tidelog.records import decode_records, iter_headers

# --- when --------------------------------------------------------------------------------------------


def test_a_log_is_cleaned_from_its_dirty_ratio_on(tmp_path: Path) -> None:
    log = compacted(tmp_path, min_cleanable_dirty_ratio=0.5)
    for number in range(4):
        put(log, (b"a%d" % number, b"1"))
        roll(log)
    assert plan_cleaning(log, 3, NOW, 4) is None, "one of four segments is dirty"
    plan = plan_cleaning(log, 2, NOW, 4)
    assert plan is not None
    assert plan.dirty_ratio == 0.5
    assert plan_cleaning(log, 4, NOW, 4) is None


def test_clean_log_is_not_cleaned_again_at_any_dirty_ratio(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"1"))
    roll(log)
    assert plan_cleaning(log, clean(log), NOW, 1) is None


def test_records_younger_than_the_minimal_lag_wait(tmp_path: Path) -> None:
    log = compacted(tmp_path, min_compaction_lag_ms=1000)
    put(log, (b"a", b"1"), timestamp=NOW - 2000)
    roll(log)
    put(log, (b"a", b"2"), timestamp=NOW - 500)
    roll(log)
    put(log, (b"a", b"3"), timestamp=NOW - 2000)
    roll(log)
    assert clean(log, now_ms=NOW) == 1
    assert len(values_of(log)) == 3
    assert clean(log, 1, now_ms=NOW + 500) == 3
    assert values_of(log) == [(2, b"a", b"3")]


def test_a_record_that_waits_longer_than_the_maximal_lag_makes_the_log_due(tmp_path: Path) -> None:
    log = compacted(tmp_path, min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1000)
    put(log, (b"a", b"1"), timestamp=NOW - 10_000)
    roll(log)
    put(log, (b"b", b"1"), timestamp=NOW)
    roll(log)
    assert plan_cleaning(log, 1, NOW, 2) is None, "clean segments do not wait"
    assert plan_cleaning(log, 1, NOW + 1000, 2) is None
    assert plan_cleaning(log, 1, NOW + 1001, 2) is not None


def test_cleaner_offset_past_the_log_end_makes_the_whole_log_dirty(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    roll(log)
    assert clean(log, 99) == 2
    assert values_of(log) == [(1, b"a", b"2")]


def test_full_offset_map_leaves_the_rest_to_the_next_round(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(6):
        put(log, (b"key %d" % number, b"1"), (b"same", b"1"))
    roll(log)
    rounds = [0]
    while (recorded := clean(log, rounds[-1], map_bytes=5 * 192)) != rounds[-1]:
        rounds.append(recorded)
    assert rounds == [0, 6, 12]
    assert [key for _, key, _ in values_of(log)] == [b"key %d" % number for number in range(6)] + [b"same"]


def test_offset_map_accepts_one_batch_larger_than_its_capacity(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, *((b"%d" % number, b"1") for number in range(50)))
    put(log, *((b"%d" % number, b"2") for number in range(50)))
    roll(log)
    recorded = clean(log, map_bytes=192)
    assert recorded == 50
    assert clean(log, recorded, map_bytes=192) == 100
    assert [offset for offset, _, _ in values_of(log)] == list(range(50, 100))


def test_compact_and_delete_lose_old_segments_too(tmp_path: Path) -> None:
    log = compacted(tmp_path, cleanup_policy="compact,delete", retention_ms=1000, segment_bytes=100)
    for number in range(3):
        put(log, (b"key %d" % number, b"1"), timestamp=NOW + number * 1000)
        roll(log)
    recorded = clean(log)
    log.delete_old_segments(NOW + 2500, log.log_end_offset)
    assert values_of(log) == [(2, b"key 2", b"1")]
    assert clean(log, recorded) == recorded


# --- segments ----------------------------------------------------------------------------------------


def test_small_segments_become_one_that_is_named_as_the_first(tmp_path: Path) -> None:
    log = compacted(tmp_path, index_interval_bytes=50)
    for number in range(10):
        put(log, (b"key %d" % (number % 4), b"%d" % number * 20), timestamp=NOW + 10 - number)
        roll(log)
    old = log.segments[-2].log.modified_ms()
    clean(log)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    assert [offset for offset, _, _ in values_of(log)] == [6, 7, 8, 9]
    assert log.segments[0].log.modified_ms() == old
    assert len(log.segments[0].offset_index) > 1
    for target in range(NOW - 1, NOW + 12):
        assert log.offset_for_timestamp(target, 10) == first_at_or_after(records_of(log), target, 10)


def test_segments_are_merged_up_to_segment_bytes(tmp_path: Path) -> None:
    log = compacted(tmp_path, segment_bytes=350)
    for number in range(7):
        put(log, (b"key %d" % number, b"x" * 20))
        roll(log)
    size = log.segments[0].size
    assert 3 * size <= 350 < 4 * size
    clean(log)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 7]


def test_reader_continues_in_the_cleaned_segment(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(20):
        put(log, (b"key %d" % (number % 3), b"%d" % number))
        if number % 5 == 4:
            roll(log)
    first = log.read(0, 200)
    position = list(iter_headers(first))[-1][1].next_offset
    clean(log)
    rest = log.read(position, 10_000)
    assert [record.offset for at, _ in iter_headers(rest) for record in decode_records(rest, at)] == [17, 18, 19]


def test_compaction_keeps_the_leader_epochs(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for epoch in range(5):
        log.append_as_leader(keyed((b"a", b"1")), epoch, NOW)
        roll(log)
    before = log.epochs
    clean(log)
    assert log.epochs == before
    assert log.end_offset_for_epoch(2) == (2, 3)
    log.close()
    assert compacted(tmp_path, recovery_point=5).epochs == before
