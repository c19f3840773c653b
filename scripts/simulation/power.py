"""Which power losses may cost what was acknowledged, by the letter of what is promised (FAULTS F44).

Without fsync an acknowledged record lives as long as one in-sync replica has lost nothing since it joined the ISR. So
that one, where it is the last, loses its power with all that it has written: a disk may have written everything back,
and then nothing may be lost, though every machine was down. Where acknowledgements wait for the disk there is no last
one.
"""

from __future__ import annotations

from random import Random

from cluster import znodes
from cluster.store import NoNodeError
from simulation.cluster import Cluster
from simulation.crashable_files import KEPT, Fate
from tidelog.checker.broker_events import BrokerEvent, HighWatermark
from tidelog.model import TopicPartition


class Wholeness:
    """Follows every ISR, write by write, and what is committed.

    waits_for_disk   no acknowledgement stands on a page cache alone
    """

    def __init__(self, cluster: Cluster, *, waits_for_disk: bool = False) -> None:
        self._cluster = cluster
        self._waits_for_disk = waits_for_disk
        self._isr: dict[TopicPartition, tuple[int, ...]] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._whole: set[tuple[int, TopicPartition]] = set()
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
        if not self._waits_for_disk and any(self.is_last(broker_id, tp) for tp in self._isr):
            return KEPT
        self._whole = {(each, tp) for each, tp in self._whole if each != broker_id}
        return dice

    def damaged(self, broker_id: int, tp: TopicPartition) -> None:
        """It does not count until it has joined the ISR again."""
        self._whole.discard((broker_id, tp))

    def is_last(self, broker_id: int, tp: TopicPartition) -> bool:
        """Whether it is in sync, and nobody else is who has lost nothing."""
        isr = self._isr.get(tp, ())
        return broker_id in isr and not any((each, tp) in self._whole for each in isr if each != broker_id)

    def _changed(self, path: str) -> None:
        """Who joins an ISR is whole if it runs and has all that is committed.

        What a leader proposed before a machine went down may be written when it is up again: then it may lack records.
        """
        if not path.startswith(znodes.BROKER_TOPICS) or not path.endswith("/state"):
            return
        *_, topic, _, partition, _ = path.split("/")
        tp = TopicPartition(topic, int(partition))
        try:
            isr = znodes.decode_state(self._cluster.zookeeper.node(path).data).isr
        except NoNodeError:
            isr = ()
        before, self._isr[tp] = self._isr.get(tp, ()), isr
        for broker_id in set(before).difference(isr):
            self._whole.discard((broker_id, tp))
        for broker_id in set(isr).difference(before):
            broker = self._cluster.brokers[broker_id]
            replica = broker.replica(tp)
            if broker.runs and (0 if replica is None else replica.log.log_end_offset) >= self.committed(tp):
                self._whole.add((broker_id, tp))
