"""A consumer group as its coordinator sees it: its generations, and who waits for what.

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

from collections.abc import Mapping
from enum import Enum

from cluster.groups.delayed_join import DelayedJoin
from cluster.groups.effects import Answer, Joined, Outcome, Store, Synced
from cluster.groups.member import JoinRequest, Member
from cluster.groups.members import GroupMembers
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
from tidelog.frozen_dataclass import frozen
from tidelog.groups.offsets_topic import GroupRecord
from tidelog.protocol.group_messages import MemberStage


class GroupState(Enum):
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


class Group:
    """One group.

    generation      rises with each rebalance; 0 before the first
    protocol_type   "consumer", or whatever else its members are, or were last; "" where it never had any
    protocol        what this generation is assigned by; "" while nobody is in it
    """

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self._settings = settings
        self._roster = GroupMembers()
        self._delayed_join: DelayedJoin | None = None
        self._sync_deadline_ms = 0
        self._unsynced: set[str] = set()
        self._stored = 0
        self._storing: Store | None = None

    @property
    def members(self) -> Mapping[str, Member]:
        """By id."""
        return self._roster.members

    @property
    def leader(self) -> str:
        """Who assigns; "" where nobody is."""
        return self._roster.leader

    def stage_of(self, member: Member) -> MemberStage:
        """Return how far a member of the group is in the rebalance."""
        if self.state is GroupState.PREPARING:
            return MemberStage.AWAITED if member.joining is None else MemberStage.WAITING
        if member.member_id in self._unsynced:
            return MemberStage.AWAITED
        return MemberStage.WAITING if self.state is GroupState.COMPLETING else MemberStage.ASSIGNED

    @property
    def pending_member_ids(self) -> tuple[str, ...]:
        """Return the member ids with which no consumer has joined since the coordinator gave them out (KIP-394)."""
        return tuple(sorted(self._roster.expected))

    # --- its record in the offsets topic -------------------------------------------------------------

    def record(self, assignments: Mapping[str, bytes], changed_ms: int) -> GroupRecord:
        """What a `Store` asks to be written, with the wall clock's time."""
        members = (m.record(self.protocol, assignments.get(m.member_id, b"")) for m in self.members.values())
        protocol, leader = self.protocol or None, self.leader or None
        return GroupRecord(self.protocol_type, self.generation, protocol, leader, changed_ms, tuple(members))

    def restore(self, record: GroupRecord, now_ms: int) -> None:
        """A new coordinator goes on from what was written last; the members' sessions begin anew."""
        self.protocol_type, self.generation = record.protocol_type, record.generation
        self.protocol = record.protocol or ""
        self._roster = GroupMembers()
        for told in record.members:
            self._roster.add(Member.restore(told, self.protocol, now_ms))
        if record.leader is not None and record.leader in self.members:
            self._roster.leader = record.leader
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        if len(self.members) > self._settings.max_size:
            self._prepare(now_ms)

    # --- joining -------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: object, now_ms: int) -> list[Outcome]:
        """Somebody wants to be in the next generation."""
        before = None if request.member_id else self._roster.static(request.instance_id)
        known = before or self.members.get(request.member_id)
        if not self._accepts(known):
            error = GroupMaxSizeReachedError(f"group {self.group_id!r} has {self._settings.max_size} members")
            member_id = request.member_id if known is None else known.member_id
            if known is None and member_id not in self._roster.expected:
                raise error
            return [Answer(waiter, error), *self.leave(member_id, None, now_ms)]
        self._check_protocols(request)
        if before is not None:
            return self._replace(before, request, waiter, now_ms)
        if not request.member_id:
            return self._come(request, waiter, now_ms)
        # Only dynamic members are given ids to come with; two members of one instance id could not be told apart.
        if request.instance_id is None and self._roster.expected.pop(request.member_id, None) is not None:
            return self._add(request, request.member_id, waiter, now_ms)
        return self._come_back(self._roster.find(request.member_id, request.instance_id), request, waiter, now_ms)

    def _come(self, request: JoinRequest, waiter: object, now_ms: int) -> list[Outcome]:
        if request.needs_id and request.instance_id is None:
            self._roster.expected[request.candidate_id] = now_ms + request.session_timeout_ms
            raise MemberIdRequiredError(request.candidate_id)
        return self._add(request, request.candidate_id, waiter, now_ms)

    def _add(self, request: JoinRequest, member_id: str, waiter: object, now_ms: int) -> list[Outcome]:
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member.come(request, member_id, now_ms)
        member.joining = waiter
        self._roster.add(member)
        if self._delayed_join is not None:
            self._delayed_join.new_member_added = True
        return self._rebalance(now_ms)

    def _come_back(self, member: Member, request: JoinRequest, waiter: object, now_ms: int) -> list[Outcome]:
        same = member.protocols == request.protocols
        # In the midst of assigning its answer was lost; of a stable group the leader alone may want another
        # generation for no reason that can be seen, as when a topic has got more partitions.
        stays = self.state is GroupState.COMPLETING or (
            self.state is GroupState.STABLE and member.member_id != self.leader
        )
        if stays and same:
            member.heard(now_ms)
            return [Answer(waiter, self._joined(member))]
        outcomes: list[Outcome] = [*member.answer_join(_asked_again(), now_ms)]
        member.update(request, now_ms)
        member.joining = waiter
        return outcomes + self._rebalance(now_ms)

    def _replace(self, member: Member, request: JoinRequest, waiter: object, now_ms: int) -> list[Outcome]:
        """A static member has started anew: it has its place, under another id; its former self is fenced."""
        fenced = FencedInstanceIdError(f"{member.instance_id!r} is another member by now")
        outcomes: list[Outcome] = [*member.refuse(fenced)]
        self._unsynced.discard(member.member_id)
        self._roster.rename(member, request.candidate_id)
        member.update(request, now_ms)
        member.joining = waiter
        if self.state is GroupState.STABLE and self._roster.choose_protocol() == self.protocol:
            # Its assignment stands, and its next coordinator must know it by its new id.
            return [*outcomes, self._store({each.member_id: each.assignment for each in self.members.values()})]
        return outcomes + self._rebalance(now_ms)

    # --- rebalancing ---------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> list[Outcome]:
        """Somebody has come or gone: a generation is to begin, unless it is about to."""
        return self._begin_if_all_joined(now_ms) if self.state is GroupState.PREPARING else self._prepare(now_ms)

    def _prepare(self, now_ms: int) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for member in self.members.values():
            outcomes += member.answer_sync(_rebalancing(), now_ms)
        timeout_ms, delay_ms = self._roster.rebalance_timeout_ms, self._settings.initial_delay_ms
        if self.state is GroupState.EMPTY and delay_ms:
            self._delayed_join = DelayedJoin(now_ms + delay_ms, True, max(timeout_ms - delay_ms, 0))
        else:
            self._delayed_join = DelayedJoin(now_ms + timeout_ms)
        self.state = GroupState.PREPARING
        self._unsynced.clear()
        # What is being written counts no more; a static member that waits for it has joined the next generation.
        self._storing = None
        return outcomes + self._begin_if_all_joined(now_ms)

    def _begin_if_all_joined(self, now_ms: int) -> list[Outcome]:
        assert self._delayed_join is not None
        return [] if self._delayed_join.initial or self._roster.is_waited_for else self._begin(now_ms)

    def _begin(self, now_ms: int) -> list[Outcome]:
        """The generation begins: with those who have joined, and the static members that are away."""
        for late in [m for m in self.members.values() if m.joining is None and m.instance_id is None]:
            self._roster.remove(late)
        if not self._roster.elect_joined() and self.members:
            # Only static members that are away: they are waited for until their sessions end.
            self._delayed_join = DelayedJoin(now_ms + max(self._roster.rebalance_timeout_ms, 1))
            return []
        self._delayed_join = None
        self.generation += 1
        if not self.members:
            self.state, self.protocol = GroupState.EMPTY, ""
            return [self._store({})]
        self.state, self.protocol = GroupState.COMPLETING, self._roster.choose_protocol()
        self._unsynced = set(self.members)
        self._sync_deadline_ms = now_ms + self._roster.rebalance_timeout_ms
        outcomes: list[Outcome] = []
        for member in self.members.values():
            outcomes += member.answer_join(self._joined(member), now_ms)
            member.newcomer = False
            member.heard(now_ms)
        return outcomes

    def _joined(self, member: Member, *, skips: bool = False) -> Joined:
        leads, told = member.member_id == self.leader, []
        if leads:
            told = [(m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values()]
        return Joined(
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader,
            member.member_id,
            tuple(told),
            skips=skips and leads,
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
        member = self._member(member_id, instance_id, generation)
        if protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            raise InconsistentGroupProtocolError(f"this generation is assigned by {self.protocol!r}")
        if self.state is GroupState.PREPARING:
            raise _rebalancing()
        self._unsynced.discard(member_id)
        if self.state is GroupState.STABLE:
            member.heard(now_ms)
            return [Answer(waiter, self._synced(member))]
        outcomes: list[Outcome] = [*member.answer_sync(_asked_again(), now_ms)]
        member.syncing = waiter
        if member_id == self.leader:
            outcomes.append(self._store({each: assignments.get(each, b"") for each in self.members}))
        return outcomes

    def stored(self, number: int, error: BrokerError | None, now_ms: int) -> list[Outcome]:
        """What became of a `Store`. One that was overtaken counts no more."""
        storing = self._storing
        if storing is None or storing.number != number:
            return []
        self._storing = None
        outcomes: list[Outcome] = []
        if self.state is GroupState.STABLE:
            for member in self._roster.joined:
                outcomes += member.answer_join(error or self._joined(member, skips=True), now_ms)
        elif self.state is GroupState.COMPLETING and error is not None:
            for member in self.members.values():
                outcomes += member.answer_sync(error, now_ms)
            outcomes += self._prepare(now_ms)
        elif self.state is GroupState.COMPLETING:
            self.state = GroupState.STABLE
            for member in self.members.values():
                member.assignment = storing.assignments[member.member_id]
                outcomes += member.answer_sync(self._synced(member), now_ms)
        return outcomes

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type, self.protocol, member.assignment)

    def _store(self, assignments: Mapping[str, bytes]) -> Store:
        self._stored += 1
        self._storing = Store(self._stored, assignments)
        return self._storing

    # --- living and leaving --------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """A member lives. RebalanceInProgressError where it is to join again."""
        self._member(member_id, instance_id, generation).heard(now_ms)
        if self.state is GroupState.PREPARING:
            raise _rebalancing()

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> list[Outcome]:
        """A member goes; a static one may be named by its instance alone."""
        if self._roster.expected.pop(member_id, None) is not None:
            return self._rebalance(now_ms) if self.state is GroupState.PREPARING else []
        static = None if member_id else self._roster.static(instance_id)
        member = static or self._roster.find(member_id, instance_id)
        return [*self._drop(member), *self._rebalance(now_ms)]

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Whether these may commit offsets. Who is no member may where nobody is: it assigns itself, or administers."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        member = self._member(member_id, instance_id, generation)
        if self.state is GroupState.COMPLETING:
            raise RebalanceInProgressError("the assignments of this generation are not known yet")
        member.heard(now_ms)

    def time_passed(self, now_ms: int) -> list[Outcome]:
        """Whoever was not heard of goes, and what was waited for long enough goes on without."""
        outcomes: list[Outcome] = []
        gone = [m for m in self.members.values() if m.expires_ms is not None and now_ms >= m.expires_ms]
        late = [member_id for member_id, deadline_ms in self._roster.expected.items() if now_ms >= deadline_ms]
        for member in gone:
            outcomes += self._drop(member)
        for member_id in late:
            del self._roster.expected[member_id]
        if gone or (late and self.state is GroupState.PREPARING):
            outcomes += self._rebalance(now_ms)
        if self._unsynced and now_ms >= self._sync_deadline_ms:
            for member_id in list(self._unsynced):
                outcomes += self._drop(self.members[member_id])
            outcomes += self._prepare(now_ms)
        delayed = self._delayed_join
        if delayed is not None and delayed.is_over(now_ms, self._settings.initial_delay_ms):
            outcomes += self._begin(now_ms)
        return outcomes

    def next_deadline_ms(self) -> int | None:
        """When `time_passed` has something to do, at the earliest; None: never as things stand."""
        waits = [m.expires_ms for m in self.members.values() if m.expires_ms is not None]
        waits += self._roster.expected.values()
        if self._delayed_join is not None:
            waits.append(self._delayed_join.deadline_ms)
        if self._unsynced:
            waits.append(self._sync_deadline_ms)
        return min(waits, default=None)

    def close(self) -> list[Outcome]:
        """Another broker coordinates the group from now on."""
        error = NotCoordinatorError(f"group {self.group_id!r} has another coordinator by now")
        return [answer for member in self.members.values() for answer in member.refuse(error)]

    def _drop(self, member: Member) -> list[Answer]:
        self._roster.remove(member)
        self._unsynced.discard(member.member_id)
        return member.refuse(UnknownMemberIdError(f"{member.member_id!r} is no member any more"))

    # --- checks --------------------------------------------------------------------------------------

    def _member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = self._roster.find(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGenerationError(f"generation {generation}; this is {self.generation}")
        return member

    def _accepts(self, member: Member | None) -> bool:
        """While members join, those that have count, so that a group that was too large sheds the last to come."""
        if member is not None and (self.state is not GroupState.PREPARING or member.joining is not None):
            return True
        taken = self._roster.joined if self.state is GroupState.PREPARING else self.members
        return len(taken) < self._settings.max_size

    def _check_protocols(self, request: JoinRequest) -> None:
        names = [protocol.name for protocol in request.protocols]
        if not request.protocol_type or not names:
            raise InconsistentGroupProtocolError("a member needs a protocol type and a protocol")
        if self.members and request.protocol_type != self.protocol_type:
            raise InconsistentGroupProtocolError(f"the group's members are of type {self.protocol_type!r}")
        if not self._roster.understands(names):
            raise InconsistentGroupProtocolError("no protocol is understood by all members")


def _rebalancing() -> RebalanceInProgressError:
    return RebalanceInProgressError("another generation is about to begin")


def _asked_again() -> RebalanceInProgressError:
    return RebalanceInProgressError("it has asked again since")
