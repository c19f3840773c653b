"""The members of a consumer group, its leader, and the member ids given out in advance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from cluster.groups.member import Member
from tidelog.errors import FencedInstanceIdError, UnknownMemberIdError


class GroupMembers:
    """The members of one group.

    members      by id
    leader       the id of the member that assigns partitions; "" if there are no members
    pending_ids  ids that were given out, with the time until which a client may join with them (KIP-394)
    """

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.leader = ""
        self.pending_ids: dict[str, int] = {}
        self._static: dict[str, str] = {}

    # --- look-up -------------------------------------------------------------------------------------

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member with this id. UnknownMemberIdError if there is none, or none with the instance id.

        FencedInstanceIdError if the instance id belongs to another member now.
        """
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is None:
                raise UnknownMemberIdError(f"no member has the instance id {instance_id!r}; join the group again")
            if holder != member_id:
                raise FencedInstanceIdError(f"instance id {instance_id!r} belongs to a newer member now")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"{member_id!r} is not a member of the group; join the group again")
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        """Return the static member with this instance id, or None."""
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    @property
    def joined(self) -> list[Member]:
        """Return the members whose JoinGroup is not answered yet."""
        return [member for member in self.members.values() if member.joining is not None]

    @property
    def awaits_members(self) -> bool:
        """Return whether a member, or a client with a pending id, has not sent JoinGroup for the next generation."""
        return bool(self.pending_ids) or len(self.joined) < len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members; 0 if there are none."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- changes -------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Add a member, which leads if there is no leader."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member. If this member led, the member leads that was added first of those that remain."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def rename(self, member: Member, member_id: str) -> None:
        """Give a restarted static member its new id, and note the old one as `former_id`. A leader stays the leader."""
        led = self.leader == member.member_id
        self.remove(member)
        member.former_id, member.member_id = member.member_id, member_id
        self.add(member)
        if led:
            self.leader = member_id

    def elect_joined(self) -> bool:
        """Make the first member that has joined the leader, unless the leader has joined itself.

        Return False, and change nothing, if no member has joined.
        """
        joined = [member.member_id for member in self.joined]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    # --- the protocol --------------------------------------------------------------------------------

    def understands(self, protocols: Collection[str]) -> bool:
        """Return whether at least one of these protocols is supported by all members; True without members."""
        return not self.members or not self._common.isdisjoint(protocols)

    def choose_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all support; the greatest name of equals.

        There must be a member.
        """
        common = self._common
        votes = Counter(next(name for name in member.names if name in common) for member in self.members.values())
        return max(votes, key=lambda name: (votes[name], name))

    @property
    def _common(self) -> set[str]:
        return set.intersection(*(set(member.names) for member in self.members.values()))
