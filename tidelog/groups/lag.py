"""How far a group is behind in a partition: in records, and in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidelog.client.admin.record_timestamp import record_times
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.offset_lookup import Ends, find_ends
from tidelog.errors import TidelogError
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.records import RecordTime


class Standing(StrEnum):
    """What is unusual about a committed offset."""

    NOTHING_COMMITTED = "nothing_committed"
    """There is none."""
    BELOW_LOG_START = "below_log_start"
    """Records that the group had not consumed are gone."""
    PAST_LOG_END = "past_log_end"
    """The log was cut, or is another one of the same name."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far behind.

    committed_offset    the next record that the group wants; None where it has committed nothing
    log_start_offset, log_end_offset    what a consumer may read now, the end exclusive (the high watermark)
    lag                 records from there to the end that are still to be had: from the log start where it was
                        committed below; 0 at the end and past it. Offsets are counted, as Kafka's tools do: of a
                        compacted partition fewer records may remain
    lag_ms              how old the first of those records is, by its own timestamp and this machine's clock: a
                        consumer that works record by record shows what was true so long ago. 0 where it is caught
                        up, and where the timestamp lies in the future. It grows while nobody consumes, also if nothing
                        is written; it says nothing of how long the rest will take
    error               why something of this is not known
    What is not known is None.
    """

    committed_offset: int | None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    error: TidelogError | None = None

    @property
    def standing(self) -> Standing | None:
        """What is unusual about the committed offset; None for one that the partition has, its end included."""
        if self.committed_offset is None:
            return Standing.NOTHING_COMMITTED
        if self.log_start_offset is not None and self.committed_offset < self.log_start_offset:
            return Standing.BELOW_LOG_START
        if self.log_end_offset is not None and self.committed_offset > self.log_end_offset:
            return Standing.PAST_LOG_END
        return None


def first_unread(committed_offset: int | None, ends: Ends) -> int | None:
    """The offset of the first record that the group has still to consume; None where there is none, or nobody knows."""
    if committed_offset is None:
        return None
    unread = max(committed_offset, ends.start)
    return unread if unread < ends.end else None


def lag_of(committed_offset: int | None, ends: Ends, oldest: RecordTime | None, now_ms: int) -> PartitionLag:
    """The rule, where everything is known; `oldest` is the first record at or after `first_unread`, if any."""
    if committed_offset is None:
        return PartitionLag(None, ends.start, ends.end)
    unread = first_unread(committed_offset, ends)
    if unread is None:
        return PartitionLag(committed_offset, ends.start, ends.end, 0, 0)
    if oldest is None:
        lag_ms: int | None = 0  # compaction has left nothing up to the end
    elif oldest.timestamp == NO_TIMESTAMP:
        lag_ms = None
    else:
        lag_ms = max(0, now_ms - oldest.timestamp)
    return PartitionLag(committed_offset, ends.start, ends.end, ends.end - unread, lag_ms)


async def partition_lags(
    client: ClusterClient, committed: Mapping[TopicPartition, int | None], patience_ms: int
) -> dict[TopicPartition, PartitionLag]:
    """Asks the leaders; a partition without one, or without its topic, has its error and keeps nobody else back.

    `patience_ms` with those who do not answer, first where the ends are and then how old the records.
    """
    ends, errors = await find_ends(client, committed, patience_ms)
    wanted = {tp: unread for tp in ends if (unread := first_unread(committed[tp], ends[tp])) is not None}
    times = await record_times(client, wanted, patience_ms)
    errors |= times.unanswered
    now_ms = client.clock.now_ms()
    lags = {tp: PartitionLag(offset, error=errors.get(tp)) for tp, offset in committed.items()}
    for tp, each in ends.items():
        if tp in errors:
            unread = first_unread(committed[tp], each)
            records = None if unread is None else each.end - unread
            lags[tp] = PartitionLag(committed[tp], each.start, each.end, records, error=errors[tp])
        else:
            lags[tp] = lag_of(committed[tp], each, times.answers.get(tp), now_ms)
    return lags
