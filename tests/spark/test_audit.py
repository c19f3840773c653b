"""The audit's figures: a whole topic, a tampered one, and the cases in which counting by value matters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from audit import main, read_journal
from journal_audit import JOURNAL_SCHEMA, Figures, compare, digest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]  # all tests share one Spark session

Sent = tuple[int, int, bytes]  # partition, offset, value
Audit = Callable[..., Figures]


def digest_of(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:32]


@pytest.fixture
def audit(spark: SparkSession) -> Audit:
    def run(promised: Sequence[Sent], stored: Sequence[Sent], unacknowledged: Sequence[bytes] = ()) -> Figures:
        rows: list[Any] = [("t", partition, offset, digest_of(value), True) for partition, offset, value in promised]
        rows += [("t", -1, -1, digest_of(value), False) for value in unacknowledged]
        journal = spark.createDataFrame(rows, JOURNAL_SCHEMA)
        records = spark.createDataFrame(list(stored), "partition int, offset bigint, value binary")
        return compare(journal, records.select("partition", "offset", digest(fn.col("value")).alias("digest")), 5)

    return run


def counts(figures: Figures) -> dict[str, int]:
    names = ("acked", "read", "matched", "misplaced", "altered", "lost", "doubled", "unacked", "foreign")
    return {name: getattr(figures, name) for name in names if getattr(figures, name)}


WHOLE: list[Sent] = [(n % 3, n // 3, b"line %d" % n) for n in range(300)]


def test_complete_topic_passes_the_audit(audit: Audit) -> None:
    figures = audit(WHOLE, WHOLE)
    assert counts(figures) == {"acked": 300, "read": 300, "matched": 300}
    assert figures.ok
    assert figures.examples == []


def test_audit_counts_lost_altered_doubled_and_swapped_records(audit: Audit) -> None:
    stored = dict(((partition, offset), value) for partition, offset, value in WHOLE)
    del stored[0, 99]
    stored[1, 10] = b"tampered with"
    stored[2, 100] = stored[2, 5]
    stored[0, 7], stored[0, 8] = stored[0, 8], stored[0, 7]
    figures = audit(WHOLE, [(*place, value) for place, value in stored.items()])
    assert counts(figures) == {
        "acked": 300,
        "read": 300,
        "matched": 296,
        "misplaced": 2,
        "altered": 1,
        "lost": 1,
        "doubled": 1,
    }
    assert not figures.ok
    places = sorted((each["kind"], each["partition"], each["offset"]) for each in figures.examples)
    assert places == [
        ("altered", 1, 10),
        ("doubled", 2, 100),
        ("lost", 0, 99),
        ("misplaced", 0, 7),
        ("misplaced", 0, 8),
    ]


@pytest.mark.slow
def test_copy_instead_of_a_lost_record_is_a_loss_and_a_double(audit: Audit) -> None:
    stored = [*WHOLE[:-1], (2, 99, WHOLE[0][2])]
    assert counts(audit(WHOLE, stored)) == {"acked": 300, "read": 300, "matched": 299, "lost": 1, "doubled": 1}


@pytest.mark.slow
def test_equal_acknowledged_lines_are_no_doubles(audit: Audit) -> None:
    equal: list[Sent] = [(0, n, b"the same line") for n in range(10)]
    assert audit(equal, equal).ok
    assert counts(audit(equal, [*equal, (0, 10, b"the same line")]))["doubled"] == 1
    assert counts(audit(equal, equal[:-1]))["lost"] == 1


@pytest.mark.slow
def test_unacknowledged_record_may_be_present_or_absent(audit: Audit) -> None:
    there = audit(WHOLE, [*WHOLE, (0, 100, b"maybe")], unacknowledged=[b"maybe", b"not there"])
    assert there.ok
    assert there.unacked == 1
    twice = audit(WHOLE, [*WHOLE, (0, 100, b"maybe"), (0, 101, b"maybe")], unacknowledged=[b"maybe"])
    assert (twice.unacked, twice.doubled) == (1, 1)


@pytest.mark.slow
def test_record_that_was_never_sent_is_foreign(audit: Audit) -> None:
    figures = audit(WHOLE, [*WHOLE, (1, 100, b"who are you?")])
    assert (figures.foreign, figures.altered, figures.ok) == (1, 0, False)


@pytest.mark.slow
def test_offset_acknowledged_twice_is_an_error(audit: Audit) -> None:
    assert audit([*WHOLE, (0, 0, b"promised the same place")], WHOLE).lost == 1
    assert audit([*WHOLE, WHOLE[0]], WHOLE).lost == 1


@pytest.mark.slow
def test_shift_misplaces_all_later_records(audit: Audit) -> None:
    one: list[Sent] = [(0, n, b"%d" % n) for n in range(100)]
    shifted = [*one[:50], *((0, n - 1, value) for _, n, value in one[51:])]
    assert counts(audit(one, shifted)) == {"acked": 100, "read": 99, "matched": 50, "misplaced": 49, "lost": 1}


def test_null_and_empty_values_have_equal_digests(spark: SparkSession) -> None:
    [row] = spark.sql("select cast(null as binary) v, x'' w").select(digest(fn.col("v")), digest(fn.col("w"))).collect()
    assert row[0] == row[1] == digest_of(b"")


def test_a_journal_is_json_lines_or_parquet(spark: SparkSession, tmp_path: Path) -> None:
    line = {"topic": "t", "partition": 3, "offset": 17, "digest": "9f", "acked": True}
    lines = tmp_path / "journal.jsonl"
    lines.write_text(json.dumps(line) + "\n")
    journal = read_journal(spark, lines)
    journal.write.parquet(str(tmp_path / "journal.parquet"))
    for each in (journal, read_journal(spark, tmp_path / "journal.parquet")):
        assert [row.asDict() for row in each.collect()] == [line]
    lines.write_text("no journal\n")
    with pytest.raises(Exception, match=r"(?i)malformed"):
        read_journal(spark, lines).collect()


def test_missing_journal_is_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = str(tmp_path / "nowhere")
    assert main(["--bootstrap-servers", "localhost:1", "--topic", "t", "--journal", journal]) == 2
    assert capsys.readouterr() == ("", f"audit.py: there is no journal {journal}\n")
