"""The values by which an admin client describes consumer groups, and their conversion from a coordinator's answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidelog.display.listing import ShownAsTable
from tidelog.display.short_repr import fields_repr
from tidelog.errors import CorruptMessageError, TidelogError, raise_first
from tidelog.groups.assignment.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import DescribedGroup, DescribedMember, ListedGroup, MemberStage


class ConsumerGroupState(StrEnum):
    """The state of a group, under Kafka's name.

    DEAD      the group does not exist
    UNKNOWN   this version does not know the state's name
    """

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"

    @classmethod
    def parse(cls, name: str) -> ConsumerGroupState:
        """Return the state of this name in upper or lower case, else UNKNOWN."""
        return next((each for each in cls if each.lower() == name.lower()), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ConsumerGroupListing:
    """One group in a list of groups.

    protocol_type   "consumer" for a group of consumers; empty if the group has offsets and never had members
    coordinator     the id of the broker that listed the group
    """

    group_id: str
    protocol_type: str
    state: ConsumerGroupState
    coordinator: int

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether the group only stores offsets, because its consumers assign partitions to themselves."""
        return not self.protocol_type


@dataclass(frozen=True, slots=True)
class ConsumerGroupListings(ShownAsTable):
    """The groups of the brokers that answered, by name, and the reasons why groups may be missing.

    valid        the groups, ordered by name
    errors       why a broker did not answer, by broker id
    leaderless   partitions of the offsets topic without a leader, whose groups no broker lists
    """

    valid: tuple[ConsumerGroupListing, ...]
    errors: Mapping[int, TidelogError]
    leaderless: tuple[TopicPartition, ...] = ()

    def __repr__(self) -> str:
        return fields_repr(self, self.__slots__)

    def _rows_(self) -> Iterator[dict[str, object]]:
        for each in self.valid:
            kind = "simple" if each.is_simple_consumer_group else each.protocol_type
            yield {"group": each.group_id, "state": each.state, "type": kind, "coordinator": each.coordinator}
        for broker, error in self.errors.items():
            yield {"coordinator": broker, "error": error}
        for tp in self.leaderless:
            yield {"error": f"{tp} has no leader, so that its groups are missing"}

    def all(self) -> tuple[ConsumerGroupListing, ...]:
        """Return the groups. Raise the first error, with the others in `others`, if a broker did not answer."""
        raise_first(self.errors.values())
        return self.valid


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group.

    group_instance_id    None for a dynamic member
    topics, assignment   the subscription and the partitions; empty unless the group is STABLE; None if the member does
                         not use the consumer protocol, or if its bytes are unreadable
    stage                None if the coordinator does not report it
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] | None
    assignment: tuple[TopicPartition, ...] | None
    stage: MemberStage | None = None

    def __repr__(self) -> str:
        return fields_repr(self, self.__slots__)


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """Names a member for `Admin.remove_group_members`: by its member id, by its instance id, or by both.

    member_id           the id that the coordinator assigned; empty: only the instance id counts
    group_instance_id   of a static member; None for a dynamic one

    Example:

        admin.remove_group_members("billing", [MemberToRemove(group_instance_id="billing-1")])
    """

    member_id: str = ""
    group_instance_id: str | None = None

    def __str__(self) -> str:
        names = [f"member_id {self.member_id!r}"] if self.member_id else []
        names += [f"group_instance_id {self.group_instance_id!r}"] if self.group_instance_id is not None else []
        return " and ".join(names)

    def is_of(self, member: MemberDescription) -> bool:
        """Return whether this names the described member."""
        return self.member_id in ("", member.member_id) and self.group_instance_id in (None, member.group_instance_id)


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription(ShownAsTable):
    """One group: `partition_assignor` is the name of its assignor ("" unless STABLE), `coordinator` a broker's id.

    pending_member_ids   ids that the coordinator gave to consumers which have not joined with them yet
    """

    group_id: str
    protocol_type: str
    partition_assignor: str
    state: ConsumerGroupState
    members: tuple[MemberDescription, ...]
    coordinator: int
    pending_member_ids: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return fields_repr(self, self.__slots__)

    def _rows_(self) -> Iterator[dict[str, object]]:
        of_group = {
            "group": self.group_id,
            "state": self.state,
            "assignor": self.partition_assignor,
            "coordinator": self.coordinator,
        }
        for each in self.members:
            yield {
                **of_group,
                "member": each.member_id,
                "instance": each.group_instance_id,
                "client": each.client_id,
                "host": each.host,
                "assignment": each.assignment,
            }
        if not self.members:
            yield of_group

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether the group only stores offsets, because its consumers assign partitions to themselves."""
        return not self.protocol_type


def listing_of(listed: ListedGroup, coordinator: int) -> ConsumerGroupListing:
    """Return the listing of one group of a broker's list."""
    state = ConsumerGroupState.parse(listed.state)
    return ConsumerGroupListing(listed.group_id, listed.protocol_type, state, coordinator)


def describe_group(described: DescribedGroup, coordinator: int) -> ConsumerGroupDescription:
    """Return the description of a group from the coordinator's answer, which must not be an error.

    An unreadable assignment is None; if the subscription is unreadable, both are None.
    """
    return ConsumerGroupDescription(
        described.group_id,
        described.protocol_type,
        described.protocol,
        ConsumerGroupState.parse(described.state),
        tuple(_describe_member(each, described.protocol_type) for each in described.members),
        coordinator,
        described.pending_member_ids,
    )


def _describe_member(member: DescribedMember, protocol_type: str) -> MemberDescription:
    topics: tuple[str, ...] | None = None
    assignment: tuple[TopicPartition, ...] | None = None
    if protocol_type == PROTOCOL_TYPE:
        try:
            topics = decode_subscription(member.metadata).topics if member.metadata else ()
            assignment = tuple(sorted(decode_assignment(member.assignment)))
        except CorruptMessageError:
            pass  # brokers do not check these bytes, and one member's unreadable bytes must not hide the others
    stage = MemberStage(member.stage) if member.stage in list(MemberStage) else None
    return MemberDescription(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, topics, assignment, stage
    )
