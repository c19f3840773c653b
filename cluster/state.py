"""What ZooKeeper holds about partitions, topics and brokers, as values.

All of them are immutable and replaced whole. Their bytes are `cluster.zookeeper.znodes`' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidelog.model import NO_LEADER, Endpoint, TopicPartition
from tidelog.protocol.listeners import BROKERS, CLIENTS

#: The version of a znode that does not exist, in the fields that hold znode versions.
NO_VERSION = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's state znode.

    leader            broker id, −1 while no ISR member is alive. Moved by the controller only.
    leader_epoch      raised by the controller whenever somebody begins to lead, be it the same one again; not where
                      only the ISR shrinks.
    isr               never empty; a leader is always in it. Shrunk and grown by the leader, by compare-and-set,
                      and shrunk by the controller when a member dies.
    controller_epoch  of the controller that wrote the state last.
    eligible          who was in sync, too, until the controller left `isr` alone: they may have what that loses with
                      its power. Forgotten by the leader, who outlived that, with its first change of the ISR.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    eligible: tuple[int, ...] = field(default=(), compare=False)

    def rewritten(
        self, leader: int, isr: tuple[int, ...], controller_epoch: int, *, begins: bool = True, sheds: bool = False
    ) -> PartitionState:
        """What a controller makes of it, in a new epoch if it `begins` one; `sheds`: by a reassignment."""
        given_up = self.isr if len(isr) == 1 or sheds else ()
        eligible = {*given_up, *self.eligible}.difference(isr)
        return PartitionState(leader, self.leader_epoch + begins, isr, controller_epoch, tuple(sorted(eligible)))


@dataclass(frozen=True, slots=True)
class VersionedState:
    """A state as it was read. `partition_epoch` is the znode's version, on which the next write must stand.

    `mzxid` says when it was written, on the scale of broker epochs (−1: not known): a leader that registered later
    has lost its leadership since.
    """

    state: PartitionState
    partition_epoch: int
    mzxid: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """`/brokers/ids/N`: where broker N is reached, by the name of the listener; TIDELOG and REPLICATION are there.

    epoch           czxid of the znode, −1 in a registration that has not been written yet
    possibly_short  its machine went down since its logs were closed, so that what was not synced may be missing, or a
                    log was damaged; until the controller has dealt with every partition of which that matters
    """

    broker_id: int
    listeners: Mapping[str, Endpoint]
    epoch: int = -1
    possibly_short: bool = False

    @property
    def endpoint(self) -> Endpoint:
        """Where clients connect."""
        return self.listeners[CLIENTS]

    @property
    def replication_endpoint(self) -> Endpoint:
        """Where brokers and the controller connect."""
        return self.listeners[BROKERS]


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that have, get or lose a replica of one partition; the preferred leader first.

    adding    those of `replicas` that were not there when the reassignment began
    removing  those of `replicas` that will not be there when it has ended

    One that is in both was on its way in when the reassignment was cancelled or replaced, and is on its way out.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """Who has a replica in the end."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Who had one in the beginning."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def joining(self) -> tuple[int, ...]:
        """Those on their way in."""
        return tuple(replica for replica in self.adding if replica not in self.removing)

    @property
    def moving(self) -> bool:
        """A reassignment is in progress."""
        return bool(self.adding or self.removing)

    def toward(self, target: Iterable[int]) -> ReplicaAssignment:
        """With another target, whatever the one of now; the origin stays. To cancel is to go toward the origin."""
        wanted = tuple(target)
        origin = self.origin
        everybody = tuple(dict.fromkeys((*wanted, *origin, *self.replicas)))
        return ReplicaAssignment(
            everybody,
            tuple(replica for replica in everybody if replica not in origin),
            tuple(replica for replica in everybody if replica not in wanted),
        )

    def settled(self) -> ReplicaAssignment:
        """The reassignment has ended."""
        return ReplicaAssignment(self.target)


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """`/brokers/topics/T`: the replicas of each partition, the preferred leader first.

    adding, removing   of the partitions that are being reassigned (`ReplicaAssignment`)
    version            of the znode as it was read, on which the next write must stand
    """

    topic: str
    topic_id: str
    partitions: Mapping[int, tuple[int, ...]]
    configs: Mapping[str, str] = field(default_factory=dict)
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    version: int = field(default=NO_VERSION, compare=False)

    def topic_partitions(self) -> list[TopicPartition]:
        """The partitions in ascending order."""
        return [TopicPartition(self.topic, partition) for partition in sorted(self.partitions)]

    def assigned(self, partition: int) -> ReplicaAssignment:
        """One partition's replicas, those that come and those that go."""
        return ReplicaAssignment(
            self.partitions[partition], self.adding.get(partition, ()), self.removing.get(partition, ())
        )

    def reassigned(self, changes: Mapping[int, ReplicaAssignment]) -> TopicAssignment:
        """With these partitions changed, or added."""
        every = {number: self.assigned(number) for number in self.partitions} | dict(changes)
        return replace(
            self,
            partitions={number: each.replicas for number, each in every.items()},
            adding={number: each.adding for number, each in every.items() if each.adding},
            removing={number: each.removing for number, each in every.items() if each.removing},
        )


@dataclass(frozen=True, slots=True)
class ControllerLease:
    """Who is the controller (−1: nobody), and the fence on which the next election must stand.

    `epoch` and `epoch_version` are `/controller_epoch`'s, read *before* `/controller`, so that whoever acts on this
    value loses against every election that happened since. `owner` is the session that holds the seat.
    """

    controller_id: int
    epoch: int
    epoch_version: int
    owner: int = 0

    @property
    def unclaimed(self) -> bool:
        """Nobody holds the seat."""
        return self.controller_id == NO_LEADER
