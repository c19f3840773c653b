"""Handle the controller's requests: LeaderAndIsr, StopReplica, UpdateMetadata and LogEnds.

LeaderAndIsr and StopReplica requests take effect one at a time, in the order of their arrival. That holds even if one
of them waits for a slow disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager

from cluster.state import PartitionState, VersionedState
from node.handlers.stray_partitions import StrayPartitions
from node.net.server import RequestContext
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.lock_with_deadline import lock_until
from storage.descriptor_reserve import OutOfDescriptorsError
from tidelog.errors import (
    BrokerError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    StorageError,
    UnknownTopicIdError,
)
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.control_messages import (
    ANY_EPOCH,
    BrokerInfo,
    ControllerRequest,
    EpochBegin,
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
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.quantities import count_of, first_of

log = logging.getLogger(__name__)

#: The number of partitions that change their role before the event loop may do other work.
_PARTITIONS_PER_STEP = 64
#: The number of a log's latest epochs that are reported to the controller. Replicas can differ only in late epochs.
_MAX_EPOCHS_REPORTED = 32
#: The leader epoch of a partition whose topic was just created. A later epoch means that leadership has changed.
_FIRST_EPOCH = 0
#: The number of partitions that one log line names at most.
_MAX_NAMED = 5


class ControllerRequests:
    """The handlers of the controller's requests.

    A request of an older controller epoch is refused as a whole, and stale partition states are refused one by one.

    A handler that waits for earlier requests raises RequestTimedOutError if they take until its deadline. A handler
    raises StaleBrokerEpochError if the broker has lost the registration to which the request was addressed, because
    other brokers may lead the named partitions by then.
    """

    def __init__(self, replicas: ReplicaManager) -> None:
        self._broker_id = replicas.broker_id
        self._replicas = replicas
        self._leader_epoch_fence = replicas.leader_epoch_fence
        self._fetchers = replicas.fetchers
        self._metadata = replicas.metadata
        self._purgatories = replicas.purgatories
        self._clock = replicas.clock
        self._events = replicas.events
        self._one_at_a_time = asyncio.Lock()
        self._live: Mapping[int, int] = {}
        self._stray_partitions = StrayPartitions(replicas.broker_id)

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, context: RequestContext, resignations: int
    ) -> LeaderAndIsrResponse:
        """Become leader or follower of each partition, and refuse stale partition states one by one.

        Three steps, in this order:
        1. Open the logs, and note each accepted leader epoch in the leader epoch fence.
        2. Write the fence to disk. No role changes before, so that a restarted broker still refuses older states.
        3. Give each accepted replica its role.

        Raises RequestTimedOutError if no file descriptor is left to write the fence or to open a log. If only a log
        could not be opened, all other partitions have their roles by then.
        """
        self._stop_leading_early(request)
        async with self._exclusively(context.deadline_ms, resignations) as raise_if_resigned:
            if not self._accept_controller_epoch(request):
                return LeaderAndIsrResponse(StaleControllerEpochError.code)
            self._brokers_changed(request.live_brokers)
            self._stray_partitions.note(request)
            topics = {info.name: info for info in request.topics}
            outcomes: dict[TopicPartition, int] = {}
            roles: list[tuple[Replica, PartitionStateMessage]] = []
            not_opened: OutOfDescriptorsError | None = None
            # Leaders come first, because clients wait for leaders and do not wait for followers.
            states = sorted(request.partitions, key=lambda state: state.leader != self._broker_id)
            for count, state in enumerate(states, 1):
                tp = TopicPartition(state.topic, state.partition)
                try:
                    replica = await self._hosted(tp, topics.get(state.topic), state)
                except OutOfDescriptorsError as error:
                    not_opened = error
                except BrokerError as error:
                    outcomes[tp] = self._failed(tp, error)
                else:
                    # The fence needs the open log, because the log may have records of a later epoch.
                    if refusal := self._leader_epoch_fence.refusal(replica, state):
                        self._leader_epoch_fence.note_controller(replica, request.controller_epoch)
                        outcomes[tp] = self._refused(tp, refusal)
                    else:
                        self._leader_epoch_fence.note(replica, state, request.controller_epoch)
                        roles.append((replica, state))
                if count % _PARTITIONS_PER_STEP == 0:
                    await asyncio.sleep(0)
            try:
                await self._leader_epoch_fence.write()
            except OutOfDescriptorsError as error:
                raise RequestTimedOutError(
                    f"broker {self._broker_id}: cannot write its leader epochs yet: {error}"
                ) from None
            self._replicas.notice_failures()
            changed: list[PartitionStateMessage] = []
            for count, (replica, state) in enumerate(roles, 1):
                raise_if_resigned()
                tp, known_epoch = replica.topic_partition, replica.partition.leader_epoch
                try:
                    outcomes[tp] = self._become(replica.online_or_raise(), state)
                except BrokerError as error:
                    outcomes[tp] = self._failed(tp, error)
                if replica.partition.leader_epoch > max(known_epoch, _FIRST_EPOCH):
                    changed.append(state)
                if count % _PARTITIONS_PER_STEP == 0:
                    await asyncio.sleep(0)
            _log_role_changes(self._broker_id, changed)
            if not_opened is not None:
                raise RequestTimedOutError(f"broker {self._broker_id}: cannot open all logs yet: {not_opened}")
            return LeaderAndIsrResponse(
                0,
                tuple(
                    PartitionOutcome(
                        state.topic, state.partition, outcomes[TopicPartition(state.topic, state.partition)]
                    )
                    for state in request.partitions
                ),
            )

    async def stop_replica(
        self, request: StopReplicaRequest, context: RequestContext, resignations: int
    ) -> StopReplicaResponse:
        """Stop serving the replicas, and delete those that the request says to delete.

        A replica that this broker does not host counts as stopped. Raises RequestTimedOutError if no file descriptor is
        left to delete with, or if the outcome of an earlier ISR proposal is still unknown.
        """
        self._stop_leading_early(request)
        async with self._exclusively(context.deadline_ms, resignations):
            if not self._accept_controller_epoch(request):
                return StopReplicaResponse(StaleControllerEpochError.code)
            codes = {each: self._stop(each) for each in request.partitions}
            deleted = [each for each, code in codes.items() if not code and each.delete]
            codes |= await self._delete(deleted, context.deadline_ms)
        return StopReplicaResponse(
            0, tuple(PartitionOutcome(each.topic, each.partition, codes[each]) for each in request.partitions)
        )

    async def update_metadata(self, request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
        """Replace the metadata cache by the controller's metadata, and set stray partitions aside.

        Raises RequestTimedOutError if no file descriptor is left to set a stray partition aside with.
        """
        if not self._accept_controller_epoch(request):
            return UpdateMetadataResponse(StaleControllerEpochError.code)
        self._brokers_changed(request.live_brokers)
        self._replicas.reconfigure(self._metadata.update(request))
        await self._set_strays_aside(request, context.deadline_ms)
        return UpdateMetadataResponse(0)

    def log_ends(self, request: LogEndsRequest) -> LogEndsResponse:
        """Return the log end offsets of the named partitions, including partitions without a leader."""
        if not self._accept_controller_epoch(request):
            return LogEndsResponse(StaleControllerEpochError.code)
        tps = (TopicPartition(each.topic, each.partition) for each in request.partitions)
        return LogEndsResponse(0, tuple(map(self._log_end, tps)))

    @asynccontextmanager
    async def _exclusively(self, deadline_ms: int, resignations: int) -> AsyncIterator[Callable[[], None]]:
        """Run the body once all earlier requests are done, and yield a check to repeat after each wait.

        The check raises StaleBrokerEpochError if the broker stops or loses its registration. `resignations` is the
        broker's count when the request's broker epoch was checked.
        """

        def raise_if_resigned() -> None:
            if self._replicas.closed or self._replicas.resignations != resignations:
                raise StaleBrokerEpochError(
                    f"broker {self._broker_id} has lost the registration to which this request was sent"
                )

        async with lock_until(self._one_at_a_time, self._clock, deadline_ms):
            raise_if_resigned()
            yield raise_if_resigned

    # --- controller epoch and live brokers -------------------------------------------------------------------

    def _accept_controller_epoch(self, request: ControllerRequest) -> bool:
        """Return False if this broker has already heard from a controller of a later epoch."""
        known = self._metadata.controller_epoch
        admitted = self._metadata.admit_controller(request.controller_id, request.controller_epoch)
        if admitted:
            self._events.processed(request.api, epoch=request.controller_epoch, known=known)
        else:
            self._events.reject(request.api, f"controller epoch {request.controller_epoch} is older than {known}")
        return admitted

    def _brokers_changed(self, live_brokers: Iterable[BrokerInfo]) -> None:
        """Take over the live brokers, and drop what followers reported under older registrations."""
        if not self._metadata.set_brokers(live_brokers):
            return
        self._fetchers.brokers_changed(self._metadata.brokers)
        # The controller has removed a broker that is shutting down from every ISR. Such a broker must not rejoin.
        self._live = {id_: broker.epoch for id_, broker in self._metadata.brokers.items() if not broker.shutting_down}
        now_ms = self._clock.monotonic_ms()
        for replica in self._replicas:
            if replica.partition.is_leader:
                facts = replica.partition.brokers_changed(self._live, replica.log.log_end_offset, now_ms)
                self._replicas.apply_facts(replica, facts)
                self._purgatories.deletions.check_and_complete(replica.topic_partition)
                self._purgatories.mark_changed(replica.topic_partition)

    # --- leading and following -------------------------------------------------------------------------------

    def _stop_leading_early(self, request: LeaderAndIsrRequest | StopReplicaRequest) -> None:
        """Stop leading, at once, each partition that another broker leads in a later epoch.

        The new leader may already acknowledge records. The request itself takes effect only after earlier requests and
        after the disk, so waiting for that would leave two leaders.
        """
        if request.controller_epoch < self._metadata.controller_epoch:
            return
        for each in request.partitions:
            replica = self._replicas.get(TopicPartition(each.topic, each.partition))
            if replica is not None and self._is_led_by_another(replica, each):
                self._replicas.resign(replica)

    def _is_led_by_another(self, replica: Replica, state: PartitionStateMessage | StopReplicaPartition) -> bool:
        if state.leader_epoch <= replica.partition.leader_epoch:
            return False
        if isinstance(state, StopReplicaPartition):
            return True
        return state.leader != self._broker_id and self._leader_epoch_fence.refusal(replica, state) is None

    async def _hosted(self, tp: TopicPartition, topic: TopicInfo | None, state: PartitionStateMessage) -> Replica:
        replica = self._replicas.get(tp)
        if topic is not None:
            if replica is not None and replica.damaged and replica.topic_id == topic.topic_id:
                await self._resolve_damage(replica, state)
            # An unclean leader starts with the records that it has, even if that is none.
            in_sync = self._broker_id in state.isr and not (state.unclean and state.leader == self._broker_id)
            return await self._replicas.host(tp, topic, in_sync=in_sync)
        if replica is None:
            raise UnknownTopicIdError(f"{tp}: the controller sent no topic id")
        return replica

    async def _resolve_damage(self, replica: Replica, state: PartitionStateMessage) -> None:
        """Decide what happens to a damaged log.

        A. The replica is out of the ISR, and another broker leads: reset the log, so that all is fetched again.
        B. The replica is in the ISR with others: raise IneligibleReplicaError, so that the controller chooses another
           leader and removes this replica from the ISR.
        C. The replica is the whole ISR, or no broker leads: keep the log, because no other replica is better.
        """
        has_leader = state.leader != NO_LEADER
        if self._broker_id not in state.isr:
            if has_leader:  # A
                await self._replicas.reset_log(replica)
        elif has_leader and state.isr != (self._broker_id,):  # B
            raise IneligibleReplicaError(
                f"{replica.topic_partition}: the log on broker {self._broker_id} is damaged; "
                "other in-sync replicas have all records"
            )
        else:  # C
            replica.damaged = False

    def _become(self, replica: Replica, message: PartitionStateMessage) -> int:
        state = PartitionState(message.leader, message.leader_epoch, message.isr, message.controller_epoch)
        versioned = VersionedState(state, message.partition_epoch)
        partition, tp = replica.partition, replica.topic_partition
        if partition.is_stale(versioned):
            # A stale state of the same epoch is a repeated request that crossed with the leader's own ISR change.
            # Its leader and epoch already hold, so the answer is success.
            if message.leader_epoch == partition.leader_epoch:
                return 0
            self._events.reject(
                LeaderAndIsrRequest.api, f"{tp}: epoch {message.leader_epoch} is older than {partition.leader_epoch}"
            )
            return FencedLeaderEpochError.code
        if message.leader == self._broker_id:
            self._lead(replica, versioned, message.replicas)
        elif partition.make_follower(versioned, message.replicas):
            log.debug(
                "%s: broker %d follows broker %d in epoch %d",
                tp,
                self._broker_id,
                message.leader,
                message.leader_epoch,
            )
            self._events.become_follower(partition)
            self._replicas.epoch_ended(replica)
            if message.leader == NO_LEADER:
                self._fetchers.drop(tp)
            else:
                self._fetchers.follow(replica)
        return 0

    def _lead(self, replica: Replica, versioned: VersionedState, replicas: tuple[int, ...]) -> None:
        partition, tp = replica.partition, replica.topic_partition
        leader_epoch, end = versioned.state.leader_epoch, replica.log.log_end_offset
        begins = not replica.leads_in(leader_epoch)
        if begins:
            self._fetchers.drop(tp)
            # The log must know where the epoch starts before the first append in it. Followers align by this offset.
            replica.log.assign_leader_epoch(leader_epoch)
            replica.flush_if_due()
        facts = partition.make_leader(versioned, replicas, self._live, end, self._clock.monotonic_ms())
        if begins:
            self._events.become_leader(partition, end)
        self._purgatories.mark_changed(tp)
        if begins:
            log.debug("%s: leads in epoch %d from offset %d, high watermark %d, ISR %s", tp, leader_epoch, end,
                      partition.high_watermark, partition.isr)  # fmt: skip
            self._replicas.epoch_ended(replica)
        self._replicas.apply_facts(replica, facts)

    def _failed(self, tp: TopicPartition, error: BrokerError) -> int:
        log.warning("%s: broker %d cannot lead or follow: %s", tp, self._broker_id, error)
        return self._replicas.code_of(error, tp)

    def _refused(self, tp: TopicPartition, refusal: BrokerError) -> int:
        # ZooKeeper has lost writes, for example because it was restored from a backup. If this broker obeyed and
        # truncated its log, the records would be lost too.
        log.error("%s: %s; refused", tp, refusal)
        self._events.reject(LeaderAndIsrRequest.api, f"{tp}: {refusal}")
        return refusal.code

    # --- stopping, deleting, setting aside -------------------------------------------------------------------

    def _stop(self, stop: StopReplicaPartition) -> int:
        tp = TopicPartition(stop.topic, stop.partition)
        replica = self._replicas.get(tp)
        if replica is not None:
            known = replica.partition.leader_epoch
            if ANY_EPOCH < stop.leader_epoch < known:
                self._events.reject(StopReplicaRequest.api, f"{tp}: epoch {stop.leader_epoch} is older than {known}")
                return FencedLeaderEpochError.code
            self._replicas.stop_serving(replica)
        return 0

    async def _delete(
        self, stopped: Collection[StopReplicaPartition], deadline_ms: int
    ) -> Mapping[StopReplicaPartition, int]:
        """Delete the logs of stopped replicas. Return the error codes of those that could not be deleted."""
        to_delete = dict.fromkeys(TopicPartition(each.topic, each.partition) for each in stopped)
        await self._replicas.isr_updates.wait_until_settled(to_delete, deadline_ms)
        try:
            await self._replicas.delete(to_delete)
        except StorageError as error:
            self._replicas.notice_failures()
            if isinstance(error, OutOfDescriptorsError):
                raise RequestTimedOutError(f"broker {self._broker_id}: cannot delete all logs yet: {error}") from None
            return dict.fromkeys(stopped, error.code)
        for tp in to_delete:
            self._stray_partitions.forget(tp)
        return {}

    async def _set_strays_aside(self, update: UpdateMetadataRequest, deadline_ms: int) -> None:
        """Set stray partitions aside: those of deleted topics, and those that were reassigned to other brokers.

        StopReplica does not reach a broker that was down, and the controller that wanted to send it may have failed
        since. So each full UpdateMetadata is compared with the partitions of this broker.
        """
        if not self._strays(update):
            return
        async with self._exclusively(deadline_ms, self._replicas.resignations):
            for tp in self._strays(update):
                self._stray_partitions.forget(tp)
                try:
                    await self._replicas.set_aside(tp)
                except OutOfDescriptorsError as error:
                    raise RequestTimedOutError(f"{tp}: cannot set the log aside yet: {error}") from None

    def _strays(self, update: UpdateMetadataRequest) -> list[TopicPartition]:
        # A deposed controller does not know what later controllers have done. Logs from before this broker's restart
        # may come from a later controller's decision.
        deposed = update.controller_epoch < self._replicas.controller_epoch
        elsewhere = {
            TopicPartition(state.topic, state.partition): state.leader_epoch
            for state in update.partitions
            if self._broker_id not in (*state.replicas, *state.leaving)
        }
        kept = [tp for tp, epoch in elsewhere.items() if self._still_has(tp, epoch, deposed=deposed)]
        if update.every_topic is None or deposed:
            return kept
        gone = self._stray_partitions.find_strays(update.every_topic, update.live_brokers, self._replicas.topic_ids())
        return list(dict.fromkeys(kept + gone))

    def _still_has(self, tp: TopicPartition, leader_epoch: int, *, deposed: bool) -> bool:
        """Return whether this broker has a replica, or an open log, of a partition that only others have in this epoch.

        A log without a replica belongs to a partition that no controller has assigned to this broker since its start.
        """
        replica = self._replicas.get(tp)
        if replica is None:
            return not deposed and self._replicas.log_of(tp) is not None
        # A replica is added to a partition only in a new leader epoch, so a state of the same epoch is no older.
        # The StopReplica request may have carried an earlier epoch than this replica knew, and was refused then.
        return leader_epoch >= replica.partition.leader_epoch

    # --- log ends --------------------------------------------------------------------------------------------

    def _log_end(self, tp: TopicPartition) -> LogEndAnswer:
        log_ = self._replicas.log_of(tp)
        if log_ is None:
            return LogEndAnswer(tp.topic, tp.partition, IneligibleReplicaError.code)
        lacks = log_.log_end_offset < self._replicas.recovered_high_watermark(tp)
        last_epoch = -1 if log_.latest_epoch is None else log_.latest_epoch
        code = IneligibleReplicaError.code if lacks else 0
        epochs = tuple(EpochBegin(*each) for each in log_.epochs[-_MAX_EPOCHS_REPORTED:])
        return LogEndAnswer(tp.topic, tp.partition, code, last_epoch, log_.log_end_offset, epochs)


def _log_role_changes(broker_id: int, states: Collection[PartitionStateMessage]) -> None:
    """Log one line for each kind of change: partitions to lead, partitions to follow, partitions without a leader."""
    by_change: defaultdict[str, list[str]] = defaultdict(list)
    for state in states:
        tp, epoch = f"{state.topic}-{state.partition}", state.leader_epoch
        if state.leader == broker_id:
            by_change["begins to lead %s: %s"].append(f"{tp} (epoch {epoch})")
        elif state.leader == NO_LEADER:
            by_change["has replicas of %s without a leader: %s"].append(tp)
        else:
            by_change["begins to follow %s: %s"].append(f"{tp} (broker {state.leader}, epoch {epoch})")
    for change, partitions in by_change.items():
        log.info(change, count_of(len(partitions), "partition"), first_of(partitions, _MAX_NAMED))
