"""A consumer group as its coordinator keeps it: its members, its generations, and the requests that wait for an answer.

Pure: requests and `now_ms` (monotonic) go in, with a `waiter` that stands for the client to be answered; effects come
out. A refusal is raised. The protocol is Kafka's classic one (KIP-62, 134, 345, 394, 814):

    EMPTY       the group has no members; its committed offsets may remain
      ↓ join
    PREPARING   a generation is about to begin: the group waits a bounded time for every member to join again
      ↓ all have joined, or the time is over and the others are removed
    COMPLETING  all members know the generation; the leader has to assign the partitions
      ↓ sync of the leader, written by the node
    STABLE      until a member joins, leaves or changes its subscription
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from cluster.groups.delayed_join import DelayedJoin
from cluster.groups.effects import Answer, GroupEffect, Joined, StoreGroup, Synced
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
    """The states, by the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@frozen
class GroupSettings:
    """The settings of all groups of a broker.

    initial_delay_ms  how long an empty group waits for more members after the first; a member that joins meanwhile
                      extends the wait, at most to the rebalance timeout
    max_size          the greatest number of members
    """

    initial_delay_ms: int = 3000
    max_size: int = 2**31 - 1


class Group:
    """One group.

    state           the phase of the protocol, as the module lists them
    generation      rises at the end of each join phase; 0 before the first
    protocol_type   "consumer", or another type of its current or last members; "" if it never had members
    protocol        the protocol by which this generation is assigned; "" while there are no members
    """

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self._settings = settings
        self._group_members = GroupMembers()
        self._delayed_join: DelayedJoin | None = None
        self._sync_deadline_ms = 0
        self._pending_sync: set[str] = set()
        self._stored = 0
        self._storing: StoreGroup | None = None

    @property
    def members(self) -> Mapping[str, Member]:
        """Return the members by id."""
        return self._group_members.members

    @property
    def leader(self) -> str:
        """Return the id of the member that assigns partitions; "" if there are no members."""
        return self._group_members.leader

    def stage_of(self, member: Member) -> MemberStage:
        """Return how far a member is in the rebalance: its request is awaited, waits for others, or it is assigned."""
        if self.state is GroupState.PREPARING:
            return MemberStage.AWAITED if member.joining is None else MemberStage.WAITING
        if member.member_id in self._pending_sync:
            return MemberStage.AWAITED
        return MemberStage.WAITING if self.state is GroupState.COMPLETING else MemberStage.ASSIGNED

    @property
    def pending_member_ids(self) -> tuple[str, ...]:
        """Return, sorted, the ids that the coordinator gave out and with which no consumer has joined yet (KIP-394)."""
        return tuple(sorted(self._group_members.pending_ids))

    # --- its record in the offsets topic -------------------------------------------------------------

    def record(self, assignments: Mapping[str, bytes], changed_ms: int) -> GroupRecord:
        """Return the record of the group with these assignments, which a `StoreGroup` asks the node to write.

        `changed_ms` is wall-clock time. A member without an assignment gets an empty one.
        """
        members = (m.record(self.protocol, assignments.get(m.member_id, b"")) for m in self.members.values())
        protocol, leader = self.protocol or None, self.leader or None
        return GroupRecord(self.protocol_type, self.generation, protocol, leader, changed_ms, tuple(members))

    def restore(self, record: GroupRecord, now_ms: int) -> None:
        """Continue from the last record that a former coordinator wrote: stable, or empty without members.

        The members' sessions start anew. A group with more members than allowed begins a rebalance.
        """
        self.protocol_type, self.generation = record.protocol_type, record.generation
        self.protocol = record.protocol or ""
        self._group_members = GroupMembers()
        for member in record.members:
            self._group_members.add(Member.restore(member, self.protocol, now_ms))
        if record.leader is not None and record.leader in self.members:
            self._group_members.leader = record.leader
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        if len(self.members) > self._settings.max_size:
            self._prepare(now_ms)

    # --- joining -------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: object, now_ms: int) -> list[GroupEffect]:
        """Handle a JoinGroup request for the next generation; the waiter is answered when that generation begins.

        A member whose answer was lost (`_rejoin`) is answered at once. A static member that returns to a stable group
        is answered once the group is stored, if the group's protocol stays. Any other request begins or continues a
        rebalance.

        MemberIdRequiredError, UnknownMemberIdError, FencedInstanceIdError, InconsistentGroupProtocolError.
        GroupMaxSizeReachedError if the group is full. A known member, or one with a pending id, gets that error as its
        answer instead, and leaves.
        """
        before = None if request.member_id else self._group_members.static_member(request.instance_id)
        known = before or self.members.get(request.member_id)
        if not self._accepts(known):
            error = GroupMaxSizeReachedError(
                f"group {self.group_id!r} already has {self._settings.max_size} members, the maximum"
            )
            member_id = request.member_id if known is None else known.member_id
            if known is None and member_id not in self._group_members.pending_ids:
                raise error
            return [Answer(waiter, error), *self.leave(member_id, None, now_ms)]
        self._check_protocols(request)
        if before is not None:
            return self._replace(before, request, waiter, now_ms)
        if not request.member_id:
            return self._join_new(request, waiter, now_ms)
        # Only dynamic members get an id before they join, because two members of one instance id would be ambiguous.
        if request.instance_id is None and self._group_members.pending_ids.pop(request.member_id, None) is not None:
            return self._add(request, request.member_id, waiter, now_ms)
        return self._rejoin(self._group_members.find(request.member_id, request.instance_id), request, waiter, now_ms)

    def _join_new(self, request: JoinRequest, waiter: object, now_ms: int) -> list[GroupEffect]:
        if request.needs_id and request.instance_id is None:
            self._group_members.pending_ids[request.candidate_id] = now_ms + request.session_timeout_ms
            raise MemberIdRequiredError(request.candidate_id)
        return self._add(request, request.candidate_id, waiter, now_ms)

    def _add(self, request: JoinRequest, member_id: str, waiter: object, now_ms: int) -> list[GroupEffect]:
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member.create(request, member_id, now_ms)
        member.joining = waiter
        self._group_members.add(member)
        if self._delayed_join is not None:
            self._delayed_join.new_member_added = True
        return self._rebalance(now_ms)

    def _rejoin(self, member: Member, request: JoinRequest, waiter: object, now_ms: int) -> list[GroupEffect]:
        """Handle a JoinGroup request of a member: begin or continue a rebalance, or repeat the answer.

        The answer to an unchanged request is repeated while the group is completing, and in a stable group unless the
        member leads. A waiting JoinGroup of this member is refused with RebalanceInProgressError.
        """
        same = member.protocols == request.protocols
        # While the group is completing, an unchanged request means that the answer was lost. In a stable group only
        # the leader may ask for a new generation without a change, for example when a topic has got more partitions.
        stays = self.state is GroupState.COMPLETING or (
            self.state is GroupState.STABLE and member.member_id != self.leader
        )
        if stays and same:
            member.note_alive(now_ms)
            return [Answer(waiter, self._joined(member))]
        effects: list[GroupEffect] = [*member.answer_join(_asked_again(), now_ms)]
        member.update(request, now_ms)
        member.joining = waiter
        return effects + self._rebalance(now_ms)

    def _replace(self, member: Member, request: JoinRequest, waiter: object, now_ms: int) -> list[GroupEffect]:
        """Give a restarted static member its old place under a new id, and refuse requests of its former process.

        A stable group is stored, and the member is answered then, if the group's protocol stays. Otherwise a rebalance
        begins or continues.
        """
        fenced = FencedInstanceIdError(f"instance id {member.instance_id!r} belongs to a newer member now")
        effects: list[GroupEffect] = [*member.refuse(fenced)]
        self._pending_sync.discard(member.member_id)
        self._group_members.rename(member, request.candidate_id)
        member.update(request, now_ms)
        member.joining = waiter
        if self.state is GroupState.STABLE and self._group_members.choose_protocol() == self.protocol:
            # The assignment stays, and the next coordinator must know the member by its new id.
            return [*effects, self._store({each.member_id: each.assignment for each in self.members.values()})]
        return effects + self._rebalance(now_ms)

    # --- rebalancing ---------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> list[GroupEffect]:
        """Begin a generation if all members have joined, or start to prepare one, because the membership has
        changed.
        """
        return self._begin_if_all_joined(now_ms) if self.state is GroupState.PREPARING else self._prepare(now_ms)

    def _prepare(self, now_ms: int) -> list[GroupEffect]:
        """Start a rebalance: refuse waiting SyncGroup requests, and await a JoinGroup of every member.

        The wait lasts at most the longest rebalance timeout of the members. An empty group waits `initial_delay_ms` for
        more members. The generation begins at once if all members have joined and there is no initial wait. The outcome
        of a `StoreGroup` in flight is ignored from now on.
        """
        effects: list[GroupEffect] = []
        for member in self.members.values():
            effects += member.answer_sync(_rebalancing(), now_ms)
        timeout_ms, delay_ms = self._group_members.rebalance_timeout_ms, self._settings.initial_delay_ms
        if self.state is GroupState.EMPTY and delay_ms:
            self._delayed_join = DelayedJoin(now_ms + delay_ms, True, max(timeout_ms - delay_ms, 0))
        else:
            self._delayed_join = DelayedJoin(now_ms + timeout_ms)
        self.state = GroupState.PREPARING
        self._pending_sync.clear()
        # A write under way no longer counts. A static member that waits for it has joined the next generation.
        self._storing = None
        return effects + self._begin_if_all_joined(now_ms)

    def _begin_if_all_joined(self, now_ms: int) -> list[GroupEffect]:
        assert self._delayed_join is not None
        return [] if self._delayed_join.initial or self._group_members.awaits_members else self._begin(now_ms)

    def _begin(self, now_ms: int) -> list[GroupEffect]:
        """End the join phase: begin a generation with the members that have joined, and with absent static members.

        Absent dynamic members are removed. Without members the group becomes empty, and that is stored. If only absent
        static members are left, the wait begins again.
        """
        for late in [m for m in self.members.values() if m.joining is None and m.instance_id is None]:
            self._group_members.remove(late)
        if not self._group_members.elect_joined() and self.members:
            # Only absent static members are left: wait for them until their sessions end.
            self._delayed_join = DelayedJoin(now_ms + max(self._group_members.rebalance_timeout_ms, 1))
            return []
        self._delayed_join = None
        self.generation += 1
        if not self.members:
            self.state, self.protocol = GroupState.EMPTY, ""
            return [self._store({})]
        self.state, self.protocol = GroupState.COMPLETING, self._group_members.choose_protocol()
        self._pending_sync = set(self.members)
        self._sync_deadline_ms = now_ms + self._group_members.rebalance_timeout_ms
        effects: list[GroupEffect] = []
        for member in self.members.values():
            effects += member.answer_join(self._joined(member), now_ms)
            member.is_new = False
            member.note_alive(now_ms)
        return effects

    def _rejoined(self, member: Member) -> Joined:
        """Return the answer to a static member that has restarted while the group keeps its assignment.

        A leader whose client cannot be told to skip the assignment is told its former id as that of the leader. The
        client therefore does not assign partitions, and its assignment would be ignored anyway.
        """
        if member.can_skip_assignment or member.member_id != self.leader:
            return self._joined(member, skip_assignment=True)
        return Joined(self.generation, self.protocol_type, self.protocol, member.former_id, member.member_id)

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        leads, described = member.member_id == self.leader, []
        if leads:
            described = [(m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values()]
        return Joined(
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader,
            member.member_id,
            tuple(described),
            skip_assignment=skip_assignment and leads,
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
    ) -> list[GroupEffect]:
        """Handle a SyncGroup request.

        The leader's request brings the assignments of all members, which are then stored.

        In a stable group the waiter is answered at once, otherwise when the assignments are stored.
        UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError, InconsistentGroupProtocolError;
        RebalanceInProgressError while a generation is prepared.
        """
        member = self._member(member_id, instance_id, generation)
        if protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            raise InconsistentGroupProtocolError(
                f"group {self.group_id!r}: this generation uses the protocol {self.protocol!r}"
            )
        if self.state is GroupState.PREPARING:
            raise _rebalancing()
        self._pending_sync.discard(member_id)
        if self.state is GroupState.STABLE:
            member.note_alive(now_ms)
            return [Answer(waiter, self._synced(member))]
        effects: list[GroupEffect] = [*member.answer_sync(_asked_again(), now_ms)]
        member.syncing = waiter
        if member_id == self.leader:
            effects.append(self._store({each: assignments.get(each, b"") for each in self.members}))
        return effects

    def stored(self, number: int, error: BrokerError | None, now_ms: int) -> list[GroupEffect]:
        """Handle the outcome of a `StoreGroup` (`error` None: written).

        A completing group becomes stable, and all waiting SyncGroup requests are answered. After an error they get the
        error, and the group prepares a new generation. In a stable group, restarted static members get the answer to
        their JoinGroup, or the error. An outcome that a newer write or a rebalance has superseded is ignored.
        """
        storing = self._storing
        if storing is None or storing.number != number:
            return []
        self._storing = None
        effects: list[GroupEffect] = []
        if self.state is GroupState.STABLE:
            for member in self._group_members.joined:
                effects += member.answer_join(error or self._rejoined(member), now_ms)
        elif self.state is GroupState.COMPLETING and error is not None:
            for member in self.members.values():
                effects += member.answer_sync(error, now_ms)
            effects += self._prepare(now_ms)
        elif self.state is GroupState.COMPLETING:
            self.state = GroupState.STABLE
            for member in self.members.values():
                member.assignment = storing.assignments[member.member_id]
                effects += member.answer_sync(self._synced(member), now_ms)
        return effects

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type, self.protocol, member.assignment)

    def _store(self, assignments: Mapping[str, bytes]) -> StoreGroup:
        self._stored += 1
        self._storing = StoreGroup(self._stored, assignments)
        return self._storing

    # --- living and leaving --------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Note that a member is alive. RebalanceInProgressError if the member has to join again.

        UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError.
        """
        self._member(member_id, instance_id, generation).note_alive(now_ms)
        if self.state is GroupState.PREPARING:
            raise _rebalancing()

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> list[GroupEffect]:
        """Remove a member, refuse its waiting requests and begin a rebalance. A pending member id is removed too.

        A static member may be named by its instance id alone. UnknownMemberIdError, FencedInstanceIdError.
        """
        if self._group_members.pending_ids.pop(member_id, None) is not None:
            return self._rebalance(now_ms) if self.state is GroupState.PREPARING else []
        static = None if member_id else self._group_members.static_member(instance_id)
        member = static or self._group_members.find(member_id, instance_id)
        return [*self._drop(member), *self._rebalance(now_ms)]

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Raise an error unless this client may commit offsets; note that a member is alive.

        A client without membership (a negative generation) may commit only while the group has no members, because such
        a client assigns partitions to itself or administers the group. A member may commit while a generation is
        prepared, but not before its generation is assigned (RebalanceInProgressError).
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        member = self._member(member_id, instance_id, generation)
        if self.state is GroupState.COMPLETING:
            raise RebalanceInProgressError("the leader has not assigned the partitions of this generation yet")
        member.note_alive(now_ms)

    def time_passed(self, now_ms: int) -> list[GroupEffect]:
        """Remove members whose session has ended or that have not synced in time, and begin a rebalance.

        Pending member ids expire, and a join phase ends at its deadline.
        """
        effects: list[GroupEffect] = []
        gone = [m for m in self.members.values() if m.expires_ms is not None and now_ms >= m.expires_ms]
        late = [
            member_id for member_id, deadline_ms in self._group_members.pending_ids.items() if now_ms >= deadline_ms
        ]
        for member in gone:
            effects += self._drop(member)
        for member_id in late:
            del self._group_members.pending_ids[member_id]
        if gone or (late and self.state is GroupState.PREPARING):
            effects += self._rebalance(now_ms)
        if self._pending_sync and now_ms >= self._sync_deadline_ms:
            for member_id in list(self._pending_sync):
                effects += self._drop(self.members[member_id])
            effects += self._prepare(now_ms)
        delayed = self._delayed_join
        if delayed is not None and delayed.is_over(now_ms, self._settings.initial_delay_ms):
            effects += self._begin(now_ms)
        return effects

    def next_deadline_ms(self) -> int | None:
        """Return the earliest time (monotonic) at which `time_passed` has work; None if nothing waits."""
        waits = [m.expires_ms for m in self.members.values() if m.expires_ms is not None]
        waits += self._group_members.pending_ids.values()
        if self._delayed_join is not None:
            waits.append(self._delayed_join.deadline_ms)
        if self._pending_sync:
            waits.append(self._sync_deadline_ms)
        return min(waits, default=None)

    def close(self) -> list[GroupEffect]:
        """Refuse all waiting requests with NotCoordinatorError, because another broker coordinates the group now."""
        error = NotCoordinatorError(
            f"group {self.group_id!r} has another coordinator now; look up the coordinator again"
        )
        return [answer for member in self.members.values() for answer in member.refuse(error)]

    def _drop(self, member: Member) -> list[Answer]:
        self._group_members.remove(member)
        self._pending_sync.discard(member.member_id)
        return member.refuse(
            UnknownMemberIdError(f"member {member.member_id!r} has left or was removed from the group")
        )

    # --- checks --------------------------------------------------------------------------------------

    def _member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = self._group_members.find(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGenerationError(f"generation {generation} is not the current generation {self.generation}")
        return member

    def _accepts(self, member: Member | None) -> bool:
        """Return whether the group has a place for this member.

        While members join, only those that have joined count, so that a group that is too large drops the last to join.
        """
        if member is not None and (self.state is not GroupState.PREPARING or member.joining is not None):
            return True
        taken = self._group_members.joined if self.state is GroupState.PREPARING else self.members
        return len(taken) < self._settings.max_size

    def _check_protocols(self, request: JoinRequest) -> None:
        names = [protocol.name for protocol in request.protocols]
        if not request.protocol_type or not names:
            raise InconsistentGroupProtocolError("a member must name a protocol type and at least one protocol")
        if self.members and request.protocol_type != self.protocol_type:
            raise InconsistentGroupProtocolError(f"the group's members have the protocol type {self.protocol_type!r}")
        if not self._group_members.understands(names):
            raise InconsistentGroupProtocolError("none of the member's protocols is supported by all members")


def _rebalancing() -> RebalanceInProgressError:
    return RebalanceInProgressError("the group is rebalancing; join again")


def _asked_again() -> RebalanceInProgressError:
    return RebalanceInProgressError("a newer request of this member has superseded this one")
