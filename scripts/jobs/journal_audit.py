"""Compares two tables: what was acknowledged to a producer, and what a topic holds. See `audit.py`.

The cost grows with the disagreements, because one shuffle of both tables drops every record that matches.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as fn

JOURNAL_SCHEMA = "topic string, partition int, offset bigint, digest string, acked boolean"
DIGEST_DIGITS = 32

_PLACE = ("partition", "offset")
_NAMED_KINDS = ("lost", "doubled", "altered", "misplaced", "foreign")


@dataclass
class Figures:
    """The figures that `audit.py` reports. Each example is {kind, partition, offset, digest}."""

    acked: int = 0
    read: int = 0
    matched: int = 0
    misplaced: int = 0
    altered: int = 0
    lost: int = 0
    doubled: int = 0
    unacked: int = 0
    foreign: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.misplaced or self.altered or self.lost or self.doubled or self.foreign)

    def as_json(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "ok": self.ok, **asdict(self)}


def digest(value: Column) -> Column:
    """Return the digest of a binary column, as the journal has it. Null counts as empty."""
    whole = fn.sha2(fn.coalesce(value, fn.lit(b"")), 256)
    return fn.substring(whole, 1, DIGEST_DIGITS)


def compare(journal: DataFrame, records: DataFrame, examples: int) -> Figures:
    """Compare `journal`, which has JOURNAL_SCHEMA and one topic, with `records` (partition, offset and digest)."""
    acked = journal.where("acked")
    sent = acked.select(*_PLACE, "digest", fn.lit(1).alias("sent"), fn.lit(0).alias("stored"))
    stored = records.select(*_PLACE, "digest", fn.lit(0).alias("sent"), fn.lit(1).alias("stored"))
    counted = (
        sent.unionByName(stored)
        .groupBy(*_PLACE, "digest")
        .agg(fn.sum("sent").alias("sent"), fn.sum("stored").alias("stored"))
    )
    totals = Observation("totals")
    watched = counted.observe(
        totals,
        _sum("sent").alias("acked"),
        _sum("stored").alias("read"),
        _sum(fn.least("sent", "stored")).alias("matched"),
    )
    residue = watched.where("sent != stored").select(
        *_PLACE,
        "digest",
        fn.greatest(fn.col("sent") - fn.col("stored"), fn.lit(0)).alias("missing"),
        fn.greatest(fn.col("stored") - fn.col("sent"), fn.lit(0)).alias("surplus"),
    )
    residue = residue.persist(StorageLevel.DISK_ONLY)
    try:
        disagreeing = residue.count()
        found = totals.get
        figures = Figures(found["acked"], found["read"], found["matched"])
        if disagreeing:
            _explain(figures, journal, residue, examples)
        return figures
    finally:
        residue.unpersist()


def _sum(column: Column | str) -> Column:
    return fn.coalesce(fn.sum(column), fn.lit(0))


def _explain(figures: Figures, journal: DataFrame, residue: DataFrame, examples: int) -> None:
    values = _by_value(journal, residue).persist(StorageLevel.DISK_ONLY)
    placed = residue.join(values.select("digest", "journaled", "gone"), "digest")
    # One journal row for each place that holds a value unknown to the journal, if that row's own value is gone.
    unheard = placed.where("surplus > 0 and journaled = 0").select(*_PLACE)
    altered = (
        placed.where("missing > 0 and gone > 0").join(unheard, list(_PLACE), "left_semi").dropDuplicates(list(_PLACE))
    )
    altered_by_value = altered.groupBy("digest").agg(fn.count("*").alias("overwritten"))
    outcome = (
        values.join(altered_by_value, "digest", "left")
        .withColumn("altered", fn.least("gone", fn.coalesce("overwritten", fn.lit(0))))
        .withColumn("lost", fn.col("gone") - fn.col("altered"))
        .persist(StorageLevel.DISK_ONLY)
    )
    kinds = ("misplaced", "altered", "lost", "doubled", "unacked")
    sums = outcome.select(
        *(_sum(kind).alias(kind) for kind in kinds), _sum(fn.expr("if(journaled = 0, beyond, 0)")).alias("unheard")
    ).collect()[0]
    for kind in kinds:
        setattr(figures, kind, sums[kind])
    figures.foreign = sums["unheard"] - figures.altered
    if examples > 0:
        figures.examples = _examples(residue, outcome, altered, examples)
    outcome.unpersist()
    values.unpersist()


def _by_value(journal: DataFrame, residue: DataFrame) -> DataFrame:
    """Classify each disagreeing value by counting.

    misplaced   stands at another place than acknowledged
    gone        acknowledged, but nowhere in the topic
    beyond      stands more often than acknowledged: unacked (sent without acknowledgement), doubled, or not journaled
    """
    values = residue.groupBy("digest").agg(fn.sum("missing").alias("missing"), fn.sum("surplus").alias("surplus"))
    known = (
        journal.join(values.select("digest"), "digest", "left_semi")
        .groupBy("digest")
        .agg(fn.count("*").alias("journaled"), _sum(fn.expr("if(acked, 0, 1)")).alias("unpromised"))
    )
    return (
        values.join(known, "digest", "left")
        .fillna(0, ["journaled", "unpromised"])
        .withColumn("misplaced", fn.least("missing", "surplus"))
        .withColumn("gone", fn.col("missing") - fn.col("misplaced"))
        .withColumn("beyond", fn.col("surplus") - fn.col("misplaced"))
        .withColumn("unacked", fn.least("beyond", "unpromised"))
        .withColumn("doubled", fn.expr("if(journaled = 0, 0, beyond - unacked)"))
    )


def _examples(residue: DataFrame, outcome: DataFrame, altered: DataFrame, number: int) -> list[dict[str, Any]]:
    places = altered.select(*_PLACE, fn.lit(True).alias("overwritten_here"))
    rows = residue.join(outcome.drop("missing", "surplus"), "digest").join(places, list(_PLACE), "left")
    here = fn.coalesce("overwritten_here", fn.lit(False))
    kind = (
        fn.when((fn.col("missing") > 0) & here, "altered")
        .when((fn.col("missing") > 0) & (fn.col("misplaced") > 0), "misplaced")
        .when(fn.col("missing") > 0, "lost")
        .when((fn.col("journaled") == 0) & ~here, "foreign")
        .when(fn.col("doubled") > 0, "doubled")
    )
    named = rows.withColumn("kind", kind).where("kind is not null").select("kind", *_PLACE, "digest")
    some = [named.where(fn.col("kind") == each).limit(number) for each in _NAMED_KINDS]
    return [row.asDict() for row in reduce(DataFrame.unionByName, some).collect()]
