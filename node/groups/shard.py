"""One partition of `__consumer_offsets` that this broker leads, and the groups in it, while that epoch lasts."""

from __future__ import annotations

from cluster.groups.committed_offsets import CommittedOffsets
from cluster.groups.group import Group, GroupSettings, GroupState
from node.replication.replica import Replica
from tidelog.errors import CorruptMessageError
from tidelog.groups.assignment.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from tidelog.groups.offsets_topic import GroupRecord
from tidelog.model import TopicPartition


class HostedGroup:
    """A group, and what it has committed.

    emptied_ms   wall clock: it had members and has none since; None: it has some, or never had any
    recorded     the topic holds a record of the group itself, which a tombstone must take away
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
        """Nobody is in it, and nobody is expected."""
        return self.group.state is GroupState.EMPTY and self.group.next_deadline_ms() is None

    @property
    def is_nothing(self) -> bool:
        """There is no trace of it, here or in the topic."""
        return self.is_empty and not self.recorded and not self.offsets

    def restore(self, record: GroupRecord, now_ms: int) -> None:
        """Go on from what the last coordinator wrote."""
        self.group.restore(record, now_ms)
        self.recorded = True
        self.changed(record.changed_ms)

    def changed(self, changed_ms: int) -> None:
        """The group as it stands is written at this time; −1: nobody knows when that was."""
        self.emptied_ms = changed_ms if not self.group.members and changed_ms >= 0 else None

    @property
    def subscribed(self) -> frozenset[str] | None:
        """The topics that its members consume; None where they do not say."""
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
    """The groups of one partition in one epoch.

    deleted  by topic: below which offset a commit is one of an earlier topic of the name, and is to be forgotten
    groups   by id
    loaded   all is here that was committed before this epoch
    open     this broker leads in that epoch, as far as it knows; what is brought to a closed shard is thrown away
    """

    __slots__ = ("deleted", "groups", "leader_epoch", "loaded", "open", "replica")

    def __init__(self, replica: Replica) -> None:
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
        """Whether this is still so."""
        return self.open and self.replica.leads_in(self.leader_epoch)
