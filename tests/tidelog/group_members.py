"""Members of groups at the fake cluster's coordinator, without a consumer behind them."""

from __future__ import annotations

from tests.tidelog.fake_cluster import FakeCluster
from tidelog.groups.assignment.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)


async def join(
    cluster: FakeCluster,
    group_id: str,
    *assigned: TopicPartition,
    protocol_type: str = PROTOCOL_TYPE,
    metadata: bytes | None = None,
) -> str:
    """The group's only member, a static one that is named `one`, with what it is assigned; returns its member id."""
    if metadata is None:
        metadata = encode_subscription(Subscription(tuple(dict.fromkeys(tp.topic for tp in assigned))))
    broker = cluster.coordinator.broker_of(group_id)
    joining = JoinGroupRequest(
        group_id, 3_600_000, 3_600_000, "", "one", protocol_type, (JoinGroupProtocol("range", metadata),)
    )
    joined = await cluster.coordinator.handle(broker, 0, joining)
    assert isinstance(joined, JoinGroupResponse) and not joined.error_code
    who = (group_id, joined.generation_id, joined.member_id, "one", protocol_type, "range")
    syncing = SyncGroupRequest(*who, (SyncGroupAssignment(joined.member_id, encode_assignment(assigned)),))
    synced = await cluster.coordinator.handle(broker, 0, syncing)
    assert isinstance(synced, SyncGroupResponse) and not synced.error_code
    return joined.member_id
