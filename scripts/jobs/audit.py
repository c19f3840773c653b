"""Audit a topic against its producer's journal: is every acknowledged record there, once, unchanged, in its place?

    python scripts/jobs/audit.py --bootstrap-servers H:P --topic T --journal FILE_OR_DIRECTORY
                                [--json FILE] [--progress FILE]

**The journal** is JSON lines (one file or a directory of them) or Parquet (a name ending in `.parquet`, or
a directory that holds such files), one row for each record that the producer sent:

    {"topic": "logs", "partition": 3, "offset": 17, "digest": "9f86d081884c7d659a2feaa0c55ad015", "acked": true}

`digest` is the first 32 hexadecimal digits of the value's SHA-256, `hashlib.sha256(value or b"").hexdigest()[:32]`.
A row without an acknowledgement has `acked` false and `offset` −1 (and `partition` −1 where it is not known).

**The figures.** A value is identified by its digest, and equal values are counted. Rows of the journal
are joined with the topic's records on partition, offset and digest. The figures:

| figure    | is a count of                                                                                      |
|-----------|----------------------------------------------------------------------------------------------------|
| acked     | rows of the journal with `acked` true                                                                |
| read      | records of the topic in the audited range                                                            |
| matched   | acknowledged rows whose record stands at their partition and offset with their digest               |
| misplaced | acknowledged rows whose value stands at another offset or partition instead: two swapped records are 2 |
| altered   | acknowledged rows whose value is gone and at whose offset stands a value that is not in the journal  |
| lost      | acknowledged rows whose value is gone and whose offset is empty, or holds a value of another row       |
| doubled   | records beyond the number of times that their value was sent                                         |
| unacked   | records whose row was sent and never acknowledged, which at-least-once delivery allows                  |
| foreign   | records whose value is not in the journal, at an offset that is not an altered row's                 |

so that `acked = matched + misplaced + altered + lost` and
`read = matched + misplaced + altered + doubled + unacked + foreign`. Dropping one record, altering one,
repeating one and swapping two, each in its place (no other record's offset changes), gives exactly
lost 1, altered 1, doubled 1, misplaced 2. In a copy whose offsets shift behind a dropped record, every
record behind it is misplaced, because an acknowledged offset is part of the promise.

**Output.** One JSON object with the figures, `topic`, `ok` (lost, doubled, altered, misplaced and foreign are all
0) and `examples`, up to `--examples` of each kind as `{"kind", "partition", "offset", "digest"}`. Exit status 0 if ok,
1 if not, 2 if the audit could not be done (one line on standard error).
The join spills to disk: memory does not grow with the topic.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import session
from journal_audit import JOURNAL_SCHEMA, Figures, compare, digest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from stage_progress import StageProgress


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line, see the module's docstring."""
    parser = argparse.ArgumentParser(prog="audit.py", description="Audit a topic against its producer's journal.")
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--journal", required=True, metavar="PATH", help="JSON lines or Parquet")
    parser.add_argument("--journal-topic", metavar="NAME", help="the topic's name in the journal, if it is another")
    parser.add_argument("--starting-offsets", default="earliest", metavar="JSON", help='earliest, or {"t": {"0": 5}}')
    parser.add_argument("--ending-offsets", default="latest", metavar="JSON", help='latest, or {"t": {"0": 9}}')
    parser.add_argument("--json", metavar="FILE", help="also write the result to this file")
    parser.add_argument(
        "--progress", metavar="FILE", help="also write the progress of Spark's stages to this file, as JSON lines"
    )
    parser.add_argument("--examples", type=int, default=5, metavar="N", help="examples of each kind (default 5)")
    parser.add_argument("--master", default="local[2,4]", help="Spark's master (default local[2,4])")
    parser.add_argument("--driver-memory", default="1g", help="the JVM's heap (default 1g)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse_arguments(arguments)
    if not Path(given.journal).exists():
        print(f"audit.py: there is no journal {given.journal}", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="tidelog-audit-") as scratch:
            spark = session.start(
                "audit", master=given.master, driver_memory=given.driver_memory, warehouse=Path(scratch)
            )
            try:
                with StageProgress(spark, Path(given.progress)) if given.progress else nullcontext():
                    result = audit(spark, given).as_json(given.topic)
            finally:
                spark.stop()
    except Exception as error:
        print(f"audit.py: {session.one_line(error)}", file=sys.stderr)
        return 2
    text = json.dumps(result)
    if given.json:
        Path(given.json).write_text(text + "\n")
    print(text)
    return 0 if result["ok"] else 1


def audit(spark: SparkSession, given: argparse.Namespace) -> Figures:
    """Return the figures for the command line."""
    name = given.journal_topic or given.topic
    journal = read_journal(spark, Path(given.journal)).where(fn.col("topic") == name)
    options = {
        "tidelog.bootstrap.servers": given.bootstrap_servers,
        "subscribe": given.topic,
        "startingOffsets": given.starting_offsets,
        "endingOffsets": given.ending_offsets,
    }
    columns = "value binary, partition int, offset bigint"
    topic = spark.read.format("tidelog").schema(columns).options(**options).load()
    return compare(
        journal, topic.select("partition", "offset", digest(fn.col("value")).alias("digest")), given.examples
    )


def read_journal(spark: SparkSession, path: Path) -> DataFrame:
    """Read the journal's rows. A line that is not a row of a journal makes reading fail."""
    if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
        return spark.read.parquet(str(path)).selectExpr("topic", "partition", "offset", "digest", "acked")
    return spark.read.schema(JOURNAL_SCHEMA).option("mode", "FAILFAST").json(str(path))


if __name__ == "__main__":
    sys.exit(main())
