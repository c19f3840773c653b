"""Readiness: whether a broker serves all replicas that are assigned to it, and the reason if it does not."""

from __future__ import annotations

from itertools import islice

from cluster.replication.partition import Role
from node.metadata.metadata_cache import MetadataCache
from node.net.identity import Identity
from node.replication.replica_manager import ReplicaManager
from tidelog.model import TopicPartition

#: Names of partitions in a reason.
_MOST_NAMED = 3


def why_not_ready(
    identity: Identity, metadata: MetadataCache, replicas: ReplicaManager, *, cut_off: bool
) -> str | None:
    """Return None if the broker is ready, else one line with the reason.

    A ready broker is registered, in contact with ZooKeeper and not shutting down, and serves every replica that is
    assigned to it. A replica on a failed disk does not make the broker unready, because the broker serves its other
    replicas.
    """
    if cut_off:
        return "ZooKeeper has confirmed no request for a session timeout"
    if identity.broker_epoch < 0:
        return "not registered with ZooKeeper"
    seen = metadata.brokers.get(identity.broker_id)
    if not metadata.informed or seen is None or seen.epoch < identity.broker_epoch:
        return "the controller has not sent this broker its partitions yet"
    if seen.shutting_down:
        return "shutting down"
    missing = (
        TopicPartition(state.topic, state.partition)
        for state in metadata.partitions
        if identity.broker_id in state.replicas and not _serves(replicas, state.topic, state.partition)
    )
    if named := list(islice(missing, _MOST_NAMED)):
        more = sum(1 for _ in missing)
        listed = ", ".join(map(str, named)) + (f" and {more} more" if more else "")
        return f"not serving yet: {listed}"
    return None


def _serves(replicas: ReplicaManager, topic: str, partition: int) -> bool:
    replica = replicas.get(TopicPartition(topic, partition))
    return replica is not None and (replica.offline or replica.partition.role is not Role.STOPPED)
