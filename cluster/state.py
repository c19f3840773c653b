"""The values that ZooKeeper stores about partitions, topics, brokers and the controller.

All values are immutable and replaced whole. `cluster.zookeeper.znodes` encodes and decodes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidelog.model import NO_LEADER, Endpoint, TopicPartition
from tidelog.protocol.listeners import BROKERS, CLIENTS

#: The version of a znode that does not exist, in the fields that hold znode versions.
NO_VERSION = -1


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition in a leader epoch. `leader` is −1 if there is none, or if it is unknown."""

    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's state znode.

    leader            broker id; −1: no replica may lead now. Only the controller changes the leader.
    leader_epoch      raised by the controller whenever a leadership begins, also if the same broker leads again. The
                      epoch stays when only the ISR shrinks.
    isr               never empty; contains the leader if there is one. The leader shrinks and expands the ISR by
                      compare-and-set. The controller removes members that die, shut down, lose their disk or records,
                      or are reassigned. An unclean recovery or election leaves the new leader alone.
    controller_epoch  epoch of the controller that wrote the state last.
    eligible          eligible leader replicas: former ISR members that were in sync until the controller reduced `isr`
                      to one replica. An eligible replica may have the records that the remaining member loses in a
                      power failure. The leader clears the field with its first ISR change, which shows that the leader
                      survived. Ignored by `==`.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    eligible: tuple[int, ...] = field(default=(), compare=False)

    def rewritten(
        self,
        leader: int,
        isr: tuple[int, ...],
        controller_epoch: int,
        *,
        new_epoch: bool = True,
        removes_replicas: bool = False,
    ) -> PartitionState:
        """Return the state that the controller writes, with the next leader epoch if `new_epoch`.

        Former ISR members become eligible if one member remains, or if a reassignment removes replicas
        (`removes_replicas`). Replicas that are eligible already stay so until they are in the ISR.
        """
        dropped = self.isr if len(isr) == 1 or removes_replicas else ()
        eligible = {*dropped, *self.eligible}.difference(isr)
        return PartitionState(leader, self.leader_epoch + new_epoch, isr, controller_epoch, tuple(sorted(eligible)))


@dataclass(frozen=True, slots=True)
class VersionedState:
    """A state as read from ZooKeeper.

    `partition_epoch` is the znode's version, and the condition of the next write. `mzxid` is the zxid of the last write
    (−1: unknown), comparable with broker epochs: a leader with a later registration has lost its leadership since then.
    """

    state: PartitionState
    partition_epoch: int
    mzxid: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class WriteState:
    """A state that the controller writes if its epoch and the znode's version are the expected ones.

    expected   the version of the state's znode; −1: there is no such znode, and it is created
    """

    tp: TopicPartition
    state: PartitionState
    expected: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """`/brokers/ids/N`: the listeners of broker N by name; the listeners KAFKA and REPLICATION are always among them.

    epoch           czxid of the znode; −1 if the registration is not written yet
    possibly_short  the broker's logs may lack records, because its machine went down after they were last closed, or
                    because a log was damaged. The controller clears the mark when no partition depends on it any more.
    rack            the failure domain that the broker is in (broker.rack); None if it has none
    """

    broker_id: int
    listeners: Mapping[str, Endpoint]
    epoch: int = -1
    possibly_short: bool = False
    rack: str | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Return the address of the listener KAFKA, to which clients connect."""
        return self.listeners[CLIENTS]

    @property
    def replication_endpoint(self) -> Endpoint:
        """Return the address of the listener REPLICATION, to which brokers and the controller connect."""
        return self.listeners[BROKERS]


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that have, get or lose a replica of one partition; the preferred leader first.

    adding    members of `replicas` that were not assigned when the reassignment began
    removing  members of `replicas` that will not be assigned when the reassignment is complete

    A replica is in both if the reassignment that added it was cancelled or replaced: the replica is being removed.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """Return the replicas that remain when the reassignment is complete."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Return the replicas that were assigned when the reassignment began."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def joining(self) -> tuple[int, ...]:
        """Return the replicas that the reassignment adds, without those that are being removed again."""
        return tuple(replica for replica in self.adding if replica not in self.removing)

    @property
    def moving(self) -> bool:
        """Return whether a reassignment is in progress: replicas are being added or removed."""
        return bool(self.adding or self.removing)

    def toward(self, target: Iterable[int]) -> ReplicaAssignment:
        """Return the assignment with another target and the same origin. To cancel is to go toward the origin."""
        wanted = tuple(target)
        origin = self.origin
        replicas = tuple(dict.fromkeys((*wanted, *origin, *self.replicas)))
        return ReplicaAssignment(
            replicas,
            tuple(replica for replica in replicas if replica not in origin),
            tuple(replica for replica in replicas if replica not in wanted),
        )

    def completed(self) -> ReplicaAssignment:
        """Return the assignment after the end of the reassignment: the target, with nothing being added or removed."""
        return ReplicaAssignment(self.target)


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """`/brokers/topics/T`: the replicas of each partition, the preferred leader first.

    adding, removing   replicas of the partitions that are being reassigned (`ReplicaAssignment`)
    version            version of the znode as read, and the condition of the next write
    """

    topic: str
    topic_id: str
    partitions: Mapping[int, tuple[int, ...]]
    configs: Mapping[str, str] = field(default_factory=dict)
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    version: int = field(default=NO_VERSION, compare=False)

    def topic_partitions(self) -> list[TopicPartition]:
        """Return the topic's partitions in ascending order."""
        return [TopicPartition(self.topic, partition) for partition in sorted(self.partitions)]

    def assigned(self, partition: int) -> ReplicaAssignment:
        """Return the replicas of one partition, with those being added and removed."""
        return ReplicaAssignment(
            self.partitions[partition], self.adding.get(partition, ()), self.removing.get(partition, ())
        )

    def reassigned(self, changes: Mapping[int, ReplicaAssignment]) -> TopicAssignment:
        """Return the assignment with these partitions changed or added, and all others unchanged."""
        every = {number: self.assigned(number) for number in self.partitions} | dict(changes)
        return replace(
            self,
            partitions={number: each.replicas for number, each in every.items()},
            adding={number: each.adding for number, each in every.items() if each.adding},
            removing={number: each.removing for number, each in every.items() if each.removing},
        )


@dataclass(frozen=True, slots=True)
class ControllerLease:
    """The current controller (−1: none), and the condition of the next controller election.

    `epoch` and `epoch_version` are those of `/controller_epoch`, read *before* `/controller`. So a broker that acts on
    this value loses against every election since then. `owner` is the ZooKeeper session that owns `/controller`.
    """

    controller_id: int
    epoch: int
    epoch_version: int
    owner: int = 0

    @property
    def unclaimed(self) -> bool:
        """Return whether there is no controller."""
        return self.controller_id == NO_LEADER
