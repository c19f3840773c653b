"""`spark.readStream.format("tidelog")`: answers Spark's calls so that no record is lost between them.

Spark calls `initialOffset`, then `latestOffset` and `partitions` for each micro-batch in one process of the driver,
and `read` in the executors. The API leaves some cases open; this module handles them so:

A   `initialOffset` is called more than once for batch 0. The first answer is kept.
B   After a restart with batch 0 planned but not committed, Spark calls `initialOffset` again, and `latest` is later.
    Therefore batch 0 reads no records, and only stores the starting offsets in Spark's log. With Trigger.Once, which
    has no second batch, the first batch reads records.
C   Trigger.AvailableNow must end. Its target is fixed by the first `latestOffset`.
D   Spark calls again at once if there is no new data. Therefore `latestOffset` waits a while for data.
E   A log that was truncated or created again may have grown past the old end before the next call. Therefore the first
    end that lies before a returned one is reported as loss. Such an end cannot come from a new leader that does not
    know the high watermark yet, because such a leader returns no end (KIP-207), and is asked again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog.arrow.offset_range import OffsetRange
from tidelog.clock import Clock, SystemClock
from tidelog.errors import DataLossError, UnknownTopicOrPartitionError
from tidelog.model import TopicPartition
from tidelog.spark.clients import Clients
from tidelog.spark.lookups import Lookups
from tidelog.spark.offsets import (
    Offsets,
    from_json,
    ranges_between,
    rate_limit,
    split,
    to_json,
    total,
)
from tidelog.spark.options import ReadOptions
from tidelog.spark.range_reader import RangePartition, RangeReader, data_loss

_log = logging.getLogger(__name__)

#: An idle `latestOffset` waits this long for data, which also delays a batch without data (to close windows) at most.
IDLE_WAIT_MS = 500
_FIRST_PAUSE_MS = 5
_MAX_PAUSE_MS = 40
#: How often the list of partitions is fetched while waiting.
_PARTITIONS_AGE_MS = 1_000
#: Spark returns our default limit with every trigger but Once, for which it returns "all available". The default is
#: never "all available", so that the two differ.
_NO_LIMIT = (1 << 63) - 1
_GONE = "the partitions were deleted"

_Json = dict[str, dict[str, int]]


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads their ranges in the tasks.

    Cheap to create, and picklable before the first call, because Spark sends a reader to executors.
    """

    def __init__(
        self,
        options: ReadOptions,
        clients: Clients,
        schema: StructType,
        *,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._ranges = RangeReader.of(options, clients, schema)
        self._clock: Clock = clock or SystemClock()
        self._pause = pause
        self._lookups = Lookups(options, clients, clock=self._clock, pause=pause)
        self._initial: dict[TopicPartition, int] | None = None
        self._anchored = False
        self._available_now = False
        self._target: dict[TopicPartition, int] | None = None
        #: The ends that were returned last. A later end lies before one of them only if records were lost.
        self._seen: dict[TopicPartition, int] = {}
        self._partitions: list[TopicPartition] = []
        self._partitions_at_ms = 0
        self._gone: set[str] = set()
        self._warned: set[str] = set()
        self._last_batch_ms = self._clock.monotonic_ms()

    def initialOffset(self) -> _Json:  # noqa: N802
        if self._initial is None:  # A
            self._initial = self._lookups.starting(self._lookups.partitions())
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_offsets_per_trigger or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True

    def latestOffset(self, start: _Json, limit: ReadLimit) -> _Json:  # noqa: N802
        """Return the end offsets of the next batch, or `start` itself if no batch is due, or in batch 0 (B).

        The batch has at most `limit` records, but at least one of each partition with new records. Without new records
        the call waits up to IDLE_WAIT_MS for some, unless the trigger is Once or AvailableNow. With
        minOffsetsPerTrigger it may return `start` in spite of new records. Raises DataLossError if a partition was
        deleted, or if a log ends before an offset that it had; without failOnDataLoss this is logged. A log that was
        shortened then ends the batch before its start: the batch reads nothing there, and the next one continues at the
        log's end.
        """
        begun = from_json(start, "the checkpoint's offsets")
        everything = isinstance(limit, ReadAllAvailable)
        if self._available_now and self._target is None:
            self._target = self._latest(begun)  # C
        if begun == self._initial and not self._anchored and not everything:
            self._anchored = True  # B
            return start
        batch_start, available = self._wait_for_data(begun, patient=not (everything or self._available_now))
        if not self._due(batch_start, available, everything or self._available_now):
            return start
        self._last_batch_ms = self._clock.monotonic_ms()
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else _NO_LIMIT
        return to_json(rate_limit(batch_start, available, rows))

    def reportLatestOffset(self) -> _Json | None:  # noqa: N802
        return to_json(self._seen) if self._seen else None

    def partitions(self, start: _Json, end: _Json) -> Sequence[InputPartition]:
        begun, until = from_json(start, "the batch's start"), from_json(end, "the batch's end")
        ranges = ranges_between(self._complete(begun, until), until)
        pieces = split(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [RangePartition(span) for span in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())
        return self._ranges.read(partition.span)

    def _wait_for_data(self, begun: Offsets, *, patient: bool) -> tuple[Offsets, Offsets]:
        """Return the batch's start, completed by added partitions, and the available ends.

        With `patient`, wait up to IDLE_WAIT_MS until a batch is due (D); otherwise return at once.
        """
        deadline_ms = self._clock.monotonic_ms() + IDLE_WAIT_MS
        pause_ms = _FIRST_PAUSE_MS
        while True:
            available = self._target if self._target is not None else self._latest(begun)
            start = self._complete(begun, available)
            due = self._due(start, available, not patient)
            if due or not patient or self._clock.monotonic_ms() >= deadline_ms:
                return start, available
            self._pause(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, _MAX_PAUSE_MS)

    def _due(self, start: Offsets, available: Offsets, at_once: bool) -> bool:
        """Return whether a batch is due: for any new record, or with minOffsetsPerTrigger for enough of them.

        With `at_once`, or maxTriggerDelay after the last batch, any new record suffices. If a log ends before the
        start, a batch is due at once, so that it stores where reading continues (E).
        """
        if any(end < start[partition] for partition, end in available.items()):
            return True
        ranges = ranges_between(start, available)
        minimum = self._options.min_offsets_per_trigger
        if not ranges or minimum is None or at_once:
            return bool(ranges)
        overdue = self._clock.monotonic_ms() - self._last_batch_ms >= self._options.max_trigger_delay_ms
        return overdue or total(ranges) >= minimum

    def _latest(self, begun: Offsets) -> dict[TopicPartition, int]:
        try:
            served = self._ends(begun)
        except UnknownTopicOrPartitionError:  # deleted since the partitions were listed
            self._partitions = []
            served = self._ends(begun)
        self._check_shorter(begun, served)
        self._seen = served
        return dict(served)

    def _ends(self, begun: Offsets) -> dict[TopicPartition, int]:
        partitions = self._current_partitions({partition.topic for partition in begun})
        self._check_deleted(begun, partitions)
        return self._lookups.latest(partitions)

    def _current_partitions(self, begun: set[str]) -> list[TopicPartition]:
        now_ms = self._clock.monotonic_ms()
        if not self._partitions or now_ms - self._partitions_at_ms >= _PARTITIONS_AGE_MS:
            # Confirming that a topic is deleted takes seconds, so that it is done once for each topic.
            self._partitions = self._lookups.partitions(begun - self._gone)
            self._partitions_at_ms = now_ms
            self._gone = begun - {partition.topic for partition in self._partitions}
        return self._partitions

    def _complete(self, begun: Offsets, until: Offsets) -> dict[TopicPartition, int]:
        """Return `begun`, and the partitions that only `until` has, which start at the first offset of their log."""
        added = {partition: end for partition, end in until.items() if partition not in begun}
        return {**begun, **(self._earliest(added) if added else {})}

    def _earliest(self, added: Offsets) -> dict[TopicPartition, int]:
        """Return the first offsets of the added partitions' logs.

        A partition that was deleted since is reported as loss, and gets its end offset, so that no record is read.
        """
        try:
            return self._lookups.earliest(added)
        except UnknownTopicOrPartitionError:
            left = added.keys() & self._lookups.partitions({partition.topic for partition in added})
            gone = {partition: end for partition, end in added.items() if partition not in left}
            if gone:
                self._lost([OffsetRange(each, 0, end) for each, end in sorted(gone.items())], _GONE)
            return gone | (self._lookups.earliest(left) if left else {})

    def _check_deleted(self, begun: Offsets, partitions: Sequence[TopicPartition]) -> None:
        deleted = [partition for partition in sorted(begun) if partition not in partitions]
        if deleted:
            self._lost([OffsetRange(each, begun[each], begun[each]) for each in deleted], _GONE)

    def _check_shorter(self, begun: Offsets, served: Offsets) -> None:  # E
        known = {each: max(begun.get(each, 0), self._seen.get(each, 0)) for each in served}
        shorter = [OffsetRange(each, end, known[each]) for each, end in sorted(served.items()) if end < known[each]]
        if shorter:
            self._lost(shorter, "the log had these offsets, and now ends before them")

    def _lost(self, ranges: Sequence[OffsetRange], reason: str) -> None:
        message = data_loss(ranges, reason)
        if self._options.fail_on_data_loss:
            raise DataLossError(message)
        if message not in self._warned:
            self._warned.add(message)
            _log.warning(message)
