"""What the controller asks of a broker: to lead, to follow, to stop, to know the cluster, and how far its logs reach.

Its requests take effect in the order in which they came, one at a time, however long one of them waits for the disk.
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

#: Partitions that change their role before other work gets a turn of the loop.
_TURN = 64
#: Epochs of a log that the controller is told of: the last ones, in which it may differ from others.
_EPOCHS_TOLD = 32
#: The leader epoch of a partition whose topic was just created. A later epoch means that leadership has changed.
_FIRST_EPOCH = 0
#: A log line names at most this many partitions.
_MOST_NAMED = 5


class ControllerRequests:
    """What a controller says whose time is over is refused; so is, one by one, what a partition knows better.

    RequestTimedOutError where the requests before one take until its deadline; StaleBrokerEpochError where the
    registration is gone by then that this was said to: others may lead by now what it names.
    """

    def __init__(self, replicas: ReplicaManager) -> None:
        self._broker_id = replicas.broker_id
        self._replicas = replicas
        self._leaderships = replicas.leaderships
        self._fetchers = replicas.fetchers
        self._metadata = replicas.metadata
        self._waiting = replicas.waiting
        self._clock = replicas.clock
        self._events = replicas.events
        self._one_at_a_time = asyncio.Lock()
        self._live: Mapping[int, int] = {}
        self._last_told = StrayPartitions(replicas.broker_id)

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, context: RequestContext, resignations: int
    ) -> LeaderAndIsrResponse:
        """Become leader or follower of each partition; those whose state is old are refused one by one.

        RequestTimedOutError also where no file descriptor is left to note down what is to be remembered before anybody
        acts upon it, or to make a log; then the others have their roles.
        """
        self._resign_early(request)
        async with self._turn(context.deadline_ms, resignations) as raise_if_resigned:
            if not self._admit(request):
                return LeaderAndIsrResponse(StaleControllerEpochError.code)
            self._brokers_changed(request.live_brokers)
            self._last_told.note(request)
            topics = {info.name: info for info in request.topics}
            outcomes: dict[TopicPartition, int] = {}
            roles: list[tuple[Replica, PartitionStateMessage]] = []
            unmade: OutOfDescriptorsError | None = None
            # Leaders first: clients wait for them, nobody waits for a follower.
            states = sorted(request.partitions, key=lambda state: state.leader != self._broker_id)
            for count, state in enumerate(states, 1):
                tp = TopicPartition(state.topic, state.partition)
                try:
                    replica = await self._hosted(tp, topics.get(state.topic), state)
                except OutOfDescriptorsError as error:
                    unmade = error
                except BrokerError as error:
                    outcomes[tp] = self._failed(tp, error)
                else:
                    if refusal := self._leaderships.refusal(replica, state):
                        self._leaderships.note_controller(replica, request.controller_epoch)
                        outcomes[tp] = self._refused(tp, refusal)
                    else:
                        self._leaderships.note(replica, state, request.controller_epoch)
                        roles.append((replica, state))
                if count % _TURN == 0:
                    await asyncio.sleep(0)
            try:
                await self._leaderships.write()
            except OutOfDescriptorsError as error:
                raise RequestTimedOutError(f"what is to be led and followed is not written down yet: {error}") from None
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
                if count % _TURN == 0:
                    await asyncio.sleep(0)
            _log_role_changes(self._broker_id, changed)
            if unmade is not None:
                raise RequestTimedOutError(f"not all logs are made yet: {unmade}")
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
        """Stop serving, and delete where asked to. What is not here has been stopped.

        RequestTimedOutError also where no file descriptor is left to delete with, or where it is not known yet what
        became of an ISR that was proposed before.
        """
        self._resign_early(request)
        async with self._turn(context.deadline_ms, resignations):
            if not self._admit(request):
                return StopReplicaResponse(StaleControllerEpochError.code)
            codes = {each: self._stop(each) for each in request.partitions}
            deleted = [each for each, code in codes.items() if not code and each.delete]
            codes |= await self._delete(deleted, context.deadline_ms)
        return StopReplicaResponse(
            0, tuple(PartitionOutcome(each.topic, each.partition, codes[each]) for each in request.partitions)
        )

    async def update_metadata(self, request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
        """Take over the controller's picture, and leave what is not this broker's in it.

        RequestTimedOutError also where no file descriptor is left to set it aside with.
        """
        if not self._admit(request):
            return UpdateMetadataResponse(StaleControllerEpochError.code)
        self._brokers_changed(request.live_brokers)
        self._replicas.reconfigure(self._metadata.update(request))
        await self._leave(request, context.deadline_ms)
        return UpdateMetadataResponse(0)

    def log_ends(self, request: LogEndsRequest) -> LogEndsResponse:
        """How far the logs reach that the controller asks for, also of those that nobody leads."""
        if not self._admit(request):
            return LogEndsResponse(StaleControllerEpochError.code)
        asked = (TopicPartition(each.topic, each.partition) for each in request.partitions)
        return LogEndsResponse(0, tuple(map(self._log_end, asked)))

    @asynccontextmanager
    async def _turn(self, deadline_ms: int, resignations: int) -> AsyncIterator[Callable[[], None]]:
        """When those that came before are done. Gives what is to be asked again after each wait.

        `resignations` of this broker when the request was found to be for its registration.
        """

        def raise_if_resigned() -> None:
            if self._replicas.closed or self._replicas.resignations != resignations:
                raise StaleBrokerEpochError("the registration that this was said to is gone")

        async with lock_until(self._one_at_a_time, self._clock, deadline_ms):
            raise_if_resigned()
            yield raise_if_resigned

    # --- who asks, and who lives -----------------------------------------------------------------------------

    def _admit(self, request: ControllerRequest) -> bool:
        """False where a later controller has already been heard: the request is a dead one's."""
        known = self._metadata.controller_epoch
        admitted = self._metadata.admit_controller(request.controller_id, request.controller_epoch)
        if admitted:
            self._events.processed(request.api, epoch=request.controller_epoch, known=known)
        else:
            self._events.reject(request.api, f"controller epoch {request.controller_epoch}, {known} is known")
        return admitted

    def _brokers_changed(self, live_brokers: Iterable[BrokerInfo]) -> None:
        """The controller named the live brokers; registrations that are new void what was heard from older ones."""
        if not self._metadata.set_brokers(live_brokers):
            return
        self._fetchers.brokers_changed(self._metadata.brokers)
        # One that is shutting down has been taken out of every ISR, and must not be let back in.
        self._live = {id_: broker.epoch for id_, broker in self._metadata.brokers.items() if not broker.shutting_down}
        now_ms = self._clock.monotonic_ms()
        for replica in self._replicas:
            if replica.partition.is_leader:
                facts = replica.partition.brokers_changed(self._live, replica.log.log_end_offset, now_ms)
                self._replicas.act(replica, facts)
                self._waiting.deletions.check_and_complete(replica.topic_partition)
                self._waiting.changed(replica.topic_partition)

    # --- leading and following -------------------------------------------------------------------------------

    def _resign_early(self, request: LeaderAndIsrRequest | StopReplicaRequest) -> None:
        """What is others' in a later epoch this broker leads no more from now on.

        They may have heard of it already, and acknowledge; to act on it here waits for its turn, and for the disk.
        """
        if request.controller_epoch < self._metadata.controller_epoch:
            return
        for each in request.partitions:
            replica = self._replicas.get(TopicPartition(each.topic, each.partition))
            if replica is not None and self._is_others(replica, each):
                self._replicas.resign(replica)

    def _is_others(self, replica: Replica, told: PartitionStateMessage | StopReplicaPartition) -> bool:
        if told.leader_epoch <= replica.partition.leader_epoch:
            return False
        if isinstance(told, StopReplicaPartition):
            return True
        return told.leader != self._broker_id and self._leaderships.refusal(replica, told) is None

    async def _hosted(self, tp: TopicPartition, topic: TopicInfo | None, state: PartitionStateMessage) -> Replica:
        replica = self._replicas.get(tp)
        if topic is not None:
            if replica is not None and replica.damaged and replica.topic_id == topic.topic_id:
                await self._settle_damage(replica, state)
            # One that is to lead uncleanly leads with what it has, be it nothing.
            in_sync = self._broker_id in state.isr and not (state.unclean and state.leader == self._broker_id)
            return await self._replicas.host(tp, topic, in_sync=in_sync)
        if replica is None:
            raise UnknownTopicIdError(f"the controller named no topic id of {tp}")
        return replica

    async def _settle_damage(self, replica: Replica, state: PartitionStateMessage) -> None:
        """A damaged log goes once another leads, from whom all can be fetched, and the cluster does not count on it.

        IneligibleReplicaError while it does, and another in sync can lead. Where none can, it is as good as any.
        """
        has_leader = state.leader != NO_LEADER
        if self._broker_id not in state.isr:
            if has_leader:
                await self._replicas.begin_anew(replica)
        elif has_leader and state.isr != (self._broker_id,):
            raise IneligibleReplicaError("its log is damaged, and others in sync have it whole")
        else:
            replica.damaged = False

    def _become(self, replica: Replica, message: PartitionStateMessage) -> int:
        state = PartitionState(message.leader, message.leader_epoch, message.isr, message.controller_epoch)
        versioned = VersionedState(state, message.partition_epoch)
        partition, tp = replica.partition, replica.topic_partition
        if partition.is_stale(versioned):
            # In the same epoch it is a repetition that crossed with the leader's own ISR change: that part is taken.
            if message.leader_epoch == partition.leader_epoch:
                return 0
            self._events.reject(
                LeaderAndIsrRequest.api, f"{tp}: epoch {message.leader_epoch}, {partition.leader_epoch} is known"
            )
            return FencedLeaderEpochError.code
        if message.leader == self._broker_id:
            self._lead(replica, versioned, message.replicas)
        elif partition.make_follower(versioned, message.replicas):
            log.debug("%s: follows broker %d in epoch %d", tp, message.leader, message.leader_epoch)
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
            replica.log.assign_leader_epoch(leader_epoch)
            replica.flush_if_due()
        facts = partition.make_leader(versioned, replicas, self._live, end, self._clock.monotonic_ms())
        if begins:
            self._events.become_leader(partition, end)
        self._waiting.changed(tp)
        if begins:
            log.debug("%s: leads in epoch %d from offset %d, high watermark %d, ISR %s", tp, leader_epoch, end,
                      partition.high_watermark, partition.isr)  # fmt: skip
            self._replicas.epoch_ended(replica)
        self._replicas.act(replica, facts)

    def _failed(self, tp: TopicPartition, error: BrokerError) -> int:
        log.warning("%s: cannot become a replica: %s", tp, error)
        return self._replicas.code_of(error, tp)

    def _refused(self, tp: TopicPartition, refusal: BrokerError) -> int:
        # ZooKeeper itself has gone back. To truncate now would turn its loss into ours (FAULTS F42).
        log.error("%s: %s; refused", tp, refusal)
        self._events.reject(LeaderAndIsrRequest.api, f"{tp}: {refusal}")
        return refusal.code

    # --- stopping and leaving --------------------------------------------------------------------------------

    def _stop(self, stop: StopReplicaPartition) -> int:
        tp = TopicPartition(stop.topic, stop.partition)
        replica = self._replicas.get(tp)
        if replica is not None:
            known = replica.partition.leader_epoch
            if ANY_EPOCH < stop.leader_epoch < known:
                self._events.reject(StopReplicaRequest.api, f"{tp}: epoch {stop.leader_epoch}, {known} is known")
                return FencedLeaderEpochError.code
            self._replicas.stop_serving(replica)
        return 0

    async def _delete(
        self, stopped: Collection[StopReplicaPartition], deadline_ms: int
    ) -> Mapping[StopReplicaPartition, int]:
        """The error code of each that could not be deleted."""
        doomed = dict.fromkeys(TopicPartition(each.topic, each.partition) for each in stopped)
        await self._replicas.state_changes.settled(doomed, deadline_ms)
        try:
            await self._replicas.delete(doomed)
        except StorageError as error:
            self._replicas.notice_failures()
            if isinstance(error, OutOfDescriptorsError):
                raise RequestTimedOutError(f"not all logs are deleted yet: {error}") from None
            return dict.fromkeys(stopped, error.code)
        for tp in doomed:
            self._last_told.forget(tp)
        return {}

    async def _leave(self, update: UpdateMetadataRequest, deadline_ms: int) -> None:
        """Sets aside what it has of topics that are gone, and of partitions that are others' alone as far as it knows.

        As at a start: it was away when it was to be rid of them, and whoever wanted to tell it may have died since.
        """
        if not self._departed(update):
            return
        async with self._turn(deadline_ms, self._replicas.resignations):
            for tp in self._departed(update):
                self._last_told.forget(tp)
                try:
                    await self._replicas.set_aside(tp)
                except OutOfDescriptorsError as error:
                    raise RequestTimedOutError(f"{tp} is not set aside yet: {error}") from None

    def _departed(self, update: UpdateMetadataRequest) -> list[TopicPartition]:
        # A deposed controller does not know what later ones have done, which may be here from an earlier life.
        deposed = update.controller_epoch < self._replicas.controller_epoch
        elsewhere = {
            TopicPartition(state.topic, state.partition): state.leader_epoch
            for state in update.partitions
            if self._broker_id not in (*state.replicas, *state.leaving)
        }
        kept = [tp for tp, epoch in elsewhere.items() if self._is_kept(tp, epoch, deposed=deposed)]
        if update.every_topic is None or deposed:
            return kept
        gone = self._last_told.gone(update.every_topic, update.live_brokers, self._replicas.topic_ids())
        return list(dict.fromkeys(kept + gone))

    def _is_kept(self, tp: TopicPartition, leader_epoch: int, *, deposed: bool) -> bool:
        """Whether it still has what is others' alone in this epoch: a replica, or a log that nobody has claimed yet."""
        replica = self._replicas.get(tp)
        if replica is None:
            return not deposed and self._replicas.log_of(tp) is not None
        # Who is let in is so in a new epoch. What was told to stop it may have had an earlier one than it knew.
        return leader_epoch >= replica.partition.leader_epoch

    # --- how far logs reach ----------------------------------------------------------------------------------

    def _log_end(self, tp: TopicPartition) -> LogEndAnswer:
        log_ = self._replicas.log_of(tp)
        if log_ is None:
            return LogEndAnswer(tp.topic, tp.partition, IneligibleReplicaError.code)
        lacks = log_.log_end_offset < self._replicas.recovered_high_watermark(tp)
        last_epoch = -1 if log_.latest_epoch is None else log_.latest_epoch
        code = IneligibleReplicaError.code if lacks else 0
        epochs = tuple(EpochBegin(*each) for each in log_.epochs[-_EPOCHS_TOLD:])
        return LogEndAnswer(tp.topic, tp.partition, code, last_epoch, log_.log_end_offset, epochs)


def _log_role_changes(broker_id: int, states: Collection[PartitionStateMessage]) -> None:
    """Log one line for each kind of change: this broker begins to lead, begins to follow, or knows no leader."""
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
        log.info(change, count_of(len(partitions), "partition"), first_of(partitions, _MOST_NAMED))
