"""The group coordinator of one broker: finds the group that is asked for, and does what its rules ask for."""

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
from node.settings import BrokerSettings
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

#: Who waits for a group, as its rules know him: to be called once.
Waiter = Callable[[Joined | Synced | BrokerError], None]

#: A string's length is two bytes in the records of the topic.
MOST_STRING_BYTES = 2**15 - 1
#: Of one broker: whoever makes up names must not fill its memory.
MAX_GROUPS = 1_000_000
#: After so long a group that stumbled is looked at again.
_STUMBLED_MS = 5_000


def check_group_id(group_id: str) -> None:
    """InvalidGroupIdError for what is no name of a group."""
    if not group_id:
        raise InvalidGroupIdError("a group needs a name")
    if len(group_id.encode()) > MOST_STRING_BYTES:
        raise InvalidGroupIdError(f"a group's name of more than {MOST_STRING_BYTES} bytes")


class GroupCoordinator:
    """All of it runs on the broker's loop. Refusals are raised.

    `may_be_deposed`: whether this broker might not hear of it if somebody else were elected. Asked each time.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        topic: OffsetsTopic,
        settings: BrokerSettings,
        may_be_deposed: Callable[[], bool],
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
        self.shards = Shards(replicas, self._group_settings, on_loaded=self._watch, on_closed=self._close_groups)
        replicas.role_changed = self._role_changed

    # --- finding a group -----------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> Shard:
        """Where the group is kept.

        InvalidGroupIdError; NotCoordinatorError where that is another broker, CoordinatorLoadInProgressError.
        """
        check_group_id(group_id)
        partition = self.topic.partition_of(group_id)
        if partition is None and any(shard.leads for shard in self.shards):
            raise CoordinatorLoadInProgressError(f"nobody knows yet which partition has group {group_id!r}")
        shard = None if partition is None else self.shards.get(partition)
        if shard is None or not shard.leads:
            raise NotCoordinatorError(f"broker {self._replicas.broker_id} does not coordinate group {group_id!r}")
        if not shard.loaded:
            raise CoordinatorLoadInProgressError(f"group {group_id!r} is being loaded")
        return shard

    def _role_changed(self, replica: Replica) -> None:
        if replica.topic_partition.topic == OFFSETS_TOPIC:
            if replica.partition.role is not Role.STOPPED:  # else it may be an earlier topic's
                self.topic.hosted(replica.topic_id)
            self.shards.role_changed(replica)

    def find(self, group_id: str) -> tuple[Shard, HostedGroup | None]:
        """The group; None where there is none of this name."""
        shard = self.shard_of(group_id)
        return shard, shard.groups.get(group_id)

    def find_to_read(self, group_id: str) -> tuple[Shard, HostedGroup | None]:
        """As `find`, for an answer that no replica confirms.

        CoordinatorNotAvailableError where another leader may exist to whom the group commits by now. Whatever is
        written may be tried even so: in that case it is not acknowledged.
        """
        found = self.find(group_id)
        if self._may_be_deposed():
            raise CoordinatorNotAvailableError(f"broker {self._replicas.broker_id} is without ZooKeeper")
        return found

    def find_or_create(self, group_id: str) -> tuple[Shard, HostedGroup]:
        """The group; a new one where there is none. PolicyViolationError where there are too many."""
        shard = self.shard_of(group_id)
        hosted = shard.groups.get(group_id)
        if hosted is None:
            if sum(len(each.groups) for each in self.shards) >= MAX_GROUPS:
                raise PolicyViolationError(f"this broker coordinates {MAX_GROUPS} groups already")
            hosted = shard.groups[group_id] = HostedGroup(group_id, self._group_settings)
        return shard, hosted

    def groups(self) -> Iterator[tuple[Shard, HostedGroup]]:
        """All that may be asked for."""
        for shard in self.shards:
            if shard.loaded and shard.leads:
                for hosted in list(shard.groups.values()):
                    yield shard, hosted

    @property
    def listing_error(self) -> int:
        """Why a list of the groups here may lack some; 0: it does not."""
        if any(not shard.loaded for shard in self.shards if shard.leads):
            return CoordinatorLoadInProgressError.code
        return 0

    # --- acting on a group's rules -------------------------------------------------------------------

    def perform(self, shard: Shard, hosted: HostedGroup, outcomes: Iterable[GroupEffect]) -> None:
        """Answer, and write."""
        for outcome in outcomes:
            match outcome:
                case Answer():
                    _answer(outcome)
                case StoreGroup():
                    self._store(shard, hosted, outcome)
        self._watch(shard, hosted)

    def _store(self, shard: Shard, hosted: HostedGroup, store: StoreGroup) -> None:
        now_ms = self.clock.now_ms()
        record = hosted.group.record(store.assignments, now_ms)
        hosted.changed(now_ms)

        def done(_: int, error: BrokerError | None) -> None:
            if not shard.open:
                return
            if isinstance(error, TOO_LARGE):
                error = UnknownServerError(f"group {hosted.group_id!r} is too large for a record: {error}")
            if error is not None:
                log.warning("group %r could not be written: %s", hosted.group_id, error)
            self.perform(shard, hosted, hosted.group.stored(store.number, error, self.clock.monotonic_ms()))

        hosted.recorded = True
        self.writes.write(shard, [(encode_key(GroupKey(hosted.group_id)), encode_group(record))], done)

    def _watch(self, shard: Shard, hosted: HostedGroup) -> None:
        if self._timers.set((shard, hosted.group_id), hosted.group.next_deadline_ms()):
            self._replicas.purgatories.alarm.set()

    def _close_groups(self, shard: Shard) -> None:
        for hosted in shard.groups.values():
            self._timers.drop((shard, hosted.group_id))
            for outcome in hosted.group.close():
                if isinstance(outcome, Answer):
                    _answer(outcome)

    def drop_if_nothing(self, shard: Shard, hosted: HostedGroup) -> None:
        """Forget a group of which there is no trace."""
        if hosted.is_nothing and shard.groups.get(hosted.group_id) is hosted:
            del shard.groups[hosted.group_id]
            self._timers.drop((shard, hosted.group_id))

    # --- time ----------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> int | None:
        """Time has passed, for the groups that were due. Returns when to call it again.

        Behind a group whose record the disk was waited for the others are due in another turn of the loop.
        """
        due, waits = deque(self._timers.take_due(now_ms)), self.loop_budget.waits
        while due and self.loop_budget.waits == waits:
            shard, group_id = due.popleft()
            hosted = shard.groups.get(group_id)
            if not shard.open or hosted is None:
                continue
            try:
                self.perform(shard, hosted, hosted.group.time_passed(now_ms))
                self.drop_if_nothing(shard, hosted)
            except Exception:  # else the members of no other group would be missed any more
                log.exception("group %r: what was due could not be done", group_id)
                self._timers.set((shard, group_id), now_ms + _STUMBLED_MS)
        for key in due:
            self._timers.set(key, now_ms)
        return self._timers.next_deadline_ms()

    def close(self) -> None:
        """The broker stops; its replicas have closed, and with them every shard."""
        self.shards.close()
        self.topic.close()


def _answer(answer: Answer) -> None:
    cast(Waiter, answer.waiter)(answer.outcome)
