"""A response names the new leader of a partition with its address on the client's listener, if both are known."""

from __future__ import annotations

import pytest

from cluster.state import LeaderAndEpoch
from node.kafka.translation.leaders import LeaderHints
from node.metadata.metadata_cache import MetadataCache
from tidelog.errors import FencedLeaderEpochError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from tidelog.model import NO_LEADER
from tidelog.protocol.control_messages import BrokerInfo, ListenerAddress
from tidelog.protocol.kafka.messages.records import LeaderIdAndEpoch, NodeEndpoint

MOVED = NotLeaderOrFollowerError.code


def hints_of(leader: LeaderAndEpoch, *, listener: str = "KAFKA", is_understood: bool = True) -> LeaderHints:
    metadata = MetadataCache("c")
    metadata.set_brokers([BrokerInfo(2, 1, (ListenerAddress("KAFKA", "host-2", 9092),), rack="a")], 0)
    return LeaderHints(metadata, lambda tp: leader, listener, is_understood)


@pytest.mark.parametrize("code", [MOVED, FencedLeaderEpochError.code])
def test_known_leader_is_named_with_its_address(code: int) -> None:
    hints = hints_of(LeaderAndEpoch(2, 4))
    assert hints.note_leader("t", 0, code) == {"current_leader": LeaderIdAndEpoch(leader_id=2, leader_epoch=4)}
    assert hints.endpoints == (NodeEndpoint(node_id=2, host="host-2", port=9092, rack="a"),)


@pytest.mark.parametrize(
    ("hints", "code"),
    [
        pytest.param(hints_of(LeaderAndEpoch(NO_LEADER, 4)), MOVED, id="no leader is known"),
        pytest.param(hints_of(LeaderAndEpoch(9, 4)), MOVED, id="the leader is not live"),
        pytest.param(hints_of(LeaderAndEpoch(2, 4), listener="KAFKA_2"), MOVED, id="no address on this listener"),
        pytest.param(hints_of(LeaderAndEpoch(2, 4), is_understood=False), MOVED, id="a version without the field"),
        pytest.param(hints_of(LeaderAndEpoch(2, 4)), UnknownTopicOrPartitionError.code, id="another error"),
    ],
)
def test_no_leader_is_named(hints: LeaderHints, code: int) -> None:
    assert hints.note_leader("t", 0, code) == {}
    assert hints.endpoints == ()
