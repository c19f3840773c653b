"""The partitions that this broker hosts: finds them, begins and ends to host them, and acts on their rules.

All of it runs on the broker's loop. Only opening, deleting and checkpointing files is handed to a thread. Which of them
it leads and follows is the controller's to say (`node.handlers.controller_requests`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from cluster.replication.partition import Facts, Partition
from node.events.recorder import NO_EVENTS, Events
from node.metadata_cache import MetadataCache
from node.purgatory.purgatories import Purgatories
from node.replication.isr_updates import IsrUpdates
from node.replication.leader_epoch_fence import LeaderEpochFence
from node.replication.log_flusher import LogFlusher, OffloadSync
from node.replication.replica import Replica, ReplicaLog
from node.replication.replica_ports import Follower, IsrStore, Logs, Offload
from node.replication.topic_log_configs import TopicLogConfigs
from node.runtime.loop_budget import LoopBudget
from storage.configs.log_config import LogConfig
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.directory.directory_checkpoints import Committed
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    IneligibleReplicaError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import TopicInfo

log = logging.getLogger(__name__)


class ReplicaManager:
    """The hosted partitions by name.

    cut_off           the broker has not heard of ZooKeeper for a session timeout, or hands over what it leads: another
                      leader may exist, so that only what the whole ISR confirms, or what is committed anyway, may be
                      said (DESIGN 5). Asked each time: a process that was stopped finds requests waiting for it before
                      any timer of its own
    pace              of what waits for disks on the event loop
    on_storage_error  told once when no log directory is left; by then every replica is offline
    leaderships       what it has acted on, in this life and before
    role_changed      told of each replica that leads in another epoch than before, or not any more
    """

    def __init__(
        self,
        broker_id: int,
        *,
        logs: Logs,
        isr_store: IsrStore,
        metadata: MetadataCache,
        waiting: Purgatories,
        fetchers: Follower,
        clock: Clock,
        max_lag_ms: int = 30_000,
        topic_defaults: LogConfig | None = None,
        offload: Offload = asyncio.to_thread,
        offload_sync: OffloadSync | None = None,
        on_storage_error: Callable[[StorageError], None] = lambda error: None,
        cut_off: Callable[[], bool] = lambda: False,
        events: Events = NO_EVENTS,
        loop_budget: LoopBudget | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.metadata = metadata
        self.waiting = waiting
        self.clock = clock
        self._cut_off = cut_off
        self.events = events
        self.loop_budget = loop_budget or LoopBudget()
        self._logs = logs
        self.leaderships = LeaderEpochFence(broker_id, logs, offload)
        noted = self.leaderships.note_isr
        self.state_changes = IsrUpdates(broker_id, isr_store, waiting, clock, self.act, noted, events)
        self.fetchers = fetchers
        self._max_lag_ms = max_lag_ms
        self._log_settings = TopicLogConfigs(topic_defaults or LogConfig())
        self.offload = offload
        self._on_storage_error = on_storage_error
        self._replicas: dict[TopicPartition, Replica] = {}
        self._recovered_high_watermarks = dict(logs.high_watermarks())
        self._syncing = LogFlusher(self._synced, self.storage_failed, offload_sync)
        self._next_isr_check_ms = 0
        #: How often this broker's registration has gone.
        self.resignations = 0
        self.closed = False
        self.role_changed: Callable[[Replica], object] = lambda replica: None

    @property
    def cut_off(self) -> bool:
        """Whether another may lead by now what this broker leads."""
        return self._cut_off()

    @property
    def controller_epoch(self) -> int:
        """Of the latest controller that this broker has heard, or had acted upon before it started; −1: of none."""
        return max(self.metadata.controller_epoch, self.leaderships.controller_epoch)

    # --- looking up ------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, tp: TopicPartition) -> Replica | None:
        """The replica, None where this broker hosts none."""
        return self._replicas.get(tp)

    def get_or_raise(self, tp: TopicPartition) -> Replica:
        """The replica, UnknownTopicOrPartitionError where this broker hosts none."""
        replica = self._replicas.get(tp)
        if replica is None:
            # Another broker's partition is a matter of stale metadata; an unheard-of one may just have been created.
            if self.metadata.exists(*tp):
                raise NotLeaderOrFollowerError(f"broker {self.broker_id} hosts no replica of {tp}")
            raise UnknownTopicOrPartitionError(f"{tp} is not known here")
        return replica

    def led(self) -> list[TopicPartition]:
        """The partitions that this broker leads."""
        return [replica.topic_partition for replica in self if replica.partition.is_leader]

    def log_of(self, tp: TopicPartition) -> ReplicaLog | None:
        """Also of a partition that nobody has said yet to be this broker's."""
        return self._logs.logs().get(tp)

    def topic_ids(self) -> dict[TopicPartition, str]:
        """Of all that it hosts, and of all logs that are open; "" where a log's is not known."""
        logs = {tp: log_.topic_id for tp, log_ in self._logs.every_log()}
        return logs | {replica.topic_partition: replica.topic_id for replica in self}

    def recovered_high_watermark(self, tp: TopicPartition) -> int:
        """Up to where its log was committed in an earlier life of this broker, and is still; 0 where it had none."""
        known, replica = self._recovered_high_watermarks.get(tp, 0), self._replicas.get(tp)
        return known if replica is None else min(known, replica.given_up)

    def log_sizes(self) -> Mapping[Path, Mapping[TopicPartition, int] | StorageError]:
        """The bytes of each log by its directory; why, of a directory that is offline."""
        return self._logs.log_sizes()

    # --- hosting ---------------------------------------------------------------------------------------------

    async def host(self, tp: TopicPartition, topic: TopicInfo, *, in_sync: bool) -> Replica:
        """The replica of this topic, with the settings of the topic; from now on, where it was none before.

        `in_sync`: the cluster counts on its records. IneligibleReplicaError where it lacks some of them; StorageError;
        OutOfDescriptorsError where that is to be tried again.
        """
        replica = self._replicas.get(tp)
        if replica is not None and replica.topic_id != topic.topic_id:
            # Deleted and created again while we did not listen: the old records belong to nobody.
            await self.begin_anew(replica)
            replica = None
        config = self._log_settings.of(topic.name, topic.configs, replica.log.config if replica else None)
        if replica is None:
            opened = await self._open(tp, topic.topic_id, config, in_sync)
            replica = self._replicas[tp] = self._new_replica(tp, topic.topic_id, opened)
        self._configure(replica.online_or_raise(), config)
        return replica

    async def _open(self, tp: TopicPartition, topic_id: str, config: LogConfig, in_sync: bool) -> ReplicaLog:
        opened = self.log_of(tp)
        if opened is None or opened.topic_id != topic_id:
            if opened is None or opened.topic_id:
                self._recovered_high_watermarks.pop(tp, None)  # an earlier topic's
            opened = await self.offload(self._logs.get_or_create, tp, topic_id, config, in_sync=in_sync)
        if (end := opened.log_end_offset) < (known := self.recovered_high_watermark(tp)):
            if in_sync:
                raise IneligibleReplicaError(f"its log ends at {end}, before high watermark {known}")
            log.error("%s ends at %d, before its high watermark %d: records are lost on this disk", tp, end, known)
            await self.offload(opened.give_up_beyond_end)
            self._recovered_high_watermarks[tp] = end
        return opened

    async def begin_anew(self, replica: Replica) -> None:
        """Sets its log aside; it is hosted no more. StorageError; OutOfDescriptorsError: the log stands yet."""
        tp = replica.topic_partition
        self.stop_serving(replica)
        self.events.truncate(tp, 0, "set aside, to begin anew")
        del self._replicas[tp]
        await self.offload(self._logs.set_aside, tp)
        self._recovered_high_watermarks.pop(tp, None)

    def _new_replica(self, tp: TopicPartition, topic_id: str, log_: ReplicaLog) -> Replica:
        high_watermark = max(self.recovered_high_watermark(tp), log_.log_start_offset)
        partition = Partition(self.broker_id, tp, max_lag_ms=self._max_lag_ms, high_watermark=high_watermark)
        return Replica(topic_id, log_, partition, self._syncing.begin, self.events)

    def reconfigure(self, infos: Iterable[TopicInfo]) -> None:
        """These topics have other settings now, which hold from here on; those that are wrong change nothing."""
        by_topic = {info.name: info for info in infos}
        for replica in self if by_topic else ():
            info = by_topic.get(replica.topic_partition.topic)
            if info is not None and info.topic_id == replica.topic_id and not replica.offline:
                self._configure(replica, self._log_settings.of(info.name, info.configs, replica.log.config))

    def _configure(self, replica: Replica, config: LogConfig) -> None:
        if replica.configure(config):
            replica.flush_if_due()
            self._synced(replica)

    async def set_aside(self, tp: TopicPartition) -> None:
        """It is not this broker's any more: its log is kept where nobody looks for it.

        OutOfDescriptorsError where that is to be tried again.
        """
        log.warning("%s is not this broker's any more: set aside", tp)
        if (replica := self._replicas.get(tp)) is not None:
            self.stop_serving(replica)
        self._forget(tp)
        try:
            await self.offload(self._logs.set_aside, tp)
        except OutOfDescriptorsError:
            raise
        except StorageError:
            self.notice_failures()

    async def delete(self, tps: Iterable[TopicPartition]) -> None:
        """Nothing remains of these but files, which housekeeping removes; those that are hosted have been stopped.

        StorageError; OutOfDescriptorsError where that is to be tried again.
        """
        logs = self._logs.logs()
        doomed = []
        for tp in tps:
            self._forget(tp)
            if tp in logs:
                doomed.append(tp)
        if doomed:
            await self.offload(self._logs.delete, *doomed)

    def _forget(self, tp: TopicPartition) -> None:
        self._replicas.pop(tp, None)
        self._recovered_high_watermarks.pop(tp, None)
        self.leaderships.forget(tp)
        self._log_settings.forget(tp.topic)

    # --- acting on the rules ---------------------------------------------------------------------------------

    def act(self, replica: Replica, facts: Facts) -> None:
        """Do what the rules ask for: wake who waits, carry a proposal to ZooKeeper, stop."""
        if facts.high_watermark_advanced:
            self.high_watermark_rose(replica)
        if facts.log_start_rose:
            self.waiting.deletions.check_and_complete(replica.topic_partition)
        if facts.proposal is not None:
            self.state_changes.propose(replica, facts.proposal)
        if facts.resigned:
            log.warning("%s: somebody else wrote its state; leads no longer", replica.topic_partition)
            self.epoch_ended(replica)

    def high_watermark_rose(self, replica: Replica) -> None:
        """Of what this broker leads: more is committed."""
        self.events.hw(replica.partition)
        self.waiting.high_watermark_rose(replica.topic_partition)

    def _synced(self, replica: Replica) -> None:
        """More of its log is on the disk, or need not be: acknowledge what waited for that, or fetch on."""
        tp, partition = replica.topic_partition, replica.partition
        if partition.synced(replica.flushed_offset, replica.log.log_end_offset, self.clock.monotonic_ms()):
            self.high_watermark_rose(replica)
        if partition.is_leader:
            self.waiting.produces.check_and_complete(tp)
        else:
            self.fetchers.synced(tp)

    def tick(self, now_ms: int) -> int:
        """Time has passed: answer what is due, look for followers that lag, tell the controller what has changed.

        Returns when to call it again, unless `waiting.alarm` is set before.
        """
        self.waiting.expire(now_ms)
        if now_ms >= self._next_isr_check_ms:
            self._next_isr_check_ms = now_ms + max(1, self._max_lag_ms // 2)
            for replica in self:
                if replica.partition.is_leader:
                    self.act(replica, replica.partition.tick(replica.log.log_end_offset, now_ms))
        due_ms = (self._next_isr_check_ms, self.state_changes.tick(now_ms), self.waiting.next_deadline_ms())
        return min(each for each in due_ms if each is not None)

    # --- stopping --------------------------------------------------------------------------------------------

    def registration_lost(self) -> None:
        """Whatever this broker leads, somebody else may lead already, and nothing that it was told holds any more."""
        self.resignations += 1
        self.resign_all()

    def resign_all(self, but: Container[TopicPartition] = ()) -> None:
        """Others lead, `but` these."""
        for replica in self:
            if replica.topic_partition not in but:
                self.resign(replica)

    def resign(self, replica: Replica) -> None:
        """Another leads, or soon will. To follow it this broker has to hear who it is."""
        if replica.partition.is_leader:
            replica.partition.stop()
            self.epoch_ended(replica)

    def code_of(self, error: BrokerError, tp: TopicPartition) -> int:
        """What to answer for a partition where this went wrong; if it was the disk, that is offline from now on."""
        if isinstance(error, StorageError):
            self.storage_failed(error, tp)
        return error.code

    def storage_failed(self, error: StorageError, tp: TopicPartition) -> None:
        """The disk below this partition failed: nothing on it is served any more."""
        self._logs.report(tp, error)
        self.notice_failures()

    def found_damaged(self, replica: Replica) -> None:
        """The log of what this broker leads is damaged: another is to lead, if one is in sync.

        It leads until the controller has chosen; once it is out of the ISR, its log begins anew.
        """
        if not replica.damaged and len(replica.partition.isr) > 1:
            replica.damaged = True
            self.state_changes.replicas_failed()

    def notice_failures(self) -> None:
        """Log directories may have failed, be it on another thread: the replicas there serve no more."""
        for path, error in self._logs.failed():
            for tp in self._logs.take_offline(path, error):
                if replica := self._replicas.get(tp):
                    replica.offline = True
                    self.stop_serving(replica)
            if self._logs.works:
                self.state_changes.replicas_failed()
            else:
                self._on_storage_error(error)

    async def checkpoint_high_watermarks(self) -> None:
        """Write down how far each partition is committed. Those not heard of since the start keep what they had."""
        committed = {
            replica.topic_partition: Committed.of(replica.log, replica.partition.high_watermark) for replica in self
        }
        await self.offload(self._logs.checkpoint_high_watermarks, committed)
        self.notice_failures()

    async def close(self) -> None:
        """Everybody who waits gets an answer, nothing is written to ZooKeeper any more, and the end is noted."""
        self.closed = True
        for replica in self:
            self.stop_serving(replica)
        self.waiting.complete_all()
        await self.state_changes.close()
        await self._syncing.close()
        with suppress(OutOfDescriptorsError):  # nothing more can be done, as if it were killed
            await self.leaderships.write()
        await self.checkpoint_high_watermarks()

    def log_start_rose(self, tp: TopicPartition) -> None:
        """By retention, here alone: whoever this broker leads, or follows, is told."""
        self.waiting.changed(tp)
        self.fetchers.log_start_rose(tp)

    def stop_serving(self, replica: Replica) -> None:
        self.fetchers.drop(replica.topic_partition)
        replica.partition.stop()
        self.epoch_ended(replica)

    def epoch_ended(self, replica: Replica) -> None:
        self.role_changed(replica)
        self.waiting.epoch_ended(replica.topic_partition)
