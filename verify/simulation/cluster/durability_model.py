"""Model which power losses may lose acknowledged records under the promised guarantee (fault F44).

Without fsync an acknowledged record survives as long as one ISR member has lost nothing since it joined the ISR. If a
machine holds the last such replica, its power loss keeps everything that was written. A real disk may have written
everything back, and then no acknowledged record may be lost although every machine was down. If acknowledgements wait
for the disk, there is no such last replica.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random

from cluster.state import PartitionState
from cluster.zookeeper import znodes
from cluster.zookeeper.store import NoNodeError, Set
from tidelog.history.broker_events import BrokerEvent, HighWatermark
from tidelog.model import NO_LEADER, TopicPartition
from verify.simulation.cluster.cluster import Cluster
from verify.simulation.disks.page_cache import KEPT, Fate

_GONE = PartitionState(NO_LEADER, -1, (), -1)


class DurabilityModel:
    """The model, which follows every ISR, write by write, and the high watermarks.

    waits_for_disk        whether acknowledgements wait until records are flushed
    on_unclean_election   called when ZooKeeper has the state of an unclean election, before any broker
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        waits_for_disk: bool = False,
        on_unclean_election: Callable[[], object] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._on_unclean_election = on_unclean_election
        self._waits_for_disk = waits_for_disk
        self._states: dict[TopicPartition, PartitionState] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._undamaged: set[tuple[int, TopicPartition]] = set()
        self._damaged: set[tuple[int, TopicPartition]] = set()
        self._proposals: dict[TopicPartition, list[Set]] = defaultdict(list)
        cluster.zookeeper.subscribe(self._changed)

    def take(self, event: BrokerEvent) -> None:
        """Take an event of a broker's history. Only high watermarks count."""
        if isinstance(event, HighWatermark):
            self._committed[event.tp] = max(event.value, self.committed(event.tp))

    def committed(self, tp: TopicPartition) -> int:
        """Return the greatest high watermark that any broker had; 0 before the first."""
        return self._committed.get(tp, 0)

    def fate(self, broker_id: int, rng: Random) -> Random | Fate:
        """Return what happens to the unsynced bytes of a machine that loses power now.

        KEPT if `is_last` holds for some partition, unless acknowledgements wait for the disk. Otherwise `rng`, and the
        broker counts as damaged for all partitions until it joins their ISR again.
        """
        if not self._waits_for_disk and any(self.is_last(broker_id, tp) for tp in self._states):
            return KEPT
        self._undamaged = {(each, tp) for each, tp in self._undamaged if each != broker_id}
        return rng

    def damaged(self, broker_id: int, tp: TopicPartition) -> None:
        """Record a damaged log. The replica does not count as undamaged until `repaired`."""
        self._damaged.add((broker_id, tp))

    def opens_damaged(self, broker_id: int, tp: TopicPartition) -> None:
        """Record that a process opens the damaged log and may truncate it. A later repair of the file does not restore
        the records.
        """
        self._undamaged.discard((broker_id, tp))

    def repaired(self, broker_id: int, tp: TopicPartition) -> None:
        """Record that the file is repaired, or that the replica has rebuilt its log. To rebuild, it left the ISR and
        joins it again.
        """
        self._damaged.discard((broker_id, tp))

    def is_last(self, broker_id: int, tp: TopicPartition) -> bool:
        """Return whether the broker is in the ISR and no other member is undamaged, now or after a write in flight.

        The broker's own damage is not considered.
        """
        return any(
            broker_id in isr and not any(self._is_undamaged(each, tp) for each in isr if each != broker_id)
            for isr in self._isrs(tp)
        )

    def _is_undamaged(self, broker_id: int, tp: TopicPartition) -> bool:
        return (broker_id, tp) in self._undamaged and (broker_id, tp) not in self._damaged

    def proposed(self, write: Set) -> None:
        """Record a write of a partition's state on its way to ZooKeeper; other writes are ignored. The write may
        arrive late or never, whatever happens to its sender.
        """
        if (tp := _partition_of(write.path)) is not None:
            self._proposals[tp].append(write)

    def _isrs(self, tp: TopicPartition) -> Iterator[tuple[int, ...]]:
        """Yield the current ISR and those that a write in flight may put in its place."""
        yield self._states.get(tp, _GONE).isr
        try:
            version = self._cluster.zookeeper.node(znodes.state_path(tp)).version
        except NoNodeError:
            return
        self._proposals[tp] = [write for write in self._proposals[tp] if write.version == version]
        for write in self._proposals[tp]:
            yield znodes.decode_state(write.data).isr

    def _changed(self, path: str) -> None:
        """Update the model after a write of a partition's state; other writes are ignored. A replica that joins the ISR
        is undamaged if its broker runs, and its log has all committed records and no recorded damage.

        A leader's proposal from before a power loss may be written after the machine is up again. The replica may lack
        records in that case.
        """
        if (tp := _partition_of(path)) is None:
            return
        try:
            state = znodes.decode_state(self._cluster.zookeeper.node(path).data)
        except NoNodeError:
            state = _GONE
        before, self._states[tp] = self._states.get(tp, _GONE), state
        if self._is_unclean(tp, before, state):
            self._on_unclean_election()
        for broker_id in set(before.isr).difference(state.isr):
            self._undamaged.discard((broker_id, tp))
        for broker_id in set(state.isr).difference(before.isr):
            broker = self._cluster.brokers[broker_id]
            replica = broker.replica(tp)
            if (broker_id, tp) in self._damaged:
                continue
            if broker.runs and (0 if replica is None else replica.log.log_end_offset) >= self.committed(tp):
                self._undamaged.add((broker_id, tp))

    def _is_unclean(self, tp: TopicPartition, before: PartitionState, state: PartitionState) -> bool:
        """Return whether a new leader epoch has a leader that was not in the ISR, or has lost records since it joined
        the ISR.
        """
        if not before.isr or state.leader == NO_LEADER or state.leader_epoch == before.leader_epoch:
            return False
        return state.leader not in before.isr or not self._is_undamaged(state.leader, tp)


def _partition_of(path: str) -> TopicPartition | None:
    """Return the partition whose state is stored at this path, or None for another path."""
    if not path.startswith(znodes.BROKER_TOPICS) or not path.endswith("/state"):
        return None
    *_, topic, _, partition, _ = path.split("/")
    return TopicPartition(topic, int(partition))
