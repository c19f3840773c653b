"""Count a topic's lines per minute and source with a Spark stream, from a point in time on, while lines still arrive.

    python scripts/jobs/windowed_counts.py --bootstrap-servers H:P --topic T --starting-timestamp MS \
        --output DIR --checkpoint DIR --progress FILE --stop-file FILE

A record is a line: value = the line's bytes, key = the name of its source, timestamp = its time. Counted is
every record whose timestamp is ≥ `--starting-timestamp` (ms since 1970) and that the watermark lets in. The stream
starts at the offsets that a look-up of that time gives for each partition (a partition without such a record yet
starts at its end), so nothing at or after that time is missed and what stands before the look-up's answer is never
read.

**Output** (Parquet below `--output`): `updates/batch=NNNNNN/`, written by each micro-batch: the new totals of
the windows that it touched; and, written at the end, `counts/`: one row for each minute and source.
Both have the columns `minute` (timestamp, the window's start, UTC), `source` (string, null for no key), `lines` (long).
While the stream runs, max(lines) by minute and source over `updates/` is the present state.

**Progress** (JSON lines, appended and flushed at once; `at` is wall time in ms):

    {"event": "started", "at", "query", "run", "starting_timestamp"}
    {"event": "batch", "at", "batch", "rows", "start", "end", "watermark", "late_groups", "duration_ms",
     "failed_tasks"}
    {"event": "ended", "at", "reason", "batches", "read", "before", "late", "counted", "start", "end",
     "failed_tasks", "late_by_batch": {"7": 12}, "counts": "DIR/counts"}
    {"event": "failed", "at", "error", "failed_tasks"}

`start` and `end` are offsets, {"topic": {"0": 23}}; `watermark` is in ms (0: none yet); `failed_tasks` counts since the
start of the run. `reason` is `end offsets`, `signal` or `timeout`. In `ended`: `read` = records in [start, end),
`before` = those of them older than the starting timestamp, `late` = those that the watermark dropped (their window
had ended by the watermark of the batch that read them), counted record by record in a second read of just those batches
and checked against Spark's own number of dropped groups, `counted` = the sum over `counts/`. The job holds itself to
read = before + late + counted and fails if that is not so.

**Stopping.** The stop file holds end offsets, {"topic": {"0": 23}} or {"0": 23}: once it is there (write it aside and
rename it) and a batch that reaches them has been committed, the query stops. SIGTERM and SIGINT stop it as it stands.
Exit status 0 after a graceful stop without a failed task, 1 if the query failed, a task failed or the sums do not
agree, 2 for a wrong command line, 3 after `--timeout`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; see the module's docstring."""
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
