"""What a member asks of its coordinator, and what it makes of each answer; no network."""

from __future__ import annotations

import pytest

from tidelog.errors import (
    BrokerError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from tidelog.groups.assignment.consumer_protocol import Subscription, decode_subscription, encode_assignment
from tidelog.groups.assignment.sticky_user_data import MemberData, decode_member_data
from tidelog.groups.membership.membership_state import MemberSettings, MembershipState, MemberState
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import HeartbeatResponse, JoinGroupResponse, LeavingMember, SyncGroupResponse

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOTHING = MemberData(())
JOINED = JoinGroupResponse(0, 5, "consumer", "range", "leader", "me")


def a_membership(*assignors: str, instance_id: str | None = None) -> MembershipState:
    return MembershipState(MemberSettings("g", instance_id, 10_000, 60_000, assignors or ("range",)))


def a_stable_one(*assignors: str, instance_id: str | None = None) -> MembershipState:
    membership = a_membership(*assignors, instance_id=instance_id)
    membership.join_request(["t"], NOTHING)
    assert membership.joined(JOINED)
    assert membership.synced(SyncGroupResponse(0, "consumer", "range", encode_assignment([P0]))) == (P0,)
    return membership


def test_new_member_joins_again_with_its_member_id() -> None:
    membership = a_membership()
    assert membership.join_request(["t"], NOTHING).member_id == ""
    assert not membership.joined(JoinGroupResponse(MemberIdRequiredError.code, member_id="me"))
    again = membership.join_request(["b", "a"], NOTHING)
    assert (again.member_id, again.session_timeout_ms, again.rebalance_timeout_ms) == ("me", 10_000, 60_000)
    assert decode_subscription(again.protocols[0].metadata).topics == ("a", "b")
    assert membership.joined(JOINED) and not membership.leads
    assert membership.sync_request().generation_id == 5
    assert membership.synced(SyncGroupResponse(0, assignment=encode_assignment([P1]))) == (P1,)
    assert membership.state is MemberState.STABLE and membership.identity == ("g", 5, "me", None)


def test_member_named_as_leader_leads() -> None:
    membership = a_membership()
    membership.join_request(["t"], NOTHING)
    assert membership.joined(JoinGroupResponse(0, 1, "consumer", "range", "me", "me")) and membership.leads


def test_join_request_has_owned_partitions_or_user_data_by_assignor() -> None:
    had = MemberData((P0,), 4)
    shown = {
        each.name: decode_subscription(each.metadata)
        for assignors in (("range", "sticky", "cooperative-sticky"), ("cooperative-sticky",))
        for each in a_membership(*assignors).join_request(["t"], had).protocols
        if len(assignors) > 1
    }
    assert shown["range"].owned == shown["cooperative-sticky"].owned == () and shown["range"].user_data is None
    assert decode_member_data(shown["sticky"].user_data) == had
    (alone,) = a_membership("cooperative-sticky").join_request(["t"], had).protocols
    assert decode_subscription(alone.metadata) == Subscription(("t",), (P0,), 4)


@pytest.mark.parametrize("error", [UnknownMemberIdError, IllegalGenerationError])
def test_unknown_member_is_lost(error: type[BrokerError]) -> None:
    membership = a_stable_one()
    membership.on_heartbeat(membership.heartbeat_request(), HeartbeatResponse(error.code))
    assert membership.lost and membership.state is MemberState.OUT and membership.generation == -1
    # Whose generation alone is over is known by its id still.
    assert membership.member_id == ("" if error is UnknownMemberIdError else "me")


def test_rebalance_makes_a_member_join_again_with_its_id() -> None:
    membership = a_stable_one()
    membership.on_heartbeat(membership.heartbeat_request(), HeartbeatResponse(RebalanceInProgressError.code))
    assert membership.rejoins and membership.state is MemberState.STABLE and not membership.lost
    assert membership.join_request(["t"], NOTHING).member_id == "me" and not membership.rejoins
    assert membership.joined(JOINED)
    assert membership.synced(SyncGroupResponse(RebalanceInProgressError.code)) is None
    assert membership.state is MemberState.JOINING and not membership.lost and membership.member_id == "me"


def test_answer_of_an_older_generation_is_ignored() -> None:
    membership = a_stable_one()
    old = membership.heartbeat_request()
    membership.join_request(["t"], NOTHING)
    membership.on_heartbeat(old, HeartbeatResponse(UnknownMemberIdError.code))
    assert not membership.lost
    membership.joined(JoinGroupResponse(0, 6, "consumer", "range", "leader", "me"))
    membership.synced(SyncGroupResponse(0))
    membership.on_heartbeat(old, HeartbeatResponse(IllegalGenerationError.code))
    membership.commit_refused(membership.identity._replace(generation_id=5), IllegalGenerationError())
    assert not membership.lost and membership.state is MemberState.STABLE
    membership.commit_refused(membership.identity, IllegalGenerationError())
    assert membership.lost


def test_a_fenced_member_stays_fenced() -> None:
    membership = a_stable_one(instance_id="i")
    with pytest.raises(FencedInstanceIdError, match="another consumer runs as 'i'"):
        membership.on_heartbeat(membership.heartbeat_request(), HeartbeatResponse(FencedInstanceIdError.code))
    assert membership.fenced is not None and membership.lost and membership.state is MemberState.OUT


@pytest.mark.parametrize(
    ("error", "setting"),
    [
        (GroupMaxSizeReachedError, ""),
        (InconsistentGroupProtocolError, "partition_assignment_strategy is range here"),
        (InvalidSessionTimeoutError, "session_timeout_ms is 10000 here"),
    ],
)
def test_final_error_is_raised_with_the_groups_name(error: type[BrokerError], setting: str) -> None:
    membership = a_membership("range")
    membership.join_request(["t"], NOTHING)
    with pytest.raises(error, match=f"group 'g'.*{setting}"):
        membership.joined(JoinGroupResponse(error.code))
    assert membership.state is MemberState.OUT and not membership.lost


def test_only_a_dynamic_member_leaves() -> None:
    assert a_membership().leave_request() is None
    leave = a_stable_one().leave_request()
    assert leave is not None and leave.members == (LeavingMember("me"),)
    assert a_stable_one(instance_id="i").leave_request() is None
