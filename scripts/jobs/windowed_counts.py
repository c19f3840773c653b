"""Count a topic's lines per minute and source with a Spark stream, from a point in time on, while lines still arrive.

    python scripts/jobs/windowed_counts.py --bootstrap-servers H:P --topic T --starting-timestamp MS \
        --output DIR --checkpoint DIR --progress FILE --stop-file FILE

A record is a line: value = the line's bytes, key = the name of its source, timestamp = its time. Counted is
every record whose timestamp is ≥ `--starting-timestamp` (ms since 1970) and that the watermark does not drop. The
stream starts at the offsets that a look-up of that time gives for each partition (a partition without such a record yet
starts at its end). So no record at or after that time is missed, and no record before the look-up's answer is
read.

**Output** (Parquet below `--output`): `updates/batch=NNNNNN/`, written by each micro-batch: the new totals of
the windows that it touched; and, written at the end, `counts/`: one row for each minute and source.
Both have the columns `minute` (timestamp, the window's start, UTC), `source` (string, null for no key), `lines` (long).
While the stream runs, max(lines) by minute and source over `updates/` is the present state.

**Progress** (JSON lines, appended and flushed at once; `at` is wall time in ms):

    {"event": "started", "at", "query", "run", "starting_timestamp"}
    {"event": "batch", "at", "batch", "rows", "before", "start", "end", "watermark", "late_groups",
     "duration_ms", "failed_tasks"}
    {"event": "ended", "at", "reason", "batches", "read", "before", "late", "counted", "start", "end",
     "failed_tasks", "late_by_batch": {"7": 12}, "counts": "DIR/counts"}
    {"event": "failed", "at", "error", "failed_tasks"}

`start` and `end` are offsets, {"topic": {"0": 23}}; `watermark` is in ms (0: none yet); `failed_tasks` counts since the
start of the run. `reason` is `end offsets`, `signal` or `timeout`. In `ended`: `read` = records in [start, end),
`before` = those of them older than the starting timestamp, `late` = those that the watermark dropped (their window
had ended by the watermark of the batch that read them), counted record by record in a second read of just those batches
and checked against Spark's own number of dropped groups, `counted` = the sum over `counts/`. The job checks that
read = before + late + counted, and fails otherwise.

**Stopping.** The stop file holds end offsets, {"topic": {"0": 23}} or {"0": 23}: once it is there (write it aside and
rename it) and a batch that reaches them has been committed, the query stops. SIGTERM and SIGINT stop it as it stands.
Exit status 0 after a graceful stop without a failed task, 1 if the query failed, a task failed or the sums do not
agree, 2 for a wrong command line, 3 after `--timeout`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import session
from late_lines import BatchWithLateLines, Offsets, late_lines
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from stream_progress import Progress, reached

_POLL_S = 0.2
#: Settings beside those of every job.
SETTINGS = {
    # Late rows are then compared with the watermark that the batch itself reports, not with the one before it.
    "spark.sql.streaming.statefulOperator.allowMultiple": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line, see the module's docstring."""
    parser = argparse.ArgumentParser(prog="windowed_counts.py", description="Count lines per minute and source.")
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--starting-timestamp", required=True, type=int, metavar="MS")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    parser.add_argument("--checkpoint", required=True, type=Path, metavar="DIR")
    parser.add_argument("--progress", required=True, type=Path, metavar="FILE")
    parser.add_argument("--stop-file", required=True, type=Path, metavar="FILE")
    parser.add_argument("--window", default="1 minute", help="(default 1 minute)")
    parser.add_argument("--watermark", default="10 minutes", help="how late a line may come (default 10 minutes)")
    parser.add_argument("--trigger", default="500 milliseconds", help="time between batches (default 500 milliseconds)")
    parser.add_argument("--max-offsets-per-trigger", type=int, default=100_000, metavar="N", help="(default 100000)")
    parser.add_argument("--timeout", type=float, default=0, metavar="SECONDS", help="give up after (default: never)")
    parser.add_argument("--master", default="local[2,4]", help="Spark's master (default local[2,4])")
    parser.add_argument("--driver-memory", default="1g", help="the JVM's heap (default 1g)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse_arguments(arguments)
    try:
        given.progress.parent.mkdir(parents=True, exist_ok=True)
        spark = session.start(
            "windowed counts",
            master=given.master,
            driver_memory=given.driver_memory,
            warehouse=given.output / "warehouse",
            settings=SETTINGS,
        )
    except Exception as error:
        print(f"windowed_counts.py: {session.one_line(error)}", file=sys.stderr)
        return 1
    progress = Progress(given.progress, spark)
    try:
        return count_until_stopped(spark, given, progress)
    except Exception as error:
        progress.write("failed", error=session.one_line(error), failed_tasks=progress.failed_tasks())
        print(f"windowed_counts.py: {session.one_line(error)}", file=sys.stderr)
        return 1
    finally:
        spark.stop()


def count_until_stopped(spark: SparkSession, given: argparse.Namespace, progress: Progress) -> int:
    """Run the stream, then check the sums, and return the exit status."""
    signalled = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: signalled.set())
    query = start_query(spark, given)
    progress.write("started", query=str(query.id), run=str(query.runId), starting_timestamp=given.starting_timestamp)
    try:
        reason = follow(query, progress, given, signalled)
    finally:
        query.stop()
    progress.take(query.recentProgress)
    status = finish(spark, given, progress, reason)
    return 3 if reason == "timeout" else status


def start_query(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    reader = spark.readStream.format("tidelog").options(
        **where(given),
        startingTimestamp=str(given.starting_timestamp),
        startingOffsetsByTimestampStrategy="latest",
        maxOffsetsPerTrigger=str(given.max_offsets_per_trigger),
    )
    begin = fn.timestamp_millis(fn.lit(given.starting_timestamp))
    lines = named(reader.load()).observe("lines", fn.count_if(fn.col("timestamp") < begin).alias("before"))
    counts = (
        lines.where(fn.col("timestamp") >= begin)
        .withWatermark("timestamp", given.watermark)
        .groupBy(fn.window("timestamp", given.window).alias("window"), "source")
        .agg(fn.count("*").alias("lines"))
        .select(fn.col("window.start").alias("minute"), "source", "lines")
    )
    return (
        counts.writeStream.outputMode("update")
        .foreachBatch(updates_writer(given.output))
        .option("checkpointLocation", str(given.checkpoint))
        .trigger(processingTime=given.trigger)
        .start()
    )


def where(given: argparse.Namespace) -> dict[str, str]:
    return {"tidelog.bootstrap.servers": given.bootstrap_servers, "subscribe": given.topic}


def named(lines: DataFrame) -> DataFrame:
    """Return only the columns that are counted, so that the lines themselves are not read."""
    return lines.select("topic", "partition", "offset", "timestamp", fn.col("key").cast("string").alias("source"))


def updates_writer(output: Path) -> Callable[[DataFrame, int], None]:
    def write(totals: DataFrame, batch: int) -> None:
        # A batch that is run again after a crash replaces what its first run wrote.
        totals.coalesce(1).write.mode("overwrite").parquet(str(output / "updates" / f"batch={batch:06}"))

    return write


def follow(query: StreamingQuery, progress: Progress, given: argparse.Namespace, signalled: threading.Event) -> str:
    """Wait until there is a reason to stop, and return it. Raises the error that ended the query."""
    deadline = time.monotonic() + given.timeout if given.timeout else None
    while True:
        progress.take(query.recentProgress)
        if not query.isActive:
            raise query.exception() or RuntimeError("the query ended by itself")
        wanted = json.loads(given.stop_file.read_text()) if given.stop_file.exists() else None
        if wanted is not None and progress.last and reached(progress.last.end, wanted):
            return "end offsets"
        if signalled.wait(_POLL_S):
            return "signal"
        if deadline and time.monotonic() >= deadline:
            return "timeout"


def finish(spark: SparkSession, given: argparse.Namespace, progress: Progress, reason: str) -> int:
    """Write `counts/`, count the late lines, compare the sums, and return the exit status."""
    batches = [progress.batches[number] for number in sorted(progress.batches)]
    counted = write_counts(spark, given.output, batches[-1].batch if batches else -1)
    begin = fn.timestamp_millis(fn.lit(given.starting_timestamp))

    def read(start: Offsets, end: Offsets) -> DataFrame:
        between = {"startingOffsets": json.dumps(start), "endingOffsets": json.dumps(end)}
        lines = spark.read.format("tidelog").options(**where(given), **between).load()
        return named(lines).where(fn.col("timestamp") >= begin)

    with_late = [
        BatchWithLateLines(each.batch, each.start, each.end, each.watermark, each.late_groups)
        for each in batches
        if each.late_groups
    ]
    late = late_lines(spark, read, with_late, fn.window("timestamp", given.window)["end"])
    figures = {
        "read": sum(each.rows for each in batches),
        "before": sum(each.before for each in batches),
        "late": sum(late.values()),
        "counted": counted,
    }
    if figures["read"] != figures["before"] + figures["late"] + figures["counted"]:
        raise ArithmeticError(f"the sums do not agree: {figures}")
    failed_tasks = progress.failed_tasks()
    progress.write(
        "ended",
        reason=reason,
        batches=len(batches),
        **figures,
        start=batches[0].start if batches else {},
        end=batches[-1].end if batches else {},
        failed_tasks=failed_tasks,
        late_by_batch={str(batch): lines for batch, lines in late.items()},
        counts=str(given.output / "counts"),
    )
    return 1 if failed_tasks else 0


def write_counts(spark: SparkSession, output: Path, last_batch: int) -> int:
    """Write the last total of each window and source, and return their sum. Uncommitted batches do not count."""
    updates = spark.read.schema("minute timestamp, source string, lines bigint, batch int").parquet(
        str(output / "updates")
    )
    # A total only grows until its window is closed, and a closed window accepts no line.
    totals = (
        updates.where(fn.col("batch") <= last_batch).groupBy("minute", "source").agg(fn.max("lines").alias("lines"))
    )
    counts = output / "counts"
    totals.coalesce(1).write.mode("overwrite").parquet(str(counts))
    [row] = spark.read.parquet(str(counts)).agg(fn.coalesce(fn.sum("lines"), fn.lit(0)).alias("lines")).collect()
    return int(row["lines"])


if __name__ == "__main__":
    sys.exit(main())
