"""Counts the lines that a stream's watermark dropped, record by record.

Spark's own figure counts groups (a window and a source), because rows are summed before late groups are dropped.
Therefore the batches with late groups are read again, their late rows are counted, and the number of groups is compared
with Spark's figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

#: {"topic": {"0": 23}}
Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class BatchWithLateLines:
    """A micro-batch: its offsets, the watermark (ms) that it applied, and the groups that Spark dropped."""

    batch: int
    start: Offsets
    end: Offsets
    watermark: int
    late_groups: int


def late_lines(
    spark: SparkSession,
    read: Callable[[Offsets, Offsets], DataFrame],
    batches: Sequence[BatchWithLateLines],
    window_end: Column,
) -> dict[int, int]:
    """Return late lines by batch. Raises ArithmeticError if Spark counted a different number of groups.

    `read` returns the lines between two offsets with the columns topic, partition, offset, timestamp and source.
    `window_end` is computed from `timestamp`.
    """
    if not batches:
        return {}
    ranges = [
        (each.batch, topic, int(partition), each.start.get(topic, {}).get(partition, 0), until, each.watermark)
        for each in batches
        for topic, partitions in each.end.items()
        for partition, until in partitions.items()
    ]
    schema = (
        "batch bigint, in_topic string, in_partition int, from_offset bigint, until_offset bigint, watermark bigint"
    )
    table = fn.broadcast(spark.createDataFrame(ranges, schema))
    lines = read(_outermost(batches, min), _outermost(batches, max)).withColumn("window_end", window_end)
    inside = fn.expr(
        "topic = in_topic and partition = in_partition and offset >= from_offset and offset < until_offset"
    )
    late = lines.join(table, inside).where(fn.unix_millis("window_end") <= fn.col("watermark"))
    groups = late.groupBy("batch", "window_end", "source").agg(fn.count("*").alias("lines"))
    rows = groups.groupBy("batch").agg(fn.sum("lines").alias("lines"), fn.count("*").alias("groups")).collect()
    found = {row["batch"]: (row["lines"], row["groups"]) for row in rows}
    for each in batches:
        groups_found = found.get(each.batch, (0, 0))[1]
        if groups_found != each.late_groups:
            raise ArithmeticError(
                f"batch {each.batch}: Spark dropped {each.late_groups} late groups, a second read finds {groups_found}"
            )
    return {batch: lines_ for batch, (lines_, _) in sorted(found.items())}


def _outermost(batches: Sequence[BatchWithLateLines], which: Callable[[int, int], int]) -> dict[str, dict[str, int]]:
    ends: dict[str, dict[str, int]] = {}
    for each in batches:
        for topic, partitions in (each.start if which is min else each.end).items():
            for partition, offset in partitions.items():
                before = ends.setdefault(topic, {}).get(partition, offset)
                ends[topic][partition] = which(before, offset)
    return ends
