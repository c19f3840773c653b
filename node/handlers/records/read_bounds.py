"""The bounds of a look-up of offsets, which differ for a consumer, a follower, and a debugging client."""

from __future__ import annotations

from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from tidelog.errors import InvalidRequestError, OffsetNotAvailableError
from tidelog.frozen_dataclass import frozen
from tidelog.model import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, TopicPartition


@frozen
class ReadBounds:
    """One replica, and the part of its log that the sender may see.

    upper_bound    exclusive. For consumers this is the high watermark. The last stable offset is the same, because
                   there are no transactions. For other senders this is the log end offset
    end_is_known   False if records beyond the bound may be committed already (KIP-207)
    """

    replica: Replica
    upper_bound: int
    end_is_known: bool

    def require_known_end(self) -> None:
        """Raise OffsetNotAvailableError if the committed end is unknown.

        An answer that depends on the end, such as "no later record", would then be a guess.
        """
        if not self.end_is_known:
            tp = self.replica.topic_partition
            raise OffsetNotAvailableError(
                f"{tp}: the leader cannot confirm the end of its log, because it does not know the high watermark of "
                "its epoch yet, shuts down, or has no connection to ZooKeeper; retry"
            )


def find_read_bounds(
    replicas: ReplicaManager, replica_id: int, tp: TopicPartition, current_leader_epoch: int
) -> ReadBounds:
    """Return the bounds of the leader, or of any replica for a debugging client, or raise the BrokerError to answer."""
    if replica_id < DEBUGGING_REPLICA_ID:
        raise InvalidRequestError(f"replica id {replica_id}: must be at least {DEBUGGING_REPLICA_ID}")
    replica = replicas.get_or_raise(tp)
    if replica_id == DEBUGGING_REPLICA_ID:
        replica.online_or_raise().check_epoch(current_leader_epoch)
    else:
        replica.leader_or_raise(current_leader_epoch)
    if replica_id != CONSUMER_REPLICA_ID:
        return ReadBounds(replica, replica.log.log_end_offset, True)
    partition = replica.partition
    return ReadBounds(
        replica, partition.high_watermark, partition.high_watermark_is_known and not replicas.may_be_deposed
    )
