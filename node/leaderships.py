"""Who leads an epoch is decided once: what this broker acted on last, of each partition, be it in an earlier life.

A ZooKeeper whose data was restored from an earlier state gives epochs out a second time (FAULTS F42). Two leaders of
one epoch write different records at the same offsets, and no comparison of epochs finds out; so whoever knows better
refuses, and leaves its log as it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cluster.state import PartitionState
from node.replica import Replica
from node.surroundings import Logs, Offload
from storage.descriptors import OutOfDescriptorsError
from storage.leaderships import Leadership
from tidelog.control_messages import PartitionStateMessage
from tidelog.errors import BrokerError, FencedLeaderEpochError, NotLeaderOrFollowerError
from tidelog.model import TopicPartition

#: ISRs that change within this time are written down together.
_GATHERING_S = 0.05
#: Until what got no file descriptor is tried again.
_AGAIN_S = 0.2


class Leaderships:
    """Kept with the logs, so that a process that is killed does not take them with it."""

    def __init__(self, broker_id: int, logs: Logs, offload: Offload) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self.offload = offload
        self._known = dict(logs.leaderships())
        self._unwritten = False
        self._writing = asyncio.Lock()

    @property
    def controller_epoch(self) -> int:
        """Of the latest controller that is known to have said anything; −1: of none."""
        return max((known.controller_epoch for known in self._known.values()), default=-1)

    def admit(self, replica: Replica, message: PartitionStateMessage, controller_epoch: int) -> BrokerError | None:
        """Why this broker must not act on what the controller says; None: it may, once `write` has returned.

        A.  The log has records of a later epoch.
        B.  The broker has acted on a later state, or on one of the same epoch under another leader. States rise with
            every write, in their versions, so that a later epoch in an earlier version tells of lost writes too.
        C.  It began to lead in this epoch before it started: whatever was in flight of its earlier life would count
            again. NotLeaderOrFollowerError, upon which the controller begins a new epoch.
        """
        tp = replica.topic_partition
        wanted = Leadership(
            replica.topic_id, message.leader_epoch, message.leader, message.partition_epoch, controller_epoch
        )
        known = self._known.get(tp)
        if known is not None and known.topic_id != wanted.topic_id:
            known = None
        refusal = self._refusal(replica, wanted, known)
        if refusal is None and (known is None or known.partition_epoch < wanted.partition_epoch):
            self._learn(tp, wanted)
        elif known is not None:
            self._learn(tp, known._replace(controller_epoch=controller_epoch))
        return refusal

    def _refusal(self, replica: Replica, wanted: Leadership, known: Leadership | None) -> BrokerError | None:
        latest_epoch = replica.log.latest_epoch
        if latest_epoch is not None and latest_epoch > wanted.epoch:
            return FencedLeaderEpochError(f"the log has epoch {latest_epoch}, the controller says {wanted.epoch}")
        if known is None:
            return None
        same = (known.epoch, known.leader) == (wanted.epoch, wanted.leader)
        if same and replica.partition.leader_epoch >= wanted.epoch:
            return None  # acted upon in this life: what is older of it is a repetition
        newer = wanted.epoch > known.epoch and wanted.partition_epoch > known.partition_epoch
        if not newer and not (same and wanted.partition_epoch >= known.partition_epoch):
            return FencedLeaderEpochError(f"known is {_told(known)}, the controller says {_told(wanted)}")
        if same and wanted.leader == self._broker_id:
            return NotLeaderOrFollowerError(f"epoch {wanted.epoch} was led before this broker started")
        return None

    async def note_isr(self, replica: Replica, state: PartitionState, partition_epoch: int) -> None:
        """This broker has changed the ISR of what it leads. Returns when that is written down, a little later."""
        tp = replica.topic_partition
        known = self._known.get(tp)
        if known is None or (known.topic_id, known.epoch) != (replica.topic_id, state.leader_epoch):
            return  # its epoch is over, or its topic is
        self._learn(tp, known._replace(partition_epoch=partition_epoch))
        await asyncio.sleep(_GATHERING_S)
        while True:
            with suppress(OutOfDescriptorsError):
                await self.write()
                return
            await asyncio.sleep(_AGAIN_S)

    def _learn(self, tp: TopicPartition, leadership: Leadership) -> None:
        if self._known.get(tp) != leadership:
            self._known[tp] = leadership
            self._unwritten = True

    async def write(self) -> None:
        """All that is known by now, where that is not written yet. A directory that fails at it is offline then.

        OutOfDescriptorsError where it is to be tried again.
        """
        async with self._writing:
            if self._unwritten:
                self._unwritten = False
                try:
                    await self.offload(self._logs.checkpoint_leaderships, dict(self._known))
                except BaseException:  # also a cancellation: nobody knows then whether it was written
                    self._unwritten = True
                    raise

    def forget(self, tp: TopicPartition) -> None:
        """Its log is deleted; the checkpoint tells of it until it is written next, to nobody."""
        self._known.pop(tp, None)


def _told(state: Leadership) -> str:
    return f"epoch {state.epoch} under broker {state.leader} in version {state.partition_epoch}"
