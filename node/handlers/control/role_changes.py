"""Carry out one LeaderAndIsr request: open the logs, plan the roles, write the fence, and apply the roles."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection

from cluster.state import PartitionState, VersionedState
from node.handlers.control.role_plan import Damage, KnownState, Role, plan_log, plan_role, recheck_role
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from storage.descriptor_reserve import OutOfDescriptorsError
from tidelog.errors import BrokerError, RequestTimedOutError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.control_messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionOutcome,
    PartitionStateMessage,
    TopicInfo,
)
from tidelog.quantities import count_of, first_of

log = logging.getLogger(__name__)

#: The number of partitions that change their role before the event loop may do other work.
_PARTITIONS_PER_STEP = 64
#: The leader epoch of a partition whose topic was just created. A later epoch means that leadership has changed.
_FIRST_EPOCH = 0
#: The number of partitions that one log line names at most.
_MAX_NAMED = 5


class RoleChanges:
    """The partitions of one LeaderAndIsr request. Call the five steps once each, in the order of their numbers."""

    def __init__(self, replicas: ReplicaManager, request: LeaderAndIsrRequest) -> None:
        self._replicas = replicas
        self._broker_id = replicas.broker_id
        self._fence = replicas.leader_epoch_fence
        self._fetchers = replicas.fetchers
        self._events = replicas.events
        self._request = request
        self._opened: list[tuple[Replica, PartitionStateMessage]] = []
        self._planned: list[tuple[Replica, PartitionStateMessage, Role]] = []
        self._codes: dict[TopicPartition, int] = {}
        self._not_opened: OutOfDescriptorsError | None = None

    async def open_logs(self) -> None:
        """Open the log of each partition (step 1). The plan needs them, because a log may have a later epoch.

        A partition whose log cannot be opened gets an error code, and no role. If no file descriptor was left for the
        log, `answer` raises instead.
        """
        topics = {info.name: info for info in self._request.topics}
        # Leaders come first, because clients wait for leaders and do not wait for followers.
        states = sorted(self._request.partitions, key=lambda state: state.leader != self._broker_id)
        for count, state in enumerate(states, 1):
            tp = TopicPartition(state.topic, state.partition)
            try:
                self._opened.append((await self._open(tp, topics.get(state.topic), state), state))
            except OutOfDescriptorsError as error:
                self._not_opened = error
            except BrokerError as error:
                self._codes[tp] = self._failed(tp, error)
            await _let_others_run(count)

    async def plan_roles(self) -> None:
        """Plan the role of each opened replica, and note each accepted state in the fence (step 2).

        A replica whose state is refused gets an error code, and no role.
        """
        epoch = self._request.controller_epoch
        for count, (replica, state) in enumerate(self._opened, 1):
            planned = plan_role(self._broker_id, state, known_state(self._replicas, replica))
            if isinstance(planned, BrokerError):
                self._fence.note_controller(replica, epoch)
                self._codes[replica.topic_partition] = self._refused(replica.topic_partition, planned)
            else:
                self._fence.note(replica, state, epoch)
                self._planned.append((replica, state, planned))
            await _let_others_run(count)

    async def write_fence(self) -> None:
        """Write the fence to disk (step 3). Raise RequestTimedOutError if no file descriptor is left to do so."""
        try:
            await self._fence.write()
        except OutOfDescriptorsError as error:
            raise RequestTimedOutError(
                f"broker {self._broker_id}: cannot write its leader epochs yet: {error}"
            ) from None
        self._replicas.notice_failures()

    async def apply_roles(self, raise_if_resigned: Callable[[], None]) -> None:
        """Give each replica its planned role (step 4), unless the partition knows a later state by now.

        `raise_if_resigned` is called before each replica. If it raises an error, the remaining replicas are unchanged.
        """
        changed: list[PartitionStateMessage] = []
        for count, (replica, state, role) in enumerate(self._planned, 1):
            raise_if_resigned()
            tp, known_epoch = replica.topic_partition, replica.partition.leader_epoch
            try:
                self._codes[tp] = self._apply(replica.online_or_raise(), state, role)
            except BrokerError as error:
                self._codes[tp] = self._failed(tp, error)
            if replica.partition.leader_epoch > max(known_epoch, _FIRST_EPOCH):
                changed.append(state)
            await _let_others_run(count)
        _log_role_changes(self._broker_id, changed)

    def answer(self) -> LeaderAndIsrResponse:
        """Return an error code (0: none) for each partition, in the order of the request (step 5).

        Raise RequestTimedOutError if a log was not opened because no file descriptor was left.
        """
        if self._not_opened is not None:
            raise RequestTimedOutError(f"broker {self._broker_id}: cannot open all logs yet: {self._not_opened}")
        return LeaderAndIsrResponse(
            0,
            tuple(
                PartitionOutcome(each.topic, each.partition, self._codes[TopicPartition(each.topic, each.partition)])
                for each in self._request.partitions
            ),
        )

    # --- one partition ---------------------------------------------------------------------------------------

    async def _open(self, tp: TopicPartition, topic: TopicInfo | None, state: PartitionStateMessage) -> Replica:
        replica = self._replicas.get(tp)
        damaged = replica is not None and replica.damaged and topic is not None and replica.topic_id == topic.topic_id
        plan = plan_log(
            self._broker_id, state, topic_sent=topic is not None, hosted=replica is not None, damaged=damaged
        )
        if isinstance(plan, BrokerError):
            raise plan
        if plan is None or topic is None:
            return self._replicas.get_or_raise(tp)
        if replica is not None and plan.damage is Damage.RESET:
            await self._replicas.reset_log(replica)
        elif replica is not None and plan.damage is Damage.ACCEPT:
            replica.damaged = False
        return await self._replicas.host(tp, topic, in_sync=plan.in_sync)

    def _apply(self, replica: Replica, message: PartitionStateMessage, planned: Role) -> int:
        state = PartitionState(message.leader, message.leader_epoch, message.isr, message.controller_epoch)
        versioned = VersionedState(state, message.partition_epoch)
        partition, tp = replica.partition, replica.topic_partition
        role = recheck_role(planned, message, partition.leader_epoch, is_stale=partition.is_stale(versioned))
        if isinstance(role, BrokerError):
            self._events.reject(LeaderAndIsrRequest.api, f"{tp}: {role}")
            return role.code
        if role is Role.LEADER:
            self._lead(replica, versioned, message.replicas)
        elif role is not Role.UNCHANGED and partition.make_follower(versioned, message.replicas):
            log.debug(
                "%s: broker %d follows broker %d in epoch %d", tp, self._broker_id, message.leader, message.leader_epoch
            )
            self._events.become_follower(partition)
            self._replicas.epoch_ended(replica)
            if role is Role.LEADERLESS:
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
        now_ms = self._replicas.clock.monotonic_ms()
        facts = partition.make_leader(versioned, replicas, self._replicas.metadata.registrations, end, now_ms)
        if begins:
            self._events.become_leader(partition, end)
        self._replicas.purgatories.mark_changed(tp)
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


def known_state(replicas: ReplicaManager, replica: Replica) -> KnownState:
    """Return the facts about a replica with which the controller's states are compared."""
    return KnownState(
        replica.log.latest_epoch, replica.partition.leader_epoch, replicas.leader_epoch_fence.acted_on(replica)
    )


async def _let_others_run(count: int) -> None:
    """Let the event loop do other work after every few partitions. `count` is the number of the partition."""
    if count % _PARTITIONS_PER_STEP == 0:
        await asyncio.sleep(0)


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
