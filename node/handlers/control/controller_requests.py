"""Handle the controller's requests: LeaderAndIsr, StopReplica, UpdateMetadata and LogEnds.

LeaderAndIsr and StopReplica requests take effect one at a time, in the order of their arrival. That holds even if one
of them waits for a slow disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager

from cluster.state import LeaderAndEpoch
from node.handlers.control.log_ends import log_end_of
from node.handlers.control.role_changes import RoleChanges, known_state
from node.handlers.control.role_plan import fence_refusal
from node.handlers.control.stray_partitions import StrayPartitions
from node.net.server import RequestContext
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.lock_with_deadline import lock_until
from storage.descriptor_reserve import OutOfDescriptorsError
from tidelog.errors import (
    FencedLeaderEpochError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    StorageError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import (
    ANY_EPOCH,
    BrokerInfo,
    ControllerRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LogEndsRequest,
    LogEndsResponse,
    PartitionOutcome,
    PartitionStateMessage,
    StopReplicaPartition,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


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
        self._fetchers = replicas.fetchers
        self._metadata = replicas.metadata
        self._purgatories = replicas.purgatories
        self._clock = replicas.clock
        self._events = replicas.events
        self._one_at_a_time = asyncio.Lock()
        self._stray_partitions = StrayPartitions(replicas)

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, context: RequestContext, resignations: int
    ) -> LeaderAndIsrResponse:
        """Become leader or follower of each partition, and refuse stale partition states one by one.

        Five steps, in this order:
        1. Open the logs.
        2. Plan the roles, and note each accepted leader epoch in the leader epoch fence.
        3. Write the fence to disk. No role changes before, so that a restarted broker still refuses older states.
        4. Apply the planned roles.
        5. Answer with an error code for each partition.

        Raises RequestTimedOutError if no file descriptor is left to write the fence or to open a log. If only a log
        could not be opened, all other partitions have their roles by then.
        """
        self._stop_leading_early(request)
        async with self._exclusively(context.deadline_ms, resignations) as raise_if_resigned:
            if not self._accept_controller_epoch(request):
                return LeaderAndIsrResponse(StaleControllerEpochError.code)
            self._brokers_changed(request.live_brokers)
            self._stray_partitions.note(request)
            changes = RoleChanges(self._replicas, request)
            await changes.open_logs()  # 1
            await changes.plan_roles()  # 2
            await changes.write_fence()  # 3
            await changes.apply_roles(raise_if_resigned)  # 4
            return changes.answer()  # 5

    async def stop_replica(
        self, request: StopReplicaRequest, context: RequestContext, resignations: int
    ) -> StopReplicaResponse:
        """Stop serving the replicas, and delete those that the request says to delete.

        A replica that this broker does not host counts as stopped. An entry of an older leader epoch than the replica's
        is refused with FENCED_LEADER_EPOCH. Raises RequestTimedOutError if no file descriptor is
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
        """Apply the request to the metadata cache, apply changed topic settings, and set stray partitions aside.

        Raises RequestTimedOutError if no file descriptor is left to set a stray partition aside with, and
        InvalidRequestError if the topics have too many partitions.
        """
        if not self._accept_controller_epoch(request):
            return UpdateMetadataResponse(StaleControllerEpochError.code)
        self._brokers_changed(request.live_brokers)
        self._replicas.reconfigure(self._metadata.update(request))
        await self._set_strays_aside(request, context.deadline_ms)
        return UpdateMetadataResponse(0)

    def log_ends(self, request: LogEndsRequest) -> LogEndsResponse:
        """Return the log end of each named partition (`log_end_of`), whatever role this broker has for it."""
        if not self._accept_controller_epoch(request):
            return LogEndsResponse(StaleControllerEpochError.code)
        tps = (TopicPartition(each.topic, each.partition) for each in request.partitions)
        return LogEndsResponse(0, tuple(log_end_of(self._replicas, tp) for tp in tps))

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
        """Record the request's controller, or return False if this broker knows a controller of a later epoch."""
        known = self._metadata.controller_epoch
        admitted = self._metadata.admit_controller(request.controller_id, request.controller_epoch)
        if admitted:
            self._events.processed(request.api, epoch=request.controller_epoch, known=known)
        else:
            self._events.reject(request.api, f"controller epoch {request.controller_epoch} is older than {known}")
        return admitted

    def _brokers_changed(self, live_brokers: Iterable[BrokerInfo]) -> None:
        """Take over the live brokers. Led partitions forget what followers reported under older registrations."""
        now_ms, before = self._clock.monotonic_ms(), self._metadata.registrations
        if not self._metadata.set_brokers(live_brokers, now_ms):
            return
        self._fetchers.brokers_changed(self._metadata.brokers)
        registered = {id_ for id_, epoch in self._metadata.registrations.items() if before.get(id_) != epoch}
        for replica in self._replicas:
            if replica.partition.is_leader:
                facts = replica.partition.brokers_changed(
                    self._metadata.registrations, replica.log.log_end_offset, now_ms
                )
                self._replicas.apply_facts(replica, facts)
                self._purgatories.deletions.check_and_complete(replica.topic_partition)
                if registered:
                    self._purgatories.followers_registered(registered, replica.topic_partition)

    # --- stopping to lead ------------------------------------------------------------------------------------

    def _stop_leading_early(self, request: LeaderAndIsrRequest | StopReplicaRequest) -> None:
        """Stop leading, at once, each partition for which the request has a later leader epoch that this broker does
        not lead.

        The new leader may already acknowledge records. The request itself takes effect only after earlier requests and
        after the disk, so waiting for that would leave two leaders.
        """
        if request.controller_epoch < self._metadata.controller_epoch:
            return
        for each in request.partitions:
            replica = self._replicas.get(TopicPartition(each.topic, each.partition))
            if replica is not None and self._is_led_by_another(replica, each):
                if isinstance(each, PartitionStateMessage):
                    replica.partition.announce(LeaderAndEpoch(each.leader, each.leader_epoch))
                self._replicas.resign(replica)

    def _is_led_by_another(self, replica: Replica, state: PartitionStateMessage | StopReplicaPartition) -> bool:
        if state.leader_epoch <= replica.partition.leader_epoch:
            return False
        if isinstance(state, StopReplicaPartition):
            return True
        if state.leader == self._broker_id:
            return False
        return fence_refusal(self._broker_id, state, known_state(self._replicas, replica)) is None

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
        """Delete the logs of stopped replicas, once their ISR writes in flight have ended.

        If a disk fails, return its error code for every replica, else nothing.
        """
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
        """Set stray partitions aside: those of deleted topics, and those that were reassigned to other brokers."""
        if not self._stray_partitions.find(update):
            return
        async with self._exclusively(deadline_ms, self._replicas.resignations):
            for tp in self._stray_partitions.find(update):
                self._stray_partitions.forget(tp)
                try:
                    await self._replicas.set_aside(tp)
                except OutOfDescriptorsError as error:
                    raise RequestTimedOutError(f"{tp}: cannot set the log aside yet: {error}") from None
