"""Which replica tells of offsets, and up to where, by who asks: a consumer, a broker, or somebody who debugs."""

from __future__ import annotations

from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from tidelog.errors import InvalidRequestError, OffsetNotAvailableError
from tidelog.frozen_dataclass import frozen
from tidelog.model import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, TopicPartition


@frozen
class ReadBounds:
    """One replica as the asking side may see it.

    upper_bound    exclusive. For consumers the high watermark, which is the last stable offset too, since there are no
                   transactions that could be open below it; for others the log end
    end_is_known   False: records beyond the bound may be committed already (KIP-207)
    """

    replica: Replica
    upper_bound: int
    end_is_known: bool

    def require_known_end(self) -> None:
        """Where the committed end is not known, "nothing there" and "this is the last" would be guesses."""
        if not self.end_is_known:
            tp = self.replica.topic_partition
            raise OffsetNotAvailableError(f"{tp}: the leader does not know the committed end yet")


def find_read_bounds(
    replicas: ReplicaManager, replica_id: int, tp: TopicPartition, current_leader_epoch: int
) -> ReadBounds:
    """The leader's, or for who debugs that of any replica. A BrokerError says why there is none."""
    if replica_id < DEBUGGING_REPLICA_ID:
        raise InvalidRequestError(f"{replica_id} is no replica's id")
    replica = replicas.get_or_raise(tp)
    if replica_id == DEBUGGING_REPLICA_ID:
        replica.online_or_raise().check_epoch(current_leader_epoch)
    else:
        replica.leader_or_raise(current_leader_epoch)
    if replica_id != CONSUMER_REPLICA_ID:
        return ReadBounds(replica, replica.log.log_end_offset, True)
    partition = replica.partition
    return ReadBounds(replica, partition.high_watermark, partition.high_watermark_is_known and not replicas.cut_off)
