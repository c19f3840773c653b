"""Define the Arrow columns of a topic, and choose those that a user asks for.

    topic           string
    partition       int32
    offset          int64
    timestamp       timestamp[ms, UTC]; null: the record has none
    timestamp_type  int32; 0: the producer's time (CreateTime), 1: the broker's (LogAppendTime)
    key, value      binary; a null stays a null
    headers         list<struct<key string, value binary>>; null: the record has none

The unit is that of Kafka's timestamps, so that no time is out of range. (Spark has microseconds only.)
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidelog import arguments
from tidelog.errors import ArgumentValueError
from tidelog.nearest_names import nearest_names

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)
#: The columns of a user who names none. The others are rarely needed, and headers take time to decode.
DEFAULT_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


def schema_of(columns: Iterable[str] | None, *, headers: bool) -> pa.Schema:
    """Return the schema of these columns in their order; None: DEFAULT_COLUMNS. `headers` adds the column `headers`.

    Raises ArgumentTypeError for a value that is no list of names, and ArgumentValueError for an unknown or repeated
    name and for an empty list.
    """
    names = list(DEFAULT_COLUMNS) if columns is None else arguments.texts("columns", columns)
    if not names:
        raise ArgumentValueError(f"columns=[] must name at least one of {', '.join(SCHEMA.names)}")
    for place, name in enumerate(names):
        if name not in SCHEMA.names:
            raise ArgumentValueError(f"columns: no column {name!r}; {nearest_names(name, SCHEMA.names)}")
        if name in names[:place]:
            raise ArgumentValueError(f"columns has {name!r} twice")
    if arguments.flag("headers", headers) and "headers" not in names:
        names.append("headers")
    return pa.schema([SCHEMA.field(name) for name in names])
