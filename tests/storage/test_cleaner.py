"""The result of compaction: records, batches, producers, transactions and tombstones."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.compaction.cleaner import Cleaning, plan_cleaning
from tests.storage.cleaning import (
    COMPACT,
    DAY_MS,
    clean,
    compacted,
    headers_of,
    keyed,
    put,
    roll,
    values_of,
    with_attributes,
    with_base_timestamp,
    write_compacted_log,
)
from tests.storage.logs import NOW, UnsyncedFiles, config, first_at_or_after, largest, open_log, read_all, records_of
from tidelog.records import Codec, MarkerKind, encode_control_batch

TRANSACTIONAL = 0x10


# --- what remains ------------------------------------------------------------------------------------


def test_the_last_value_of_each_key_remains_at_its_offset(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"))
    put(log, (b"c", b"1"))
    roll(log)
    assert clean(log) == 4
    assert values_of(log) == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1")]


def test_active_segment_is_not_cleaned_and_replaces_nothing(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    assert clean(log) == 1
    assert values_of(log) == [(0, b"a", b"1"), (1, b"a", b"2")]


def test_records_above_the_bound_stay_and_replace_no_others(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for number in range(3):
        put(log, (b"a", b"%d" % number))
        roll(log)
    assert clean(log, upper_bound=2) == 2
    assert values_of(log) == [(1, b"a", b"1"), (2, b"a", b"2")]
    assert clean(log, 2, upper_bound=2) == 2, "nothing is dirty below the bound"
    assert clean(log, 2, upper_bound=3) == 3
    assert values_of(log) == [(2, b"a", b"2")]


def test_a_batch_of_which_some_records_survive_keeps_its_header(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), producer_id=5, producer_epoch=1, base_sequence=0)
    put(log, (b"a", b"2"), (b"c", b"2"))
    roll(log)
    before = headers_of(log)[0]
    clean(log)
    after = headers_of(log)[0]
    assert after._replace(crc=before.crc) == before._replace(record_count=1, batch_length=after.batch_length)
    assert values_of(log)[0] == (1, b"b", b"1")


def test_largest_timestamp_is_that_of_the_remaining_records(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"first", b"1"), timestamp=NOW)
    put(log, (b"a", b"1"), timestamp=NOW + 500)
    put(log, (b"b", b"1"), timestamp=NOW + 100)
    put(log, (b"a", b"2"), timestamp=NOW)
    roll(log)
    clean(log)
    assert log.segments[0].largest.timestamp == NOW + 100
    assert log.offset_of_max_timestamp(4) == (NOW + 100, 2, 0)
    assert log.offset_for_timestamp(NOW + 101, 4) is None


@pytest.mark.parametrize("codec", Codec)
def test_compressed_batch_is_rewritten_with_its_codec(tmp_path: Path, codec: Codec) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"1" * 100), (b"b", b"1" * 100), codec=codec)
    put(log, (b"a", b"2"))
    roll(log)
    clean(log)
    assert headers_of(log)[0].codec == codec
    assert values_of(log) == [(1, b"b", b"1" * 100), (2, b"a", b"2")]


def test_records_without_a_key_are_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, (None, b"1"), (b"a", b"1"))
    log.config = config(**COMPACT)
    roll(log)
    cleaning = Cleaning(plan_cleaning(log, 0, NOW, 2), UnsyncedFiles())  # type: ignore[arg-type]
    piece = cleaning.write_next()
    assert piece is not None
    cleaning.install(piece)
    assert cleaning.write_next() is None
    assert values_of(log) == [(1, b"a", b"1")]
    assert cleaning.keyless_records == 1


def test_only_a_compacted_topic_is_cleaned(tmp_path: Path) -> None:
    log = open_log(tmp_path, min_cleanable_dirty_ratio=0)
    put(log, (b"a", b"1"))
    roll(log)
    assert plan_cleaning(log, 0, NOW, 1) is None
    log.config = config(cleanup_policy="compact,delete")
    assert plan_cleaning(log, 0, NOW, 1) is not None


def test_segment_without_removals_stays_the_same_file(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"1"))
    roll(log)
    segment = log.segments[0]
    assert clean(log) == 1
    assert log.segments[0] is segment
    assert not list(tmp_path.glob("*.cleaned"))


# --- producers, transactions, the end of a segment ---------------------------------------------------


def test_last_batch_of_each_producer_stays_with_its_sequence(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for sequence in range(3):
        put(log, (b"a", b"1"), producer_id=5, producer_epoch=0, base_sequence=sequence)
    put(log, (b"a", b"2"))
    roll(log)
    put(log, (b"b", b"1"))
    clean(log)
    assert [(header.base_offset, header.producer_id, header.record_count) for header in headers_of(log)] == [
        (0, 5, 0), (2, 5, 0), (3, -1, 1), (4, -1, 1)
    ]  # fmt: skip
    log.abandon()
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()

    log = compacted(tmp_path, clean=False)
    again = log.append_as_leader(keyed((b"a", b"1"), producer_id=5, producer_epoch=0, base_sequence=2), 0, NOW)
    assert (again.duplicate, again.base_offset) == (True, 2)
    assert put(log, (b"a", b"3"), producer_id=5, producer_epoch=0, base_sequence=3) == 5


def test_empty_batch_is_removed_after_a_later_one_of_the_producer(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"1"), producer_id=5, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"))
    roll(log)
    recorded = clean(log)
    put(log, (b"a", b"3"), producer_id=5, producer_epoch=0, base_sequence=1)
    put(log, (b"a", b"4"))
    roll(log)
    clean(log, recorded)
    assert [(header.base_offset, header.record_count) for header in headers_of(log)] == [(0, 0), (2, 0), (3, 1)]


def test_copy_of_a_compacted_log_knows_the_start_of_each_epoch(tmp_path: Path) -> None:
    log, copy = compacted(tmp_path / "log"), compacted(tmp_path / "copy")
    for epoch in (2, 2, 3, 3, 5):
        log.append_as_leader(keyed((b"a", b"%d" % epoch)), epoch, NOW)
    roll(log)
    recorded = clean(log)
    log.append_as_leader(keyed((b"b", b"1")), 5, NOW)
    roll(log)
    clean(log, recorded)
    copy.append_as_follower(read_all(log))
    assert copy.epochs == log.epochs == ((2, 0), (3, 2), (5, 4))
    assert [(header.base_offset, header.record_count) for header in headers_of(log)] == [(0, 0), (2, 0), (4, 1), (5, 1)]


def test_cleaned_segment_keeps_its_end_offset_without_its_last_records(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"b", b"1"))
    put(log, (b"a", b"1"), (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    roll(log)
    log.config = config(**COMPACT, segment_bytes=100)  # too small to be merged
    clean(log)
    assert [segment.next_offset for segment in log.segments] == [3, 4, 4]
    assert [(header.base_offset, header.record_count) for header in headers_of(log)] == [(0, 1), (1, 0), (3, 1)]
    log.abandon()
    again = compacted(tmp_path, clean=False)
    assert (again.log_end_offset, len(again.segments)) == (4, 3)


def test_transactional_records_replace_nothing_and_markers_stay(tmp_path: Path) -> None:
    log = compacted(tmp_path, segment_bytes=100_000)
    put(log, (b"a", b"1"), (b"b", b"1"))
    transaction = {"producer_id": 8, "producer_epoch": 0}
    log.append_as_follower(
        with_attributes(keyed((b"a", b"maybe"), (b"b", b"maybe"), base_offset=2, base_sequence=0, **transaction), 0x10)
    )
    marker = encode_control_batch(
        MarkerKind.ABORT, coordinator_epoch=0, timestamp_ms=NOW, base_offset=4, **transaction
    )  # fmt: skip
    log.append_as_follower(marker)
    put(log, (b"b", None))
    roll(log)
    recorded = clean(log)
    assert [(o, k, v) for o, k, v in values_of(log) if k in (b"a", b"b")] == [
        (0, b"a", b"1"), (2, b"a", b"maybe"), (5, b"b", None)
    ]  # fmt: skip
    assert [header.base_offset for header in headers_of(log) if header.is_control] == [4]
    put(log, (b"c", b"1"))
    roll(log)
    clean(log, recorded, now_ms=NOW + 2 * DAY_MS)
    assert [o for o, k, _ in values_of(log) if k == b"b"] == [], "the tombstone replaced no remaining record"


def test_a_tombstone_of_a_transaction_is_never_dropped_for_its_age(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    put(log, (b"a", b"1"))
    pending = keyed((b"a", None), base_offset=1, producer_id=8, producer_epoch=0, base_sequence=0)
    log.append_as_follower(with_attributes(pending, TRANSACTIONAL))
    roll(log)
    recorded = clean(log)
    put(log, (b"c", b"1"))
    roll(log)
    clean(log, recorded, now_ms=NOW + 99 * DAY_MS)
    assert values_of(log) == [(0, b"a", b"1"), (1, b"a", None), (2, b"c", b"1")]


# --- tombstones ----------------------------------------------------------------------------------


def test_a_tombstone_outlives_its_key_by_delete_retention_and_not_longer(tmp_path: Path) -> None:
    log = compacted(tmp_path, delete_retention_ms=1000)
    put(log, (b"a", b"1"))
    put(log, (b"a", None))
    recorded = clean(log, now_ms=NOW)
    assert recorded == 0, "all of it is in the active segment"
    roll(log)
    recorded = clean(log, now_ms=NOW + 50)
    _, marked = headers_of(log)
    assert values_of(log) == [(1, b"a", None)]
    assert marked.delete_horizon_ms == NOW + 1050

    for number, (now_ms, present) in enumerate([(NOW + 60, True), (NOW + 1049, True), (NOW + 1050, False)]):
        put(log, (b"other", b"%d" % number))
        roll(log)
        recorded = clean(log, recorded, now_ms=now_ms)
        assert ((1, b"a", None) in values_of(log)) is present, number


def test_a_tombstone_that_is_not_reached_yet_is_not_marked(tmp_path: Path) -> None:
    """A tombstone marked too early could be removed together with its older records, unseen by readers."""
    log = compacted(tmp_path, delete_retention_ms=1000)
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    put(log, (b"a", None))
    roll(log)
    recorded = clean(log, map_bytes=2 * 192)
    assert recorded == 2
    assert [header.delete_horizon_ms for header in headers_of(log)] == [None] * 3
    recorded = clean(log, recorded, now_ms=NOW + 5000)
    assert values_of(log) == [(1, b"b", b"1"), (2, b"a", None)]
    assert headers_of(log)[2].delete_horizon_ms == NOW + 6000


def test_a_retention_without_end_is_a_horizon_at_the_end_of_time(tmp_path: Path) -> None:
    log = compacted(tmp_path, delete_retention_ms=2**63 - 1)
    put(log, (b"a", None))
    roll(log)
    clean(log)
    assert headers_of(log)[0].delete_horizon_ms == 2**63 - 1
    assert values_of(log) == [(0, b"a", None)]
    assert records_of(log)[0][0].timestamp == NOW


def test_a_tombstone_of_log_append_time_keeps_its_time_when_it_is_marked(tmp_path: Path) -> None:
    log = compacted(tmp_path, message_timestamp_type="LogAppendTime")
    put(log, (b"a", None), (b"b", b"1"), timestamp=77)
    roll(log)
    clean(log)
    assert [record.timestamp for record, _ in records_of(log)] == [NOW, NOW]


@pytest.mark.parametrize(
    ("timestamp", "retention_ms", "marked"),
    [
        (-(2**63) + 11, DAY_MS, False),
        (-(2**63) + NOW + DAY_MS - 1, DAY_MS, False),
        (-(2**63) + NOW + DAY_MS, DAY_MS, True),
        (-2, 2**63 - 1, False),
        (-1, 2**63 - 1, True),
    ],
)
def test_a_record_stays_readable_beside_a_tombstone_however_old_it_is(
    tmp_path: Path, timestamp: int, retention_ms: int, marked: bool
) -> None:
    """A record whose delta to the delete horizon exceeds 64 bits prevents the mark on its batch."""
    log = compacted(tmp_path, delete_retention_ms=retention_ms)
    log.append_as_follower(with_base_timestamp(keyed((b"a", None), (b"b", b"1")), timestamp))
    roll(log)
    recorded = clean(log)
    assert [(record.timestamp, record.key) for record, _ in records_of(log)] == [(timestamp, b"a"), (timestamp, b"b")]
    assert (headers_of(log)[0].delete_horizon_ms is not None) == marked
    put(log, (b"c", b"1"))
    roll(log)
    clean(log, recorded, now_ms=NOW + 2 * DAY_MS)
    goes = marked and retention_ms == DAY_MS
    assert [key for _, key, _ in values_of(log)] == ([] if goes else [b"a"]) + [b"b", b"c"]


# --- all of it together ------------------------------------------------------------------------------


def test_compacted_log_of_the_corpus_is_as_documented(tmp_path: Path) -> None:
    log = write_compacted_log(tmp_path)
    headers = headers_of(log)
    assert {header.codec for header in headers if header.record_count < header.last_offset_delta + 1} == set(Codec)
    assert any(header.delete_horizon_ms for header in headers)
    assert any(header.record_count == 0 and header.producer_id == 7 for header in headers)
    assert any(header.is_control for header in headers)
    assert any(header.is_transactional and not header.is_control for header in headers)
    keys = [key for _, key, _ in values_of(log)]
    assert b"gone on day 0" not in keys
    assert b"gone on day 2" in keys
    assert len(log.segments) > 2
    records = records_of(log)
    for target in range(NOW - 1, NOW + 20):
        assert log.offset_for_timestamp(target, log.log_end_offset) == first_at_or_after(records, target, 10**9)
    assert log.offset_of_max_timestamp(log.log_end_offset) == largest(records, 10**9)
