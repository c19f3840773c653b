"""Read one partition for a fetch of a consumer or a follower: check the request, then read the log."""

from __future__ import annotations

from functools import partial

from node.net.stored_fetch_partition import StoredFetchPartition
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from tidelog.errors import BrokerError, InvalidFetchSizeError, OffsetNotAvailableError, OffsetOutOfRangeError
from tidelog.model import Buffer, TopicPartition
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse

#: The limit of an answer's size, whatever the request allows.
MAX_RESPONSE_BYTES = 52_428_800


def leader_for(replicas: ReplicaManager, requested: FetchPartition) -> Replica:
    """Return this broker's replica if it leads in the fetch's epoch and topic, or raise the BrokerError to answer."""
    replica = replicas.get_or_raise(TopicPartition(requested.topic, requested.partition))
    replica.check_topic(requested.topic_id)
    replica.leader_or_raise(requested.current_leader_epoch)
    if requested.partition_max_bytes < 0:
        raise InvalidFetchSizeError(f"partition_max_bytes={requested.partition_max_bytes}: must be at least 0")
    return replica


def error_response(requested: FetchPartition, error: BrokerError) -> FetchPartitionResponse:
    """Return the answer for a partition that is refused: the error's code, and no records."""
    return FetchPartitionResponse(requested.topic, requested.partition, error.code)


def read_partition(
    replicas: ReplicaManager,
    requested: FetchPartition,
    replica: Replica,
    leader_epoch: int,
    budget: int,
    *,
    for_follower: bool,
    first: bool,
    stored: bool = False,
) -> tuple[FetchPartitionResponse, int]:
    """Return the answer for the current state, or an error answer, and the size of its records in bytes.

    A follower reads up to the log end, a consumer up to the high watermark. `records` is None if there are none, and in
    a StoredFetchPartition.

    leader_epoch   the leader epoch when the fetch arrived; in a later one its own leader epoch is checked again
    stored         whether the answer may be a StoredFetchPartition
    budget         the remaining bytes of the whole answer; the `first` batch is sent whole, even if it is larger
    """
    log, partition = replica.log, replica.partition
    records: Buffer | None = None
    try:
        if not replica.leads_in(leader_epoch):
            replica.leader_or_raise(requested.current_leader_epoch)
        if requested.fetch_offset > log.log_end_offset and not for_follower and replicas.may_be_deposed:
            # Another broker may lead now and have more records. The answer "out of range" would make a consumer reset
            # its position.
            raise OffsetNotAvailableError(
                f"{replica.topic_partition}: another broker may lead now, so the end of the log is unknown; retry"
            )
        replica.in_range_or_raise(requested.fetch_offset)
        bound = log.log_end_offset if for_follower else partition.high_watermark
        if bound > requested.fetch_offset and (first or budget > 0):
            limit = min(requested.partition_max_bytes, max(0, budget))
            # The first batch is sent whole, even if it exceeds the limit. Otherwise a client with a small limit would
            # never make progress.
            if stored:
                on_failure = partial(replicas.storage_failed, tp=replica.topic_partition)
                if (unread := log.slice(requested.fetch_offset, limit, bound, on_failure)) is not None:
                    return StoredFetchPartition(
                        requested.topic, requested.partition, 0, bound, bound, log.log_start_offset, stored=unread
                    ), len(unread)
            records = log.read(requested.fetch_offset, limit, bound, at_least_one=first) or None
    except OffsetOutOfRangeError as error:
        # The answer carries the log's bounds, so that a follower knows whether its offset is below or above them.
        bounds = (partition.high_watermark, partition.high_watermark, log.log_start_offset)
        return FetchPartitionResponse(requested.topic, requested.partition, error.code, *bounds), 0
    except BrokerError as error:
        return FetchPartitionResponse(
            requested.topic, requested.partition, replicas.code_of(error, replica.topic_partition)
        ), 0
    high_watermark = partition.high_watermark
    answer = FetchPartitionResponse(
        requested.topic, requested.partition, 0, high_watermark, high_watermark, log.log_start_offset, records
    )
    return answer, 0 if records is None else len(records)
