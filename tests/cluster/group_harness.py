"""A coordinator that performs a consumer group's effects. A `waiter` is the name of the member that sent the
request.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.groups.effects import Answer, GroupEffect, Joined, StoreGroup, Synced
from cluster.groups.group import Group, GroupSettings, GroupState
from cluster.groups.member import JoinRequest, Protocol
from tidelog.errors import BrokerError

SESSION_MS = 10_000
REBALANCE_MS = 60_000


@dataclass
class Coordinator:
    """Performs the group's effects: it keeps the answers, and writes at once unless it is set to hold back."""

    group: Group = field(default_factory=lambda: Group("g", GroupSettings(initial_delay_ms=0)))
    now_ms: int = 1_000
    answers: dict[str, list[object]] = field(default_factory=dict)
    stores: list[StoreGroup] = field(default_factory=list)
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
        can_skip: bool = True,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        known = who in self.group.members and instance_id is None
        request = JoinRequest(
            (who if known else "") if member_id is None else member_id,
            instance_id,
            "client",
            "/127.0.0.1",
            session_ms,
            rebalance_ms,
            protocol_type,
            tuple(Protocol(name, metadata) for name in protocols or ("range",)),
            needs_id,
            who,
            can_skip,
        )
        self.play(self.group.join(request, who, self.now_ms))

    def sync(
        self,
        who: str,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        generation: int | None = None,
        protocol: str | None = None,
    ) -> None:
        group = self.group
        at = group.generation if generation is None else generation
        self.play(group.sync(who, instance_id, at, None, protocol, assignments or {}, who, self.now_ms))

    def heartbeat(self, who: str, instance_id: str | None = None) -> None:
        self.group.heartbeat(who, instance_id, self.group.generation, self.now_ms)

    def leave(self, who: str, instance_id: str | None = None) -> None:
        self.play(self.group.leave(who, instance_id, self.now_ms))

    def commit(self, who: str, instance_id: str | None = None) -> None:
        self.group.check_commit(who, instance_id, self.group.generation, self.now_ms)

    def pass_time(self, ms: int, *alive: str) -> None:
        """Let time pass in steps of one second; `alive` members send heartbeats."""
        for _ in range(0, ms, 1000):
            self.now_ms += 1000
            for who in alive:
                member = self.group.members.get(who)
                if member is not None:
                    member.note_alive(self.now_ms)
            self.play(self.group.time_passed(self.now_ms))

    def play(self, outcomes: list[GroupEffect]) -> None:
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

    def is_in(self, state: GroupState) -> bool:
        return self.group.state is state

    def answer_of(self, who: str) -> object:
        """Return the one answer that the member got since the last call."""
        (answer,) = self.answers.pop(who)
        return answer

    def joined(self, who: str) -> Joined:
        answer = self.answer_of(who)
        assert isinstance(answer, Joined), answer
        return answer

    def synced(self, who: str) -> bytes:
        answer = self.answer_of(who)
        assert isinstance(answer, Synced), answer
        return answer.assignment


def stable(*members: str, static: dict[str, str] | None = None, max_size: int = 100) -> Coordinator:
    """A group of generation 1 in which each member is assigned its own name; `static` ones have instance ids."""
    coordinator = Coordinator(Group("g", GroupSettings(initial_delay_ms=1000, max_size=max_size)))
    for who in members:
        coordinator.join(who)
    for who, instance_id in (static or {}).items():
        coordinator.join(who, instance_id=instance_id)
    coordinator.pass_time(2000)
    return settled(coordinator)


def settled(coordinator: Coordinator) -> Coordinator:
    """Everybody is in the generation that has begun, and is assigned its own name."""
    members = list(coordinator.group.members)
    for who in members:
        instance_id = coordinator.group.members[who].instance_id
        coordinator.sync(who, {each: each.encode() for each in members}, instance_id=instance_id)
    assert coordinator.is_in(GroupState.STABLE)
    coordinator.answers.clear()
    return coordinator
