"""A consumer group as its coordinator sees it: its members, its generations, and who waits for what.

Pure: requests and `now_ms` (monotonic) go in, with a `waiter` that stands for whoever is to be answered; outcomes come
out. A refusal is raised. The protocol is Kafka's classic one (KIP-62, 134, 345, 394, 814):

    EMPTY       nobody is in it; what it has committed may remain
      ↓ join
    PREPARING   a generation is about to begin: it waits for every member to join again, and not for ever
      ↓ all have joined, or the time is over and the others are out
    COMPLETING  everybody knows the generation; its leader is to say who gets what
      ↓ sync of the leader, written by the node
    STABLE      until somebody comes, goes, or asks for something else
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from cluster.groups.member import JoinRequest, Member, Protocol
from cluster.groups.outcomes import Answer, Joined, Outcome, Store, Synced
from tidelog.errors import (
    BrokerError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from tidelog.frozen import frozen
from tidelog.groups.offsets_topic import GroupRecord, MemberRecord

#: How long a newcomer is waited for whose request is waiting itself: its connection may be gone (as in Kafka).
NEWCOMER_MS = 300_000


class State(Enum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@frozen
class GroupSettings:
    """Of all groups of a broker.

    initial_delay_ms  how long an empty group waits for more members after the first
    max_size          members at most
    """

    initial_delay_ms: int = 3000
    max_size: int = 2**31 - 1


@dataclass(slots=True)
class _Round:
    """The wait for members to join.

    deadline_ms   when it is over
    left_ms       by how much it may be put off yet, where an empty group waits for more
    joined        whether somebody has come since it was put off last
    """

    deadline_ms: int
    left_ms: int = 0
    joined: bool = False
    initial: bool = False


class Group:
    """One group.

    generation      rises with each round of joining; −1 before the first
    protocol_type   "consumer", or whatever else its members are, or were last; "" where it never had any
    protocol        what this generation is assigned by
    leader          who assigns; "" nobody
    members         by id
    """

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = -1
        self.protocol_type = ""
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, Member] = {}
        self._settings = settings
        self._static: dict[str, str] = {}
        # Ids that were given out, until when their owners may come with them.
        self._expected: dict[str, int] = {}
        self._round: _Round | None = None
        self._sync_deadline_ms = 0
        self._unsynced: set[str] = set()
        self._stored = 0
        self._storing: Store | None = None

    # --- its record in the offsets topic -------------------------------------------------------------

    def record(self, assignments: Mapping[str, bytes], changed_ms: int) -> GroupRecord:
        """What a `Store` asks to be written, with the wall clock's time."""
        members = tuple(
            MemberRecord(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol),
                assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return GroupRecord(
            self.protocol_type, self.generation, self.protocol or None, self.leader or None, changed_ms, members
        )

    def restore(self, record: GroupRecord, now_ms: int) -> None:
        """A new coordinator goes on from what was written last; the members' sessions begin anew."""
        self.protocol_type, self.generation = record.protocol_type, record.generation
        self.protocol, self.leader = record.protocol or "", record.leader or ""
        for told in record.members:
            rebalance_timeout_ms = (
                told.session_timeout_ms if told.rebalance_timeout_ms < 0 else told.rebalance_timeout_ms
            )
            member = Member(
                told.member_id,
                told.instance_id,
                told.client_id,
                told.client_host,
                told.session_timeout_ms,
                told.rebalance_timeout_ms,
                (Protocol(self.protocol, told.subscription),),
                told.assignment,
            )
            member.heard(now_ms)
            self.members[told.member_id] = member
            if told.instance_id is not None:
                self._static[told.instance_id] = told.member_id
        self.state = State.STABLE if self.members else State.EMPTY
        if len(self.members) > self._settings.max_size:
            self._prepare(now_ms)

    # --- joining -------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: object, now_ms: int) -> list[Outcome]:
        """Somebody wants to be in the next generation."""
        self._check_protocols(request)
        if not request.member_id:
            return self._come(request, waiter, now_ms)
        if request.instance_id is None and request.member_id in self._expected:
            del self._expected[request.member_id]
            return self._add(request, request.member_id, waiter, now_ms)
        return self._come_back(self._member(request.member_id, request.instance_id), request, waiter, now_ms)

    def _come(self, request: JoinRequest, waiter: object, now_ms: int) -> list[Outcome]:
        before = self._static.get(request.instance_id) if request.instance_id is not None else None
        if before is not None:
            return self._replace(self.members[before], request, waiter, now_ms)
        if len(self.members) + len(self._expected) >= self._settings.max_size:
            raise GroupMaxSizeReachedError(f"group {self.group_id!r} has {self._settings.max_size} members")
        if request.instance_id is None and request.needs_id:
            self._expected[request.candidate_id] = now_ms + request.session_timeout_ms
            raise MemberIdRequiredError(request.candidate_id)
        return self._add(request, request.candidate_id, waiter, now_ms)

    def _come_back(self, member: Member, request: JoinRequest, waiter: object, now_ms: int) -> list[Outcome]:
        same = member.protocols == request.protocols
        stays = self.state is State.COMPLETING and same
        stays = stays or (self.state is State.STABLE and same and member.member_id != self.leader)
        if stays:
            # Its answer was lost, or it only wants to be sure.
            member.heard(now_ms)
            return [Answer(waiter, self._joined(member))]
        self._update(member, request, waiter, now_ms)
        return self._prepare(now_ms)

    def _add(self, request: JoinRequest, member_id: str, waiter: object, now_ms: int) -> list[Outcome]:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            joining=waiter,
            deadline_ms=now_ms + NEWCOMER_MS,
            newcomer=True,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        self.leader = self.leader or member_id
        if request.instance_id is not None:
            self._static[request.instance_id] = member_id
        if self._round is not None:
            self._round.joined = True
        return self._prepare(now_ms)

    def _replace(self, before: Member, request: JoinRequest, waiter: object, now_ms: int) -> list[Outcome]:
        """A static member has started anew: it has its place, under another id; its former self is fenced."""
        outcomes = _refuse(before, FencedInstanceIdError(f"{before.instance_id!r} is another member by now"))
        same = before.protocols == request.protocols
        del self.members[before.member_id]
        before.member_id = request.candidate_id
        self.members[request.candidate_id] = before
        assert request.instance_id is not None
        self._static[request.instance_id] = request.candidate_id
        led = self.leader
        if led not in self.members:
            self.leader = request.candidate_id
        if self.state is State.STABLE and same:
            before.heard(now_ms)
            joined = self._joined(before, skips=self.leader == request.candidate_id)
            return [*outcomes, self._store(self._assignments()), Answer(waiter, joined)]
        self._update(before, request, waiter, now_ms)
        return outcomes + self._prepare(now_ms)

    def _update(self, member: Member, request: JoinRequest, waiter: object, now_ms: int) -> None:
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        member.joining = waiter
        member.heard(now_ms)

    # --- a round -------------------------------------------------------------------------------------

    def _prepare(self, now_ms: int) -> list[Outcome]:
        """A generation is to begin, unless one is about to."""
        outcomes: list[Outcome] = []
        if self.state is not State.PREPARING:
            for member in self.members.values():
                outcomes += _answer_sync(member, RebalanceInProgressError("another generation is about to begin"))
            wait_ms = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
            self._round = _Round(now_ms + wait_ms)
            if self.state is State.EMPTY:
                delay_ms = min(self._settings.initial_delay_ms, wait_ms)
                self._round = _Round(now_ms + delay_ms, wait_ms - delay_ms, initial=delay_ms > 0)
            self.state = State.PREPARING
            self._unsynced.clear()
            self._storing = None
        return outcomes + self._begin_if_all_joined(now_ms)

    def _begin_if_all_joined(self, now_ms: int) -> list[Outcome]:
        assert self._round is not None
        waits = self._round.initial or self._expected or any(m.joining is None for m in self.members.values())
        return [] if waits else self._begin(now_ms)

    def _round_over(self, now_ms: int) -> list[Outcome]:
        assert self._round is not None
        if self._round.initial and self._round.joined and self._round.left_ms:
            delay_ms = min(self._settings.initial_delay_ms, self._round.left_ms)
            self._round = _Round(now_ms + delay_ms, self._round.left_ms - delay_ms, initial=True)
            return []
        self._expected.clear()
        late = [m for m in self.members.values() if m.joining is None and m.instance_id is None]
        for member in late:
            self._drop(member)
        if self.members and all(member.joining is None for member in self.members.values()):
            # Only static members that are away: they are waited for until their sessions end.
            wait_ms = max(member.rebalance_timeout_ms for member in self.members.values())
            self._round = _Round(now_ms + wait_ms)
            return []
        return self._begin(now_ms)

    def _begin(self, now_ms: int) -> list[Outcome]:
        """The generation begins with those who have joined, and the static members that are away."""
        self._round = None
        self.generation += 1
        if not self.members:
            # The type stays: what the group has committed expires as a consumer group's (KIP-211).
            self.state, self.protocol, self.leader = State.EMPTY, "", ""
            return [self._store({})]
        self.state, self.protocol = State.COMPLETING, self._choose_protocol()
        present = [member for member in self.members.values() if member.joining is not None]
        if self.leader not in self.members or self.members[self.leader].joining is None:
            self.leader = present[0].member_id
        self._unsynced = {member.member_id for member in present}
        self._sync_deadline_ms = now_ms + max(member.rebalance_timeout_ms for member in self.members.values())
        outcomes: list[Outcome] = []
        for member in present:
            outcomes.append(Answer(member.joining, self._joined(member)))
            member.joining, member.newcomer = None, False
            member.heard(now_ms)
        return outcomes

    def _choose_protocol(self) -> str:
        """The one that most members prefer among those that all understand."""
        common = set.intersection(*(set(member.names) for member in self.members.values()))
        votes = [next(name for name in member.names if name in common) for member in self.members.values()]
        return max(common, key=lambda name: (votes.count(name), name))

    def _joined(self, member: Member, *, skips: bool = False) -> Joined:
        told: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.member_id == self.leader:
            told = tuple((m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())
        return Joined(
            self.generation, self.protocol_type, self.protocol, self.leader, member.member_id, told, skips=skips
        )

    # --- assigning -----------------------------------------------------------------------------------

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
        waiter: object,
        now_ms: int,
    ) -> list[Outcome]:
        """A member asks for its assignment; the leader's request brings everybody's."""
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            raise InconsistentGroupProtocolError(f"this generation is assigned by {self.protocol!r}")
        if self.state is State.PREPARING:
            raise RebalanceInProgressError("another generation is about to begin")
        self._unsynced.discard(member_id)
        if self.state is State.STABLE:
            member.heard(now_ms)
            return [Answer(waiter, self._synced(member))]
        member.syncing = waiter
        if member_id != self.leader:
            return []
        return [self._store({each: assignments.get(each, b"") for each in self.members})]

    def stored(self, number: int, error: BrokerError | None, now_ms: int) -> list[Outcome]:
        """What became of a `Store`. One that was overtaken counts no more."""
        storing = self._storing
        if storing is None or storing.number != number:
            return []
        self._storing = None
        if self.state is not State.COMPLETING:
            return []
        outcomes: list[Outcome] = []
        if error is not None:
            for member in self.members.values():
                member.assignment = b""
                outcomes += _answer_sync(member, error)
            return outcomes + self._prepare(now_ms)
        self.state = State.STABLE
        for member in self.members.values():
            member.assignment = storing.assignments.get(member.member_id, b"")
            if member.syncing is not None:
                member.heard(now_ms)
                outcomes += _answer_sync(member, self._synced(member))
        return outcomes

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type, self.protocol, member.assignment)

    def _store(self, assignments: Mapping[str, bytes]) -> Store:
        self._stored += 1
        self._storing = Store(self._stored, assignments)
        return self._storing

    def _assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self.members.values()}

    # --- living and leaving --------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """A member lives. RebalanceInProgressError where it is to join again."""
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        member.heard(now_ms)
        if self.state is State.PREPARING:
            raise RebalanceInProgressError("another generation is about to begin")

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> list[Outcome]:
        """A member goes; a static one may be named by its instance alone."""
        if instance_id is None and member_id in self._expected:
            del self._expected[member_id]
            return self._begin_if_all_joined(now_ms) if self.state is State.PREPARING else []
        if instance_id is not None and not member_id:
            member_id = self._static.get(instance_id, "")
        return self._remove(self._member(member_id, instance_id), now_ms)

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Whether these may commit offsets. Who is no member may where nobody is (it assigns itself)."""
        if generation < 0 and not member_id and instance_id is None:
            if self.state is not State.EMPTY:
                raise UnknownMemberIdError(f"group {self.group_id!r} has members, and this is none of them")
            return
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if self.state is State.COMPLETING:
            raise RebalanceInProgressError("the assignments of this generation are not known yet")
        member.heard(now_ms)

    def time_passed(self, now_ms: int) -> list[Outcome]:
        """Whoever was not heard of goes, and what was waited for long enough goes on without."""
        outcomes: list[Outcome] = []
        late = [member_id for member_id, deadline_ms in self._expected.items() if now_ms >= deadline_ms]
        for member_id in late:
            del self._expected[member_id]
        for member in [member for member in self.members.values() if member.is_gone(now_ms)]:
            outcomes += self._remove(member, now_ms)
        if self.state is State.PREPARING and late:
            outcomes += self._begin_if_all_joined(now_ms)
        if self._round is not None and now_ms >= self._round.deadline_ms:
            outcomes += self._round_over(now_ms)
        if self._unsynced and now_ms >= self._sync_deadline_ms:
            for member_id in self._unsynced & self.members.keys():
                outcomes += self._drop(self.members[member_id])
            outcomes += self._prepare(now_ms)
        return outcomes

    def next_deadline_ms(self) -> int | None:
        """When `time_passed` has something to do, at the earliest; None: never as things stand."""
        waits = [m.deadline_ms for m in self.members.values() if m.newcomer or not (m.joining or m.syncing)]
        waits += self._expected.values()
        if self._round is not None:
            waits.append(self._round.deadline_ms)
        if self._unsynced:
            waits.append(self._sync_deadline_ms)
        return min(waits, default=None)

    def close(self) -> list[Outcome]:
        """Another broker coordinates the group from now on."""
        error = NotCoordinatorError(f"group {self.group_id!r} has another coordinator by now")
        return [outcome for member in self.members.values() for outcome in _refuse(member, error)]

    def _remove(self, member: Member, now_ms: int) -> list[Outcome]:
        outcomes = self._drop(member)
        if self.state is State.PREPARING:
            return outcomes + self._begin_if_all_joined(now_ms)
        return outcomes + self._prepare(now_ms)

    def _drop(self, member: Member) -> list[Outcome]:
        del self.members[member.member_id]
        self._unsynced.discard(member.member_id)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")
        return _refuse(member, UnknownMemberIdError(f"{member.member_id!r} is no member any more"))

    # --- checks --------------------------------------------------------------------------------------

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is not None and holder != member_id:
                raise FencedInstanceIdError(f"{instance_id!r} is another member by now")
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            raise UnknownMemberIdError(f"group {self.group_id!r} has no member {member_id!r}")
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGenerationError(f"generation {generation}; this is {self.generation}")

    def _check_protocols(self, request: JoinRequest) -> None:
        others = [member for member in self.members.values() if member.member_id != request.member_id]
        names = {protocol.name for protocol in request.protocols}
        if not request.protocol_type or not names:
            raise InconsistentGroupProtocolError("a member needs a protocol type and a protocol")
        if others and request.protocol_type != self.protocol_type:
            raise InconsistentGroupProtocolError(f"the group's members are of type {self.protocol_type!r}")
        if others and not names.intersection(*_names(others)):
            raise InconsistentGroupProtocolError("no protocol is understood by all members")


def _names(members: Iterable[Member]) -> Iterable[list[str]]:
    return (member.names for member in members)


def _answer_sync(member: Member, outcome: Synced | BrokerError) -> list[Outcome]:
    waiter, member.syncing = member.syncing, None
    return [] if waiter is None else [Answer(waiter, outcome)]


def _refuse(member: Member, error: BrokerError) -> list[Outcome]:
    """Nobody waits for this member any more."""
    waiter, member.joining = member.joining, None
    answers: list[Outcome] = [] if waiter is None else [Answer(waiter, error)]
    return answers + _answer_sync(member, error)
