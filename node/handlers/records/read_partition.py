"""One partition of a fetch, whoever asks: may it be read here, and what there is."""

from __future__ import annotations

from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from tidelog.errors import BrokerError, InvalidFetchSizeError, OffsetNotAvailableError, OffsetOutOfRangeError
from tidelog.model import Buffer, TopicPartition
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse

#: No answer is larger, whatever was asked for.
MAX_RESPONSE_BYTES = 52_428_800


def leader_for(replicas: ReplicaManager, asked: FetchPartition) -> Replica:
    """The replica to read from. A BrokerError says why there is none."""
    replica = replicas.get_or_raise(TopicPartition(asked.topic, asked.partition))
    replica.check_topic(asked.topic_id)
    replica.leader_or_raise(asked.current_leader_epoch)
    if asked.partition_max_bytes < 0:
        raise InvalidFetchSizeError(f"{asked.partition_max_bytes} bytes")
    return replica


def refusal(asked: FetchPartition, error: BrokerError) -> FetchPartitionResponse:
    """The answer where a partition cannot be read."""
    return FetchPartitionResponse(asked.topic, asked.partition, error.code)


def read_partition(
    replicas: ReplicaManager,
    asked: FetchPartition,
    replica: Replica,
    leader_epoch: int,
    budget: int,
    *,
    for_follower: bool,
    first: bool,
) -> tuple[FetchPartitionResponse, int]:
    """The answer as of now, and its bytes of records: up to the log's end for a follower, else what is committed.

    leader_epoch   in which the fetch was taken: it does not go on in another
    budget         what is left of the whole answer's bytes; the `first` records are whole, however large
    """
    log, partition = replica.log, replica.partition
    records: Buffer | None = None
    try:
        if not replica.leads_in(leader_epoch):
            replica.leader_or_raise(leader_epoch)
        if replicas.cut_off and not for_follower and asked.fetch_offset > log.log_end_offset:
            # Somebody else may lead by now, and know more: "out of range" would have a consumer start anew.
            raise OffsetNotAvailableError(f"{replica.topic_partition}: another may lead by now, the end is not known")
        replica.in_range_or_raise(asked.fetch_offset)
        bound = log.log_end_offset if for_follower else partition.high_watermark
        if bound > asked.fetch_offset and (first or budget > 0):
            limit = min(asked.partition_max_bytes, max(0, budget))
            # The first batch is sent whole, however large, else a reader with a small limit would stand still.
            records = log.read(asked.fetch_offset, limit, bound, at_least_one=first) or None
    except OffsetOutOfRangeError as error:
        # With the bounds of the log, so that a follower knows at once on which side of it it is.
        bounds = (partition.high_watermark, partition.high_watermark, log.log_start_offset)
        return FetchPartitionResponse(asked.topic, asked.partition, error.code, *bounds), 0
    except BrokerError as error:
        return FetchPartitionResponse(asked.topic, asked.partition, replicas.code_of(error, replica.topic_partition)), 0
    high_watermark = partition.high_watermark
    answer = FetchPartitionResponse(
        asked.topic, asked.partition, 0, high_watermark, high_watermark, log.log_start_offset, records
    )
    return answer, 0 if records is None else len(records)
