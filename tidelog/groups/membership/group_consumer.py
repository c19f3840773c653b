"""The part of a consumer that is a member of a group: it runs the rebalances, in these steps.

    A  wait until a rebalance is needed: the coordinator, the subscription or the topics have changed
    B  in `poll`: withhold the partitions that will be revoked. Records that `poll` returned before count as consumed
    C  auto-commit these records; call the listener and drop the partitions (eager: all; cooperative: the necessary)
    D  join the group, and get an assignment
    E  cooperative: B and C for the partitions that were taken away, and later A again, so that other members get them
    F  in `poll`: adopt the assignment and call the listener with the added partitions

B, E and F run as callbacks within the user's `poll`; the other steps run in the background. A consumer that the group
has removed first drops all partitions, and then does F.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.fetcher import Fetcher
from tidelog.client.settings import ConsumerSettings
from tidelog.client.tasks.async_event import Signal
from tidelog.client.tasks.background import SupervisedTask
from tidelog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalStateError,
    RebalanceInProgressError,
    TidelogError,
)
from tidelog.groups.assignment.sticky_user_data import MemberData
from tidelog.groups.committed_offsets import COMMIT_FAILED, COMMIT_LATER, CommittedOffsets
from tidelog.groups.membership.heartbeat_member import HeartbeatMember
from tidelog.groups.membership.membership_state import MemberSettings, MembershipState, MemberState
from tidelog.groups.membership.poll_task import PollTask
from tidelog.groups.membership.rebalance_listener import Caller, ConsumerRebalanceListener
from tidelog.groups.membership.subscription import ASSIGNED, SUBSCRIBED, Subscription
from tidelog.groups.membership.topic_watcher import TopicWatcher
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)

#: How long a consumer that its user dropped tries to leave its group.
_ABANDON_MS = 1_000


class GroupConsumer:
    """The group membership of a consumer, or its commits if its user has assigned the partitions.

    call   calls the listener in the thread or task of the consumer's user
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ConsumerSettings,
        fetcher: Fetcher,
        offsets: CommittedOffsets,
        call: Caller,
    ) -> None:
        assert settings.group_id is not None
        self._client = client
        self._settings = settings
        self._fetcher = fetcher
        self._call = call
        self._membership = MembershipState(
            MemberSettings(
                settings.group_id,
                settings.group_instance_id,
                settings.session_timeout_ms,
                settings.max_poll_interval_ms,
                settings.partition_assignment_strategy,
            )
        )
        self._offsets = offsets
        self._poll_task = PollTask(client.clock, settings.max_poll_interval_ms, fetcher.arrived.set)
        self._woken = Signal()
        self._member = HeartbeatMember(
            client, settings, self._membership, lambda: self._poll_task.overdue_ms, self._woken.set
        )
        self._watch = TopicWatcher(client, self._woken.set)
        self._listener = ConsumerRebalanceListener()
        #: The topics of the last completed rebalance; None while another one is in progress.
        self._joined_topics: frozenset[str] | None = None
        self._generation = -1
        self._last_assignment = MemberData(())
        self._in_listener = False
        name = f"the rebalances of group {settings.group_id!r}"
        self._rebalancing = SupervisedTask(client.background, name, self._run_rebalances)
        self._next_commit_ms = client.clock.monotonic_ms() + settings.auto_commit_interval_ms
        self._committing: set[asyncio.Task[None]] = set()
        self._unsubscribe_from_view: Callable[[], None] = lambda: None

    # --- subscription ----------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, listener: ConsumerRebalanceListener) -> None:
        """Subscribe from the next poll on, in place of an earlier subscription, and use this listener.

        Raises IllegalStateError if the user has assigned partitions, or if topics and a pattern are mixed.
        """
        before = self._watch.subscription
        if before is None and self._fetcher.partitions:
            raise IllegalStateError(ASSIGNED)
        subscription.require_same_kind_as(before)
        self._listener = listener
        self._watch.begin(subscription)
        self._woken.set()
        if before is None:
            self._unsubscribe_from_view = self._client.subscribe(self._woken.set, self._needed_topics)
        self._rebalancing.start()

    def before_manual_assignment(self, partitions: Collection[TopicPartition]) -> None:
        """Begin to auto-commit the positions of these partitions, which the user's next assignment drops.

        Raises IllegalStateError if the consumer is subscribed.
        """
        if self.is_subscribed:
            raise IllegalStateError(SUBSCRIBED)
        if partitions and self._settings.enable_auto_commit:
            self._start_auto_commit(self._consumed(partitions))

    @property
    def is_subscribed(self) -> bool:
        """Whether the consumer is subscribed; otherwise its user assigns the partitions."""
        return self._watch.subscription is not None

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the consumer is subscribed to now; of a pattern those that match it; empty: none."""
        subscription = self._watch.subscription
        return frozenset() if subscription is None or subscription.topics is None else subscription.topics

    def _needed_topics(self) -> Iterable[str]:
        """Return the topics whose metadata must be current: subscribed topics, the leader's, and the offsets topic."""
        return {OFFSETS_TOPIC, *self._watch.topics, *self._member.group_topics}

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The identity of this consumer in its group."""
        return self._membership.identity

    @property
    def assignment_is_current(self) -> bool:
        """Whether the partitions assigned here are those that the group's generation assigns.

        A cooperative member keeps its partitions, and so its assignment stays current while it waits to join.
        """
        membership = self._membership
        current = (
            (MemberState.STABLE, MemberState.JOINING) if membership.settings.cooperative else (MemberState.STABLE,)
        )
        return membership.state in current and membership.generation == self._generation >= 0

    # --- offsets -----------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, deadline_ms: int) -> None:
        """Commit these offsets, or (None) the positions of all assigned partitions (`_consumed`).

        Raises the errors of `CommittedOffsets.commit`, and those of `_committer`.
        """
        read = self.positions() if offsets is None else offsets
        await self._offsets.commit(read, self._committer, deadline_ms, self._commit_refused)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all assigned partitions, as `commit` commits them."""
        return self._consumed(self._fetcher.partitions)

    async def committed(
        self, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition; None for a partition without one.

        The request is sent after all earlier commits of this consumer. Raises the coordinator's error, and TimeoutError
        at the deadline.
        """
        return await self._offsets.fetch(partitions, deadline_ms)

    def _consumed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions: after the last record that the user got, or where the user has sought to.

        Partitions without a position, and those of a topic that was created again, are left out.
        """
        read = {}
        for tp in partitions:
            assigned = self._fetcher.partitions.get(tp)
            buffer = None if assigned is None or self._is_of_another_topic(assigned) else assigned.buffer
            if buffer is not None:
                epoch = buffer.position_epoch
                read[tp] = OffsetAndMetadata(buffer.position, "", epoch if epoch >= 0 else None)
        return read

    def _is_of_another_topic(self, assigned: AssignedPartition) -> bool:
        """Return whether the topic was deleted and created again, and the fetcher has not started in the new topic."""
        topic = self._client.view.topics.get(assigned.topic_partition.topic)
        return topic is not None and assigned.topic_id not in ("", topic.topic_id)

    def _committer(self) -> ConsumerGroupMetadata:
        """Return the identity for a commit.

        Raises CommitFailedError, FencedInstanceIdError or RebalanceInProgressError if this consumer may not commit now.
        """
        if not self.is_subscribed:
            return ConsumerGroupMetadata(self._membership.settings.group_id)
        if self.assignment_is_current:
            return self._membership.identity
        where = f"group {self._settings.group_id!r}"
        if self._membership.fenced is not None:
            raise self._membership.fenced
        if self._membership.lost or self._membership.state is MemberState.OUT:
            raise CommitFailedError(f"{where}: {COMMIT_FAILED}")
        raise RebalanceInProgressError(f"{where}: {COMMIT_LATER}")

    def _commit_refused(self, committer: ConsumerGroupMetadata, error: TidelogError) -> None:
        with contextlib.suppress(FencedInstanceIdError):  # the committer gets the error, and so does the next poll
            self._membership.commit_refused(committer, error)
        self._woken.set()

    # --- a poll ------------------------------------------------------------------------------------------

    def begin_poll(self) -> None:
        """Enter `poll`: the records returned before count as consumed, and are committed in the background if due.

        Raises IllegalStateError if a method of the listener calls `poll`.
        """
        if self._in_listener:
            raise IllegalStateError(
                "a rebalance listener must not poll: the poll that called it continues when the listener returns"
            )
        self._poll_task.enter_poll()
        now_ms = self._client.clock.monotonic_ms()
        due = self._settings.enable_auto_commit and now_ms >= self._next_commit_ms
        if due and not self._committing and (self.assignment_is_current or not self.is_subscribed):
            self._next_commit_ms = now_ms + self._settings.auto_commit_interval_ms
            self._start_auto_commit(self._consumed(self._fetcher.partitions))

    async def run_callbacks(self) -> None:
        """Run the callbacks that only `poll` may run. Raises their errors, including those of the listener."""
        await self._poll_task.run_callbacks()

    def end_poll(self) -> None:
        """Leave `poll`: from now on `max_poll_interval_ms` limits the time until the next poll."""
        self._poll_task.leave_poll()

    def _start_auto_commit(self, read: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        task = self._client.background.run("an automatic commit", self._auto_commit(read))
        self._committing.add(task)
        task.add_done_callback(self._committing.discard)

    # --- rebalances --------------------------------------------------------------------------------------

    async def _run_rebalances(self) -> None:
        attempt = 0
        while True:
            try:
                await self._wait_until_needed()
                await self._rebalance()
                attempt = 0
            except TidelogError as error:
                await self._raise_in_poll(error)
                await asyncio.sleep(self._client.lasting_backoff_ms(attempt) / 1000)
                attempt += 1

    async def _wait_until_needed(self) -> None:
        """Do step A: return when this member must join, or join again."""
        while not self._is_needed():
            await self._woken.wait()

    def _is_needed(self) -> bool:
        membership = self._membership
        subscription = self._watch.subscription
        if subscription is None or subscription.topics is None:
            return False
        return (
            membership.lost
            or membership.fenced is not None
            or membership.rejoins
            or membership.state is not MemberState.STABLE
            or subscription.topics != self._joined_topics
            or self._member.assignment_is_outdated
        )

    async def _rebalance(self) -> None:
        membership = self._membership
        if membership.lost:
            await self._poll_task.run_in_poll(self._drop_lost)
        if membership.fenced is not None:
            raise membership.fenced
        self._joined_topics = None
        topics, owned = self.topics, set(self._fetcher.partitions)
        leaving = {tp for tp in owned if tp.topic not in topics} if membership.settings.cooperative else owned
        await self._revoke_partitions(leaving)
        if membership.lost:
            return
        owned_now = MemberData(tuple(sorted(self._fetcher.partitions)), self._generation)
        assigned = await self._member.join(
            topics, owned_now if membership.settings.cooperative else self._last_assignment
        )
        if assigned is None:
            return
        self._watch.watch_also(self._member.group_topics)
        generation = membership.generation
        if membership.settings.cooperative:
            self._generation = generation  # the kept partitions are assigned in this generation too
        taken = set(self._fetcher.partitions).difference(assigned)
        if taken:
            await self._revoke_partitions(taken)
        await self._poll_task.run_in_poll(partial(self._adopt, generation, assigned))
        self._joined_topics = topics
        if taken:
            membership.rejoins = True

    async def _revoke_partitions(self, leaving: Collection[TopicPartition]) -> None:
        """Do steps B and C for these partitions.

        A `poll` is awaited even if no partition leaves, because only a polling consumer may join.
        """
        read: dict[TopicPartition, OffsetAndMetadata] = {}

        async def withhold() -> None:
            for tp in leaving:
                self._fetcher.partitions[tp].withheld = True
            read.update(self._consumed(leaving))

        await self._poll_task.run_in_poll(withhold)
        if leaving:
            await self._auto_commit(read)
            await self._poll_task.run_in_poll(partial(self._revoke, leaving))

    async def _auto_commit(
        self, read: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int | None = None
    ) -> None:
        if not self._settings.enable_auto_commit or not (self.assignment_is_current or not self.is_subscribed):
            return
        time_limit_ms = min(self._settings.default_api_timeout_ms, self._settings.max_poll_interval_ms)
        limit_ms = self._client.clock.monotonic_ms() + time_limit_ms if deadline_ms is None else deadline_ms
        try:
            await self._offsets.commit(read, self._committer, limit_ms, self._commit_refused)
        except TidelogError as error:
            _log.warning("auto-commit: %s", error)

    async def _revoke(self, leaving: Collection[TopicPartition]) -> None:
        if self._membership.lost:
            return  # `_drop_lost` calls the listener for all partitions
        try:
            await self._call_listener(self._listener.on_partitions_revoked, leaving)
        finally:
            self._drop(leaving)

    async def _drop_lost(self) -> None:
        """Call `on_partitions_lost`, and drop all partitions, after the membership has been lost."""
        membership, lost = self._membership, set(self._fetcher.partitions)
        membership.lost = False
        try:
            if lost:
                await self._call_listener(self._listener.on_partitions_lost, lost)
        finally:
            self._drop(lost)

    async def _adopt(self, generation: int, assigned: Collection[TopicPartition]) -> None:
        """Do step F, unless this member has left the generation meanwhile."""
        membership = self._membership
        if membership.state is not MemberState.STABLE or membership.generation != generation:
            return
        added = set(assigned).difference(self._fetcher.partitions)
        self._generation, self._last_assignment = generation, MemberData(tuple(sorted(assigned)), generation)
        self._fetcher.assign(sorted(assigned))
        self._client.metrics.rebalances += 1
        for each in self._fetcher.partitions.values():
            each.withheld = False  # an interrupted rebalance may have withheld some
        await self._call_listener(self._listener.on_partitions_assigned, added)

    def _drop(self, gone: Collection[TopicPartition]) -> None:
        self._fetcher.assign([tp for tp in self._fetcher.partitions if tp not in gone])

    async def _call_listener(
        self, method: Callable[[Collection[TopicPartition]], object], partitions: Collection[TopicPartition]
    ) -> None:
        self._in_listener = True
        self._poll_task.leave_poll()
        try:
            await self._call(partial(method, set(partitions)))
        finally:
            self._in_listener = False
            self._poll_task.enter_poll()

    async def _raise_in_poll(self, error: TidelogError) -> None:
        async def raise_it() -> None:
            raise error

        await self._poll_task.run_in_poll(raise_it)

    # --- the end -----------------------------------------------------------------------------------------

    async def leave(self, deadline_ms: int, *, autocommit: bool = True) -> None:
        """Auto-commit (unless `autocommit` is False), call the listener, drop all partitions, and leave the group.

        `deadline_ms` (monotonic clock) limits the commit and the LeaveGroup request together; the listener is not
        interrupted. After a lost membership nothing is committed, and `on_partitions_lost` is called. A static member
        stays in the group. The listener's error is raised after all steps; errors of commits are only logged.
        """
        try:
            await self._stop_rebalancing()
            if self._membership.lost:
                await self._drop_lost()
            elif owned := set(self._fetcher.partitions):
                if autocommit:
                    await self._auto_commit(self._consumed(owned), deadline_ms)
                await self._revoke(owned)
        finally:
            await self._end(deadline_ms)

    async def abandon(self) -> None:
        """Leave the group of a consumer that its user dropped, within a second.

        Nothing is committed, and the listener is not called.
        """
        try:
            await self._stop_rebalancing()
        finally:
            await self._end(self._client.clock.monotonic_ms() + _ABANDON_MS)

    async def _end(self, deadline_ms: int) -> None:
        for commit in self._committing:
            commit.cancel()
        await self._member.stop()
        await self._member.leave(deadline_ms)

    async def _stop_rebalancing(self) -> None:
        """Cancel the rebalance in progress, start no other, and wait for the end of its task.

        The effect is the same if this call is cancelled.
        """
        rebalancing = self._rebalancing.cancel()
        self._unsubscribe_from_view()
        await self._watch.stop()
        await asyncio.gather(*rebalancing, return_exceptions=True)
