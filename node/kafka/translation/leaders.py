"""The new leader in responses that say "not the leader" (KIP-951), so that a client needs no Metadata request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.state import LeaderAndEpoch
from node.metadata.metadata_cache import MetadataCache
from tidelog.errors import FencedLeaderEpochError, NotLeaderOrFollowerError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.kafka.messages.records import LeaderIdAndEpoch, NodeEndpoint

_MOVED = frozenset({NotLeaderOrFollowerError.code, FencedLeaderEpochError.code})


#: Returns the leader of a partition in the latest epoch that the broker knows.
LatestLeader = Callable[[TopicPartition], LeaderAndEpoch]


class LeaderHints:
    """Collects the leaders that one response names, and their addresses on the client's listener.

    is_understood   whether the version of the response has the field `current_leader`
    endpoints       the addresses of all leaders that were named so far
    """

    def __init__(
        self, metadata: MetadataCache, latest_leader: LatestLeader, listener: str, is_understood: bool
    ) -> None:
        self._metadata = metadata
        self._latest_leader = latest_leader
        self._listener = listener
        self._is_understood = is_understood
        self._named: dict[int, NodeEndpoint] = {}

    @property
    def endpoints(self) -> tuple[NodeEndpoint, ...]:
        return tuple(self._named.values())

    def note_leader(self, topic: str, partition: int, error_code: int) -> dict[str, Any]:
        """Note a leader's address in `endpoints`, and return the field `current_leader` of the partition's response.

        Return an empty dict, and note nothing, for other errors than NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH,
        for a version that has no such field, and without a leader on this listener.
        """
        if error_code not in _MOVED or not self._is_understood:
            return {}
        leader, leader_epoch = self._latest_leader(TopicPartition(topic, partition))
        broker = None if leader == NO_LEADER else self._metadata.brokers.get(leader)
        if broker is None or (address := broker.endpoint_of(self._listener)) is None:
            return {}
        self._named[leader] = NodeEndpoint(node_id=leader, host=address.host, port=address.port, rack=broker.rack)
        return {"current_leader": LeaderIdAndEpoch(leader_id=leader, leader_epoch=leader_epoch)}
