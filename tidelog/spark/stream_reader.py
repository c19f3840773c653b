"""`spark.readStream.format("tidelog")`: Spark's calls, answered so that no record is lost between them.

Spark calls `initialOffset`, then `latestOffset` and `partitions` for each micro-batch in one process of the driver,
and `read` in the executors. What the API leaves open, and what is done about it here:

A   `initialOffset` is asked more than once for batch 0: the first answer stands.
B   A restart that finds batch 0 planned but not committed asks `initialOffset` anew, and `latest` is later by then.
    So batch 0 is an anchor: it reads nothing and only pins the starting point in Spark's log. Only a Trigger.Once,
    which has no second batch, reads in its first.
C   Trigger.AvailableNow must end: its target is frozen at the first `latestOffset`.
D   Spark asks again at once when there is nothing new: `latestOffset` waits a while for data.
E   A log that was cut, or made anew, may have grown past the old end by the next look. So the first end that lies
    before one that was told is loss. It is never taken for a leader that only knows less than the one before it:
    such a leader tells no end at all (KIP-207), and is asked again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog.clock import Clock, SystemClock
from tidelog.errors import DataLossError, UnknownTopicOrPartitionError
from tidelog.model import TopicPartition
from tidelog.spark.clients import Clients
from tidelog.spark.lookups import Lookups
from tidelog.spark.offsets import (
    OffsetRange,
    Offsets,
    admit,
    from_json,
    ranges_between,
    split,
    to_json,
    total,
)
from tidelog.spark.options import ReadOptions
from tidelog.spark.range_reader import RangePartition, RangeReader, data_loss

_log = logging.getLogger(__name__)

#: As long as this an idle `latestOffset` waits for data; a batch without data (to close windows) waits as long at most.
IDLE_WAIT_MS = 500
_FIRST_PAUSE_MS = 5
_MAX_PAUSE_MS = 40
#: How often the list of partitions is asked for while waiting.
_PARTITIONS_AGE_MS = 1_000
#: Spark hands our default limit back for every trigger but Once, which asks for everything. So the default is never
#: "everything", and the two can be told apart.
_NO_LIMIT = (1 << 63) - 1
_GONE = "the partitions are gone"

_Json = dict[str, dict[str, int]]


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Cheap to make and picklable before its first call: a second instance is sent to the executors for `read`."""

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
        #: The ends that were told last; an end that is told later lies before none of them, unless records were lost.
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
        """The end of the next batch; `start` itself where there is nothing to read.

        Behind `start` lies no record of a log that was cut: there the batch ends before it starts, and reads nothing.
        The next one goes on from where the log ended.
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
        return to_json(admit(batch_start, available, rows))

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
        """Where the batch starts, added partitions included, and what there is, as soon as that is enough (D)."""
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
        """Whether there is to be a batch: for any record at all, or with minOffsetsPerTrigger for so many or so late.

        Where a log ends before the start there is one at once, to pin where it is gone on with (E).
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
            # To make sure of a topic that is gone takes seconds: once.
            self._partitions = self._lookups.partitions(begun - self._gone)
            self._partitions_at_ms = now_ms
            self._gone = begun - {partition.topic for partition in self._partitions}
        return self._partitions

    def _complete(self, begun: Offsets, until: Offsets) -> dict[TopicPartition, int]:
        """`begun` with the partitions that were added since: they start at their earliest record."""
        added = {partition: end for partition, end in until.items() if partition not in begun}
        return {**begun, **(self._earliest(added) if added else {})}

    def _earliest(self, added: Offsets) -> dict[TopicPartition, int]:
        """Where these partitions begin; those that were deleted since have nothing before their end."""
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
        told = {each: max(begun.get(each, 0), self._seen.get(each, 0)) for each in served}
        shorter = [OffsetRange(each, end, told[each]) for each, end in sorted(served.items()) if end < told[each]]
        if shorter:
            self._lost(shorter, "they were there once, and the log now ends before them")

    def _lost(self, ranges: Sequence[OffsetRange], why: str) -> None:
        message = data_loss(ranges, why)
        if self._options.fail_on_data_loss:
            raise DataLossError(message)
        if message not in self._warned:
            self._warned.add(message)
            _log.warning(message)
