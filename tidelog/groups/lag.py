"""Computes how far a group is behind in a partition, in records and in time."""

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
    """An unusual state of a committed offset."""

    NOTHING_COMMITTED = "nothing_committed"
    """The group has no committed offset."""
    BELOW_LOG_START = "below_log_start"
    """Records were deleted before the group consumed them."""
    PAST_LOG_END = "past_log_end"
    """The committed offset lies after the log, for example because the topic was deleted and created again."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition. A value that is not known is None.

    committed_offset    the next offset that the group will read; None if the group has no committed offset
    log_start_offset, log_end_offset    the range that a consumer may read now; the end is exclusive (high watermark)
    lag                 the number of offsets from the committed offset, or from the log start if that is higher, to the
                        end; 0 at the end and past it. As in Kafka's tools, offsets are counted, and a compacted
                        partition may have fewer records
    lag_ms              the age of the first record that counts in `lag`, by its timestamp and this machine's clock. The
                        output of a consumer that processes record by record is as old as this record. The value is 0
                        without lag, and if the timestamp is in the future. The value grows while the group does not
                        consume, even if no record is appended. The value does not predict how long the group needs to
                        catch up
    error               why a value is not known
    """

    committed_offset: int | None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    error: TidelogError | None = None

    @property
    def standing(self) -> Standing | None:
        """Return why the committed offset is no position in the log; None if it is one, or if the log is not known."""
        if self.committed_offset is None:
            return Standing.NOTHING_COMMITTED
        if self.log_start_offset is not None and self.committed_offset < self.log_start_offset:
            return Standing.BELOW_LOG_START
        if self.log_end_offset is not None and self.committed_offset > self.log_end_offset:
            return Standing.PAST_LOG_END
        return None


def first_unread(committed_offset: int | None, ends: Ends) -> int | None:
    """Return the first offset in the log that the group has not consumed; None: no such offset, or no commit."""
    if committed_offset is None:
        return None
    unread = max(committed_offset, ends.start)
    return unread if unread < ends.end else None


def lag_of(committed_offset: int | None, ends: Ends, oldest: RecordTime | None, now_ms: int) -> PartitionLag:
    """Return the lag in a partition whose readable offsets are known; without a committed offset the lag is None.

    oldest   the first record at or after `first_unread`; None: compaction has removed all of them, so that lag_ms is 0
    now_ms   the time on this machine's wall clock
    """
    if committed_offset is None:
        return PartitionLag(None, ends.start, ends.end)
    unread = first_unread(committed_offset, ends)
    if unread is None:
        return PartitionLag(committed_offset, ends.start, ends.end, 0, 0)
    if oldest is None:
        lag_ms: int | None = 0  # compaction has removed all records up to the end
    elif oldest.timestamp == NO_TIMESTAMP:
        lag_ms = None
    else:
        lag_ms = max(0, now_ms - oldest.timestamp)
    return PartitionLag(committed_offset, ends.start, ends.end, ends.end - unread, lag_ms)


async def partition_lags(
    client: ClusterClient, committed: Mapping[TopicPartition, int | None], time_limit_ms: int
) -> dict[TopicPartition, PartitionLag]:
    """Ask the leaders for the lag of each partition, given its committed offset (None: no commit).

    A partition has an error if the topic or the leader is missing, or if the leader does not answer in time; known
    values stay. Raises NoBrokersError if no broker was ever reached. `time_limit_ms` limits the wait for a leader
    twice: once for the offsets, and once for the timestamps.
    """
    ends, errors = await find_ends(client, committed, time_limit_ms)
    unread_offsets = {tp: unread for tp in ends if (unread := first_unread(committed[tp], ends[tp])) is not None}
    times = await record_times(client, unread_offsets, time_limit_ms)
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
