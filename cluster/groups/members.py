"""Who is in a consumer group, who leads it, and who has been given an id to come back with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from cluster.groups.member import Member
from tidelog.errors import FencedInstanceIdError, UnknownMemberIdError


class GroupMembers:
    """The members of one group.

    members    by id
    leader     who assigns; "" where nobody is
    expected   ids that were given out, until when their owners may come with them (KIP-394)
    """

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.leader = ""
        self.expected: dict[str, int] = {}
        self._static: dict[str, str] = {}

    # --- finding -------------------------------------------------------------------------------------

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """Who says that it is this member. FencedInstanceIdError where another one has its instance id by now."""
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is None:
                raise UnknownMemberIdError(f"no member has the instance id {instance_id!r}")
            if holder != member_id:
                raise FencedInstanceIdError(f"{instance_id!r} is another member by now")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"{member_id!r} is no member")
        return member

    def static(self, instance_id: str | None) -> Member | None:
        """The static member of this instance id."""
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    @property
    def joined(self) -> list[Member]:
        """Who waits for the next generation."""
        return [member for member in self.members.values() if member.joining is not None]

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody has not joined yet who may."""
        return bool(self.expected) or len(self.joined) < len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Of the member that takes longest; 0 where nobody is."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- changing ------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Somebody new; the first leads."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id

    def remove(self, member: Member) -> None:
        """Another one leads where this one did."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def rename(self, member: Member, member_id: str) -> None:
        """It has started anew, in its old place."""
        led = self.leader == member.member_id
        self.remove(member)
        member.member_id = member_id
        self.add(member)
        if led:
            self.leader = member_id

    def elect_joined(self) -> bool:
        """The leader is somebody who has joined; false where nobody has."""
        joined = [member.member_id for member in self.joined]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    # --- the protocol --------------------------------------------------------------------------------

    def understands(self, protocols: Collection[str]) -> bool:
        """Whether one of these is understood by everybody."""
        return not self.members or not self._common.isdisjoint(protocols)

    def choose_protocol(self) -> str:
        """The one that most members prefer among those that all understand."""
        common = self._common
        votes = Counter(next(name for name in member.names if name in common) for member in self.members.values())
        return max(votes, key=lambda name: (votes[name], name))

    @property
    def _common(self) -> set[str]:
        return set.intersection(*(set(member.names) for member in self.members.values()))
