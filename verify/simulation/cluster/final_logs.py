"""Read the final log of a simulated replica for the checker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from node.replication.replica import Replica
from storage.log.log import Log
from tidelog.errors import TidelogError
from tidelog.records.header import BatchHeader, iter_headers
from verify.checker.inputs.export_logs import Columns
from verify.checker.inputs.logs import EpochStart, FinalLog

_AT_ONCE = 1 << 20


def replica_log(replica: Replica, broker_id: int) -> FinalLog:
    """Return the replica's log, read through the broker's own `Log`.

    Damaged records are marked as in `verify.checker.inputs.export_logs`. A read error ends the records early, but
    the log end offset stays, and the checker reports the missing records.
    """
    log, columns = replica.log, Columns()
    assert isinstance(log, Log)
    with suppress(TidelogError):
        for batch, header in _batches(log):
            columns.add(batch, header)
    epochs = [EpochStart(epoch, start) for epoch, start in log.epochs]
    begin, end, hw = log.log_start_offset, log.log_end_offset, replica.partition.high_watermark
    return columns.log(str(broker_id), replica.topic_partition, begin, end, hw, epochs)


def _batches(log: Log) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Yield the batches from log start to log end. Raise TidelogError if one cannot be read."""
    at = log.log_start_offset
    while data := memoryview(log.read(at, _AT_ONCE, log.log_end_offset)):
        for position, header in iter_headers(data):
            yield data[position : position + header.size_bytes], header
            at = header.next_offset
