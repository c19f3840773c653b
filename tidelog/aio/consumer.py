"""Implement the consumer for asyncio programs; the synchronous consumer uses it as its core."""

from __future__ import annotations

import asyncio
import re
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from tidelog import arguments
from tidelog.arrow.requirement import required_schema
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.begun_commits import BegunCommit, begun_commit
from tidelog.client.consumer.deserialization import Deserializer, Polled
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord, FetchedBatches
from tidelog.client.consumer.fetching.fetcher import Fetcher
from tidelog.client.consumer.list_offsets_v0 import offsets_before
from tidelog.client.consumer.offset_lookup import end_of_each, offsets_for_times, outcomes_for_times, to_targets
from tidelog.client.consumer.reader import Reader, count_of, in_one_list
from tidelog.client.consumer.seek_to_time import StartingPoint, starting_points
from tidelog.client.environment import ClientEnvironment
from tidelog.client.help import assignment_repr, client_repr, shows_settings
from tidelog.client.metrics.snapshot import Metrics, consumer_metrics
from tidelog.client.settings import BootstrapServers, ConsumerOptions, ConsumerSettings, make_settings
from tidelog.client.tasks.lifecycle import LoopBound
from tidelog.display.listing import Table
from tidelog.errors import (
    ArgumentValueError,
    ClosedError,
    IllegalStateError,
    InvalidGroupIdError,
    RecordDeserializationError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.membership.rebalance_listener import HeldListener, RebalanceListener, call_here
from tidelog.groups.membership.subscription import ASSIGNED, Subscription, constructor_topics
from tidelog.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetOutcome,
    TopicPartition,
)
from tidelog.timestamps import Timestamp, to_target_ms

if TYPE_CHECKING:  # imported when they are needed, because consumers without a group and without Arrow start faster
    import pyarrow as pa

    from tidelog.client.consumer.topic_subscription import TopicSubscription
    from tidelog.groups.committed_offsets import CommittedOffsets
    from tidelog.groups.membership.group_consumer import GroupConsumer

#: How long a consumer that closes tries to commit and to leave its group, unless `timeout_ms` is given.
CLOSE_TIMEOUT_MS = 10_000
#: Timeout of `consume`, unless `timeout_ms` is given.
CONSUME_TIMEOUT_MS = 1_000


@shows_settings(ConsumerSettings, ConsumerOptions)
class Consumer(LoopBound):
    """Read records from the leaders of partitions; see `tidelog.Consumer` for the settings and the calls.

    Example:

        async with Consumer(bootstrap_servers="localhost:9092", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            for records in (await consumer.poll(timeout_ms=10_000)).values():
                print([record.value for record in records])

    The first call subscribes a consumer that was created with topics.
    """

    def __init__(
        self, *topics: str, bootstrap_servers: BootstrapServers | None = None, **options: Unpack[ConsumerOptions]
    ) -> None:
        self._set_up(bootstrap_servers, options, ClientEnvironment(), *topics)

    def _set_up(
        self,
        bootstrap_servers: BootstrapServers | None,
        options: Mapping[str, Any],
        environment: ClientEnvironment,
        *topics: str,
    ) -> None:
        self._first_topics = constructor_topics(topics)
        self.settings = make_settings(ConsumerSettings, bootstrap_servers, options)
        self.clock = environment.clock
        self.client = ClusterClient(
            self.settings,
            clock=self.clock,
            opener=environment.opener,
            rng=environment.rng,
            allow_auto_create_topics=self.settings.allow_auto_create_topics,
        )
        self.closed = False
        self._call_listener = environment.call_listener or call_here
        self._listener: HeldListener | None = None
        self._fetcher: Fetcher | None = None
        self._closing = False
        self._offsets: CommittedOffsets | None = None
        self._group: GroupConsumer | None = None
        self._ungrouped: TopicSubscription | None = None
        self._deserializer = Deserializer.of(self.settings.key_deserializer, self.settings.value_deserializer)
        self._begun_commits: set[asyncio.Task[None]] = set()
        owner = weakref.proxy(self)  # a consumer that the user drops is freed at once, which a circle would delay
        self.reader = Reader(self.client, self.settings, lambda: owner._started(), lambda: owner._subscriber)

    async def start(self) -> Self:
        """Start the background tasks, and return this consumer.

        `async with` and every call except `close` start the tasks too.
        """
        self._started()
        return self

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; partitions that were assigned before keep their position.

        The others start at the group's committed offset, else as auto_offset_reset says. With a group and auto-commit,
        the positions of dropped partitions are committed in the background. Raises IllegalStateError if the consumer is
        subscribed.
        """
        wanted = arguments.partitions("partitions", partitions)
        fetcher = self._started()
        gone = set(fetcher.partitions).difference(wanted)
        if self._subscriber is not None:
            self._subscriber.before_manual_assignment(gone)
        fetcher.assign(dict.fromkeys(wanted))

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share these topics, or all topics whose names match the pattern, with the other members of the group.

        Without a group, read all partitions of the topics, and start where `auto_offset_reset` says. Polls do the work:
        see `tidelog.Consumer.subscribe`.
        """
        choice, held = Subscription(topics, pattern), HeldListener("listener", listener)
        fetcher = self._started()
        subscriber = self._subscriber
        if subscriber is None:
            if fetcher.partitions:
                raise IllegalStateError(ASSIGNED)
            subscriber = self._ungrouped = self._new_topic_subscription(fetcher)
        subscriber.subscribe(choice, weakref.proxy(held))
        self._listener = held

    def subscription(self) -> set[str]:
        """Return the topics that this consumer is subscribed to; for a pattern, those that match it.

        Empty without a subscription, and before the first match of a pattern.
        """
        self._started()
        return set(self._subscriber.topics) if self._subscriber is not None else set()

    async def unsubscribe(self) -> None:
        """Commit (if auto-commit is enabled), leave the group, and unassign all partitions, also those of `assign`.

        The listener's `on_partitions_revoked` gets all partitions; its exception is raised at the end. The commit and
        the leave together have 10 s; errors of both are only logged. Without a group nothing is committed.
        """
        fetcher = self._started()
        try:
            if self._subscriber is not None:
                await self._subscriber.leave(self.clock.monotonic_ms() + CLOSE_TIMEOUT_MS)
        finally:
            if self._subscriber is not None:
                self.client.remove_closer(self._subscriber.abandon)
            self._ungrouped = None
            if self._group is not None:
                self._group = self._new_group(fetcher)
            fetcher.assign(())

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: int | None = None
    ) -> None:
        """Commit these offsets for the group; None: the position of each assigned partition.

        A position is the offset after the last returned record, or the offset that the user has sought to. Commits are
        sent in the order of their calls; `asyncio.ensure_future(consumer.commit())` does not wait for the outcome.
        Raises InvalidGroupIdError without a group, and the errors of `tidelog.Consumer.commit`.
        """
        wanted = None if offsets is None else arguments.commits("offsets", offsets)
        self.client.background.raise_failure()
        await self._in_group("commit").commit(wanted, self._deadline_ms(timeout_ms))

    @overload
    async def committed(self, partitions: TopicPartition, timeout_ms: int | None = None) -> int | None: ...

    @overload
    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    async def committed(
        self, partitions: TopicPartition | Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> int | dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Return the group's committed offsets: an int for one partition, a dict for several. None: no commit.

        The call first waits for earlier commits of this consumer. Raises InvalidGroupIdError without a group.
        """
        wanted = [partitions] if isinstance(partitions, TopicPartition) else partitions
        wanted = arguments.partitions("partitions", wanted)
        self.client.background.raise_failure()
        found = await self._in_group("committed").committed(wanted, self._deadline_ms(timeout_ms))
        if not isinstance(partitions, TopicPartition):
            return Table(found)
        at = found[partitions]
        return None if at is None else at.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's identity in its group: the member id and the generation, as far as they are known.

        Raises InvalidGroupIdError without a group.
        """
        return self._in_group("group_metadata").metadata

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._started().partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read from `offset` next, and discard the fetched records of the partition.

        Raises ValueError for a negative offset, or if the partition is not assigned. The offset is not compared with
        the log here; one out of range is an error of a later poll, or is reset.
        """
        self._seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these partitions from their first offset next; without arguments, all assigned partitions.

        The offset is looked up in the background. Raises ValueError if a partition is not assigned.
        """
        self._reset(partitions, EARLIEST_TIMESTAMP)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read these partitions next from their end, after the last visible record; without arguments, all assigned.

        The end is looked up in the background, after this call. Raises ValueError if a partition is not assigned.
        """
        self._reset(partitions, LATEST_TIMESTAMP)

    async def seek_to_time(
        self, time: Timestamp, *partitions: TopicPartition, timeout_ms: int | None = None
    ) -> dict[TopicPartition, StartingPoint]:
        """Read next from each partition's first record with this time or a later time (default: all assigned).

        Returns where each partition starts and why. Partitions that were unassigned meanwhile are left out. After an
        error no partition has moved. See `tidelog.Consumer.seek_to_time`.
        """
        to_target_ms(time, "time")
        time_limit_ms, fetcher = self._timeout_ms(timeout_ms), self._started()
        wanted = [each.topic_partition for each in self._all_assigned(partitions)] or list(fetcher.partitions)
        targets = to_targets(dict.fromkeys(wanted, time))
        isolation_level = self.settings.isolation_level
        points = await starting_points(self.client, targets, time_limit_ms, isolation_level)
        # Partitions that were unassigned meanwhile are left out.
        kept = Table({tp: point for tp, point in points.items() if tp in fetcher.partitions})
        for tp, point in kept.items():
            fetcher.partitions[tp].seek(point.offset, -1 if point.leader_epoch is None else point.leader_epoch)
        fetcher.wake()
        return kept

    def pause(self, *partitions: TopicPartition) -> None:
        """Let polls return no records of these partitions until `resume`; their positions stay.

        Raises ValueError if a partition is not assigned; in that case none is paused.
        """
        for assigned in self._all_assigned(partitions):
            assigned.paused = True
        self._started().wake()  # the fetcher may discard their fetched records now

    def resume(self, *partitions: TopicPartition) -> None:
        """Let polls return records of these partitions again.

        Raises ValueError if a partition is not assigned; in that case none is resumed.
        """
        for assigned in self._all_assigned(partitions):
            assigned.paused = False
        fetcher = self._started()
        fetcher.arrived.set()
        fetcher.wake()

    def paused(self) -> set[TopicPartition]:
        """Return the assigned partitions that are paused."""
        return {tp for tp, assigned in self._started().partitions.items() if assigned.paused}

    async def poll(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return fetched records at once if there are any, else those that arrive within `timeout_ms`, else nothing.

        The result has at most `max_records` records (default `max_poll_records`), for each partition in offset order.
        See `tidelog.Consumer.poll` for the errors.
        """
        return await self._read(partial(self.reader.poll, max_records=max_records), timeout_ms)

    async def consume(self, max_records: int = 500, timeout_ms: int = CONSUME_TIMEOUT_MS) -> list[ConsumerRecord]:
        """Wait until `max_records` records have arrived or `timeout_ms` has passed, and return them as one list.

        See `tidelog.Consumer.consume`.
        """
        return in_one_list(await self._read(partial(self.reader.consume, max_records=max_records), timeout_ms))

    async def poll_batches(self, timeout_ms: int = 0) -> dict[TopicPartition, FetchedBatches]:
        """Return fetched batches undecoded, for each partition those of one fetch answer; wait like `poll`.

        The position moves past the batches. `max_poll_records` and the deserializers do not apply.
        """
        return await self.reader.poll_batches(timeout_ms)

    async def poll_arrow(
        self, timeout_ms: int = 0, *, columns: Iterable[str] | None = None, headers: bool = False
    ) -> pa.Table:
        """Return fetched records as an Arrow table, for each partition those of one fetch answer; wait like `poll`.

        See `tidelog.Consumer.poll_arrow`.
        """
        schema = required_schema("poll_arrow", columns, headers=headers)
        from tidelog.arrow.polled_rows import to_table

        return to_table(schema, (await self.reader.poll_rows(schema, timeout_ms)).values())

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record that `poll` returns; wait for the look-up of the start if need be.

        Raises ValueError if the partition is not assigned, the error that prevents the look-up, or TimeoutError.
        """
        assigned = self._assigned("partition", partition)
        deadline_ms = self._deadline_ms(timeout_ms)
        known = assigned.standing_error.failures
        while assigned.position is None:
            fetcher = self._started()
            self.client.background.raise_failure()
            is_over = self.clock.monotonic_ms() >= deadline_ms
            for standing_error in (fetcher.cluster_error, assigned.standing_error):
                if is_over or standing_error.is_new() or assigned.standing_error.failures > known:
                    standing_error.raise_it()
            if is_over:
                raise TimeoutError(f"{assigned.topic_partition}: the position was not found in time")
            await self.reader.wait_for_arrival(fetcher, deadline_ms)
        return assigned.position

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the partition's high watermark of the last fetch answer; None before the first answer.

        Raises ValueError if the partition is not assigned.
        """
        mark = self._assigned("partition", partition).high_watermark
        return mark if mark >= 0 else None

    @overload
    async def offsets_for_times(
        self,
        times: Mapping[TopicPartition, Timestamp],
        timeout_ms: int | None = None,
        *,
        partial: Literal[False] = False,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...

    @overload
    async def offsets_for_times(
        self, times: Mapping[TopicPartition, Timestamp], timeout_ms: int | None = None, *, partial: Literal[True]
    ) -> dict[TopicPartition, OffsetOutcome]: ...

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, Timestamp], timeout_ms: int | None = None, *, partial: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None] | dict[TopicPartition, OffsetOutcome]:
        """Return each partition's earliest offset whose timestamp is at or after the target; None if there is none.

        With `partial`, return an OffsetOutcome per partition instead, and raise no error of a partition. See
        `tidelog.Consumer.offsets_for_times`.
        """
        self._started()
        time_limit_ms, isolation_level = self._timeout_ms(timeout_ms), self.settings.isolation_level
        if arguments.flag("partial", partial):
            return Table(await outcomes_for_times(self.client, times, time_limit_ms, isolation_level))
        return Table(await offsets_for_times(self.client, times, time_limit_ms, isolation_level))

    async def offsets_before(
        self, times: Mapping[TopicPartition, Timestamp], max_num_offsets: int = 1, timeout_ms: int | None = None
    ) -> dict[TopicPartition, list[int]]:
        """Return the base offsets of each partition's segments last written at or before the time, newest first.

        See `tidelog.Consumer.offsets_before`.
        """
        self._started()
        return await offsets_before(self.client, times, max_num_offsets, self._timeout_ms(timeout_ms))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset (log start offset) of each partition, which need not be assigned."""
        return await self._ends(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last visible record of each partition, which need not be assigned.

        That is the high watermark, or with "read_committed" the last stable offset.
        """
        return await self._ends(partitions, LATEST_TIMESTAMP, timeout_ms)

    async def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int] | None:
        """Return the numbers of the topic's partitions; None if brokers deny it for 3 s, or until the deadline."""
        name, deadline_ms = arguments.topic("topic", topic), self._deadline_ms(timeout_ms)
        self._started()
        try:
            return set((await self.client.topic(name, deadline_ms)).partitions)
        except UnknownTopicOrPartitionError:
            return None

    async def topics(self, timeout_ms: int | None = None) -> set[str]:
        """Return the names of all topics except internal topics, as one broker knows them."""
        self._started()
        answer = await self.client.fetch_all(self._deadline_ms(timeout_ms))
        return {topic.name for topic in answer.topics if not topic.is_internal}

    def bootstrap_connected(self) -> bool:
        """Return whether a connection to any broker is open now; False before the first call, and after `close`."""
        if self.closed:
            return False
        self._enter_loop()
        return self.client.is_connected

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record of the assigned partitions.

        The iteration stops if no record arrives for `consumer_timeout_ms`; None: it waits without a limit.
        """
        while True:
            if (record := self.reader.remainder.next()) is None:
                if not await self.reader.fill_remainder():
                    raise StopAsyncIteration
            elif self._deserializer is None:
                return record
            else:
                try:
                    return self._deserializer.record(record)
                except RecordDeserializationError as error:
                    self.reader.refuse([error], 1)
                except BaseException:  # SystemExit or an interrupt
                    self.reader.give_back({TopicPartition(record.topic, record.partition): [record]})
                    raise

    def metrics(self) -> Metrics:
        """Return a snapshot of this consumer's metrics; see `tidelog.Consumer.metrics`."""
        partitions = list(self._fetcher.partitions.values()) if self._fetcher is not None and not self.closed else []
        lags = {assigned.topic_partition: assigned.lag for assigned in partitions}
        return consumer_metrics(self.client.metrics, lags, self.clock.monotonic_ms())

    async def close(self, *, autocommit: bool = True, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commit (if auto-commit is enabled), call the listener, leave the group, and free the resources.

        `timeout_ms` limits the commit and the leave together; the time of the listener counts, but the listener is not
        interrupted. With `autocommit` False nothing is committed. A static member does not leave its group. The
        listener's exception is raised at the end. Idempotent.
        """
        autocommit = arguments.flag("autocommit", autocommit)
        time_limit_ms = arguments.timeout_ms("timeout_ms", timeout_ms)
        if self.closed or self._closing:
            return
        self._enter_loop()
        self._closing = True
        self.reader.end()
        deadline_ms = self.clock.monotonic_ms() + time_limit_ms
        try:
            if self._begun_commits:
                await self._end_begun_commits(deadline_ms)
            if self._subscriber is not None:
                await self._subscriber.leave(deadline_ms, autocommit=autocommit)
        finally:
            self.closed = True
            try:
                if self._fetcher is not None:
                    self._fetcher.arrived.set()
                    await self._fetcher.stop()
            finally:
                await self.client.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return client_repr(self, self.settings, *self._facts(), closed=self.closed)

    def _facts(self) -> tuple[str, str]:
        """Return the texts of the group and the assignment, as `repr` shows them."""
        assigned = list(self._fetcher.partitions) if self._fetcher is not None and not self.closed else []
        return f"group_id={self.settings.group_id!r}", f"assignment={assignment_repr(assigned)}"

    def _seek(self, partition: TopicPartition, offset: int, topic_id: str = "") -> None:
        """Do what `seek` does, for an offset of the topic with this id; "": of the topic that exists now."""
        target = arguments.offset("offset", offset)
        self._assigned("partition", partition).seek(target, topic_id=topic_id)
        self._started().wake()

    def _begin_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, logs_error: bool
    ) -> BegunCommit:
        """Begin a commit for `commit_async` of the synchronous consumer."""
        wanted = None if offsets is None else arguments.commits("offsets", offsets)
        self.client.background.raise_failure()
        group = self._in_group("commit_async")
        read = group.positions() if wanted is None else wanted
        task = asyncio.get_running_loop().create_task(group.commit(read, self._deadline_ms(None)))
        self._begun_commits.add(task)
        task.add_done_callback(self._begun_commits.discard)
        return begun_commit(read, task, logs_error=logs_error)

    async def _end_begun_commits(self, deadline_ms: int) -> None:
        """Wait for the begun commits until the deadline, and cancel those that have no outcome then."""
        left_ms = max(0, deadline_ms - self.clock.monotonic_ms())
        _, pending = await asyncio.wait(self._begun_commits, timeout=left_ms / 1000)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _read(self, poll: Callable[[int], Awaitable[Polled]], timeout_ms: int) -> Polled:
        """Call `poll(timeout_ms)`, and return its records, deserialized.

        If no record before those that cannot be deserialized is left, the next poll raises the error.
        """
        while True:
            polled = await poll(timeout_ms)
            if self._deserializer is None:
                return polled
            try:
                found, errors = self._deserializer.polled(polled)
            except BaseException:  # SystemExit or an interrupt
                self.reader.give_back(polled)
                raise
            if errors:
                self.reader.refuse(errors, count_of(polled) - count_of(found))
            if found or not errors:
                return found
            timeout_ms = 0

    # --- helpers ----------------------------------------------------------------------------------

    def _started(self) -> Fetcher:
        """Raise ClosedError if the consumer is closed; return the fetcher, which the first call starts.

        Records that an iteration has polled and not yielded go back to their buffers, so that each call sees the
        position that the user expects.
        """
        if self.closed:
            raise ClosedError("the consumer is closed")
        self._enter_loop()
        self.reader.give_remainder_back()
        if self._fetcher is None:
            if self.settings.group_id is not None:
                from tidelog.groups.committed_offsets import CommittedOffsets

                self._offsets = CommittedOffsets(self.client, self.settings.group_id)
            self._fetcher = Fetcher(self.client, self.settings, self._offsets)
            self.client.add_closer(self._fetcher.stop)
            if self._offsets is not None:
                self._group = self._new_group(self._fetcher)
            self._fetcher.start()
            self.client.start()
            if self._first_topics:
                self.subscribe(self._first_topics)
        return self._fetcher

    def _new_group(self, fetcher: Fetcher) -> GroupConsumer:
        from tidelog.groups.membership.group_consumer import GroupConsumer

        assert self._offsets is not None
        group = GroupConsumer(self.client, self.settings, fetcher, self._offsets, self._call_listener)
        self.client.add_closer(group.abandon)
        return group

    def _new_topic_subscription(self, fetcher: Fetcher) -> TopicSubscription:
        from tidelog.client.consumer.topic_subscription import TopicSubscription

        subscription = TopicSubscription(self.client, fetcher, self._call_listener)
        self.client.add_closer(subscription.abandon)
        return subscription

    @property
    def _subscriber(self) -> GroupConsumer | TopicSubscription | None:
        """Return the group, or the subscription without a group, that decides the assignment; None if `assign` does."""
        return self._group or self._ungrouped

    def _in_group(self, what: str) -> GroupConsumer:
        self._started()
        if self._group is None:
            raise InvalidGroupIdError(f"{what} needs a group: give the consumer a group_id")
        return self._group

    def _assigned(self, name: str, partition: TopicPartition) -> AssignedPartition:
        tp = arguments.partition(name, partition)
        assigned = self._started().partitions.get(tp)
        if assigned is None:
            raise ArgumentValueError(f"{name}: {tp} is not assigned")
        return assigned

    def _all_assigned(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        return [self._assigned("partitions", tp) for tp in partitions]

    def _reset(self, partitions: Iterable[TopicPartition], to: int) -> None:
        for assigned in self._all_assigned(partitions) or list(self._started().partitions.values()):
            assigned.reset(to)
        self._started().wake()

    async def _ends(
        self, partitions: Iterable[TopicPartition], which: int, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        wanted, time_limit_ms = arguments.partitions("partitions", partitions), self._timeout_ms(timeout_ms)
        self._started()
        return Table(await end_of_each(self.client, wanted, which, time_limit_ms, self.settings.isolation_level))

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.settings.default_api_timeout_ms
        return arguments.timeout_ms("timeout_ms", timeout_ms)

    def _deadline_ms(self, timeout_ms: int | None) -> int:
        return self.clock.monotonic_ms() + self._timeout_ms(timeout_ms)
