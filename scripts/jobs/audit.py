"""Audit a topic against its producer's journal: is every acknowledged record there, once, unchanged, in its place?

    python scripts/jobs/audit.py --bootstrap-servers H:P --topic T --journal FILE_OR_DIRECTORY [--json FILE]

**The journal** is JSON lines (one file or a directory of them) or Parquet (a name ending in `.parquet`, or
a directory that holds such files), one row for each record that the producer sent:

    {"topic": "logs", "partition": 3, "offset": 17, "digest": "9f86d081884c7d659a2feaa0c55ad015", "acked": true}

`digest` is the first 32 hexadecimal digits of the value's SHA-256, `hashlib.sha256(value or b"").hexdigest()[:32]`.
A row without an acknowledgement has `acked` false and `offset` −1 (and `partition` −1 where it is not known).

**The figures.** A value is known by its digest; equal values are told apart by counting. Rows of the journal
are joined with the topic's records on partition, offset and digest; what matches is whole. Of the rest:

| figure    | is a count of                                                                                      |
|-----------|----------------------------------------------------------------------------------------------------|
| acked     | rows of the journal with `acked` true                                                                |
| read      | records of the topic in the audited range                                                            |
| matched   | acknowledged rows whose record stands at their partition and offset with their digest               |
| misplaced | acknowledged rows whose value stands at another offset or partition instead: two swapped records are 2 |
| altered   | acknowledged rows at whose offset stands a value that the journal never heard of, their own being gone |
| lost      | acknowledged rows whose value is gone and whose offset is empty, or holds a value of another row       |
| doubled   | records beyond the number of times that their value was sent                                         |
| unacked   | records whose row was sent and never acknowledged: allowed, at least once is what was promised         |
| foreign   | records of a value that nobody journaled, at an offset that is not an altered row's                   |

so that `acked = matched + misplaced + altered + lost` and
`read = matched + misplaced + altered + doubled + unacked + foreign`. Dropping one record, altering one,
repeating one and swapping two, each in its place (no other record's offset changes), gives exactly
lost 1, altered 1, doubled 1, misplaced 2. A copy whose offsets shift behind a dropped record calls every
record behind it misplaced, as it should: an acknowledged offset is part of the promise.

**Output.** One JSON object with the figures, `topic`, `ok` (lost, doubled, altered, misplaced and foreign are all
0) and `examples`, up to `--examples` of each kind as `{"kind", "partition", "offset", "digest"}`. Exit status 0 if ok,
1 if not, 2 if the audit could not be done (one line on standard error).
The join spills to disk: memory does not grow with the topic.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="audit.py", description="Audit a topic against its producer's journal.")
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--journal", required=True, metavar="PATH", help="JSON lines or Parquet")
    parser.add_argument("--journal-topic", metavar="NAME", help="the topic's name in the journal, if it is another")
    parser.add_argument("--starting-offsets", default="earliest", metavar="JSON", help='earliest, or {"t": {"0": 5}}')
    parser.add_argument("--ending-offsets", default="latest", metavar="JSON", help='latest, or {"t": {"0": 9}}')
    parser.add_argument("--json", metavar="FILE", help="also write the result there")
    parser.add_argument("--examples", type=int, default=5, metavar="N", help="of each kind (default 5)")
    parser.add_argument("--master", default="local[2,4]", help="Spark's master (default local[2,4])")
    parser.add_argument("--driver-memory", default="1g", help="the JVM's heap (default 1g)")
    return parser.parse_args(arguments)
