"""Members that keep their place in a consumer group while they restart (KIP-345)."""

from __future__ import annotations

import pytest

from cluster.groups.group import GroupState
from tests.cluster.group_harness import REBALANCE_MS, SESSION_MS, Coordinator, settled, stable
from tidelog.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    UnknownMemberIdError,
)


def test_restarted_static_member_keeps_its_place_without_a_rebalance() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.join("a2", instance_id="a", metadata=b"it owns nothing by now")
    answer = coordinator.joined("a2")
    assert (answer.generation, answer.leader, answer.skip_assignment, answer.members) == (1, "x", False, ())
    coordinator.sync("a2", instance_id="a")
    assert coordinator.synced("a2") == b"a1", "the previous assignment"
    coordinator.heartbeat("x")


def test_restarted_static_leader_gets_all_members_and_keeps_assignment() -> None:
    coordinator = stable(static={"a1": "a", "b1": "b"})
    coordinator.join("a2", instance_id="a")
    answer = coordinator.joined("a2")
    assert (answer.generation, answer.leader, answer.skip_assignment) == (1, "a2", True)
    assert sorted(member[:2] for member in answer.members) == [("a2", "a"), ("b1", "b")]


def test_restarted_leader_that_cannot_skip_assignment_is_told_it_follows() -> None:
    coordinator = stable(static={"a1": "a", "b1": "b"})
    coordinator.join("a2", instance_id="a", can_skip=False)
    answer = coordinator.joined("a2")
    assert (answer.generation, answer.member_id, answer.leader) == (1, "a2", "a1"), "the leader's id, until now"
    assert (answer.skip_assignment, answer.members) == (False, ())
    coordinator.sync("a2", instance_id="a")
    assert coordinator.synced("a2") == b"a1", "the previous assignment"
    coordinator.join("b2", instance_id="b", can_skip=False)
    assert coordinator.joined("b2").leader == "a2"
    coordinator.join("a3", instance_id="a")
    assert coordinator.joined("a3").skip_assignment


def test_the_former_self_of_a_static_member_is_fenced_in_all_that_it_asks() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.join("a2", instance_id="a")
    with pytest.raises(FencedInstanceIdError):
        coordinator.join("a1", instance_id="a", member_id="a1")
    with pytest.raises(FencedInstanceIdError):
        coordinator.sync("a1", instance_id="a")
    with pytest.raises(FencedInstanceIdError):
        coordinator.heartbeat("a1", "a")
    with pytest.raises(FencedInstanceIdError):
        coordinator.commit("a1", "a")
    with pytest.raises(FencedInstanceIdError):
        coordinator.leave("a1", "a")
    with pytest.raises(UnknownMemberIdError):
        coordinator.heartbeat("a1")


def test_unknown_instance_id_is_no_member_under_any_member_id() -> None:
    coordinator = stable("x")
    with pytest.raises(UnknownMemberIdError):
        coordinator.join("x", instance_id="a", member_id="x")
    with pytest.raises(UnknownMemberIdError):
        coordinator.heartbeat("x", "a")
    with pytest.raises(UnknownMemberIdError):
        coordinator.leave("", "a")


@pytest.mark.parametrize(("instance_id", "error"), [("a", FencedInstanceIdError), ("b", UnknownMemberIdError)])
def test_an_id_that_was_given_to_a_dynamic_member_is_no_static_ones(instance_id: str, error: type[BrokerError]) -> None:
    coordinator = stable("x", static={"a1": "a"})
    with pytest.raises(MemberIdRequiredError):
        coordinator.join("new", needs_id=True)
    with pytest.raises(error):
        coordinator.join("new", instance_id=instance_id, member_id="new")
    coordinator.join("new", member_id="new")
    coordinator.join("x")
    coordinator.join("a1", instance_id="a", member_id="a1")
    assert coordinator.joined("new").generation == 2
    coordinator.pass_time(REBALANCE_MS + SESSION_MS)
    assert coordinator.is_in(GroupState.EMPTY), "each of them could be let go"


def test_second_process_of_an_instance_id_fences_the_first() -> None:
    coordinator = stable("x")
    coordinator.join("a1", instance_id="a")
    coordinator.join("a2", instance_id="a")
    assert isinstance(coordinator.answer_of("a1"), FencedInstanceIdError), "the former process was still waiting"
    coordinator.join("x")
    assert coordinator.joined("a2").generation == 2


def test_static_member_restarted_before_its_sync_is_not_removed() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.join("x")
    coordinator.join("a1", instance_id="a", member_id="a1")
    coordinator.sync("x", {"x": b"0", "a1": b"1"})
    coordinator.answers.clear()
    coordinator.join("a2", instance_id="a")
    assert coordinator.joined("a2").generation == 2
    coordinator.pass_time(REBALANCE_MS * 2, "x", "a2")
    assert coordinator.is_in(GroupState.STABLE)


def test_static_member_is_answered_once_its_new_id_is_written() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.holds_back = True
    coordinator.join("a2", instance_id="a")
    assert coordinator.answers == {}
    (store,) = coordinator.stores
    assert store.assignments == {"x": b"x", "a2": b"a1"}
    coordinator.write()
    assert coordinator.joined("a2").generation == 1


def test_static_member_joins_again_if_its_new_id_cannot_be_written() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.holds_back = True
    coordinator.join("a2", instance_id="a")
    coordinator.write(CoordinatorNotAvailableError())
    assert isinstance(coordinator.answer_of("a2"), CoordinatorNotAvailableError)
    coordinator.join("a3", instance_id="a")
    coordinator.write()
    assert coordinator.joined("a3").generation == 1
    assert sorted(coordinator.group.members) == ["a3", "x"]


def test_rebalance_counts_a_static_member_as_joined_during_the_write() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.holds_back = True
    coordinator.join("a2", instance_id="a")
    coordinator.join("x", metadata=b"others")
    coordinator.write()
    assert coordinator.joined("a2").generation == coordinator.joined("x").generation == 2


def test_static_member_restarted_while_completing_causes_a_rebalance() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.join("x")
    coordinator.join("a1", instance_id="a", member_id="a1")
    assert coordinator.is_in(GroupState.COMPLETING)
    coordinator.answers.clear()
    coordinator.sync("a1", instance_id="a")
    coordinator.join("a2", instance_id="a")
    assert isinstance(coordinator.answer_of("a1"), FencedInstanceIdError)
    assert coordinator.is_in(GroupState.PREPARING)
    coordinator.join("x")
    assert coordinator.joined("a2").generation == 3


def test_restarted_static_member_rebalances_if_the_protocol_changes() -> None:
    coordinator = stable(static={"a1": "a"})
    with pytest.raises(InconsistentGroupProtocolError):
        coordinator.join("a2", "sticky", instance_id="a")
    coordinator.join("a2", "sticky", "range", instance_id="a")
    assert (coordinator.joined("a2").generation, coordinator.group.protocol) == (2, "sticky")


def test_absent_static_member_keeps_its_place_until_its_session_ends() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.join("x")
    coordinator.pass_time(REBALANCE_MS, "a1")
    assert [member[:2] for member in coordinator.joined("x").members] == [("x", None), ("a1", "a")]
    coordinator.sync("x", {"x": b"0", "a1": b"1"})
    assert coordinator.synced("x") == b"0"
    coordinator.pass_time(REBALANCE_MS, "x", "a1")
    assert sorted(coordinator.group.members) == ["x"], "the member never sent a SyncGroup"


def test_a_static_member_that_comes_back_after_its_session_is_new() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.pass_time(SESSION_MS, "x")
    coordinator.join("a2", instance_id="a")
    coordinator.join("x")
    assert coordinator.joined("a2").generation == coordinator.joined("x").generation == 2


def test_group_of_absent_static_members_waits_until_their_sessions_end() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.leave("x")
    coordinator.pass_time(REBALANCE_MS, "a1")
    assert coordinator.is_in(GroupState.PREPARING)
    coordinator.pass_time(SESSION_MS)
    assert coordinator.is_in(GroupState.EMPTY)


def test_a_static_member_leaves_by_its_instance_id_alone() -> None:
    coordinator = stable("x", static={"a1": "a"})
    coordinator.leave("", "a")
    assert sorted(coordinator.group.members) == ["x"]
    with pytest.raises(UnknownMemberIdError):
        coordinator.leave("", "a")


def test_a_static_member_that_is_read_again_is_known_by_its_instance_id() -> None:
    coordinator = stable("x", static={"a1": "a"})
    record = coordinator.group.record({"x": b"0", "a1": b"1"}, 0)
    there = Coordinator()
    there.group.restore(record, there.now_ms)
    there.join("a2", instance_id="a")
    assert there.joined("a2").generation == 1
    there.sync("a2", instance_id="a")
    assert there.synced("a2") == b"1"


def test_a_full_group_takes_a_static_member_back() -> None:
    coordinator = stable("x", static={"a1": "a"}, max_size=2)
    coordinator.join("a2", instance_id="a")
    assert coordinator.joined("a2").generation == 1
    settled(coordinator)
