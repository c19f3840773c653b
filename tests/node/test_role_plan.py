"""The role that a broker takes when the controller names a partition's leader: each rule as one table."""

from __future__ import annotations

import pytest

from node.handlers.control.role_plan import (
    Damage,
    KnownState,
    LogPlan,
    Role,
    plan_log,
    plan_role,
    recheck_role,
)
from storage.directory.leadership_checkpoint import Leadership
from tidelog.errors import (
    BrokerError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
)
from tidelog.model import NO_LEADER
from tidelog.protocol.control_messages import PartitionStateMessage

ME = 1
EPOCH, VERSION = 5, 9


def state(
    leader: int, *isr: int, epoch: int = EPOCH, version: int = VERSION, unclean: bool = False
) -> PartitionStateMessage:
    return PartitionStateMessage("t", 0, 3, leader, epoch, isr or (1, 2, 3), version, (1, 2, 3), unclean)


def known(log: int | None = None, since_start: int = -1, acted_on: Leadership | None = None) -> KnownState:
    return KnownState(log, since_start, acted_on)


def acted_on(leader: int, epoch: int = EPOCH, version: int = VERSION) -> Leadership:
    return Leadership("id", epoch, leader, version, 3)


def kind_of(outcome: object) -> object:
    return type(outcome) if isinstance(outcome, BrokerError) else outcome


@pytest.mark.parametrize(
    ("sent", "before", "expected"),
    [
        pytest.param(state(1), known(), Role.LEADER, id="a new replica leads"),
        pytest.param(state(2), known(), Role.FOLLOWER, id="a new replica follows"),
        pytest.param(state(NO_LEADER), known(), Role.LEADERLESS, id="no broker leads"),
        pytest.param(state(1), known(log=5), Role.LEADER, id="the log has records of this epoch"),
        pytest.param(state(1), known(log=6), FencedLeaderEpochError, id="the log has records of a later epoch"),
        pytest.param(state(2), known(log=6), FencedLeaderEpochError, id="so a follower refuses too"),
        pytest.param(state(2), known(4, 4, acted_on(1, 4, 8)), Role.FOLLOWER, id="a later epoch in a later version"),
        pytest.param(state(1), known(4, 4, acted_on(2, 4, 8)), Role.LEADER, id="leadership moves here"),
        pytest.param(
            state(2), known(4, 4, acted_on(1, 4, 9)), FencedLeaderEpochError, id="a later epoch in one version"
        ),
        pytest.param(state(2), known(4, 4, acted_on(1, 4, 10)), FencedLeaderEpochError, id="a later epoch before it"),
        pytest.param(state(2), known(4, 6, acted_on(2, 6)), FencedLeaderEpochError, id="an older epoch"),
        pytest.param(
            state(2, version=10), known(4, 6, acted_on(1, 6)), FencedLeaderEpochError, id="in a later version"
        ),
        pytest.param(state(2), known(5, 5, acted_on(3)), FencedLeaderEpochError, id="another leader of this epoch"),
        pytest.param(state(2, version=10), known(5, 5, acted_on(3)), FencedLeaderEpochError, id="whatever the version"),
        pytest.param(state(2), known(5, 5, acted_on(2)), Role.FOLLOWER, id="the same state again"),
        pytest.param(state(1), known(5, 5, acted_on(1)), Role.LEADER, id="the leader gets the same state again"),
        pytest.param(state(1, version=8), known(5, 5, acted_on(1)), Role.LEADER, id="and in an older version"),
        pytest.param(state(2), known(5, -1, acted_on(2)), Role.FOLLOWER, id="a follower has restarted"),
        pytest.param(state(2, version=10), known(5, -1, acted_on(2)), Role.FOLLOWER, id="while the ISR changed"),
        pytest.param(state(2, version=8), known(5, -1, acted_on(2)), FencedLeaderEpochError, id="ZooKeeper went back"),
        pytest.param(state(1), known(5, -1, acted_on(1)), NotLeaderOrFollowerError, id="a leader has restarted"),
        pytest.param(state(1), known(None, 4, acted_on(1)), NotLeaderOrFollowerError, id="and was leaderless since"),
        pytest.param(state(1, epoch=6, version=10), known(5, -1, acted_on(1)), Role.LEADER, id="it leads a new epoch"),
    ],
)
def test_role_follows_from_the_state_and_from_what_is_known(
    sent: PartitionStateMessage, before: KnownState, expected: object
) -> None:
    assert kind_of(plan_role(ME, sent, before)) == expected


@pytest.mark.parametrize(
    ("planned", "sent", "epoch", "is_stale", "expected"),
    [
        pytest.param(Role.LEADER, state(1), 4, False, Role.LEADER, id="a new leader epoch"),
        pytest.param(Role.FOLLOWER, state(2), 5, False, Role.FOLLOWER, id="a newer version of the known epoch"),
        pytest.param(Role.LEADER, state(1), 5, True, Role.UNCHANGED, id="a repetition in the known epoch"),
        pytest.param(Role.LEADER, state(1), 6, True, FencedLeaderEpochError, id="a later epoch is known"),
        pytest.param(Role.FOLLOWER, state(2), 6, True, FencedLeaderEpochError, id="so a follower refuses too"),
    ],
)
def test_role_is_dropped_if_the_partition_knows_a_later_state(
    planned: Role, sent: PartitionStateMessage, epoch: int, is_stale: bool, expected: object
) -> None:
    assert kind_of(recheck_role(planned, sent, epoch, is_stale=is_stale)) == expected


IN_SYNC, OUT_OF_SYNC = LogPlan(in_sync=True), LogPlan(in_sync=False)


@pytest.mark.parametrize(
    ("sent", "damaged", "expected"),
    [
        pytest.param(state(2), False, IN_SYNC, id="in the ISR"),
        pytest.param(state(2, 2, 3), False, OUT_OF_SYNC, id="out of the ISR"),
        pytest.param(state(1, 1), False, IN_SYNC, id="the leader is the ISR"),
        pytest.param(state(1, 1, unclean=True), False, OUT_OF_SYNC, id="an unclean leader"),
        pytest.param(state(2, 1, 2, unclean=True), False, IN_SYNC, id="in the ISR of an unclean leader"),
        pytest.param(state(2, 2, 3), True, LogPlan(False, Damage.RESET), id="damaged: out of the ISR"),
        pytest.param(state(1), True, IneligibleReplicaError, id="damaged: a leader with others in sync"),
        pytest.param(state(2), True, IneligibleReplicaError, id="damaged: a follower in sync"),
        pytest.param(state(1, 1), True, LogPlan(True, Damage.ACCEPT), id="damaged: the whole ISR"),
        pytest.param(state(NO_LEADER), True, LogPlan(True, Damage.ACCEPT), id="damaged: in the ISR, no leader"),
        pytest.param(state(NO_LEADER, 2, 3), True, OUT_OF_SYNC, id="damaged: out of the ISR, no leader"),
    ],
)
def test_log_is_opened_as_the_state_and_its_damage_require(
    sent: PartitionStateMessage, damaged: bool, expected: object
) -> None:
    assert kind_of(plan_log(ME, sent, topic_sent=True, hosted=damaged, damaged=damaged)) == expected


@pytest.mark.parametrize(("hosted", "expected"), [(True, None), (False, UnknownTopicIdError)])
def test_replica_without_a_topic_id_must_be_hosted_already(hosted: bool, expected: object) -> None:
    assert kind_of(plan_log(ME, state(1), topic_sent=False, hosted=hosted, damaged=False)) == expected
