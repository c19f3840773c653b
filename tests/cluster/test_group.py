"""A consumer group's generations, as its members live through them; `waiter`s are (member, request) here."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.groups.group import NEWCOMER_MS, Group, GroupSettings, State
from cluster.groups.member import JoinRequest, Protocol
from cluster.groups.outcomes import Answer, Joined, Outcome, Store, Synced
from tidelog.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

SESSION_MS = 10_000
REBALANCE_MS = 60_000


@dataclass
class Coordinator:
    """Performs what the group asks for: it keeps the answers, and writes at once unless told to hold back."""

    group: Group = field(default_factory=lambda: Group("g", GroupSettings(initial_delay_ms=0)))
    now_ms: int = 1_000
    answers: dict[str, list[object]] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)
    holds_back: bool = False

    def join(
        self,
        who: str,
        *protocols: str,
        member_id: str | None = None,
        instance_id: str | None = None,
        metadata: bytes = b"topics",
        protocol_type: str = "consumer",
        needs_id: bool = False,
    ) -> None:
        known = who in self.group.members and instance_id is None
        request = JoinRequest(
            (who if known else "") if member_id is None else member_id,
            instance_id,
            "client",
            "/127.0.0.1",
            SESSION_MS,
            REBALANCE_MS,
            protocol_type,
            tuple(Protocol(name, metadata) for name in protocols or ("range",)),
            needs_id,
            who,
        )
        self.play(self.group.join(request, who, self.now_ms))

    def sync(self, who: str, assignments: dict[str, bytes] | None = None, *, generation: int | None = None) -> None:
        group = self.group
        at = group.generation if generation is None else generation
        self.play(group.sync(who, None, at, None, None, assignments or {}, who, self.now_ms))

    def heartbeat(self, who: str) -> None:
        self.group.heartbeat(who, None, self.group.generation, self.now_ms)

    def leave(self, who: str) -> None:
        self.play(self.group.leave(who, None, self.now_ms))

    def pass_time(self, ms: int, *alive: str) -> None:
        """Second by second; those that are `alive` are heard of."""
        for _ in range(0, ms, 1000):
            self.now_ms += 1000
            for who in alive:
                member = self.group.members.get(who)
                if member is not None:
                    member.heard(self.now_ms)
            self.play(self.group.time_passed(self.now_ms))

    def play(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Answer):
                self.answers.setdefault(str(outcome.waiter), []).append(outcome.outcome)
            else:
                self.stores.append(outcome)
        if not self.holds_back:
            self.write()

    def write(self, error: BrokerError | None = None) -> None:
        while self.stores:
            self.play(self.group.stored(self.stores.pop(0).number, error, self.now_ms))

    def is_in(self, state: State) -> bool:
        return self.group.state is state

    def heard(self, who: str) -> object:
        """The one answer since the last look."""
        (answer,) = self.answers.pop(who)
        return answer

    def joined(self, who: str) -> Joined:
        answer = self.heard(who)
        assert isinstance(answer, Joined), answer
        return answer

    def synced(self, who: str) -> bytes:
        answer = self.heard(who)
        assert isinstance(answer, Synced), answer
        return answer.assignment


def stable(*members: str, settings: GroupSettings | None = None) -> Coordinator:
    """A group in which each member is assigned its own name."""
    coordinator = Coordinator(Group("g", settings or GroupSettings(initial_delay_ms=0)))
    for who in members:
        coordinator.join(who)
        for other in members[: members.index(who)]:
            coordinator.join(other)
    for who in reversed(members):
        coordinator.sync(who, {each: each.encode() for each in members})
    assert coordinator.is_in(State.STABLE)
    coordinator.answers.clear()
    return coordinator


def test_the_first_member_leads_and_is_told_of_everybody() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    assert coordinator.joined("a") == Joined(0, "consumer", "range", "a", "a", (("a", None, b"topics"),))
    coordinator.join("b")
    assert coordinator.answers == {}, "it waits for the first to join again"
    coordinator.join("a")
    assert coordinator.joined("b") == Joined(1, "consumer", "range", "a", "b")
    assert [told[0] for told in coordinator.joined("a").members] == ["a", "b"]


def test_everybody_waits_for_what_the_leader_says_and_hears_it_once_it_is_written() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.join("a")
    coordinator.answers.clear()
    coordinator.holds_back = True
    coordinator.sync("b")
    coordinator.sync("a", {"a": b"0", "b": b"1"})
    assert coordinator.answers == {}
    assert coordinator.is_in(State.COMPLETING)
    coordinator.write()
    assert (coordinator.synced("a"), coordinator.synced("b")) == (b"0", b"1")
    assert coordinator.is_in(State.STABLE)


def test_who_syncs_late_hears_its_assignment_at_once_and_who_is_not_named_gets_an_empty_one() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.join("a")
    coordinator.answers.clear()
    coordinator.sync("a", {"a": b"all"})
    coordinator.sync("b")
    assert coordinator.synced("b") == b""


def test_where_the_assignments_cannot_be_written_everybody_joins_again() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.join("a")
    coordinator.answers.clear()
    coordinator.holds_back = True
    coordinator.sync("b")
    coordinator.sync("a")
    coordinator.write(CoordinatorNotAvailableError())
    assert isinstance(coordinator.heard("a"), CoordinatorNotAvailableError)
    assert isinstance(coordinator.heard("b"), CoordinatorNotAvailableError)
    assert coordinator.is_in(State.PREPARING)


def test_an_assignment_that_is_written_after_the_next_round_began_counts_for_nothing() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.join("a")
    coordinator.holds_back = True
    coordinator.sync("a", {"a": b"old", "b": b"old"})
    coordinator.join("b", metadata=b"again")
    coordinator.write()
    assert coordinator.is_in(State.PREPARING)
    assert coordinator.group.members["b"].assignment == b"b"


def test_a_member_that_has_not_joined_in_time_is_out_and_the_others_begin_without_it() -> None:
    coordinator = stable("a", "b", "c")
    coordinator.join("c", metadata=b"others")
    coordinator.join("b")
    with pytest.raises(RebalanceInProgressError):
        coordinator.heartbeat("a")
    coordinator.pass_time(REBALANCE_MS, "a")
    assert sorted(coordinator.group.members) == ["b", "c"]
    assert coordinator.joined("b").leader == "b", "the leader was the one that did not come"
    assert len(coordinator.joined("c").members) == 0


def test_a_member_that_is_silent_for_its_session_is_out_and_the_others_join_again() -> None:
    coordinator = stable("a", "b")
    coordinator.pass_time(SESSION_MS, "a")
    assert sorted(coordinator.group.members) == ["a"]
    with pytest.raises(RebalanceInProgressError):
        coordinator.heartbeat("a")
    with pytest.raises(UnknownMemberIdError):
        coordinator.heartbeat("b")


def test_nobody_is_silent_who_waits_for_an_answer_but_a_newcomer_does_not_wait_for_ever() -> None:
    coordinator = stable("a")
    coordinator.join("b")
    coordinator.pass_time(REBALANCE_MS - 1000, "a")
    assert "b" in coordinator.group.members
    lonely = Coordinator(Group("g", GroupSettings(initial_delay_ms=NEWCOMER_MS * 2)))
    lonely.join("a")
    assert lonely.group.next_deadline_ms() == lonely.now_ms + REBALANCE_MS
    assert lonely.group.members["a"].deadline_ms == lonely.now_ms + NEWCOMER_MS


def test_a_member_that_never_asks_for_its_assignment_is_out() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.join("a")
    coordinator.sync("a", {"a": b"0", "b": b"1"})
    coordinator.pass_time(REBALANCE_MS, "a", "b")
    assert sorted(coordinator.group.members) == ["a"]


def test_an_empty_group_waits_for_more_than_its_first_member_as_long_as_they_keep_coming() -> None:
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=3000)))
    coordinator.join("a")
    coordinator.pass_time(2000)
    coordinator.join("b")
    coordinator.pass_time(3000)
    assert coordinator.answers == {}, "one has come: three seconds more"
    coordinator.pass_time(1000)
    assert coordinator.joined("a").generation == coordinator.joined("b").generation == 0


def test_a_group_whose_last_member_leaves_is_empty_and_its_generations_go_on() -> None:
    coordinator = stable("a", "b")
    coordinator.leave("a")
    coordinator.join("b")
    coordinator.holds_back = True
    coordinator.leave("b")
    assert coordinator.is_in(State.EMPTY)
    (store,) = coordinator.stores
    assert store.assignments == {}
    before = coordinator.group.generation
    coordinator.join("c")
    assert coordinator.joined("c").generation == before + 1


def test_a_lost_answer_is_given_again_and_disturbs_nobody() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b")
    assert coordinator.joined("b").generation == 1
    assert coordinator.is_in(State.STABLE)
    coordinator.join("b", metadata=b"others")
    coordinator.join("a")
    coordinator.answers.clear()
    coordinator.join("a")
    assert len(coordinator.joined("a").members) == 2
    assert coordinator.is_in(State.COMPLETING)


def test_a_leader_that_joins_again_wants_to_assign_anew() -> None:
    coordinator = stable("a", "b")
    coordinator.join("a")
    assert coordinator.is_in(State.PREPARING)


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


def test_the_only_member_may_change_to_protocols_that_nobody_knew() -> None:
    coordinator = stable("a")
    coordinator.join("a", "sticky")
    assert coordinator.joined("a").protocol == "sticky"


def test_a_newcomer_that_is_given_an_id_is_waited_for_until_its_session_is_over() -> None:
    coordinator = stable("a")
    with pytest.raises(MemberIdRequiredError, match="b"):
        coordinator.join("b", needs_id=True)
    coordinator.join("a")
    assert coordinator.answers == {}, "b is expected"
    coordinator.join("b", member_id="b", needs_id=True)
    assert coordinator.joined("a").generation == coordinator.joined("b").generation == 1
    coordinator.sync("a")
    coordinator.answers.clear()
    with pytest.raises(MemberIdRequiredError):
        coordinator.join("c", needs_id=True)
    coordinator.join("a")
    coordinator.join("b")
    coordinator.pass_time(SESSION_MS)
    assert coordinator.joined("a").generation == 2
    with pytest.raises(UnknownMemberIdError):
        coordinator.join("c", member_id="c", needs_id=True)


def test_a_static_member_that_starts_anew_has_its_place_and_disturbs_nobody() -> None:
    coordinator = Coordinator()
    coordinator.join("a1", instance_id="a")
    coordinator.sync("a1", {"a1": b"0"})
    coordinator.answers.clear()
    coordinator.join("a2", instance_id="a")
    answer = coordinator.joined("a2")
    assert (answer.generation, answer.leader, answer.skips) == (0, "a2", True)
    coordinator.sync("a2")
    assert coordinator.synced("a2") == b"0"
    with pytest.raises(FencedInstanceIdError):
        coordinator.group.heartbeat("a1", "a", 0, coordinator.now_ms)
    with pytest.raises(UnknownMemberIdError):
        coordinator.heartbeat("a1")


def test_two_processes_with_one_instance_id_are_told_apart() -> None:
    coordinator = stable("x")
    coordinator.join("a1", instance_id="a")
    coordinator.join("a2", instance_id="a")
    assert isinstance(coordinator.heard("a1"), FencedInstanceIdError), "it was waiting still"
    coordinator.join("x")
    assert coordinator.joined("a2").generation == 1


def test_a_static_member_that_is_away_keeps_its_place_through_a_round() -> None:
    coordinator = stable("x")
    coordinator.join("a1", instance_id="a")
    coordinator.join("x")
    coordinator.sync("x", {"x": b"0", "a1": b"1"})
    coordinator.sync("a1")
    coordinator.join("x")
    coordinator.group.members["a1"].session_timeout_ms = REBALANCE_MS * 3
    coordinator.group.members["a1"].heard(coordinator.now_ms)
    coordinator.answers.clear()
    coordinator.pass_time(REBALANCE_MS)
    assert [told[:2] for told in coordinator.joined("x").members] == [("x", None), ("a1", "a")]


def test_a_full_group_takes_nobody_but_those_who_are_in_it() -> None:
    coordinator = stable("a", "b", settings=GroupSettings(0, max_size=2))
    with pytest.raises(GroupMaxSizeReachedError):
        coordinator.join("c")
    coordinator.join("a")
    coordinator.join("b")
    assert coordinator.joined("b").generation == 2


def test_a_member_of_an_earlier_generation_is_told_so() -> None:
    coordinator = stable("a")
    for stale in (-1, 1):
        with pytest.raises(IllegalGenerationError):
            coordinator.group.heartbeat("a", None, stale, coordinator.now_ms)
        with pytest.raises(IllegalGenerationError):
            coordinator.sync("a", generation=stale)
        with pytest.raises(IllegalGenerationError):
            coordinator.group.check_commit("a", None, stale, coordinator.now_ms)


def test_commits_are_taken_from_members_while_a_round_is_prepared_and_not_before_they_are_assigned() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.group.check_commit("a", None, 1, coordinator.now_ms)
    coordinator.join("a")
    with pytest.raises(RebalanceInProgressError):
        coordinator.group.check_commit("a", None, 2, coordinator.now_ms)
    with pytest.raises(UnknownMemberIdError):
        coordinator.group.check_commit("", None, -1, coordinator.now_ms)
    Group("empty", GroupSettings()).check_commit("", None, -1, 0)


def test_a_group_that_moves_to_another_coordinator_tells_everybody_who_waits() -> None:
    coordinator = stable("a", "b")
    coordinator.join("b", metadata=b"others")
    coordinator.play(coordinator.group.close())
    assert isinstance(coordinator.heard("b"), NotCoordinatorError)


def test_a_group_that_is_written_and_read_again_goes_on_with_the_same_generation() -> None:
    coordinator = stable("a", "b")
    record = coordinator.group.record({"a": b"0", "b": b"1"}, 1_700_000_000_000)
    assert (record.protocol_type, record.generation, record.protocol, record.leader) == ("consumer", 1, "range", "a")
    assert [(told.member_id, told.subscription, told.assignment) for told in record.members] == [
        ("a", b"topics", b"0"),
        ("b", b"topics", b"1"),
    ]
    there = Coordinator(now_ms=77_000)
    there.group.restore(record, there.now_ms)
    assert there.is_in(State.STABLE)
    there.heartbeat("a")
    there.sync("b")
    assert there.synced("b") == b"1"
    there.pass_time(SESSION_MS, "a")
    assert sorted(there.group.members) == ["a"], "sessions begin anew, and end"


def test_an_empty_group_that_is_read_again_is_empty_and_its_generations_go_on() -> None:
    coordinator = stable("a")
    coordinator.leave("a")
    record = coordinator.group.record({}, 1_700_000_000_000)
    assert (record.protocol_type, record.protocol, record.leader, record.members) == ("consumer", None, None, ())
    there = Coordinator()
    there.group.restore(record, there.now_ms)
    assert there.is_in(State.EMPTY)
    there.join("b")
    assert there.joined("b").generation == record.generation + 1


def test_a_group_that_is_read_with_more_members_than_may_be_joins_again() -> None:
    record = stable("a", "b", "c").group.record({}, 0)
    there = Coordinator(Group("g", GroupSettings(0, max_size=2)))
    there.group.restore(record, there.now_ms)
    assert there.is_in(State.PREPARING)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "sync", "sync", "sync", "leave", "beat", "time", "write", "fail", "static"]),
        st.sampled_from("abcd"),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(EVENTS)
def test_through_any_history_every_waiter_is_answered_once_and_generations_rise(
    events: list[tuple[str, str, int]],
) -> None:
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=3000)), holds_back=True)
    group, asked, last = coordinator.group, 0, -1
    for kind, who, much in events:
        try:
            if kind == "join":
                waits = who in group.members and group.members[who].joining is not None
                if not waits:
                    coordinator.join(who, metadata=bytes([much]))
                    asked += 1
            elif kind == "static":
                waits = f"{who}{much}" in group.members
                if not waits:
                    coordinator.join(f"{who}{much}", instance_id=who)
                    asked += 1
            elif kind == "sync":
                waits = who in group.members and group.members[who].syncing is not None
                if not waits:
                    mine = {each: f"{group.generation} {each}".encode() for each in group.members}
                    coordinator.sync(who, mine)
                    asked += 1
            elif kind == "leave":
                coordinator.leave(who)
            elif kind == "beat":
                coordinator.heartbeat(who)
            elif kind == "time":
                coordinator.pass_time(much * 20_000, "a", "b")
            elif coordinator.stores:
                store = coordinator.stores.pop(0)
                error = CoordinatorNotAvailableError() if kind == "fail" else None
                coordinator.play(group.stored(store.number, error, coordinator.now_ms))
        except BrokerError:
            pass
        assert group.generation >= last
        last = group.generation
        answered = sum(map(len, coordinator.answers.values()))
        waiting = sum((m.joining is not None) + (m.syncing is not None) for m in group.members.values())
        assert answered + waiting == asked
        assert (group.state is State.EMPTY) == (not group.members) or group.state is State.PREPARING
        assert group.leader in group.members or not group.members
        assert sorted(group._static.values()) == sorted(m.member_id for m in group.members.values() if m.instance_id)
    # Nobody waits for ever: silence ends it.
    for _ in range(40):
        coordinator.pass_time(20_000)
        coordinator.write()
    assert group.state is State.EMPTY
    assert sum(map(len, coordinator.answers.values())) == asked
