"""Scan the time window of a topic into Arrow columns, in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from tidelog import arguments
from tidelog.arrow.offset_range import OffsetRange
from tidelog.arrow.requirement import required_schema
from tidelog.arrow.time_window import DEFAULT_LATENESS, TimeBound, TimeWindow
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.settings import BootstrapServers, ConsumerOptions
from tidelog.clock import SystemClock
from tidelog.errors import ClosedError, ConfigError, DataLossError, MessageTooLargeError, UnknownTopicOrPartitionError
from tidelog.model import TopicPartition
from tidelog.timestamps import format_time

if TYPE_CHECKING:  # imported when they are needed, so that `import tidelog` works without the extra `arrow`
    import pyarrow as pa

#: Settings of a consumer that would contradict a scan, which has no group and begins at `since`.
_NOT_FOR_SCANS = (
    "auto_offset_reset",
    "auto_commit_interval_ms",
    "consumer_timeout_ms",
    "enable_auto_commit",
    "group_id",
    "group_instance_id",
    "max_poll_records",
    "partition_assignment_strategy",
)


def scan(
    topic: str,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
    *,
    partitions: Iterable[int] | None = None,
    columns: Iterable[str] | None = None,
    headers: bool = False,
    allowed_lateness: timedelta | int | None = DEFAULT_LATENESS,
    bootstrap_servers: BootstrapServers | None = None,
    **options: Unpack[ConsumerOptions],
) -> Scan:
    """Return the records of a topic with timestamps from `since` up to but not including `until`, as Arrow columns.

    Example:

        hour = scan("orders", since="-1h", columns=["timestamp", "value"], bootstrap_servers="localhost:9092")
        print(hour.to_arrow().num_rows, "rows")

    Polars, pandas and DuckDB read the result without a copy: `polars.DataFrame(hour)`,
    `pandas.DataFrame.from_arrow(hour)`.

    since, until        ms since 1970, an aware datetime, a timedelta (so long ago), or a text such as
                        "2026-11-21T09:30:00Z" or "-1h". Without `since` the scan begins at the first record, and
                        without `until` it ends at the present end
    partitions          numbers of partitions; None: all
    columns             names, in the order of the result: topic, partition, offset, timestamp, key, value (the
                        default), timestamp_type, headers. Fewer columns are read faster
    headers             whether to add the column `headers`
    allowed_lateness    how much timestamps may be out of order: a timedelta or ms (5 min). The read of a partition
                        ends after 1,000 consecutive records that are later than `until` by at least this time, so
                        that it misses a record of the window that follows them. None: the read goes on to the
                        present end, and misses no record
    options             settings of `tidelog.Consumer` except those of a group; `default_api_timeout_ms` is also how
                        long a read waits for its next record

    The call connects to the cluster and looks up the offsets that each read covers. They end at the high watermark of
    that moment (read_committed: the last stable offset). Records without a timestamp are left out if `since` or `until`
    is given.

    Raises UnknownTopicOrPartitionError, ArgumentTypeError or ArgumentValueError (a naive datetime, `since` after
    `until`, an unknown column), ConfigError, MissingExtraError without pyarrow, and the errors of
    `Consumer.offsets_for_times`.
    """
    schema = required_schema("tidelog.scan", columns, headers=headers)
    for name in _NOT_FOR_SCANS:
        if name in options:
            raise ConfigError(f"{name}: a scan does not take this setting, because it has no group and begins at since")
    settings: dict[str, Any] = {"client_id": "tidelog-scan", **options}
    open_consumer = partial(Consumer, bootstrap_servers=bootstrap_servers, auto_offset_reset="none", **settings)
    window = TimeWindow.of(since, until, allowed_lateness, SystemClock().now_ms())
    name = arguments.topic("topic", topic)
    numbers = None if partitions is None else arguments.instances("partitions", partitions, int)
    return Scan(open_consumer, name, window, schema, numbers)


class Scan:
    """The records of a topic's time window. Each read opens its own connections and reads the same offsets.

    A scan may be read many times and by several threads. Libraries read it by Arrow's C stream interface
    (`__arrow_c_stream__`). The memory of a read does not grow with the topic, because a read holds at most
    `prefetch_max_bytes` (64 MiB) of fetched data, and the Arrow batches of one answer. Rows are in offset order within
    each partition; partitions alternate. Reads raise DataLossError if records of the scan were deleted meanwhile, and
    if the topic was created again.

    schema   the columns
    ranges   the offsets that a read covers, by partition
    """

    def __init__(
        self,
        open_consumer: Callable[[], Consumer],
        topic: str,
        window: TimeWindow,
        schema: pa.Schema,
        partitions: Iterable[int] | None = None,
    ) -> None:
        """Look up the offsets of the window. See `tidelog.scan` for the errors."""
        self.schema: pa.Schema = schema
        self._open_consumer = open_consumer
        self._topic = topic
        self._window = window
        self._lock = threading.Lock()
        self._reading: set[Consumer] = set()
        self._closed = False
        with open_consumer() as consumer:
            tps = _chosen(topic, consumer.partitions_for_topic(topic), partitions)
            known = consumer._core.client.view.topics.get(topic)
            self._topic_id = "" if known is None else known.topic_id
            self.ranges: tuple[OffsetRange, ...] = tuple(_ranges(consumer, tps, window))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read the records, as Arrow record batches; a batch has the records of one partition."""
        self._require_open()
        with self._open_consumer() as consumer:
            with self._lock:
                self._require_open()
                self._reading.add(consumer)
            try:
                with closing(self._read(consumer)) as batches:
                    yield from batches
            finally:
                with self._lock:
                    self._reading.discard(consumer)

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the scan is closed")

    def _read(self, consumer: Consumer) -> Generator[pa.RecordBatch]:
        from tidelog.arrow.arrow_rows import ArrowRows
        from tidelog.arrow.range_reader import RangeReader

        settings = consumer._core.settings
        limit = settings.max_decompressed_batch_bytes
        reader = RangeReader(
            consumer,
            [ArrowRows(self.schema, span, limit, window=self._window) for span in self.ranges],
            topic_id=self._topic_id,
            on_loss=_raise_loss,
            timeout_ms=settings.default_api_timeout_ms,
            timeout_name="default_api_timeout_ms",
            clock=SystemClock(),
            is_eager=True,
        )
        try:
            yield from reader.read()
        except MessageTooLargeError as error:
            raise MessageTooLargeError(f"{error} (max_decompressed_batch_bytes)") from None

    def to_arrow(self) -> pa.Table:
        """Read all records into memory."""
        import pyarrow as pa

        return pa.Table.from_batches(self, self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new read as an Arrow C stream, for libraries. A requested schema is fulfilled by pyarrow's casts."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self)).__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as an Arrow C schema, for libraries."""
        return self.schema.__arrow_c_schema__()

    def close(self) -> None:
        """End the reads in progress, which then raise ClosedError; later reads raise it too. Idempotent."""
        with self._lock:
            self._closed = True
            reading = list(self._reading)
        for consumer in reading:
            with suppress(ClosedError):  # the read has ended meanwhile, and closes its consumer itself
                consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = [f"topic={self._topic!r}"]
        for name, bound in (("since", self._window.since_ms), ("until", self._window.until_ms)):
            shown += [] if bound is None else [f"{name}={format_time(bound)}"]
        shown += [f"partitions={len(self.ranges)}", f"offsets={sum(span.size for span in self.ranges)}"]
        shown += [f"columns={','.join(self.schema.names)}", *(["closed"] if self._closed else [])]
        return f"<tidelog.Scan {' '.join(shown)}>"


def _ranges(consumer: Consumer, tps: list[TopicPartition], window: TimeWindow) -> Iterator[OffsetRange]:
    """Yield the offsets of each partition, from its first record of the window to its present end.

    The ends are looked up first, so that records which arrive meanwhile are in none of the ranges.
    """
    ends = consumer.end_offsets(tps)
    starts: dict[TopicPartition, int] = {}
    if window.since_ms is None:
        starts = consumer.beginning_offsets(tps)
    else:
        found = consumer.offsets_for_times(dict.fromkeys(tps, window.since_ms))
        starts = {tp: ends[tp] if (first := found[tp]) is None else first.offset for tp in tps}
    for tp in tps:
        yield OffsetRange(tp, min(starts[tp], ends[tp]), ends[tp])


def _chosen(topic: str, existing: set[int] | None, wanted: Iterable[int] | None) -> list[TopicPartition]:
    if not existing:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}")
    if wanted is None:
        return [TopicPartition(topic, number) for number in sorted(existing)]
    chosen = arguments.partitions("partitions", [(topic, number) for number in wanted])
    for tp in chosen:
        if tp.partition not in existing:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {tp.partition}: it has {len(existing)} partitions, from 0 on"
            )
    return chosen


def _raise_loss(lost: OffsetRange) -> None:
    raise DataLossError(f"records were lost during the scan: {lost}: no record has these offsets")
