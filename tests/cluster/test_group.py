"""The generations of a consumer group, as its members see them."""

from __future__ import annotations

import pytest

from cluster.groups.effects import Joined
from cluster.groups.group import Group, GroupSettings, GroupState
from cluster.groups.member import NEW_MEMBER_JOIN_TIMEOUT_MS
from tests.cluster.group_harness import REBALANCE_MS, SESSION_MS, Coordinator, settled, stable
from tidelog.errors import (
    CoordinatorNotAvailableError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


def rejoined(coordinator: Coordinator) -> Coordinator:
    """Return a group whose next generation has begun, and whose members have no assignments yet."""
    for who in sorted(coordinator.group.members):
        coordinator.join(who, metadata=b"others")
    assert coordinator.is_in(GroupState.COMPLETING)
    coordinator.answers.clear()
    return coordinator


# --- joining -----------------------------------------------------------------------------------------


def test_first_member_leads_and_gets_the_list_of_members() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    assert coordinator.joined("a") == Joined(1, "consumer", "range", "a", "a", (("a", None, b"topics"),))
    coordinator.join("b")
    assert coordinator.answers == {}, "the group waits for the first member to join again"
    coordinator.join("a")
    assert coordinator.joined("b") == Joined(2, "consumer", "range", "a", "b")
    assert [member[0] for member in coordinator.joined("a").members] == ["a", "b"]


def test_initial_delay_is_extended_while_members_keep_joining() -> None:
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=3000)))
    coordinator.join("a")
    coordinator.pass_time(2000)
    coordinator.join("b")
    coordinator.pass_time(3000)
    assert coordinator.answers == {}, "a member has joined, so the delay is extended by three seconds"
    coordinator.pass_time(1000)
    assert coordinator.joined("a").generation == coordinator.joined("b").generation == 1


def test_initial_delay_never_exceeds_the_first_rebalance_timeout() -> None:
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=3000)))
    begun_ms = coordinator.now_ms
    coordinator.join("0", rebalance_ms=10_000)
    for nth in range(1, 20):
        coordinator.pass_time(1000)
        if coordinator.answers:
            break
        coordinator.join(str(nth), rebalance_ms=10_000)
    assert coordinator.now_ms - begun_ms == 10_000


def test_initial_delay_holds_even_with_a_short_rebalance_timeout() -> None:
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=3000)))
    coordinator.join("a", rebalance_ms=1000)
    coordinator.join("b", rebalance_ms=1000)
    coordinator.pass_time(2000)
    assert coordinator.answers == {}
    coordinator.pass_time(1000)
    assert coordinator.joined("a").generation == 1, "and not once more"


def test_group_is_empty_if_all_leave_during_its_initial_delay() -> None:
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=3000)))
    coordinator.join("a")
    coordinator.leave("a")
    assert isinstance(coordinator.answer_of("a"), UnknownMemberIdError)
    coordinator.pass_time(3000)
    assert coordinator.is_in(GroupState.EMPTY)


def test_lost_join_answer_is_repeated_without_a_rebalance() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b")
    assert coordinator.joined("b").generation == 1
    assert coordinator.is_in(GroupState.STABLE)
    coordinator.join("b", metadata=b"others")
    coordinator.join("a")
    coordinator.answers.clear()
    coordinator.join("a")
    assert len(coordinator.joined("a").members) == 2
    assert coordinator.is_in(GroupState.COMPLETING)


def test_repeated_join_is_answered_twice_and_counted_once() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.join("b", metadata=b"others")
    assert isinstance(coordinator.answer_of("b"), RebalanceInProgressError)
    coordinator.join("a")
    assert coordinator.joined("b").generation == 2
    coordinator.sync("b")
    coordinator.sync("b")
    assert isinstance(coordinator.answer_of("b"), RebalanceInProgressError)
    coordinator.sync("a", {"b": b"all"})
    assert coordinator.synced("b") == b"all"


def test_leader_that_joins_again_starts_a_rebalance() -> None:
    coordinator = stable("a", "b")
    coordinator.join("a")
    assert coordinator.is_in(GroupState.PREPARING)


def test_changed_subscription_while_completing_restarts_the_rebalance() -> None:
    coordinator = stable("a", "b")
    coordinator.join("a")
    coordinator.join("b")
    coordinator.answers.clear()
    coordinator.sync("b")
    coordinator.join("a", metadata=b"others")
    assert isinstance(coordinator.answer_of("b"), RebalanceInProgressError)
    assert coordinator.is_in(GroupState.PREPARING)


def test_full_group_accepts_only_its_members() -> None:
    coordinator = stable("a", "b", max_size=2)
    with pytest.raises(GroupMaxSizeReachedError):
        coordinator.join("c")
    coordinator.join("a")
    coordinator.join("b")
    assert coordinator.joined("b").generation == 2
    settled(coordinator).leave("a")
    coordinator.join("c")
    coordinator.join("b")
    assert coordinator.joined("c").generation == 3


def test_group_full_by_now_refuses_a_pending_id_and_stops_waiting() -> None:
    coordinator = stable("a", max_size=2)
    for who in ("b", "c"):
        with pytest.raises(MemberIdRequiredError):
            coordinator.join(who, needs_id=True)
    coordinator.join("b", member_id="b")
    coordinator.join("a")
    coordinator.join("c", member_id="c")
    assert isinstance(coordinator.answer_of("c"), GroupMaxSizeReachedError)
    assert coordinator.joined("a").generation == coordinator.joined("b").generation == 2


def test_members_that_leave_in_a_row_cause_one_rebalance() -> None:
    coordinator = stable("a", "b", "x", static={"s1": "s"})
    coordinator.leave("a")
    coordinator.leave("", "s")
    coordinator.leave("b")
    coordinator.join("x")
    assert coordinator.joined("x").generation == 2
    assert coordinator.group.leader == "x"


# --- ids ---------------------------------------------------------------------------------------------


def test_pending_member_id_is_waited_for_until_its_session_ends() -> None:
    coordinator = stable("a")
    with pytest.raises(MemberIdRequiredError, match="b"):
        coordinator.join("b", needs_id=True)
    coordinator.join("a")
    assert coordinator.answers == {}, "b is expected"
    coordinator.join("b", member_id="b", needs_id=True)
    assert coordinator.joined("a").generation == coordinator.joined("b").generation == 2
    settled(coordinator)
    with pytest.raises(MemberIdRequiredError):
        coordinator.join("c", needs_id=True)
    coordinator.join("a")
    coordinator.join("b")
    coordinator.pass_time(SESSION_MS)
    assert coordinator.joined("a").generation == 3
    with pytest.raises(UnknownMemberIdError):
        coordinator.join("c", member_id="c", needs_id=True)


def test_pending_member_id_may_join_after_a_generation_began() -> None:
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=1000)))
    coordinator.join("a")
    with pytest.raises(MemberIdRequiredError):
        coordinator.join("b", needs_id=True)
    coordinator.pass_time(1000)
    assert coordinator.joined("a").generation == 1
    coordinator.join("b", member_id="b", needs_id=True)
    assert sorted(coordinator.group.members) == ["a", "b"]


def test_pending_member_id_that_leaves_is_not_waited_for() -> None:
    coordinator = stable("a")
    with pytest.raises(MemberIdRequiredError):
        coordinator.join("b", needs_id=True)
    coordinator.join("a")
    coordinator.leave("b")
    assert coordinator.joined("a").generation == 2
    with pytest.raises(UnknownMemberIdError):
        coordinator.leave("b")


def test_member_id_that_was_never_given_out_is_unknown() -> None:
    coordinator = stable("a")
    with pytest.raises(UnknownMemberIdError):
        coordinator.join("b", member_id="b")
    with pytest.raises(UnknownMemberIdError):
        coordinator.sync("b")
    with pytest.raises(UnknownMemberIdError):
        coordinator.heartbeat("b")
    with pytest.raises(UnknownMemberIdError):
        coordinator.leave("b")
    with pytest.raises(UnknownMemberIdError):
        coordinator.commit("b")
    assert coordinator.is_in(GroupState.STABLE)


def test_member_of_an_earlier_generation_gets_illegal_generation() -> None:
    coordinator = stable("a")
    for stale in (-1, 0, 2):
        with pytest.raises(IllegalGenerationError):
            coordinator.group.heartbeat("a", None, stale, coordinator.now_ms)
        with pytest.raises(IllegalGenerationError):
            coordinator.sync("a", generation=stale)
        with pytest.raises(IllegalGenerationError):
            coordinator.group.check_commit("a", None, stale, coordinator.now_ms)


# --- protocols ---------------------------------------------------------------------------------------


def test_a_protocol_that_all_understand_is_chosen_by_what_most_prefer() -> None:
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=3000)))
    coordinator.join("a", "range", "sticky")
    coordinator.join("b", "sticky", "range")
    coordinator.join("c", "sticky", "roundrobin", "range")
    with pytest.raises(InconsistentGroupProtocolError):
        coordinator.join("d", "roundrobin")
    with pytest.raises(InconsistentGroupProtocolError):
        coordinator.join("d", protocol_type="connect")
    coordinator.pass_time(6000)
    assert coordinator.joined("a").protocol == "sticky"


def test_the_most_votes_count_whatever_the_names() -> None:
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=1000)))
    coordinator.join("a", "sticky", "range")
    for who in "bc":
        coordinator.join(who, "range", "sticky")
    coordinator.pass_time(2000)
    assert coordinator.joined("a").protocol == "range"


def test_member_may_not_change_to_an_unsupported_protocol() -> None:
    coordinator = stable("a")
    with pytest.raises(InconsistentGroupProtocolError):
        coordinator.join("a", "sticky")
    coordinator.join("a", "sticky", "range")
    assert coordinator.joined("a").protocol == "sticky"


def test_an_empty_group_is_of_whatever_type_comes_next() -> None:
    coordinator = stable("a")
    coordinator.leave("a")
    assert coordinator.group.protocol_type == "consumer"
    with pytest.raises(InconsistentGroupProtocolError):
        coordinator.join("b", protocol_type="")
    coordinator.join("b", protocol_type="connect")
    coordinator.pass_time(1000)
    assert coordinator.joined("b").protocol_type == "connect"


def test_sync_with_another_protocol_than_the_generations_is_refused() -> None:
    coordinator = stable("a")
    with pytest.raises(InconsistentGroupProtocolError):
        coordinator.sync("a", protocol="sticky")
    coordinator.sync("a", protocol="range")
    assert coordinator.synced("a") == b"a"


# --- assigning ---------------------------------------------------------------------------------------


def test_members_get_assignments_once_the_leaders_sync_is_written() -> None:
    coordinator = rejoined(stable("a", "b"))
    coordinator.holds_back = True
    coordinator.sync("b")
    coordinator.sync("a", {"a": b"0", "b": b"1"})
    assert coordinator.answers == {}
    assert coordinator.is_in(GroupState.COMPLETING)
    coordinator.write()
    assert (coordinator.synced("a"), coordinator.synced("b")) == (b"0", b"1")
    assert coordinator.is_in(GroupState.STABLE)


def test_late_sync_is_answered_at_once_and_unnamed_members_get_nothing() -> None:
    coordinator = rejoined(stable("a", "b"))
    coordinator.sync("a", {"a": b"all"})
    coordinator.sync("b")
    assert coordinator.synced("b") == b""


def test_failed_write_of_assignments_makes_all_members_rejoin() -> None:
    coordinator = rejoined(stable("a", "b"))
    coordinator.holds_back = True
    coordinator.sync("b")
    coordinator.sync("a")
    coordinator.write(CoordinatorNotAvailableError())
    assert isinstance(coordinator.answer_of("a"), CoordinatorNotAvailableError)
    assert isinstance(coordinator.answer_of("b"), CoordinatorNotAvailableError)
    assert coordinator.is_in(GroupState.PREPARING)


def test_assignment_written_after_the_next_rebalance_is_ignored() -> None:
    coordinator = rejoined(stable("a", "b"))
    coordinator.holds_back = True
    coordinator.sync("a", {"a": b"old", "b": b"old"})
    coordinator.join("b", metadata=b"again")
    coordinator.write()
    assert coordinator.is_in(GroupState.PREPARING)
    assert coordinator.group.members["b"].assignment == b"b"


def test_last_assignment_of_a_leader_counts_once_it_is_written() -> None:
    coordinator = rejoined(stable("a"))
    coordinator.holds_back = True
    coordinator.sync("a", {"a": b"first"})
    coordinator.sync("a", {"a": b"second"})
    coordinator.answers.clear()
    coordinator.play(coordinator.group.stored(coordinator.stores.pop(0).number, None, coordinator.now_ms))
    assert coordinator.answers == {}
    coordinator.write()
    assert coordinator.synced("a") == b"second"


def test_commits_are_accepted_while_preparing_but_not_while_completing() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.commit("a")
    coordinator.join("a")
    with pytest.raises(RebalanceInProgressError):
        coordinator.commit("a")
    with pytest.raises(UnknownMemberIdError):
        coordinator.group.check_commit("", None, -1, coordinator.now_ms)


def test_commits_without_membership_are_accepted_by_an_empty_group() -> None:
    group = Group("empty", GroupSettings())
    group.check_commit("", None, -1, 0)
    group.check_commit("unknown", None, -1, 0)
    with pytest.raises(UnknownMemberIdError):
        group.check_commit("a", None, 0, 0)


# --- living ------------------------------------------------------------------------------------------


def test_member_that_joins_too_late_is_removed_from_the_generation() -> None:
    coordinator = stable("a", "b", "c")
    coordinator.join("c", metadata=b"others")
    coordinator.join("b")
    with pytest.raises(RebalanceInProgressError):
        coordinator.heartbeat("a")
    coordinator.pass_time(REBALANCE_MS, "a")
    assert sorted(coordinator.group.members) == ["b", "c"]
    assert coordinator.joined("b").leader == "b", "the leader was the one that did not come"
    assert coordinator.joined("c").generation == 2


def test_member_without_heartbeat_is_removed_and_the_others_rejoin() -> None:
    coordinator = stable("a", "b")
    coordinator.pass_time(SESSION_MS, "a")
    assert sorted(coordinator.group.members) == ["a"]
    with pytest.raises(RebalanceInProgressError):
        coordinator.heartbeat("a")
    with pytest.raises(UnknownMemberIdError):
        coordinator.heartbeat("b")


def test_members_that_fall_silent_together_are_out_together() -> None:
    coordinator = stable("a", "b", "c")
    coordinator.join("a")
    coordinator.pass_time(SESSION_MS)
    assert sorted(coordinator.group.members) == ["a"]
    assert coordinator.joined("a").generation == 2
    assert coordinator.group.generation == 2


def test_heartbeats_and_commits_keep_a_member_while_completing() -> None:
    coordinator = rejoined(stable("a"))
    for _ in range(5):
        coordinator.pass_time(SESSION_MS - 1000)
        coordinator.heartbeat("a")
    settled(coordinator)
    for _ in range(5):
        coordinator.pass_time(SESSION_MS - 1000)
        coordinator.commit("a")
    assert coordinator.is_in(GroupState.STABLE)


def test_member_does_not_expire_while_its_request_waits() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.pass_time(REBALANCE_MS - 1000, "a")
    assert "b" in coordinator.group.members
    coordinator.join("a")
    coordinator.answers.clear()
    coordinator.sync("b")
    coordinator.pass_time(REBALANCE_MS - 1000, "a")
    assert "b" in coordinator.group.members


def test_member_has_a_whole_session_to_rejoin_after_a_failed_sync() -> None:
    coordinator = rejoined(stable("a", "b", "c"))
    coordinator.sync("b")
    coordinator.pass_time(SESSION_MS, "a")
    assert isinstance(coordinator.answer_of("b"), RebalanceInProgressError)
    coordinator.pass_time(SESSION_MS - 1000, "a")
    assert sorted(coordinator.group.members) == ["a", "b"], "c was silent of its own will"
    coordinator.pass_time(1000, "a")
    assert sorted(coordinator.group.members) == ["a"]


def test_a_newcomer_does_not_wait_for_ever_unless_it_asks_again() -> None:
    for asks_again in (False, True):
        coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)))
        coordinator.join("a", session_ms=SESSION_MS)
        if asks_again:
            coordinator.pass_time(1000)
            coordinator.join("a")
            coordinator.answers.clear()
        coordinator.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS - 1000)
        assert coordinator.answers == {}
        coordinator.pass_time(1000)
        assert isinstance(coordinator.answer_of("a"), UnknownMemberIdError)


def test_a_member_that_never_asks_for_its_assignment_is_out() -> None:
    coordinator = rejoined(stable("a", "b"))
    coordinator.sync("a", {"a": b"0", "b": b"1"})
    deadline_ms = coordinator.now_ms + REBALANCE_MS
    coordinator.pass_time(REBALANCE_MS - 1000, "a", "b")
    assert coordinator.is_in(GroupState.STABLE)
    assert coordinator.group.next_deadline_ms() == coordinator.now_ms + 1000 == deadline_ms
    coordinator.pass_time(1000, "a", "b")
    assert sorted(coordinator.group.members) == ["a"]
    assert coordinator.is_in(GroupState.PREPARING)


def test_member_that_joined_the_next_generation_needs_no_sync() -> None:
    coordinator = rejoined(stable("a", "b", "c"))
    coordinator.pass_time(REBALANCE_MS - 5000, "a", "b", "c")
    coordinator.join("a", metadata=b"again")
    coordinator.join("b", metadata=b"again")
    coordinator.pass_time(10_000, "c")
    assert sorted(coordinator.group.members) == ["a", "b", "c"]
    assert coordinator.answers == {}


def test_leader_that_never_assigns_is_removed_and_the_others_rejoin() -> None:
    coordinator = rejoined(stable("a", "b"))
    coordinator.sync("b")
    coordinator.pass_time(REBALANCE_MS, "a", "b")
    assert isinstance(coordinator.answer_of("b"), RebalanceInProgressError)
    assert (sorted(coordinator.group.members), coordinator.group.leader) == (["b"], "b")


def test_group_without_members_is_empty_and_keeps_its_generation() -> None:
    coordinator = stable("a", "b")
    coordinator.leave("a")
    coordinator.join("b")
    coordinator.holds_back = True
    coordinator.leave("b")
    assert coordinator.is_in(GroupState.EMPTY)
    (store,) = coordinator.stores
    assert store.assignments == {}
    before = coordinator.group.generation
    coordinator.join("c")
    coordinator.pass_time(1000)
    assert coordinator.joined("c").generation == before + 1


def test_group_that_moves_to_another_coordinator_answers_all_requests() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.play(coordinator.group.close())
    assert isinstance(coordinator.answer_of("b"), NotCoordinatorError)
    coordinator = rejoined(stable("a", "b"))
    coordinator.sync("b")
    coordinator.play(coordinator.group.close())
    assert isinstance(coordinator.answer_of("b"), NotCoordinatorError)


# --- written and read again --------------------------------------------------------------------------


def test_restored_group_continues_in_the_same_generation() -> None:
    coordinator = stable("a", "b")
    record = coordinator.group.record({"a": b"0", "b": b"1"}, 1_700_000_000_000)
    assert (record.protocol_type, record.generation, record.protocol, record.leader) == ("consumer", 1, "range", "a")
    assert [(member.member_id, member.subscription, member.assignment) for member in record.members] == [
        ("a", b"topics", b"0"),
        ("b", b"topics", b"1"),
    ]
    there = Coordinator(now_ms=77_000)
    there.group.restore(record, there.now_ms)
    assert there.is_in(GroupState.STABLE)
    there.heartbeat("a")
    there.sync("b")
    assert there.synced("b") == b"1"
    there.pass_time(SESSION_MS, "a")
    assert sorted(there.group.members) == ["a"], "sessions begin anew, and end"


def test_restored_empty_group_keeps_its_generation() -> None:
    coordinator = stable("a")
    coordinator.leave("a")
    record = coordinator.group.record({}, 1_700_000_000_000)
    assert (record.protocol_type, record.protocol, record.leader, record.members) == ("consumer", None, None, ())
    there = Coordinator()
    there.group.restore(record, there.now_ms)
    assert there.is_in(GroupState.EMPTY)
    there.join("b")
    assert there.joined("b").generation == record.generation + 1


def test_restored_group_above_max_size_drops_the_last_to_join() -> None:
    record = stable("a", "b", "c").group.record({}, 0)
    there = Coordinator(Group("g", GroupSettings(0, max_size=2)))
    there.group.restore(record, there.now_ms)
    assert there.is_in(GroupState.PREPARING)
    there.join("c")
    there.join("b")
    there.join("a")
    assert isinstance(there.answer_of("a"), GroupMaxSizeReachedError)
    assert there.joined("b").generation == there.joined("c").generation == 2


# --- where members stand -------------------------------------------------------------------------------


def stages(coordinator: Coordinator) -> dict[str, str]:
    group = coordinator.group
    return {who: group.stage_of(member).value for who, member in group.members.items()}


def test_stage_says_for_which_members_a_rebalance_waits() -> None:
    coordinator = stable("a", "b")
    assert stages(coordinator) == {"a": "Assigned", "b": "Assigned"}
    coordinator.join("c")
    assert stages(coordinator) == {"a": "Awaited", "b": "Awaited", "c": "Waiting"}
    coordinator.join("a")
    assert stages(coordinator) == {"a": "Waiting", "b": "Awaited", "c": "Waiting"}
    coordinator.join("b")
    assert coordinator.is_in(GroupState.COMPLETING)
    assert stages(coordinator) == {"a": "Awaited", "b": "Awaited", "c": "Awaited"}, "none has sent its SyncGroup"


def test_stage_shows_which_members_know_their_partitions() -> None:
    coordinator = rejoined(stable("a", "b", "c"))
    leader, *others = sorted(coordinator.group.members, key=lambda who: who != coordinator.group.leader)
    coordinator.sync(others[0])
    assert stages(coordinator) == {leader: "Awaited", others[0]: "Waiting", others[1]: "Awaited"}
    coordinator.sync(leader, {})
    assert coordinator.is_in(GroupState.STABLE)
    assert stages(coordinator) == {leader: "Assigned", others[0]: "Assigned", others[1]: "Awaited"}


def test_pending_ids_are_those_with_which_no_consumer_has_joined() -> None:
    coordinator = Coordinator()
    with pytest.raises(MemberIdRequiredError):
        coordinator.join("newcomer", needs_id=True)
    assert coordinator.group.pending_member_ids == ("newcomer",)
    coordinator.join("newcomer", member_id="newcomer")
    assert coordinator.group.pending_member_ids == ()
