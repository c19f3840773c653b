"""The partitions that this broker hosts: applies what the controller says of them, and acts on their rules.

All of it runs on the broker's loop. Only opening, deleting and checkpointing files is handed to a thread, one
request of the controller at a time, so that its requests take effect in the order in which they came.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cluster.partition import Facts, Partition
from cluster.state import PartitionState, VersionedState
from node.journal import NO_JOURNAL, Journal
from node.leaderships import Leaderships
from node.log_settings import LogSettings
from node.metadata_cache import MetadataCache
from node.pace import Pace
from node.replica import Replica, ReplicaLog
from node.state_changes import StateChanges
from node.surroundings import Follower, IsrStore, Logs, Offload
from node.syncing import OffloadSync, Syncing
from node.turns import turn
from node.waiting import Waiting
from storage.configs.log_config import LogConfig
from storage.descriptors import OutOfDescriptorsError
from tidelog.clock import Clock
from tidelog.control_messages import (
    BrokerInfo,
    ControllerRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LogEndAnswer,
    LogEndsRequest,
    LogEndsResponse,
    PartitionOutcome,
    PartitionStateMessage,
    StopReplicaPartition,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicInfo,
)
from tidelog.errors import (
    BrokerError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StaleControllerEpochError,
    StorageError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import NO_LEADER, TopicPartition

log = logging.getLogger(__name__)

#: Partitions that change their role before other work gets a turn of the loop.
_TURN = 64


class Replicas:
    """The hosted partitions by name.

    cut_off           the broker has not heard of ZooKeeper for a session timeout: another leader may exist, so that
                      only what the whole ISR confirms, or what is committed anyway, may be said (DESIGN 5). Asked
                      each time: a process that was stopped finds requests waiting for it before any timer of its own
    pace              of the appends on the event loop
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
        waiting: Waiting,
        fetchers: Follower,
        clock: Clock,
        max_lag_ms: int = 30_000,
        topic_defaults: LogConfig | None = None,
        offload: Offload = asyncio.to_thread,
        offload_sync: OffloadSync | None = None,
        on_storage_error: Callable[[StorageError], None] = lambda error: None,
        cut_off: Callable[[], bool] = lambda: False,
        journal: Journal = NO_JOURNAL,
        pace: Pace | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.metadata = metadata
        self.waiting = waiting
        self.clock = clock
        self._cut_off = cut_off
        self.journal = journal
        self.pace = pace or Pace()
        self._logs = logs
        self.leaderships = Leaderships(broker_id, logs, offload)
        noted = self.leaderships.note_isr
        self.state_changes = StateChanges(broker_id, isr_store, waiting, clock, self.act, noted, journal)
        self._fetchers = fetchers
        self._max_lag_ms = max_lag_ms
        self._log_settings = LogSettings(topic_defaults or LogConfig())
        self.offload = offload
        self._on_storage_error = on_storage_error
        self._replicas: dict[TopicPartition, Replica] = {}
        self._live: Mapping[int, int] = {}
        self._recovered_high_watermarks = dict(logs.high_watermarks())
        self._control = asyncio.Lock()
        self._syncing = Syncing(self._synced, self.storage_failed, offload_sync)
        self._next_isr_check_ms = 0
        self.role_changed: Callable[[Replica], object] = lambda replica: None

    @property
    def cut_off(self) -> bool:
        """Whether the broker is cut off as of now."""
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
            if self.metadata.partition_state(*tp) is not None:
                raise NotLeaderOrFollowerError(f"broker {self.broker_id} hosts no replica of {tp}")
            raise UnknownTopicOrPartitionError(f"{tp} is not known here")
        return replica

    def led(self) -> list[TopicPartition]:
        """The partitions that this broker leads."""
        return [replica.topic_partition for replica in self if replica.partition.is_leader]

    def log_sizes(self) -> Mapping[Path, Mapping[TopicPartition, int] | StorageError]:
        """The bytes of each log by its directory; why, of a directory that is offline."""
        return self._logs.log_sizes()

    # --- what the controller says ----------------------------------------------------------------------------

    def admit_controller(self, request: ControllerRequest) -> bool:
        """False where a later controller has already been heard: the request is a dead one's."""
        known = self.metadata.controller_epoch
        admitted = self.metadata.admit_controller(request.controller_id, request.controller_epoch)
        if admitted:
            self.journal.processed(request.api, epoch=request.controller_epoch, known=known)
        else:
            self.journal.reject(request.api, f"controller epoch {request.controller_epoch}, {known} is known")
        return admitted

    async def apply_leader_and_isr(self, request: LeaderAndIsrRequest, deadline_ms: int = -1) -> LeaderAndIsrResponse:
        """Become leader or follower of each partition; those whose state is old are refused one by one.

        RequestTimedOutError where an earlier request takes until `deadline_ms` (−1: never), as below; and where no file
        descriptor is left to note down what is to be remembered before anybody acts upon it.
        """
        async with turn(self._control, self.clock, deadline_ms):
            if not self.admit_controller(request):
                return LeaderAndIsrResponse(StaleControllerEpochError.code)
            self.brokers_changed(request.live_brokers)
            topics = {info.name: info for info in request.topics}
            outcomes: dict[TopicPartition, int] = {}
            roles: list[tuple[Replica, PartitionStateMessage]] = []
            # Leaders first: clients wait for them, nobody waits for a follower.
            states = sorted(request.partitions, key=lambda state: state.leader != self.broker_id)
            for count, state in enumerate(states, 1):
                tp = TopicPartition(state.topic, state.partition)
                try:
                    replica = await self._hosted(tp, topics.get(state.topic), state)
                except BrokerError as error:
                    outcomes[tp] = self._failed(tp, error)
                else:
                    if refusal := self.leaderships.admit(replica, state, request.controller_epoch):
                        outcomes[tp] = self._refused(tp, refusal)
                    else:
                        roles.append((replica, state))
                if count % _TURN == 0:
                    await asyncio.sleep(0)
            try:
                await self.leaderships.write()
            except OutOfDescriptorsError as error:
                raise RequestTimedOutError(f"what is to be led and followed is not written down yet: {error}") from None
            self.notice_failures()
            for count, (replica, state) in enumerate(roles, 1):
                tp = replica.topic_partition
                try:
                    outcomes[tp] = self._apply(replica.online_or_raise(), state)
                except BrokerError as error:
                    outcomes[tp] = self._failed(tp, error)
                if count % _TURN == 0:
                    await asyncio.sleep(0)
            return LeaderAndIsrResponse(
                0,
                tuple(
                    PartitionOutcome(
                        state.topic, state.partition, outcomes[TopicPartition(state.topic, state.partition)]
                    )
                    for state in request.partitions
                ),
            )

    async def apply_stop_replica(self, request: StopReplicaRequest, deadline_ms: int = -1) -> StopReplicaResponse:
        """Stop serving, and delete where asked to. What is not here has been stopped."""
        async with turn(self._control, self.clock, deadline_ms):
            if not self.admit_controller(request):
                return StopReplicaResponse(StaleControllerEpochError.code)
            codes = {each: self._stop_replica(each) for each in request.partitions}
            deleted = [each for each, code in codes.items() if not code and each.delete]
            try:
                await self._delete(TopicPartition(each.topic, each.partition) for each in deleted)
            except StorageError as error:
                self.notice_failures()
                codes |= dict.fromkeys(deleted, error.code)
            return StopReplicaResponse(
                0, tuple(PartitionOutcome(each.topic, each.partition, codes[each]) for each in request.partitions)
            )

    async def leave(self, states: Sequence[PartitionStateMessage], deadline_ms: int = -1) -> None:
        """Sets aside what it has of partitions that are others' alone in a later epoch than it knows.

        As at a start: it was away when it was to be rid of them, and whoever wanted to tell it may have died since.
        RequestTimedOutError as above.
        """
        if not any(map(self._has_departed, states)):
            return
        async with turn(self._control, self.clock, deadline_ms):
            for tp in [TopicPartition(each.topic, each.partition) for each in states if self._has_departed(each)]:
                log.warning("%s is not this broker's any more: set aside", tp)
                self._stop_serving(self._replicas.pop(tp))
                self._recovered_high_watermarks.pop(tp, None)
                self.leaderships.forget(tp)
                try:
                    await self.offload(self._logs.set_aside, tp)
                except StorageError:
                    self.notice_failures()

    def _has_departed(self, state: PartitionStateMessage) -> bool:
        replica = self._replicas.get(TopicPartition(state.topic, state.partition))
        if replica is None or self.broker_id in state.replicas:
            return False
        return state.leader_epoch > replica.partition.leader_epoch

    def log_ends(self, request: LogEndsRequest) -> LogEndsResponse:
        """How far the logs reach that the controller asks for, also of those that nobody leads."""
        if not self.admit_controller(request):
            return LogEndsResponse(StaleControllerEpochError.code)
        asked = (TopicPartition(each.topic, each.partition) for each in request.partitions)
        return LogEndsResponse(0, tuple(map(self._log_end, asked)))

    def _log_end(self, tp: TopicPartition) -> LogEndAnswer:
        log_ = self._logs.logs().get(tp)
        if log_ is None:
            return LogEndAnswer(tp.topic, tp.partition, IneligibleReplicaError.code)
        lacks = log_.log_end_offset < self._recovered_high_watermarks.get(tp, 0)
        last_epoch = -1 if log_.latest_epoch is None else log_.latest_epoch
        code = IneligibleReplicaError.code if lacks else 0
        return LogEndAnswer(tp.topic, tp.partition, code, last_epoch, log_.log_end_offset)

    def brokers_changed(self, live_brokers: Iterable[BrokerInfo]) -> None:
        """The controller named the live brokers; registrations that are new void what was heard from older ones."""
        if not self.metadata.set_brokers(live_brokers):
            return
        self._fetchers.brokers_changed(self.metadata.brokers)
        # One that is shutting down has been taken out of every ISR, and must not be let back in.
        self._live = {id_: broker.epoch for id_, broker in self.metadata.brokers.items() if not broker.shutting_down}
        now_ms = self.clock.monotonic_ms()
        for replica in self:
            if replica.partition.is_leader:
                self.act(replica, replica.partition.brokers_changed(self._live, replica.log.log_end_offset, now_ms))
                self.waiting.deletions.check_and_complete(replica.topic_partition)
                self.waiting.changed(replica.topic_partition)

    async def _hosted(self, tp: TopicPartition, info: TopicInfo | None, state: PartitionStateMessage) -> Replica:
        replica = self._replicas.get(tp)
        if info is None:
            if replica is None:
                raise UnknownTopicIdError(f"the controller named no topic id of {tp}")
            return replica
        if replica is not None and replica.topic_id != info.topic_id:
            # Deleted and created again while we did not listen: the old records belong to nobody.
            self._stop_serving(replica)
            del self._replicas[tp]
            await self.offload(self._logs.set_aside, tp)
            self._recovered_high_watermarks.pop(tp, None)
            replica = None
        config = self._log_settings.of(info.name, info.configs, replica.log.config if replica else None)
        if replica is None:
            # One that is to lead uncleanly leads with what it has, be it nothing.
            in_sync = self.broker_id in state.isr and not (state.unclean and state.leader == self.broker_id)
            opened = self._logs.logs().get(tp)
            if opened is None or opened.topic_id != info.topic_id:
                if opened is None or opened.topic_id:
                    self._recovered_high_watermarks.pop(tp, None)  # an earlier topic's
                opened = await self.offload(self._logs.get_or_create, tp, info.topic_id, config, in_sync=in_sync)
            if in_sync and opened.log_end_offset < (known := self._recovered_high_watermarks.get(tp, 0)):
                raise IneligibleReplicaError(f"its log ends at {opened.log_end_offset}, before high watermark {known}")
            replica = self._replicas[tp] = self._new_replica(tp, info.topic_id, opened)
        self._configure(replica.online_or_raise(), config)
        return replica

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

    def _new_replica(self, tp: TopicPartition, topic_id: str, log_: ReplicaLog) -> Replica:
        checkpointed = self._recovered_high_watermarks.get(tp, 0)
        if checkpointed > log_.log_end_offset:
            log.error("%s ends at %d, before its high watermark %d: records are lost on this disk", tp,
                      log_.log_end_offset, checkpointed)  # fmt: skip
        high_watermark = min(max(checkpointed, log_.log_start_offset), log_.log_end_offset)
        partition = Partition(self.broker_id, tp, max_lag_ms=self._max_lag_ms, high_watermark=high_watermark)
        return Replica(topic_id, log_, partition, self._syncing.begin, self.journal)

    def _apply(self, replica: Replica, message: PartitionStateMessage) -> int:
        state = PartitionState(message.leader, message.leader_epoch, message.isr, message.controller_epoch)
        versioned = VersionedState(state, message.partition_epoch)
        partition, tp = replica.partition, replica.topic_partition
        if partition.is_stale(versioned):
            # In the same epoch it is a repetition that crossed with the leader's own ISR change: that part is taken.
            if message.leader_epoch == partition.leader_epoch:
                return 0
            self.journal.reject(
                LeaderAndIsrRequest.api, f"{tp}: epoch {message.leader_epoch}, {partition.leader_epoch} is known"
            )
            return FencedLeaderEpochError.code
        if message.leader == self.broker_id:
            self._lead(replica, versioned, message.replicas)
        elif partition.make_follower(versioned, message.replicas):
            log.info("%s: follows broker %d in epoch %d", tp, message.leader, message.leader_epoch)
            self.journal.become_follower(partition)
            self._epoch_ended(replica)
            if message.leader == NO_LEADER:
                self._fetchers.drop(tp)
            else:
                self._fetchers.follow(replica)
        return 0

    def _failed(self, tp: TopicPartition, error: BrokerError) -> int:
        log.warning("%s: cannot become a replica: %s", tp, error)
        return self.code_of(error, tp)

    def _refused(self, tp: TopicPartition, refusal: BrokerError) -> int:
        # ZooKeeper itself has gone back. To truncate now would turn its loss into ours (FAULTS F42).
        log.error("%s: %s; refused", tp, refusal)
        self.journal.reject(LeaderAndIsrRequest.api, f"{tp}: {refusal}")
        return refusal.code

    def _lead(self, replica: Replica, versioned: VersionedState, replicas: tuple[int, ...]) -> None:
        partition, tp = replica.partition, replica.topic_partition
        leader_epoch, end = versioned.state.leader_epoch, replica.log.log_end_offset
        begins = not replica.leads_in(leader_epoch)
        if begins:
            self._fetchers.drop(tp)
            replica.log.assign_leader_epoch(leader_epoch)
            replica.flush_if_due()
        facts = partition.make_leader(versioned, replicas, self._live, end, self.clock.monotonic_ms())
        if begins:
            self.journal.become_leader(partition, end)
        self.waiting.changed(tp)
        if begins:
            log.info("%s: leads in epoch %d from offset %d, high watermark %d, ISR %s", tp, leader_epoch, end,
                     partition.high_watermark, partition.isr)  # fmt: skip
            self._epoch_ended(replica)
        self.act(replica, facts)

    def _stop_replica(self, stop: StopReplicaPartition) -> int:
        tp = TopicPartition(stop.topic, stop.partition)
        replica = self._replicas.get(tp)
        if replica is not None:
            known = replica.partition.leader_epoch
            if 0 <= stop.leader_epoch < known:
                self.journal.reject(StopReplicaRequest.api, f"{tp}: epoch {stop.leader_epoch}, {known} is known")
                return FencedLeaderEpochError.code
            self._stop_serving(replica)
        return 0

    async def _delete(self, tps: Iterable[TopicPartition]) -> None:
        logs = self._logs.logs()
        doomed = []
        for tp in tps:
            self._replicas.pop(tp, None)
            self._recovered_high_watermarks.pop(tp, None)
            self.leaderships.forget(tp)
            self._log_settings.forget(tp.topic)
            if tp in logs:
                doomed.append(tp)
        if doomed:
            await self.offload(self._logs.delete, *doomed)

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
            self._epoch_ended(replica)

    def high_watermark_rose(self, replica: Replica) -> None:
        """Of what this broker leads: more is committed."""
        self.journal.hw(replica.partition)
        self.waiting.high_watermark_rose(replica.topic_partition)

    def _synced(self, replica: Replica) -> None:
        """More of its log is on the disk, or need not be: acknowledge what waited for that, or fetch on."""
        tp, partition = replica.topic_partition, replica.partition
        if partition.synced(replica.durable_end, replica.log.log_end_offset, self.clock.monotonic_ms()):
            self.high_watermark_rose(replica)
        if partition.is_leader:
            self.waiting.produces.check_and_complete(tp)
        else:
            self._fetchers.synced(tp)

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

    def resign_all(self) -> None:
        """The registration is gone: whatever this broker leads, somebody else may lead already."""
        for replica in self:
            if replica.partition.is_leader:
                replica.partition.stop()
                self._epoch_ended(replica)

    def code_of(self, error: BrokerError, tp: TopicPartition) -> int:
        """What to answer for a partition where this went wrong; if it was the disk, that is offline from now on."""
        if isinstance(error, StorageError):
            self.storage_failed(error, tp)
        return error.code

    def storage_failed(self, error: StorageError, tp: TopicPartition) -> None:
        """The disk below this partition failed: nothing on it is served any more."""
        self._logs.report(tp, error)
        self.notice_failures()

    def notice_failures(self) -> None:
        """Log directories may have failed, be it on another thread: the replicas there serve no more."""
        for path, error in self._logs.failed():
            for tp in self._logs.take_offline(path, error):
                if replica := self._replicas.get(tp):
                    replica.offline = True
                    self._stop_serving(replica)
            if self._logs.works:
                self.state_changes.log_directory_failed()
            else:
                self._on_storage_error(error)

    async def checkpoint_high_watermarks(self) -> None:
        """Write down how far each partition is committed. Those not heard of since the start keep what they had."""
        logs = self._logs.logs()
        high_watermarks = {tp: offset for tp, offset in self._recovered_high_watermarks.items() if tp in logs}
        high_watermarks.update((replica.topic_partition, replica.partition.high_watermark) for replica in self)
        await self.offload(self._logs.checkpoint_high_watermarks, high_watermarks)
        self.notice_failures()

    async def close(self) -> None:
        """Everybody who waits gets an answer, nothing is written to ZooKeeper any more, and the end is noted."""
        for replica in self:
            self._stop_serving(replica)
        self.waiting.complete_all()
        await self.state_changes.close()
        await self._syncing.close()
        with suppress(OutOfDescriptorsError):  # nothing more can be done, as if it were killed
            await self.leaderships.write()
        await self.checkpoint_high_watermarks()

    def _stop_serving(self, replica: Replica) -> None:
        self._fetchers.drop(replica.topic_partition)
        replica.partition.stop()
        self._epoch_ended(replica)

    def _epoch_ended(self, replica: Replica) -> None:
        self.role_changed(replica)
        self.waiting.epoch_ended(replica.topic_partition)
