"""A consumer group under any history of requests and time, against its invariants.

The members are careless: they ask twice, use stale ids, and fall silent. `Witness` states what they can rely on, and
knows nothing of how a group works.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.groups.effects import Answer, GroupEffect, Joined, StoreGroup, Synced
from cluster.groups.group import Group, GroupSettings, GroupState
from cluster.groups.member import JoinRequest, Protocol
from tidelog.errors import BrokerError, CoordinatorNotAvailableError, MemberIdRequiredError

SESSION_MS = 10_000


@dataclass
class Witness:
    """Sends requests, and remembers their senders and answers.

    asked    the sender of every request, by number
    answers  the answer to each
    ids      the member ids that were given out, the newest last
    leaders  by generation
    """

    group: Group
    rebalance_ms: int
    now_ms: int = 0
    asked: dict[int, str] = field(default_factory=dict)
    answers: dict[int, object] = field(default_factory=dict)
    ids: dict[str, list[str]] = field(default_factory=dict)
    leaders: dict[int, set[str | None]] = field(default_factory=dict)
    stores: list[StoreGroup] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def join(self, who: str, *, back: int, metadata: int, needs_id: bool = True) -> bool:
        """Join with the id given out last but `back`, or with none if there is no such id. Return False if it is
        refused.
        """
        mine = self.ids.get(who, [])
        member_id = mine[-1 - back] if back < len(mine) else ""
        number = next(self._numbers)
        protocols = tuple(Protocol(name, bytes([metadata])) for name in ("range", "sticky")[metadata % 2 :])
        request = JoinRequest(
            member_id,
            who if who.isupper() else None,
            who,
            "/127.0.0.1",
            SESSION_MS,
            self.rebalance_ms,
            "consumer",
            (*protocols, Protocol("roundrobin", b"")),
            needs_id,
            f"{who}-{number}",
        )
        self.asked[number] = who
        try:
            self.play(self.group.join(request, number, self.now_ms))
        except MemberIdRequiredError:
            mine = self.ids.setdefault(who, [])
            mine.append(request.candidate_id)
            del self.asked[number]
        except BrokerError:
            del self.asked[number]
            return False
        return True

    def sync(self, who: str, *, back: int) -> None:
        mine = self.ids.get(who, [""])
        number, generation = next(self._numbers), self.group.generation
        assignments = {member_id: f"{generation} {number}".encode() for member_id in self.group.members}
        self.asked[number] = who
        instance_id = who if who.isupper() else None
        try:
            self.play(
                self.group.sync(
                    mine[-1 - min(back, len(mine) - 1)],
                    instance_id,
                    generation,
                    None,
                    None,
                    assignments,
                    number,
                    self.now_ms,
                )
            )
        except BrokerError:
            del self.asked[number]

    def beat(self, who: str) -> None:
        member_id = self.ids.get(who, [""])[-1]
        with contextlib.suppress(BrokerError):
            self.group.heartbeat(member_id, who if who.isupper() else None, self.group.generation, self.now_ms)

    def leave(self, who: str) -> None:
        with contextlib.suppress(BrokerError):
            self.play(self.group.leave(self.ids.get(who, [""])[-1], who if who.isupper() else None, self.now_ms))

    def obey(self, who: str) -> None:
        """Send the next request as a client does that waits for each answer."""
        at = self.ids.get(who, [""])[-1]
        if any(self.asked[number] == who for number in self.asked.keys() - self.answers.keys()):
            return
        if at in self.group.members:
            self.beat(who)
            if self.group.state is GroupState.PREPARING:
                self.join(who, back=0, metadata=0)
            elif self.group.state is GroupState.COMPLETING:
                self.sync(who, back=0)
            return
        if not self.join(who, back=0, metadata=0):
            del self.ids[who]

    def write(self, error: BrokerError | None = None) -> None:
        if self.stores:
            self.play(self.group.stored(self.stores.pop(0).number, error, self.now_ms))

    def pass_time(self, ms: int) -> None:
        """Let time pass from deadline to deadline, each of which must be real."""
        until_ms = self.now_ms + ms
        while (deadline_ms := self.group.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            if deadline_ms - 1 > self.now_ms:
                before = self.looks()
                assert self.group.time_passed(deadline_ms - 1) == []
                assert self.looks() == before, "nothing was to be done before the deadline"
            self.now_ms = max(self.now_ms, deadline_ms)
            self.play(self.group.time_passed(self.now_ms))
            after_ms = self.group.next_deadline_ms()
            assert after_ms is None or after_ms > self.now_ms, "the work due at the deadline is done"
        self.now_ms = until_ms

    def looks(self) -> object:
        group = self.group
        return group.state, group.generation, group.leader, sorted(group.members), group.next_deadline_ms()

    def play(self, outcomes: list[GroupEffect]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, StoreGroup):
                self.stores.append(outcome)
                assert set(outcome.assignments) == set(self.group.members)
                continue
            self.on_answer(outcome)

    def on_answer(self, answer: Answer) -> None:
        number, outcome = answer.waiter, answer.outcome
        assert isinstance(number, int)
        assert number in self.asked, "no member asked, or the request was refused already"
        assert number not in self.answers, "the request was answered before"
        self.answers[number] = outcome
        if isinstance(outcome, Joined):
            self.ids.setdefault(self.asked[number], []).append(outcome.member_id)
            assert bool(outcome.members) == (outcome.member_id == outcome.leader), (
                "only the leader gets the list of members"
            )
            instance_id = self.group.members[outcome.leader].instance_id
            self.leaders.setdefault(outcome.generation, set()).add(instance_id or outcome.leader)
            assert len(self.leaders[outcome.generation]) == 1, "a generation has one leader"
        if isinstance(outcome, Synced) and outcome.assignment:
            generation = int(outcome.assignment.split()[0])
            assert generation == self.group.generation, "an earlier generation's assignment"

    def check(self) -> None:
        """Check that every unanswered request will be answered, because a write is under way or there is a deadline."""
        members = self.group.members
        waiting = {m.joining for m in members.values()} | {m.syncing for m in members.values()}
        assert waiting - {None} == self.asked.keys() - self.answers.keys()
        assert waiting == {None} or not members or self.stores or self.group.next_deadline_ms() is not None
        assert self.group.leader in members or not members
        if self.group.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert members
        elif self.group.state is GroupState.EMPTY:
            assert not members
        instances = [member.instance_id for member in members.values() if member.instance_id is not None]
        assert len(instances) == len(set(instances)), "a static member has one place"


WHO = st.sampled_from(["a", "b", "c", "S", "T"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), WHO, st.integers(0, 3)),
        st.tuples(st.just("join"), WHO, st.just(0)),
        st.tuples(st.just("sync"), WHO, st.sampled_from([0, 0, 0, 1])),
        st.tuples(st.just("sync"), WHO, st.just(0)),
        st.tuples(st.sampled_from(["beat", "leave"]), WHO, st.just(0)),
        st.tuples(st.sampled_from(["write", "write", "fail"]), st.just("a"), st.just(0)),
        st.tuples(st.just("time"), st.just("a"), st.sampled_from([1, 500, 3000, 9000, 29_000, 100_000])),
    ),
    max_size=80,
)

#: Shorter and longer than a session.
REBALANCES_MS = st.sampled_from([7_000, 30_000])


def lived(events: list[tuple[str, str, int]], delay_ms: int, max_size: int, rebalance_ms: int) -> Witness:
    witness = Witness(Group("g", GroupSettings(delay_ms, max_size)), rebalance_ms)
    generation = 0
    for nth, (kind, who, much) in enumerate(events):
        if kind == "join":
            witness.join(who, back=much // 2, metadata=much, needs_id=nth % 2 == 0)
        elif kind == "sync":
            witness.sync(who, back=much)
        elif kind == "beat":
            witness.beat(who)
        elif kind == "leave":
            witness.leave(who)
        elif kind == "time":
            witness.pass_time(much)
        else:
            witness.write(CoordinatorNotAvailableError() if kind == "fail" else None)
        witness.check()
        assert witness.group.generation >= generation
        generation = witness.group.generation
    return witness


@given(EVENTS, st.sampled_from([0, 3000]), st.sampled_from([2, 100]), REBALANCES_MS)
@settings(max_examples=300)
def test_every_request_is_answered_once_and_silence_empties_a_group(
    events: list[tuple[str, str, int]], delay_ms: int, max_size: int, rebalance_ms: int
) -> None:
    witness = lived(events, delay_ms, max_size, rebalance_ms)
    for _ in range(10):
        while witness.stores:
            witness.write()
        witness.pass_time(400_000)
        witness.check()
    assert witness.group.state is GroupState.EMPTY
    assert witness.group.next_deadline_ms() is None
    assert witness.answers.keys() == witness.asked.keys()


@given(EVENTS, st.sampled_from([0, 3000]), REBALANCES_MS)
@settings(max_examples=200)
def test_obedient_members_are_assigned_soon_after_any_history(
    events: list[tuple[str, str, int]], delay_ms: int, rebalance_ms: int
) -> None:
    witness = lived(events, delay_ms, 100, rebalance_ms)
    group = witness.group
    while witness.stores:
        witness.write()
    for _ in range(100):
        for who in "abcST":
            witness.obey(who)
        while witness.stores:
            witness.write()
        witness.check()
        witness.pass_time(3000)
    assert group.state is GroupState.STABLE
    assert sorted(member.client_id for member in group.members.values()) == sorted("abcST")
    assert len({member.assignment for member in group.members.values()}) == 1
