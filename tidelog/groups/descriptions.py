"""What an admin tells of consumer groups: values, and how a coordinator's words become them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidelog.errors import CorruptMessageError, TidelogError, raise_first
from tidelog.groups.assignment.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import DescribedGroup, DescribedMember, ListedGroup, MemberStage


class ConsumerGroupState(StrEnum):
    """By Kafka's names. DEAD: there is no such group; UNKNOWN: a word that this version does not know."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"

    @classmethod
    def parse(cls, name: str) -> ConsumerGroupState:
        """The state of this name in any case, else UNKNOWN."""
        return next((each for each in cls if each.lower() == name.lower()), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ConsumerGroupListing:
    """One group as a list has it.

    protocol_type   "consumer"; "" of one that has committed and never had members
    coordinator     the broker that told of it
    """

    group_id: str
    protocol_type: str
    state: ConsumerGroupState
    coordinator: int

    @property
    def is_simple_consumer_group(self) -> bool:
        """Its consumers assign themselves, and use the group for its offsets alone."""
        return not self.protocol_type


@dataclass(frozen=True, slots=True)
class ConsumerGroupListings:
    """The groups of the brokers that answered, by name, and what keeps the list from being whole.

    errors       by broker: why it did not answer
    leaderless   partitions of the offsets topic without a leader, of whose groups nobody tells
    """

    valid: tuple[ConsumerGroupListing, ...]
    errors: Mapping[int, TidelogError]
    leaderless: tuple[TopicPartition, ...] = ()

    def all(self) -> tuple[ConsumerGroupListing, ...]:
        """The groups where every broker answered; else the first one's error is raised."""
        raise_first(self.errors.values())
        return self.valid


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member. `topics` and `assignment` are None where they are not in the consumers' protocol.

    `stage` is None if the coordinator does not say it.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] | None
    assignment: tuple[TopicPartition, ...] | None
    stage: MemberStage | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """One group: `partition_assignor` is what its members are assigned by, `coordinator` a broker's id.

    `pending_member_ids` are those that the coordinator gave to consumers which have not joined with them yet.
    """

    group_id: str
    protocol_type: str
    partition_assignor: str
    state: ConsumerGroupState
    members: tuple[MemberDescription, ...]
    coordinator: int
    pending_member_ids: tuple[str, ...] = ()

    @property
    def is_simple_consumer_group(self) -> bool:
        """Its consumers assign themselves, and use the group for its offsets alone."""
        return not self.protocol_type


def listing_of(told: ListedGroup, coordinator: int) -> ConsumerGroupListing:
    """One group of a broker's list."""
    return ConsumerGroupListing(told.group_id, told.protocol_type, ConsumerGroupState.parse(told.state), coordinator)


def describe_group(told: DescribedGroup, coordinator: int) -> ConsumerGroupDescription:
    """A coordinator's words; they must not be an error."""
    return ConsumerGroupDescription(
        told.group_id,
        told.protocol_type,
        told.protocol,
        ConsumerGroupState.parse(told.state),
        tuple(_describe_member(each, told.protocol_type) for each in told.members),
        coordinator,
        told.pending_member_ids,
    )


def _describe_member(told: DescribedMember, protocol_type: str) -> MemberDescription:
    topics: tuple[str, ...] | None = None
    assignment: tuple[TopicPartition, ...] | None = None
    if protocol_type == PROTOCOL_TYPE:
        try:
            topics = decode_subscription(told.metadata).topics if told.metadata else ()
            assignment = tuple(sorted(decode_assignment(told.assignment)))
        except CorruptMessageError:
            pass  # no broker reads what members write; one that writes nonsense must not hide the others
    stage = MemberStage(told.stage) if told.stage in list(MemberStage) else None
    return MemberDescription(
        told.member_id, told.group_instance_id, told.client_id, told.client_host, topics, assignment, stage
    )
