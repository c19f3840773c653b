"""Which power losses may cost what was acknowledged, by the letter of what is promised (FAULTS F44).

Without fsync an acknowledged record lives as long as one in-sync replica has lost nothing since it joined the ISR. So
that one, where it is the last, loses its power with all that it has written: a disk may have written everything back,
and then nothing may be lost, though every machine was down. Where acknowledgements wait for the disk there is no last
one.
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


class Wholeness:
    """Follows every ISR, write by write, and what is committed.

    waits_for_disk        no acknowledgement stands on a page cache alone
    on_unclean_election   told of each, as soon as ZooKeeper has it and before any broker
    """

    def __init__(self, cluster: Cluster, *, waits_for_disk: bool = False) -> None:
        self._cluster = cluster
        self.on_unclean_election: Callable[[], object] = lambda: None
        self._waits_for_disk = waits_for_disk
        self._states: dict[TopicPartition, PartitionState] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._whole: set[tuple[int, TopicPartition]] = set()
        self._damaged: set[tuple[int, TopicPartition]] = set()
        self._proposals: dict[TopicPartition, list[Set]] = defaultdict(list)
        cluster.zookeeper.on_change = self._changed

    def told(self, event: BrokerEvent) -> None:
        """A broker's journal."""
        if isinstance(event, HighWatermark):
            self._committed[event.tp] = max(event.value, self.committed(event.tp))

    def committed(self, tp: TopicPartition) -> int:
        """The highest high watermark that anybody had."""
        return self._committed.get(tp, 0)

    def fate(self, broker_id: int, dice: Random) -> Random | Fate:
        """What becomes of what its machine has not synced: the dice decide, unless it is the last whole one somewhere.

        It has lost its power then.
        """
        if not self._waits_for_disk and any(self.is_last(broker_id, tp) for tp in self._states):
            return KEPT
        self._whole = {(each, tp) for each, tp in self._whole if each != broker_id}
        return dice

    def damaged(self, broker_id: int, tp: TopicPartition) -> None:
        """It does not count until it is `mended`."""
        self._damaged.add((broker_id, tp))

    def opens_damaged(self, broker_id: int, tp: TopicPartition) -> None:
        """A process begins over the damage, and may cut it off: then something is lost, whatever is mended later."""
        self._whole.discard((broker_id, tp))

    def mended(self, broker_id: int, tp: TopicPartition) -> None:
        """Its disk is well again, or it has made its log anew: for that it has left the ISR, and joins it once more."""
        self._damaged.discard((broker_id, tp))

    def is_last(self, broker_id: int, tp: TopicPartition) -> bool:
        """Whether it is in sync, and nobody else is who has lost nothing; or may be so soon, without doing anything."""
        return any(
            broker_id in isr and not any(self._is_whole(each, tp) for each in isr if each != broker_id)
            for isr in self._isrs(tp)
        )

    def _is_whole(self, broker_id: int, tp: TopicPartition) -> bool:
        return (broker_id, tp) in self._whole and (broker_id, tp) not in self._damaged

    def proposed(self, write: Set) -> None:
        """On its way to ZooKeeper, where it arrives late or never, whatever becomes of who sent it."""
        if (tp := _partition_of(write.path)) is not None:
            self._proposals[tp].append(write)

    def _isrs(self, tp: TopicPartition) -> Iterator[tuple[int, ...]]:
        """That of now, and those that may take its place."""
        yield self._states.get(tp, _GONE).isr
        try:
            version = self._cluster.zookeeper.node(znodes.state_path(tp)).version
        except NoNodeError:
            return
        self._proposals[tp] = [write for write in self._proposals[tp] if write.version == version]
        for write in self._proposals[tp]:
            yield znodes.decode_state(write.data).isr

    def _changed(self, path: str) -> None:
        """Who joins an ISR is whole if it runs and has all that is committed.

        What a leader proposed before a machine went down may be written when it is up again: then it may lack records.
        """
        if (tp := _partition_of(path)) is None:
            return
        try:
            state = znodes.decode_state(self._cluster.zookeeper.node(path).data)
        except NoNodeError:
            state = _GONE
        before, self._states[tp] = self._states.get(tp, _GONE), state
        if self._is_unclean(tp, before, state):
            self.on_unclean_election()
        for broker_id in set(before.isr).difference(state.isr):
            self._whole.discard((broker_id, tp))
        for broker_id in set(state.isr).difference(before.isr):
            broker = self._cluster.brokers[broker_id]
            replica = broker.replica(tp)
            if (broker_id, tp) in self._damaged:
                continue
            if broker.runs and (0 if replica is None else replica.log.log_end_offset) >= self.committed(tp):
                self._whole.add((broker_id, tp))

    def _is_unclean(self, tp: TopicPartition, before: PartitionState, state: PartitionState) -> bool:
        """Whether somebody begins to lead who was not in sync, or has lost something since it was."""
        if not before.isr or state.leader == NO_LEADER or state.leader_epoch == before.leader_epoch:
            return False
        return state.leader not in before.isr or not self._is_whole(state.leader, tp)


def _partition_of(path: str) -> TopicPartition | None:
    """Whose state stands there."""
    if not path.startswith(znodes.BROKER_TOPICS) or not path.endswith("/state"):
        return None
    *_, topic, _, partition, _ = path.split("/")
    return TopicPartition(topic, int(partition))
