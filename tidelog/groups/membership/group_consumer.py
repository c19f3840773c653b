"""A consumer's part in its group: what it is subscribed to, and the rebalances, step by step.

    A  something has changed: the coordinator said so, or the subscription, or the topics did
    B  the reader is in `poll`: what it was shown before counts as read, and of what it gives up it gets no more
    C  auto-commit of that; then the listener hears of it, and it is gone (eager: everything; cooperative: little)
    D  join, and be assigned
    E  cooperative: B and C for what was taken away, and once more from A, so that others may have it
    F  the assignment is taken on, and the listener hears of what came

B, E and F are errands of the reader; the rest goes on beside it. A member that is lost does F after losing what it had.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from tidelog.client.async_event import Signal
from tidelog.client.background import SupervisedTask
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.fetch_buffer import PartitionBuffer
from tidelog.client.consumer.fetcher import Fetcher
from tidelog.client.settings import ConsumerSettings
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

#: How long a consumer that was dropped tries to leave its group.
_ABANDON_MS = 1_000


class GroupConsumer:
    """Subscribed, or with partitions that its user has assigned, which needs no membership.

    call   how the listener is called, in its user's thread or task
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
        self._offsets.on_refusal = self._commit_refused
        self._reader = PollTask(client.clock, settings.max_poll_interval_ms, fetcher.arrived.set)
        self._woken = Signal()
        self._member = HeartbeatMember(
            client, settings, self._membership, lambda: self._reader.overdue_ms, self._woken.set
        )
        self._watch = TopicWatcher(client, self._woken.set)
        self._listener = ConsumerRebalanceListener()
        #: The topics of the last completed rebalance; None while another one is in progress.
        self._joined_topics: frozenset[str] | None = None
        self._generation = -1
        self._had = MemberData(())
        self._in_listener = False
        what = f"the rebalances of group {settings.group_id!r}"
        self._rebalancing = SupervisedTask(client.background, what, self._rebalances)
        self._next_commit_ms = client.clock.monotonic_ms() + settings.auto_commit_interval_ms
        self._committing: set[asyncio.Task[None]] = set()

    # --- what it is subscribed to ----------------------------------------------------------------------

    def subscribe(self, choice: Subscription, listener: ConsumerRebalanceListener) -> None:
        """From the next poll on. IllegalStateError where it does not go with what is assigned or chosen already."""
        before = self._watch.choice
        if before is None and self._fetcher.buffers:
            raise IllegalStateError(ASSIGNED)
        choice.require_can_follow(before)
        self._listener = listener
        self._watch.begin(choice)
        self._woken.set()
        if before is None:
            self._client.listeners.append(self._woken.set)
            self._client.needs.append(self._needed_topics)
        self._rebalancing.start()

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Its user has assigned others by hand. IllegalStateError for a subscriber."""
        if self.is_subscribed:
            raise IllegalStateError(SUBSCRIBED)
        if partitions and self._settings.enable_auto_commit:
            self._commit_beside(self._consumed(partitions))

    @property
    def is_subscribed(self) -> bool:
        """Or else what is assigned, if anything, was so by hand."""
        return self._watch.choice is not None

    @property
    def topics(self) -> frozenset[str]:
        """What it is subscribed to as things stand."""
        choice = self._watch.choice
        return frozenset() if choice is None or choice.topics is None else choice.topics

    def _needed_topics(self) -> Iterable[str]:
        """Where its partitions and its coordinator are, it must know at any time."""
        return {OFFSETS_TOPIC, *self._watch.topics, *self._member.led_topics}

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group as things stand."""
        return self._membership.identity

    @property
    def settled(self) -> bool:
        """Whether what is assigned here is what the group's generation assigns.

        A cooperative member that waits for the next one has not given up what it keeps.
        """
        membership = self._membership
        current = (
            (MemberState.STABLE, MemberState.JOINING) if membership.settings.cooperative else (MemberState.STABLE,)
        )
        return membership.state in current and membership.generation == self._generation >= 0

    # --- offsets -----------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, deadline_ms: int) -> None:
        """Where the reader stands in what is assigned, or these."""
        read = self._consumed(self._fetcher.buffers) if offsets is None else offsets
        await self._offsets.commit(read, self._committer, deadline_ms)

    async def committed(
        self, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """By anybody of the group."""
        return await self._offsets.fetch(partitions, deadline_ms)

    def _consumed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where the reader stands: behind the last record that it was given, or where it has gone back to."""
        buffers = self._fetcher.buffers
        read = {}
        for tp in partitions:
            buffer = buffers.get(tp)
            if buffer is not None and buffer.position is not None and not self._is_of_another_topic(buffer):
                epoch = buffer.position_epoch
                read[tp] = OffsetAndMetadata(buffer.position, "", epoch if epoch >= 0 else None)
        return read

    def _is_of_another_topic(self, buffer: PartitionBuffer) -> bool:
        """The topic of this name was made anew, and the fetcher has not begun in it yet, or must not."""
        topic = self._client.view.topics.get(buffer.topic_partition.topic)
        return topic is not None and buffer.topic_id not in ("", topic.topic_id)

    def _committer(self) -> ConsumerGroupMetadata:
        """CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: this consumer may not commit now."""
        if not self.is_subscribed:
            return ConsumerGroupMetadata(self._membership.settings.group_id)
        if self.settled:
            return self._membership.identity
        where = f"group {self._settings.group_id!r}"
        if self._membership.fenced is not None:
            raise self._membership.fenced
        if self._membership.lost or self._membership.state is MemberState.OUT:
            raise CommitFailedError(f"{where}: {COMMIT_FAILED}")
        raise RebalanceInProgressError(f"{where}: {COMMIT_LATER}")

    def _commit_refused(self, committer: ConsumerGroupMetadata, error: TidelogError) -> None:
        with contextlib.suppress(FencedInstanceIdError):  # whoever commits is told, and so is the reader
            self._membership.commit_refused(committer, error)
        self._woken.set()

    # --- a poll ------------------------------------------------------------------------------------------

    def begin_poll(self) -> None:
        """The reader comes: what it was shown before is read, and committed beside it every now and then."""
        if self._in_listener:
            raise IllegalStateError(
                "a rebalance listener must not poll: the poll that called it goes on when it returns"
            )
        self._reader.come()
        now_ms = self._client.clock.monotonic_ms()
        due = self._settings.enable_auto_commit and now_ms >= self._next_commit_ms
        if due and not self._committing and (self.settled or not self.is_subscribed):
            self._next_commit_ms = now_ms + self._settings.auto_commit_interval_ms
            self._commit_beside(self._consumed(self._fetcher.buffers))

    async def run_errands(self) -> None:
        """In its own task: what only the reader can do. Errors, also the listener's, come out here."""
        await self._reader.run_errands()

    def end_poll(self) -> None:
        """The reader has what it gets."""
        self._reader.go()

    def _commit_beside(self, read: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        task = self._client.background.run("an automatic commit", self._auto_commit(read))
        self._committing.add(task)
        task.add_done_callback(self._committing.discard)

    # --- rebalances --------------------------------------------------------------------------------------

    async def _rebalances(self) -> None:
        attempt = 0
        while True:
            try:
                await self._until_needed()
                await self._rebalance()
                attempt = 0
            except TidelogError as error:
                await self._tell(error)
                await asyncio.sleep(self._client.lasting_backoff_ms(attempt) / 1000)
                attempt += 1

    async def _until_needed(self) -> None:
        """A."""
        while not self._is_needed():
            await self._woken.wait()

    def _is_needed(self) -> bool:
        membership = self._membership
        choice = self._watch.choice
        if choice is None or choice.topics is None:
            return False
        return (
            membership.lost
            or membership.fenced is not None
            or membership.rejoins
            or membership.state is not MemberState.STABLE
            or choice.topics != self._joined_topics
            or self._member.misses_partitions
        )

    async def _rebalance(self) -> None:
        membership = self._membership
        if membership.lost:
            await self._reader.have(self._lose)
        if membership.fenced is not None:
            raise membership.fenced
        self._joined_topics = None
        topics, owned = self.topics, set(self._fetcher.buffers)
        leaving = {tp for tp in owned if tp.topic not in topics} if membership.settings.cooperative else owned
        await self._give_up(leaving)
        if membership.lost:
            return
        had = MemberData(tuple(sorted(self._fetcher.buffers)), self._generation)
        assigned = await self._member.join(topics, had if membership.settings.cooperative else self._had)
        if assigned is None:
            return
        self._watch.look_out_for(self._member.led_topics)
        generation = membership.generation
        if membership.settings.cooperative:
            self._generation = generation  # what it kept is its own in this one too
        taken = set(self._fetcher.buffers).difference(assigned)
        if taken:
            await self._give_up(taken)
        await self._reader.have(partial(self._take_on, generation, assigned))
        self._joined_topics = topics
        if taken:
            membership.rejoins = True

    async def _give_up(self, leaving: Collection[TopicPartition]) -> None:
        """B and C. Also where nothing goes the reader must be there: who does not poll is in no group."""
        read: dict[TopicPartition, OffsetAndMetadata] = {}

        async def withhold() -> None:
            for tp in leaving:
                self._fetcher.buffers[tp].withheld = True
            read.update(self._consumed(leaving))

        await self._reader.have(withhold)
        if leaving:
            await self._auto_commit(read)
            await self._reader.have(partial(self._revoke, leaving))

    async def _auto_commit(
        self, read: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int | None = None
    ) -> None:
        if not self._settings.enable_auto_commit or not (self.settled or not self.is_subscribed):
            return
        patience_ms = min(self._settings.default_api_timeout_ms, self._settings.max_poll_interval_ms)
        limit_ms = self._client.clock.monotonic_ms() + patience_ms if deadline_ms is None else deadline_ms
        try:
            await self._offsets.commit(read, self._committer, limit_ms)
        except TidelogError as error:
            _log.warning("auto-commit: %s", error)

    async def _revoke(self, leaving: Collection[TopicPartition]) -> None:
        if self._membership.lost:
            return  # of all that it had, `_lose` tells
        try:
            await self._tell_listener(self._listener.on_partitions_revoked, leaving)
        finally:
            self._drop(leaving)

    async def _lose(self) -> None:
        """The group has gone on without it."""
        membership, lost = self._membership, set(self._fetcher.buffers)
        membership.lost = False
        try:
            if lost:
                await self._tell_listener(self._listener.on_partitions_lost, lost)
        finally:
            self._drop(lost)

    async def _take_on(self, generation: int, assigned: Collection[TopicPartition]) -> None:
        """F."""
        membership = self._membership
        if membership.state is not MemberState.STABLE or membership.generation != generation:
            return
        added = set(assigned).difference(self._fetcher.buffers)
        self._generation, self._had = generation, MemberData(tuple(sorted(assigned)), generation)
        self._fetcher.assign(sorted(assigned))
        for buffer in self._fetcher.buffers.values():
            buffer.withheld = False  # an interrupted rebalance may have withheld some
        await self._tell_listener(self._listener.on_partitions_assigned, added)

    def _drop(self, gone: Collection[TopicPartition]) -> None:
        self._fetcher.assign([tp for tp in self._fetcher.buffers if tp not in gone])

    async def _tell_listener(
        self, method: Callable[[Collection[TopicPartition]], object], partitions: Collection[TopicPartition]
    ) -> None:
        self._in_listener = True
        self._reader.go()
        try:
            await self._call(partial(method, set(partitions)))
        finally:
            self._in_listener = False
            self._reader.come()

    async def _tell(self, error: TidelogError) -> None:
        async def raise_it() -> None:
            raise error

        await self._reader.have(raise_it)

    # --- the end -----------------------------------------------------------------------------------------

    async def leave(self, deadline_ms: int, *, autocommit: bool = True) -> None:
        """Commit, tell the listener, and go. What the listener raises comes out when all is done."""
        try:
            await self._stand_still()
            if self._membership.lost:
                await self._lose()
            elif owned := set(self._fetcher.buffers):
                if autocommit:
                    await self._auto_commit(self._consumed(owned), deadline_ms)
                await self._revoke(owned)
        finally:
            await self._end(deadline_ms)

    async def abandon(self) -> None:
        """Leave the group of a consumer that its user dropped, without a commit and without calling the listener."""
        try:
            await self._stand_still()
        finally:
            await self._end(self._client.clock.monotonic_ms() + _ABANDON_MS)

    async def _end(self, deadline_ms: int) -> None:
        for commit in self._committing:
            commit.cancel()
        await self._member.stop()
        await self._member.leave(deadline_ms)

    async def _stand_still(self) -> None:
        """No rebalance goes on and none begins, also where this is cancelled before it is over."""
        rebalancing = self._rebalancing.cancel()
        if self._woken.set in self._client.listeners:
            self._client.listeners.remove(self._woken.set)
            self._client.needs.remove(self._needed_topics)
        await self._watch.stop()
        await asyncio.gather(*rebalancing, return_exceptions=True)
