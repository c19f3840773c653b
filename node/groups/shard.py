"""One partition of `__consumer_offsets` that this broker leads, and its groups, for the duration of a leader epoch."""

from __future__ import annotations

from cluster.groups.commit_sequences import CommitSequences
from cluster.groups.committed_offsets import CommittedOffsets
from cluster.groups.group import Group, GroupSettings, GroupState
from node.replication.replica import Replica
from tidelog.errors import CorruptMessageError
from tidelog.groups.assignment.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from tidelog.groups.offsets_topic import GroupRecord
from tidelog.model import TopicPartition


class HostedGroup:
    """A group and its committed offsets.

    emptied_ms   the wall-clock time at which the last member left; None if the group has members or never had any, or
                 if that time is not known
    recorded     the topic has a record of the group itself, so that the deletion of the group needs a tombstone
    """

    __slots__ = ("emptied_ms", "group", "offsets", "recorded")

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group = Group(group_id, settings)
        self.offsets = CommittedOffsets()
        self.emptied_ms: int | None = None
        self.recorded = False

    @property
    def group_id(self) -> str:
        return self.group.group_id

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members and expects none."""
        return self.group.state is GroupState.EMPTY and self.group.next_deadline_ms() is None

    @property
    def is_unused(self) -> bool:
        """Return whether the group has no members, no committed or pending offsets, and no record in the topic."""
        return self.is_empty and not self.recorded and not self.offsets

    def restore(self, record: GroupRecord, now_ms: int) -> None:
        """Restore the group from the record that its last coordinator wrote. `now_ms` is monotonic."""
        self.group.restore(record, now_ms)
        self.recorded = True
        self.changed(record.changed_ms)

    def changed(self, changed_ms: int) -> None:
        """Record that the group's current state was written at this time; −1 if the time is not known."""
        self.emptied_ms = changed_ms if not self.group.members and changed_ms >= 0 else None

    @property
    def subscribed(self) -> frozenset[str] | None:
        """Return the topics that the group's members subscribe to; an empty set if there are no members.

        Return None if the topics are not known: during a rebalance, for another protocol type than "consumer", or if a
        subscription cannot be decoded.
        """
        group = self.group
        if not group.members:
            return frozenset()
        if group.protocol_type != PROTOCOL_TYPE or group.state is not GroupState.STABLE:
            return None
        try:
            return frozenset(
                topic
                for member in group.members.values()
                for topic in decode_subscription(member.metadata(group.protocol)).topics
            )
        except CorruptMessageError:
            return None


class Shard:
    """The groups of one partition in one leader epoch.

    commits  the newest commit of each committer, so that delayed copies of earlier ones have no effect
    deleted  for each deleted topic, the offset below which commits are for that topic and must be deleted; later
             commits may be for a new topic of the same name
    groups   the groups by their ids
    loaded   whether all records from before this epoch have been loaded
    open     whether this broker leads in this epoch as far as it knows; results for a closed shard are dropped
    """

    __slots__ = ("commits", "deleted", "groups", "leader_epoch", "loaded", "open", "replica")

    def __init__(self, replica: Replica) -> None:
        self.commits = CommitSequences()
        self.replica = replica
        self.leader_epoch = replica.partition.leader_epoch
        self.deleted: dict[str, int] = {}
        self.groups: dict[str, HostedGroup] = {}
        self.loaded = False
        self.open = True

    @property
    def topic_partition(self) -> TopicPartition:
        return self.replica.topic_partition

    @property
    def leads(self) -> bool:
        """Return whether the shard is open and its replica still leads in this epoch."""
        return self.open and self.replica.leads_in(self.leader_epoch)
