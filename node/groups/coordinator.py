"""The group coordinator of one broker: find the group of a request, and perform the effects that its rules return."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from cluster.groups.effects import Answer, GroupEffect, Joined, StoreGroup, Synced
from cluster.groups.group import GroupSettings
from cluster.replication.partition import Role
from node.groups.group_log_writer import TOO_LARGE, GroupLogWriter
from node.groups.offsets_topic import OffsetsTopic
from node.groups.shard import HostedGroup, Shard
from node.groups.shards import Shards
from node.groups.timers import Timers
from node.replication.leader_appends import LeaderAppends
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.settings.broker_settings import BrokerSettings
from tidelog.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    NotCoordinatorError,
    PolicyViolationError,
    UnknownServerError,
)
from tidelog.groups.offsets_topic import OFFSETS_TOPIC, GroupKey, encode_group, encode_key

log = logging.getLogger(__name__)

#: The receiver of a group's answer; called once. The rules of a group treat it as an opaque value.
Waiter = Callable[[Joined | Synced | BrokerError], None]

#: The records of the topic store the length of a string in two bytes.
MAX_STRING_BYTES = 2**15 - 1
#: The largest number of groups of one broker, so that a client with invented names cannot fill the broker's memory.
MAX_GROUPS = 1_000_000
#: The pause before a group whose timer has failed is looked at again.
_RETRY_MS = 5_000


def check_group_id(group_id: str) -> None:
    """Raise InvalidGroupIdError if the group id is empty or longer than MAX_STRING_BYTES."""
    if not group_id:
        raise InvalidGroupIdError("the group id must not be empty")
    if len(group_id.encode()) > MAX_STRING_BYTES:
        raise InvalidGroupIdError(f"the group id must be at most {MAX_STRING_BYTES} bytes long")


class GroupCoordinator:
    """Coordinates the groups of the `__consumer_offsets` partitions that this broker leads.

    All methods run on the broker's event loop, and raise the BrokerError with which they refuse a request.

    may_be_deposed   returns whether another broker may have been elected without this broker's knowledge
    on_ready         called when all groups of a shard are loaded
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        topic: OffsetsTopic,
        settings: BrokerSettings,
        may_be_deposed: Callable[[], bool],
        on_ready: Callable[[Shard], None],
    ) -> None:
        self._may_be_deposed = may_be_deposed
        self.settings = settings
        self.topic = topic
        self.clock = replicas.clock
        self.metadata = replicas.metadata
        self.loop_budget = replicas.loop_budget
        self._replicas = replicas
        self._group_settings = GroupSettings(settings.group_initial_rebalance_delay_ms, settings.group_max_size)
        self._timers: Timers[tuple[Shard, str]] = Timers()
        self.writes = GroupLogWriter(LeaderAppends(replicas), self.clock, settings.offsets_commit_timeout_ms)
        self.shards = Shards(
            replicas, self._group_settings, on_loaded=self._watch, on_closed=self._close_groups, on_ready=on_ready
        )
        replicas.subscribe(self._role_changed)

    # --- finding a group -----------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> Shard:
        """Return the shard of the group.

        Raise InvalidGroupIdError for an invalid id, and NotCoordinatorError if this broker does not coordinate the
        group. Raise CoordinatorLoadInProgressError while the shard is being loaded. While the group's partition is
        unknown, a broker that leads any shard raises CoordinatorLoadInProgressError, and another NotCoordinatorError.
        """
        check_group_id(group_id)
        partition = self.topic.partition_of(group_id)
        if partition is None and any(shard.leads for shard in self.shards):
            raise CoordinatorLoadInProgressError(
                f"group {group_id!r}: the number of partitions of {OFFSETS_TOPIC} is not known yet; try again"
            )
        shard = None if partition is None else self.shards.get(partition)
        if shard is None or not shard.leads:
            raise NotCoordinatorError(f"broker {self._replicas.broker_id} does not coordinate group {group_id!r}")
        if not shard.loaded:
            raise CoordinatorLoadInProgressError(f"group {group_id!r} is being loaded; try again")
        return shard

    def _role_changed(self, replica: Replica) -> None:
        if replica.topic_partition.topic == OFFSETS_TOPIC:
            if replica.partition.role is not Role.STOPPED:  # a stopped replica may be of an earlier topic of this name
                self.topic.hosted(replica.topic_id)
            self.shards.role_changed(replica)

    def find(self, group_id: str) -> tuple[Shard, HostedGroup | None]:
        """Return the shard and the group; None for the group if it does not exist. Raise the errors of `shard_of`."""
        shard = self.shard_of(group_id)
        return shard, shard.groups.get(group_id)

    def find_to_read(self, group_id: str) -> tuple[Shard, HostedGroup | None]:
        """Return what `find` returns, for an answer that is not confirmed by replication.

        Raise CoordinatorNotAvailableError if another leader may exist that has newer commits of the group. Writes do
        not need this check, because the replicas do not acknowledge writes of a deposed leader.
        """
        found = self.find(group_id)
        if self._may_be_deposed():
            raise CoordinatorNotAvailableError(
                f"broker {self._replicas.broker_id} may not lead the group's partition any more, because it shuts down"
                " or has no contact with ZooKeeper; try again"
            )
        return found

    def find_or_create(self, group_id: str) -> tuple[Shard, HostedGroup]:
        """Return the shard and the group; create the group if it does not exist.

        Raise the errors of `shard_of`, or PolicyViolationError if this broker has MAX_GROUPS groups already.
        """
        shard = self.shard_of(group_id)
        hosted = shard.groups.get(group_id)
        if hosted is None:
            if sum(len(each.groups) for each in self.shards) >= MAX_GROUPS:
                raise PolicyViolationError(f"this broker already coordinates {MAX_GROUPS} groups, which is its limit")
            hosted = shard.groups[group_id] = HostedGroup(group_id, self._group_settings)
        return shard, hosted

    def groups(self) -> Iterator[tuple[Shard, HostedGroup]]:
        """Yield all groups of the loaded shards that this broker leads, each with its shard."""
        for shard in self.shards:
            if shard.loaded and shard.leads:
                for hosted in list(shard.groups.values()):
                    yield shard, hosted

    @property
    def listing_error(self) -> int:
        """Return the error code for a list of all groups: COORDINATOR_LOAD_IN_PROGRESS during a load, else 0."""
        if any(not shard.loaded for shard in self.shards if shard.leads):
            return CoordinatorLoadInProgressError.code
        return 0

    # --- performing a group's effects ----------------------------------------------------------------

    def perform(self, shard: Shard, hosted: HostedGroup, effects: Iterable[GroupEffect]) -> None:
        """Perform the effects of a group: send answers, begin to write the group's record, and set its timer."""
        for effect in effects:
            match effect:
                case Answer():
                    _answer(effect)
                case StoreGroup():
                    self._store(shard, hosted, effect)
        self._watch(shard, hosted)

    def _store(self, shard: Shard, hosted: HostedGroup, store: StoreGroup) -> None:
        now_ms = self.clock.now_ms()
        record = hosted.group.record(store.assignments, now_ms)
        hosted.changed(now_ms)

        def done(_: int, error: BrokerError | None) -> None:
            if not shard.open:
                return  # `_close_groups` has answered all waiters of the group
            if isinstance(error, TOO_LARGE):
                error = UnknownServerError(f"group {hosted.group_id!r} is too large for one record: {error}")
            if error is not None:
                log.warning("group %r: its record could not be written: %s", hosted.group_id, error)
            self.perform(shard, hosted, hosted.group.stored(store.number, error, self.clock.monotonic_ms()))

        hosted.recorded = True
        self.writes.write(shard, [(encode_key(GroupKey(hosted.group_id)), encode_group(record))], done)

    def _watch(self, shard: Shard, hosted: HostedGroup) -> None:
        if self._timers.set((shard, hosted.group_id), hosted.group.next_deadline_ms()):
            self._replicas.purgatories.alarm.set()

    def _close_groups(self, shard: Shard) -> None:
        for hosted in shard.groups.values():
            self._timers.drop((shard, hosted.group_id))
            for effect in hosted.group.close():
                if isinstance(effect, Answer):
                    _answer(effect)

    def drop_if_unused(self, shard: Shard, hosted: HostedGroup) -> None:
        """Remove the group from memory if `is_unused` holds: it has no members, no offsets and no record."""
        if hosted.is_unused and shard.groups.get(hosted.group_id) is hosted:
            del shard.groups[hosted.group_id]
            self._timers.drop((shard, hosted.group_id))

    def delete_if_empty(
        self, shard: Shard, hosted: HostedGroup, done: Callable[[BrokerError | None], None] = lambda error: None
    ) -> None:
        """Write a tombstone for the group's record, if the group has one and is still empty.

        `done` is called once, with the error of the write or None, before this method returns or later. An unused group
        is removed from memory.
        """
        if not hosted.recorded or not hosted.is_empty:
            self.drop_if_unused(shard, hosted)
            done(None)
            return
        hosted.recorded = False

        def written(_: int, error: BrokerError | None) -> None:
            # A member may have joined meanwhile, and its record comes after the tombstone. Therefore `recorded` is
            # only set here, and not cleared.
            hosted.recorded |= error is not None
            self.drop_if_unused(shard, hosted)
            done(error)

        self.writes.write(shard, [(encode_key(GroupKey(hosted.group_id)), None)], written)

    # --- time ----------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> int | None:
        """Run the timers of the groups that are due, and return when to call `tick` again (None: no timer is set).

        If the record of a group had to wait for the disk, the remaining groups run in a later iteration of the loop.
        """
        due, waits = deque(self._timers.take_due(now_ms)), self.loop_budget.waits
        while due and self.loop_budget.waits == waits:
            shard, group_id = due.popleft()
            hosted = shard.groups.get(group_id)
            if not shard.open or hosted is None:
                continue
            try:
                self.perform(shard, hosted, hosted.group.time_passed(now_ms))
                self.drop_if_unused(shard, hosted)
            except Exception:  # The other groups must still learn which of their members have timed out.
                log.exception("group %r: its timer failed; trying again", group_id)
                self._timers.set((shard, group_id), now_ms + _RETRY_MS)
        for key in due:
            self._timers.set(key, now_ms)
        return self._timers.next_deadline_ms()

    def close(self) -> None:
        """Cancel the loads of shards and the look-up of the topic, and return at once.

        The caller has closed the replicas before, which closes every shard and answers the waiting requests.
        """
        self.shards.close()
        self.topic.close()


def _answer(answer: Answer) -> None:
    cast(Waiter, answer.waiter)(answer.outcome)
