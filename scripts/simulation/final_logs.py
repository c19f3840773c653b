"""What a replica holds when all is over, as the checker compares it."""

from __future__ import annotations

import zlib
from array import array

from node.replica import Replica
from storage.log import Log
from tidelog.chaos.clients.observing import columns_of
from tidelog.checker.logs import EpochStart, FinalLog, StoredBatch
from tidelog.records.header import iter_headers

_AT_ONCE = 1 << 20


def replica_log(replica: Replica, broker_id: int) -> FinalLog:
    """Read through the broker's own log, batch by batch."""
    log, tp = replica.log, replica.topic_partition
    assert isinstance(log, Log)
    offsets, ids, ts, epochs = array("q"), array("q"), array("q"), array("q")
    batches = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = memoryview(log.read(at, _AT_ONCE, log.log_end_offset))
        for position, header in iter_headers(data):
            batch = data[position : position + header.size_bytes]
            batches.append(StoredBatch(header.base_offset, header.last_offset, zlib.crc32(batch)))
            here, ids_here, ts_here = columns_of(batch, log.log_start_offset)
            offsets.extend(here)
            ids.extend(ids_here)
            ts.extend(ts_here)
            epochs.extend([header.partition_leader_epoch] * len(here))
            at = header.next_offset
    starts = [EpochStart(epoch, start) for epoch, start in log.epochs]
    return FinalLog(
        str(broker_id),
        tp,
        log.log_start_offset,
        log.log_end_offset,
        replica.partition.high_watermark,
        starts,
        offsets,
        ids,
        ts,
        epochs,
        batches,
    )
