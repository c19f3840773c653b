"""Remember what this broker has acted on, also before its restart, so that older partition states can be refused.

A leader epoch must have one leader only. If ZooKeeper's data was restored from a backup, the controller gives out the
same epochs again. Two leaders of one epoch would write different records at the same offsets, and no comparison of
epochs would detect that. So a broker that knows a later state refuses the older one and leaves its log as it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cluster.state import PartitionState
from node.replication.replica import Replica
from node.replication.replica_ports import Logs, Offload
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.directory.leadership_checkpoint import Leadership
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import PartitionStateMessage

#: The time for which `note_isr` waits, so that ISR changes within it are written to disk together.
_BATCH_S = 0.05
#: The pause before a write that got no file descriptor is retried.
_RETRY_S = 0.2


class LeaderEpochFence:
    """The last state of each partition that this broker has acted on. `role_plan.fence_refusal` has the rule.

    The fence lies on disk in the log directories, so that it survives a kill of the process. `note` changes it in
    memory. The broker may act on a noted state only after `write` has returned.
    """

    def __init__(self, logs: Logs, offload: Offload) -> None:
        self._logs = logs
        self.offload = offload
        self._known = dict(logs.leaderships())
        self._controller_epoch = max((known.controller_epoch for known in self._known.values()), default=-1)
        self._unwritten = False
        self._writing = asyncio.Lock()

    @property
    def controller_epoch(self) -> int:
        """Return the latest controller epoch that was recorded here, including deleted logs, or −1."""
        return self._controller_epoch

    def acted_on(self, replica: Replica) -> Leadership | None:
        """Return the recorded state, or None if there is none or that state is of an earlier topic of the name."""
        known = self._known.get(replica.topic_partition)
        return None if known is None or known.topic_id != replica.topic_id else known

    def note(self, replica: Replica, message: PartitionStateMessage, controller_epoch: int) -> None:
        """Record, in memory, the state that this broker will act on once `write` has returned.

        If the recorded state has this partition epoch or a later one, only its controller epoch is replaced.
        """
        known = self.acted_on(replica)
        if known is None or known.partition_epoch < message.partition_epoch:
            self._record(
                replica.topic_partition,
                Leadership(
                    replica.topic_id, message.leader_epoch, message.leader, message.partition_epoch, controller_epoch
                ),
            )
        else:
            self.note_controller(replica, controller_epoch)

    def note_controller(self, replica: Replica, controller_epoch: int) -> None:
        """Record, in memory, that the controller of this epoch has sent a state of the replica, also if it was refused.

        Do nothing if there is no recorded state of the replica.
        """
        known = self.acted_on(replica)
        if known is not None:
            self._record(replica.topic_partition, known._replace(controller_epoch=controller_epoch))

    async def note_isr(self, replica: Replica, state: PartitionState, partition_epoch: int) -> None:
        """Record the partition epoch as which this leader has written an ISR. Return when the record is on disk.

        Changes within `_BATCH_S` are written together. Do nothing if the leader epoch has ended.
        """
        known = self.acted_on(replica)
        if known is None or known.epoch != state.leader_epoch:
            return  # the leader epoch has ended, or the topic was deleted
        self._record(
            replica.topic_partition, known._replace(partition_epoch=max(known.partition_epoch, partition_epoch))
        )
        await asyncio.sleep(_BATCH_S)
        while True:
            with suppress(OutOfDescriptorsError):
                await self.write()
                return
            await asyncio.sleep(_RETRY_S)

    def _record(self, tp: TopicPartition, leadership: Leadership) -> None:
        if self._known.get(tp) != leadership:
            self._known[tp] = leadership
            self._controller_epoch = max(self._controller_epoch, leadership.controller_epoch)
            self._unwritten = True

    async def write(self) -> None:
        """Write all records to disk if any has changed since the last write.

        A log directory whose write fails goes offline at the next `ReplicaManager.notice_failures`. Raises
        OutOfDescriptorsError if the caller should retry.
        """
        async with self._writing:
            if self._unwritten:
                self._unwritten = False
                try:
                    await self.offload(self._logs.checkpoint_leaderships, dict(self._known))
                except BaseException:  # also a cancellation, because then the outcome of the write is unknown
                    self._unwritten = True
                    raise

    def forget(self, tp: TopicPartition) -> None:
        """Drop the record of a deleted log, in memory. The next `write` drops it on disk."""
        if self._known.pop(tp, None) is not None:
            self._unwritten = True
