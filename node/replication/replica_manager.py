"""Host the replicas of this broker: look up, open and close them, and act on the facts that their rules return.

All code here runs on the broker's event loop. Only opening, deleting and checkpointing files runs on a thread. The
controller decides which partitions this broker leads and follows (`node.handlers.control`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from cluster.replication.partition import Facts, Partition
from cluster.state import LeaderAndEpoch
from node.events.recorder import NO_EVENTS, Events
from node.metadata.metadata_cache import MetadataCache
from node.metadata.topic_log_configs import TopicLogConfigs
from node.replication.isr_updates import IsrUpdates
from node.replication.leader_epoch_fence import LeaderEpochFence
from node.replication.log_flusher import LogFlusher, OffloadFlush
from node.replication.purgatories import Purgatories
from node.replication.replica import Replica, ReplicaLog
from node.replication.replica_ports import Follower, IsrStore, Logs, Offload
from node.runtime.loop_budget import LoopBudget
from node.runtime.rate_limit import RateLimit
from storage.configs.log_config import LogConfig
from storage.configs.parsers import INT64_MAX
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
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.control_messages import TopicInfo

log = logging.getLogger(__name__)


class ReplicaManager:
    """The hosted replicas by partition, and the collaborators that all of them share.

    cut_off             True if another leader may exist, because the broker has lost ZooKeeper for a session timeout or
                        is in its controlled shutdown. Then only answers are allowed that the whole ISR confirms, or
                        that are about committed records. The value is computed on each access, because a process that
                        was paused (SIGSTOP) finds waiting requests before any of its timers has run
    may_be_deposed      True also while there is no connection to ZooKeeper, because the session may have been ended
                        early. Then no answer may say where a log ends, because a new leader may have more records.
                        Records are still accepted, because most lost connections return in the same session
    loop_budget         limits the work for disks in one turn of the event loop
    on_storage_error    called once when no log directory is left; by then every replica is offline
    leader_epoch_fence  the last state of each partition that this broker has acted on, also before its restart
    leader_throttle     limits what throttled replicas send to followers that are not in sync (KIP-73)
    """

    def __init__(
        self,
        broker_id: int,
        *,
        logs: Logs,
        isr_store: IsrStore,
        metadata: MetadataCache,
        purgatories: Purgatories,
        fetchers: Follower,
        clock: Clock,
        max_lag_ms: int = 30_000,
        topic_defaults: LogConfig | None = None,
        offload: Offload = asyncio.to_thread,
        offload_flush: OffloadFlush | None = None,
        on_storage_error: Callable[[StorageError], None] = lambda error: None,
        cut_off: Callable[[], bool] = lambda: False,
        may_be_deposed: Callable[[], bool] = lambda: False,
        events: Events = NO_EVENTS,
        loop_budget: LoopBudget | None = None,
        leader_throttle: RateLimit | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.metadata = metadata
        self.purgatories = purgatories
        self.clock = clock
        self._cut_off = cut_off
        self._may_be_deposed = may_be_deposed
        self.events = events
        self.loop_budget = loop_budget or LoopBudget()
        self.leader_throttle = leader_throttle or RateLimit(lambda: INT64_MAX)
        self._logs = logs
        self.leader_epoch_fence = LeaderEpochFence(logs, offload)
        note_isr = self.leader_epoch_fence.note_isr
        self.isr_updates = IsrUpdates(broker_id, isr_store, purgatories, clock, self.apply_facts, note_isr, events)
        self.fetchers = fetchers
        self._max_lag_ms = max_lag_ms
        self._topic_defaults = topic_defaults or LogConfig()
        self._topic_log_configs = TopicLogConfigs(self._topic_defaults)
        self.offload = offload
        self._on_storage_error = on_storage_error
        self._replicas: dict[TopicPartition, Replica] = {}
        self._recovered_high_watermarks = dict(logs.high_watermarks())
        #: Replicas whose high watermark may have changed since the last checkpoint began.
        self._changed_high_watermarks: dict[Replica, None] = {}
        self._log_flusher = LogFlusher(self._flushed, self.storage_failed, offload_flush)
        self._next_isr_check_ms = 0
        #: The number of registrations that this broker has lost.
        self.resignations = 0
        self.closed = False
        self._role_listeners: list[Callable[[Replica], object]] = []

    def subscribe(self, role_changed: Callable[[Replica], object]) -> None:
        """Have `role_changed` called when a replica begins to lead or to follow in a leader epoch, or stops serving.

        The function is called on the event loop, with the replica in its new role.
        """
        self._role_listeners.append(role_changed)

    @property
    def cut_off(self) -> bool:
        """Return whether another broker may lead the partitions that this broker leads."""
        return self._cut_off()

    @property
    def may_be_deposed(self) -> bool:
        """Return whether `cut_off` holds or the connection to ZooKeeper is lost."""
        return self._may_be_deposed()

    @property
    def controller_epoch(self) -> int:
        """Return the latest controller epoch that this broker has seen, also before its restart, or −1."""
        return max(self.metadata.controller_epoch, self.leader_epoch_fence.controller_epoch)

    # --- looking up ------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, tp: TopicPartition) -> Replica | None:
        """Return the replica, or None if this broker hosts none."""
        return self._replicas.get(tp)

    def latest_leader(self, tp: TopicPartition) -> LeaderAndEpoch:
        """Return the leader of the latest epoch that the replica or the metadata cache knows, or NO_LEADER.

        A replica is told of its leader before the metadata cache is, because LeaderAndIsr comes before UpdateMetadata.
        """
        state, topic, replica = self.metadata.partition_state(*tp), self.metadata.topic(tp.topic), self.get(tp)
        latest = LeaderAndEpoch(NO_LEADER, -1) if state is None else LeaderAndEpoch(state.leader, state.leader_epoch)
        if replica is not None and (topic is None or topic.topic_id == replica.topic_id):
            latest = max(replica.partition.announced, latest, key=lambda each: each.epoch)
        leads = replica is not None and replica.partition.is_leader
        if latest.leader == self.broker_id and not leads:
            return LeaderAndEpoch(NO_LEADER, latest.epoch)
        return latest

    def get_or_raise(self, tp: TopicPartition) -> Replica:
        """Return the replica, even if its disk has failed, or raise an error if this broker hosts none.

        Raise NotLeaderOrFollowerError if the metadata cache has the partition, else UnknownTopicOrPartitionError.
        """
        replica = self._replicas.get(tp)
        if replica is None:
            # For a partition of other brokers the client's metadata is stale. A partition that the metadata cache does
            # not contain may just have been created.
            if self.metadata.exists(*tp):
                raise NotLeaderOrFollowerError(f"broker {self.broker_id} hosts no replica of {tp}")
            raise UnknownTopicOrPartitionError(f"broker {self.broker_id} does not know {tp}")
        return replica

    def led(self) -> list[TopicPartition]:
        """Return the partitions that this broker leads, in any order."""
        return [replica.topic_partition for replica in self if replica.partition.is_leader]

    def log_of(self, tp: TopicPartition) -> ReplicaLog | None:
        """Return the partition's open log, or None.

        A log is open even if no controller has assigned its partition to this broker since the start.
        """
        return self._logs.logs().get(tp)

    def topic_ids(self) -> dict[TopicPartition, str]:
        """Return the topic ids of all hosted replicas and all open logs; "" if a log's id is unknown."""
        logs = {tp: log_.topic_id for tp, log_ in self._logs.every_log()}
        return logs | {replica.topic_partition: replica.topic_id for replica in self}

    def recovered_high_watermark(self, tp: TopicPartition) -> int:
        """Return the high watermark that this broker recovered at its start, bounded by later truncations; 0: none."""
        known, replica = self._recovered_high_watermarks.get(tp, 0), self._replicas.get(tp)
        return known if replica is None else min(known, replica.truncated_below)

    def log_sizes(self) -> Mapping[Path, Mapping[TopicPartition, int] | StorageError]:
        """Return the size in bytes of each log by directory, or the error of an offline directory."""
        return self._logs.log_sizes()

    # --- hosting ---------------------------------------------------------------------------------------------

    async def host(self, tp: TopicPartition, topic: TopicInfo, *, in_sync: bool) -> Replica:
        """Return the partition's replica with the topic's settings applied; open its log if it is not hosted yet.

        A log of an earlier topic of this name is set aside first. `in_sync`: the replica is in the ISR, so the cluster
        counts on its committed records. Raises IneligibleReplicaError if the log then lacks some of them, StorageError
        if the disk fails or is offline, and OutOfDescriptorsError if the caller should retry.
        """
        replica = self._replicas.get(tp)
        if replica is not None and replica.topic_id != topic.topic_id:
            # The topic was deleted and created again while this broker was away, so the records are of the old topic.
            await self.reset_log(replica)
            replica = None
        config = self._topic_log_configs.of(topic.name, topic.configs, replica.log.config if replica else None)
        if replica is None:
            opened = await self._open(tp, topic.topic_id, config, in_sync)
            replica = self._replicas[tp] = self._new_replica(tp, topic.topic_id, opened)
        self._configure(replica.online_or_raise(), config)
        return replica

    async def _open(self, tp: TopicPartition, topic_id: str, config: LogConfig, in_sync: bool) -> ReplicaLog:
        opened = self.log_of(tp)
        if opened is None or opened.topic_id != topic_id:
            if opened is None or opened.topic_id:
                self._recovered_high_watermarks.pop(tp, None)  # of an earlier topic of the name
            opened = await self.offload(self._logs.get_or_create, tp, topic_id, config, in_sync=in_sync)
        if (end := opened.log_end_offset) < (known := self.recovered_high_watermark(tp)):
            if in_sync:
                raise IneligibleReplicaError(f"{tp}: the log ends at {end}, before its high watermark {known}")
            log.error(
                "%s: the log ends at %d, before its high watermark %d; this disk has lost records", tp, end, known
            )
            # The loss is recorded before this replica follows. Otherwise the records that it fetches later would count
            # as committed after a crash, up to the old high watermark.
            await self.offload(opened.lower_checkpoints_to_end)
            self._recovered_high_watermarks[tp] = end
        return opened

    async def reset_log(self, replica: Replica) -> None:
        """Stop hosting the replica and set its log aside, so that `host` begins an empty one.

        Raises StorageError if the disk fails. Raises OutOfDescriptorsError if the log is still in its place.
        """
        tp = replica.topic_partition
        self.stop_serving(replica)
        self.events.truncate(tp, 0, "the log was set aside and begins empty")
        del self._replicas[tp]
        await self.offload(self._logs.set_aside, tp)
        self._recovered_high_watermarks.pop(tp, None)

    def _new_replica(self, tp: TopicPartition, topic_id: str, log_: ReplicaLog) -> Replica:
        high_watermark = max(self.recovered_high_watermark(tp), log_.log_start_offset)
        partition = Partition(self.broker_id, tp, max_lag_ms=self._max_lag_ms, high_watermark=high_watermark)
        replica = Replica(
            topic_id,
            log_,
            partition,
            self._log_flusher.begin,
            self.events,
            self.storage_failed,
            self._note_high_watermark,
        )
        self._note_high_watermark(replica)
        return replica

    def _note_high_watermark(self, replica: Replica) -> None:
        """Have the next checkpoint include the replica's high watermark."""
        self._changed_high_watermarks[replica] = None

    def replace_topic_defaults(self, defaults: LogConfig) -> None:
        """Give every online replica of a topic in the metadata cache the new defaults of its settings."""
        if defaults == self._topic_defaults:
            return
        self._topic_defaults, self._topic_log_configs = defaults, TopicLogConfigs(defaults)
        for replica in self:
            topic = self.metadata.topic(replica.topic_partition.topic)
            if topic is not None and topic.topic_id == replica.topic_id and not replica.offline:
                self._configure(replica, self._topic_log_configs.of(topic.name, topic.configs, replica.log.config))

    def reconfigure(self, infos: Iterable[TopicInfo]) -> None:
        """Apply changed settings to the online replicas of these topics. Invalid settings are not applied."""
        by_topic = {info.name: info for info in infos}
        for replica in self if by_topic else ():
            info = by_topic.get(replica.topic_partition.topic)
            if info is not None and info.topic_id == replica.topic_id and not replica.offline:
                self._configure(replica, self._topic_log_configs.of(info.name, info.configs, replica.log.config))

    def _configure(self, replica: Replica, config: LogConfig) -> None:
        if replica.configure(config):
            replica.flush_if_due()
            self._flushed(replica)

    async def set_aside(self, tp: TopicPartition) -> None:
        """Stop hosting a stray partition and move its log out of the way, without deleting records.

        Raises OutOfDescriptorsError if the caller should retry. Any other StorageError takes the log directory offline,
        and is not raised.
        """
        log.warning("%s: setting the log aside, because broker %d is no replica any more", tp, self.broker_id)
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
        """Stop hosting these partitions, which the caller has stopped, and delete their logs. Files are removed later.

        The records of the fence are dropped on disk too, so that no later process reads them. Raises StorageError if
        the disk fails, and OutOfDescriptorsError if the caller should retry.
        """
        to_delete = list(tps)
        for tp in to_delete:
            self._forget(tp)
        if to_delete:
            await self.offload(self._logs.delete, *to_delete)
        await self.leader_epoch_fence.write()

    def _forget(self, tp: TopicPartition) -> None:
        if (replica := self._replicas.pop(tp, None)) is not None:
            self._changed_high_watermarks.pop(replica, None)
        self.purgatories.hosting_ended(tp)
        self._recovered_high_watermarks.pop(tp, None)
        self.leader_epoch_fence.forget(tp)
        self._topic_log_configs.forget(tp.topic)

    # --- acting on facts -------------------------------------------------------------------------------------

    def apply_facts(self, replica: Replica, facts: Facts) -> None:
        """Act on what the partition's rules returned: complete waiting requests, write a proposed ISR, stop leading."""
        if facts.high_watermark_advanced:
            self.high_watermark_rose(replica)
        if facts.log_start_rose:
            self.purgatories.deletions.check_and_complete(replica.topic_partition)
        if facts.proposal is not None:
            self.isr_updates.propose(replica, facts.proposal)
        if facts.resigned:
            log.warning(
                "%s: broker %d stops leading, because ZooKeeper has another leader or epoch",
                replica.topic_partition,
                self.broker_id,
            )
            self.epoch_ended(replica)

    def high_watermark_rose(self, replica: Replica) -> None:
        """Record that this replica's high watermark has risen, and mark the requests that wait for it to be checked."""
        self._note_high_watermark(replica)
        self.events.hw(replica.partition)
        self.purgatories.high_watermark_rose(replica.topic_partition)

    def _flushed(self, replica: Replica) -> None:
        """Continue after a flush, or after a change of settings: acknowledge produces, or fetch on."""
        tp, partition = replica.topic_partition, replica.partition
        if partition.flushed(replica.flushed_offset, replica.log.log_end_offset, self.clock.monotonic_ms()):
            self.high_watermark_rose(replica)
        if partition.is_leader:
            self.purgatories.produces.check_and_complete(tp)
        else:
            self.fetchers.flushed(tp)

    def tick(self, now_ms: int) -> int:
        """Expire waiting requests, propose ISRs without lagging followers, and notify the controller of changed ISRs.

        Returns when to call again (monotonic), unless `purgatories.alarm` is set before.
        """
        self.purgatories.expire(now_ms)
        if now_ms >= self._next_isr_check_ms:
            self._next_isr_check_ms = now_ms + max(1, self._max_lag_ms // 2)
            for replica in self:
                if replica.partition.is_leader:
                    self.apply_facts(replica, replica.partition.tick(replica.log.log_end_offset, now_ms))
        due_ms = (self._next_isr_check_ms, self.isr_updates.tick(now_ms), self.purgatories.next_deadline_ms())
        return min(each for each in due_ms if each is not None)

    # --- stopping --------------------------------------------------------------------------------------------

    def registration_lost(self) -> None:
        """Stop leading all partitions, because other brokers may lead them.

        LeaderAndIsr and StopReplica requests that have not taken effect are refused with StaleBrokerEpochError.
        """
        self.resignations += 1
        self.resign_all()

    def resign_all(self, but: Container[TopicPartition] = ()) -> None:
        """Stop leading all partitions except those in `but`. Followed partitions stay followed."""
        for replica in self:
            if replica.topic_partition not in but:
                self.resign(replica)

    def resign(self, replica: Replica) -> None:
        """Stop leading the partition, and answer its waiting requests; do nothing if this broker does not lead it.

        This broker follows once the controller has named the new leader.
        """
        if replica.partition.is_leader:
            replica.partition.stop()
            self.epoch_ended(replica)

    def code_of(self, error: BrokerError, tp: TopicPartition) -> int:
        """Return the error's code. A StorageError other than OutOfDescriptorsError takes the log directory offline."""
        if isinstance(error, StorageError):
            self.storage_failed(error, tp)
        return error.code

    def storage_failed(self, error: StorageError, tp: TopicPartition) -> None:
        """Take the partition's log directory offline, so that no replica on it is served.

        An OutOfDescriptorsError is ignored, because the disk works.
        """
        self._logs.report(tp, error)
        self.notice_failures()

    def report_damage(self, replica: Replica) -> None:
        """Report that the log of a led partition is damaged, so that the controller elects another in-sync replica.

        This broker leads until the controller has elected a leader. Once this replica is out of the ISR, its log is
        reset. If no other replica is in sync, nothing changes, because no replica is better.
        """
        if not replica.damaged and len(replica.partition.isr) > 1:
            replica.damaged = True
            self.isr_updates.replicas_failed()

    def notice_failures(self) -> None:
        """Take failed log directories offline with their replicas, and have the controller elect other leaders.

        Call this on the event loop after work on a thread, which only records a failure. If no directory is left,
        `on_storage_error` is called.
        """
        for path, error in self._logs.failed():
            for tp in self._logs.take_offline(path, error):
                if replica := self._replicas.get(tp):
                    replica.offline = True
                    self.stop_serving(replica)
            if self._logs.works:
                self.isr_updates.replicas_failed()
            else:
                self._on_storage_error(error)

    async def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks to disk that have changed. All other partitions keep their entries."""
        changed, self._changed_high_watermarks = self._changed_high_watermarks, {}
        committed = {
            replica.topic_partition: Committed.of(replica.log, replica.partition.high_watermark) for replica in changed
        }
        try:
            await self.offload(self._logs.checkpoint_high_watermarks, committed)
        except BaseException:  # also a cancellation, because then the outcome of the write is unknown
            # A replica that was hosted anew meanwhile comes last, so that its value counts.
            self._changed_high_watermarks = changed | self._changed_high_watermarks
            raise
        self.notice_failures()

    async def close(self) -> None:
        """Stop serving: answer all waiting requests, stop writing to ZooKeeper, write the fence and high watermarks.

        Flushes in progress are waited for. The logs stay open.
        """
        self.closed = True
        for replica in self:
            self.stop_serving(replica)
        self.purgatories.complete_all()
        await self.isr_updates.close()
        await self._log_flusher.close()
        with suppress(OutOfDescriptorsError):  # the start after this is then as after a kill
            await self.leader_epoch_fence.write()
        await self.checkpoint_high_watermarks()

    def log_start_rose(self, tp: TopicPartition) -> None:
        """Report a raised log start offset: to followers in their next answers, or to the leader in the next fetch."""
        self.purgatories.mark_changed(tp)
        self.fetchers.log_start_rose(tp)

    def stop_serving(self, replica: Replica) -> None:
        """Neither lead nor follow the partition until the controller sends a role. Answer its waiting requests."""
        self.fetchers.drop(replica.topic_partition)
        replica.partition.stop()
        self.epoch_ended(replica)

    def epoch_ended(self, replica: Replica) -> None:
        """Report the new role to the subscribers, then complete the requests that wait in the old leader epoch.

        Consumers' fetches among them complete in the next turns of the event loop.
        """
        for role_changed in self._role_listeners:
            role_changed(replica)
        self.purgatories.epoch_ended(replica.topic_partition)
