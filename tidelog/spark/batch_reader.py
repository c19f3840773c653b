"""`spark.read.format("tidelog")`: planning fixes the offsets of the read, and the tasks read exactly these."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.arrow.offset_range import OffsetRange
from tidelog.errors import DataLossError
from tidelog.spark.bounds import before_log, outside_log_error
from tidelog.spark.clients import Clients
from tidelog.spark.lookups import Lookups
from tidelog.spark.offsets import Offsets, ranges_between, split
from tidelog.spark.options import ReadOptions
from tidelog.spark.range_reader import RangePartition, RangeReader, data_loss
from tidelog.spark.values import option_of

_log = logging.getLogger(__name__)


class TidelogBatchReader(DataSourceReader):
    """Plans a batch read on the driver, and reads its ranges in the tasks.

    Cheap to create and picklable, because Spark sends the reader to the tasks; only `partitions` and `read` connect.
    """

    def __init__(self, options: ReadOptions, clients: Clients, schema: StructType) -> None:
        self._options = options
        self._clients = clients
        self._ranges = RangeReader.of(options, clients, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Look up the bounds of the read, and return its tasks, each a range of offsets of one partition.

        Raises DataLossError if records between the bounds were deleted, and ConfigError if an ending offset lies before
        its log. Without `fail_on_data_loss`, neither is an error, and only existing records are read. Raises the errors
        of `Lookups` in any case.
        """
        lookups = Lookups(self._options, self._clients)
        partitions = lookups.partitions()
        if not partitions:
            return []
        start, end = lookups.starting(partitions), lookups.ending(partitions)
        earliest = lookups.earliest(partitions)
        lost = [
            OffsetRange(partition, start[partition], min(earliest[partition], end[partition]))
            for partition in partitions
            if start[partition] < min(earliest[partition], end[partition])
        ]
        if lost and self._options.fail_on_data_loss:
            raise DataLossError(data_loss(lost, "the log now begins after them"))
        if self._options.fail_on_data_loss and (wrong := before_log(self._options.ending, earliest)):
            firsts = {partition: earliest[partition] for partition in wrong}
            raise outside_log_error(self._options.ending, "ending", firsts, lookups.latest(wrong))
        start = {partition: max(start[partition], earliest[partition]) for partition in partitions}
        self._warn_of_empty_ranges(start, end)
        ranges = split(
            ranges_between(start, end),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [RangePartition(span) for span in ranges]

    def _warn_of_empty_ranges(self, start: Offsets, end: Offsets) -> None:
        """Log a warning for each partition whose start offset is after its end offset, so that no record is read."""
        starting, ending = option_of(self._options.starting, "starting"), option_of(self._options.ending, "ending")
        for partition in sorted(start):
            if start[partition] > end[partition]:
                _log.warning(
                    "%s: no record is read: %s is at offset %d, after %s at %d",
                    partition,
                    starting,
                    start[partition],
                    ending,
                    end[partition],
                )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):  # Spark passes another object if there is nothing to read
            return iter(())
        return self._ranges.read(partition.span)
