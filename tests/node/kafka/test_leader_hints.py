"""The leader that a response names for a partition that has moved, by the replica and by the metadata cache."""

from __future__ import annotations

import pytest

from cluster.state import LeaderAndEpoch
from node.kafka.translation.leaders import LeaderHints
from node.metadata.metadata_cache import MetadataCache
from tidelog.errors import NotLeaderOrFollowerError
from tidelog.model import NO_LEADER
from tidelog.protocol.control_messages import (
    BrokerInfo,
    ListenerAddress,
    PartitionStateMessage,
    UpdateMetadataRequest,
)
from tidelog.protocol.kafka.messages.records import LeaderIdAndEpoch


def metadata_with_leader_1_in_epoch_3() -> MetadataCache:
    live = tuple(BrokerInfo(each, 1, (ListenerAddress("KAFKA", f"host-{each}", 9092),)) for each in (1, 2))
    state = PartitionStateMessage("t", 0, 1, leader=1, leader_epoch=3, isr=(1, 2), partition_epoch=3, replicas=(1, 2))
    metadata = MetadataCache("c")
    metadata.set_brokers(live, 0)
    metadata.update(UpdateMetadataRequest(1, 1, live, (state,), ()))
    return metadata


@pytest.mark.parametrize(
    ("announced", "named"),
    [
        pytest.param(None, (1, 3), id="no replica here"),
        pytest.param(LeaderAndEpoch(2, 2), (1, 3), id="the replica was told of an earlier epoch"),
        pytest.param(LeaderAndEpoch(2, 4), (2, 4), id="the replica was told of a later epoch"),
        pytest.param(LeaderAndEpoch(NO_LEADER, 3), None, id="the replica stopped in this epoch"),
        pytest.param(LeaderAndEpoch(9, 4), None, id="the leader has no address"),
    ],
)
def test_latest_known_leader_is_named(announced: LeaderAndEpoch | None, named: tuple[int, int] | None) -> None:
    hints = LeaderHints(metadata_with_leader_1_in_epoch_3(), lambda tp: announced, "KAFKA", True)
    fields = hints.note_leader("t", 0, NotLeaderOrFollowerError.code)
    expected = {} if named is None else {"current_leader": LeaderIdAndEpoch(leader_id=named[0], leader_epoch=named[1])}
    assert fields == expected
    assert [each.node_id for each in hints.endpoints] == ([] if named is None else [named[0]])
