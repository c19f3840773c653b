"""Who leads an epoch is decided once: what this broker acted on last, of each partition, be it in an earlier life.

A ZooKeeper whose data was restored from an earlier state gives epochs out a second time (FAULTS F42). Two leaders of
one epoch write different records at the same offsets, and no comparison of epochs finds out; so whoever knows better
refuses, and leaves its log as it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cluster.state import PartitionState
from node.replication.replica import Replica
from node.replication.replica_ports import Logs, Offload
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.directory.leadership_checkpoint import Leadership
from tidelog.errors import BrokerError, FencedLeaderEpochError, NotLeaderOrFollowerError
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import PartitionStateMessage

#: ISRs that change within this time are written down together.
_GATHERING_S = 0.05
#: Until what got no file descriptor is tried again.
_AGAIN_S = 0.2


class LeaderEpochFence:
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

    def refusal(self, replica: Replica, message: PartitionStateMessage) -> BrokerError | None:
        """Why this broker must not act on what the controller says; None: it may, once that is noted and written.

        A.  The log has records of a later epoch.
        B.  The broker has acted on a later state, or on one of the same epoch under another leader. States rise with
            every write, in their versions, so that a later epoch in an earlier version tells of lost writes too.
        C.  It began to lead in this epoch before it started: whatever was in flight of its earlier life would count
            again. NotLeaderOrFollowerError, upon which the controller begins a new epoch.
        """
        latest_epoch, epoch, version = replica.log.latest_epoch, message.leader_epoch, message.partition_epoch
        if latest_epoch is not None and latest_epoch > epoch:  # A
            return FencedLeaderEpochError(f"the log has epoch {latest_epoch}, the controller says {epoch}")
        known = self._known_of(replica)
        if known is None:
            return None
        same = (known.epoch, known.leader) == (epoch, message.leader)
        if same and replica.partition.leader_epoch >= epoch:
            return None  # acted upon in this life: what is older of it is a repetition
        newer = epoch > known.epoch and version > known.partition_epoch
        if not newer and not (same and version >= known.partition_epoch):  # B
            told = _told(epoch, message.leader, version)
            return FencedLeaderEpochError(
                f"known is {_told(known.epoch, known.leader, known.partition_epoch)}, the controller says {told}"
            )
        if same and message.leader == self._broker_id:  # C
            return NotLeaderOrFollowerError(f"epoch {epoch} was led before this broker started")
        return None

    def note(self, replica: Replica, message: PartitionStateMessage, controller_epoch: int) -> None:
        """This broker acts on it, where it has not, as soon as `write` has returned."""
        known = self._known_of(replica)
        if known is None or known.partition_epoch < message.partition_epoch:
            self._learn(
                replica.topic_partition,
                Leadership(
                    replica.topic_id, message.leader_epoch, message.leader, message.partition_epoch, controller_epoch
                ),
            )
        else:
            self.note_controller(replica, controller_epoch)

    def note_controller(self, replica: Replica, controller_epoch: int) -> None:
        """The controller of this epoch has said something of the replica, be it what is refused."""
        known = self._known_of(replica)
        if known is not None:
            self._learn(replica.topic_partition, known._replace(controller_epoch=controller_epoch))

    async def note_isr(self, replica: Replica, state: PartitionState, partition_epoch: int) -> None:
        """This broker has changed the ISR of what it leads. Returns when that is written down, a little later."""
        known = self._known_of(replica)
        if known is None or known.epoch != state.leader_epoch:
            return  # its epoch is over, or its topic is
        self._learn(
            replica.topic_partition, known._replace(partition_epoch=max(known.partition_epoch, partition_epoch))
        )
        await asyncio.sleep(_GATHERING_S)
        while True:
            with suppress(OutOfDescriptorsError):
                await self.write()
                return
            await asyncio.sleep(_AGAIN_S)

    def _known_of(self, replica: Replica) -> Leadership | None:
        """None too where what is known is an earlier topic's of the name."""
        known = self._known.get(replica.topic_partition)
        return None if known is None or known.topic_id != replica.topic_id else known

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


def _told(epoch: int, leader: int, partition_epoch: int) -> str:
    return f"epoch {epoch} under broker {leader} in version {partition_epoch}"
