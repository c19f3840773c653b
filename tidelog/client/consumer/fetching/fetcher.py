"""Keep the buffers of the assigned partitions filled ahead of the reader.

Each partition is in at most one fetch request (besides requests that became useless when its position moved). A leader
may hold several requests, so that a partition that has just been read need not wait for the long poll of idle ones.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.failures import Failures
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord
from tidelog.client.consumer.fetching.fetch_plan import (
    LEADER_REQUESTS,
    FetchPlan,
    RequestedPartition,
    Step,
    needs_step,
    next_step,
)
from tidelog.client.consumer.fetching.fetch_requests import FetchRequests
from tidelog.client.consumer.fetching.position_state import AwaitingCommit
from tidelog.client.consumer.fetching.position_validation import PositionValidation
from tidelog.client.consumer.fetching.standing_error import StandingError
from tidelog.client.consumer.fetching.subscription_positions import SubscriptionPositions
from tidelog.client.leader_discovery import LeaderSearch
from tidelog.client.metadata import Leader
from tidelog.client.settings import ConsumerSettings
from tidelog.client.tasks.async_event import Signal
from tidelog.client.tasks.background import SupervisedTask
from tidelog.display.listing import Listing
from tidelog.errors import NoBrokersError, TidelogError, UnknownTopicOrPartitionError
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.groups.committed_offsets import CommittedOffsets

#: Maximum number of concurrent fetches per leader. Their partitions differ, except after a position has moved.
MAX_FETCHES_PER_BROKER = 16
#: Records are taken from the partitions in turn, up to this many at a time, so that each partition gets its share.
FAIR_SHARE = 100


class Fetcher:
    """Owns the assigned partitions and fetches them, in one task on the event loop.

    partitions         the assignment, in the order in which records are taken and requested
    arrived            set when a waiting call must look again: data, an error or a position has arrived
    cluster_error      the error as long as no broker has answered
    unassigned_error   the error of a partition that was unassigned before a call could raise it
    """

    def __init__(
        self, client: ClusterClient, settings: ConsumerSettings, committed: CommittedOffsets | None = None
    ) -> None:
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self.cluster_error = StandingError()
        self.unassigned_error: TidelogError | None = None
        self.arrived = asyncio.Event()
        self._client = client
        self._settings = settings
        self._woken = Signal()
        self._fetches: defaultdict[int, set[asyncio.Task[None]]] = defaultdict(set)
        self._seen_version = 0
        self._failures = Failures(client, self.arrived)
        self._positions = SubscriptionPositions(client, settings, self._failures, committed)
        validation = PositionValidation(client, self._positions, self._failures, self._ask)
        self._requests = FetchRequests(client, settings, self._positions, self._failures, self._on_data)
        self._questions = {
            Step.FIND_END: self._positions.find_ends,
            Step.FIND_TIME: self._positions.find_times,
            Step.VALIDATE: validation.validate,
        }
        self._search = LeaderSearch(client, self._woken.set)
        self._running = SupervisedTask(client.background, "the consumer's fetcher", self._run)
        client.subscribe(self._woken.set, self._topics)
        client.background.subscribe(self.arrived.set)

    def start(self) -> None:
        """Start the fetcher's task. Needs the running loop."""
        self._running.start()

    async def stop(self) -> None:
        """Stop the fetcher's task and the search for leaders, and wait for their end.

        The client ends the requests in flight when it closes.
        """
        try:
            await self._running.stop()
        finally:
            await self._search.stop()

    def wake(self) -> None:
        """Let the fetcher's task do a turn, because a buffer has space or a position has moved."""
        self._woken.set()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment; partitions that stay assigned keep their position and buffer.

        New partitions start at the group's committed offset, without a group as auto_offset_reset says now. Answers for
        unassigned partitions are ignored.
        """
        reset_to = self._positions.policy
        before, limit = self.partitions, self._settings.max_decompressed_batch_bytes
        in_group = self._positions.committed is not None
        self.partitions = {
            tp: before.get(tp) or AssignedPartition(tp, reset_to, limit, awaits_commit=in_group) for tp in partitions
        }
        for tp, partition in before.items():
            if tp not in self.partitions:
                partition.on_unassigned()
                # A group unassigns a deleted partition, but the reader must still get its error.
                standing_error = partition.standing_error
                is_gone = isinstance(standing_error.error, UnknownTopicOrPartitionError)
                if in_group and is_gone and standing_error.is_new():
                    self.unassigned_error = self.unassigned_error or standing_error.error
        self._client.track(*self._topics())
        self.wake()

    # --- the reader -------------------------------------------------------------------------------

    def decode_ahead(self, limit: int) -> int:
        """Decode until `limit` records wait for `take_records`, so that their answers take no space in the buffers.

        Return how many records wait. The positions stay. Paused and withheld partitions do not count.
        """
        count = 0
        for assigned in self.partitions.values():
            if assigned.is_shown and count < limit:
                count += assigned.decode_ahead(limit - count)
        return count

    def take_records(self, limit: int, found: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        """Move up to `limit` records from the buffers to `found`.

        The partitions give records in turn. Paused and withheld partitions give none.
        """
        left = limit
        while left:
            before = left
            for tp, assigned in self.partitions.items():
                records = assigned.take_records(min(left, FAIR_SHARE)) if left and assigned.is_shown else []
                if records:
                    found.setdefault(tp, Listing()).extend(records)
                    left -= len(records)
            if left == before:
                break
        if not left:
            # Move the partitions that gave records to the end, because the limit may have left out others.
            for tp in found:
                self.partitions[tp] = self.partitions.pop(tp)

    @property
    def shown_errors(self) -> list[StandingError]:
        """The standing errors of the cluster and of the partitions whose records the reader may get."""
        return [self.cluster_error, *(each.standing_error for each in self.partitions.values() if each.is_shown)]

    # --- one turn ---------------------------------------------------------------------------------

    def _topics(self) -> set[str]:
        return {tp.topic for tp in self.partitions}

    async def _run(self) -> None:
        while True:
            if self.partitions and not self._client.view.version:
                await self._find_cluster()
            next_ms = self._turn(self._client.clock.monotonic_ms())
            await self._woken.wait(None if next_ms is None else max(1, next_ms - self._client.clock.monotonic_ms()))

    async def _find_cluster(self) -> None:
        try:
            await self._client.wait_for_metadata(
                self._client.clock.monotonic_ms() + self._settings.bootstrap_timeout_ms
            )
        except NoBrokersError as error:
            self.cluster_error.set(error)
            self.arrived.set()
        else:
            self.cluster_error.clear()

    def _turn(self, now_ms: int) -> int | None:
        """Send the requests that the partitions need now; return when the next turn is due, if nothing happens.

        None: only an event starts the next turn.
        """
        plan, room_bytes = FetchPlan(), self._room_bytes()
        for partition in self.partitions.values():
            try:
                self._plan_step(partition, plan, now_ms, has_room=room_bytes > 0)
            except Exception as error:
                self._failures.report_unexpected(partition, error)
                plan.retry_at(partition.retry.at_ms)
        self._seen_version = self._client.view.version
        for partitions in plan.commits.values():
            self._find_commits(partitions)
        for (step, _, _), requested in plan.look_ups.items():
            self._ask(self._questions[step], requested)
        for (broker_id, _), requested in plan.fetches.items():
            self._start_fetch(broker_id, requested, room_bytes)
        if plan.leaderless or plan.missing:
            self._search.search(patiently=not plan.leaderless)
        else:
            self._search.stop_waiting()
        return plan.later_ms

    def _plan_step(self, partition: AssignedPartition, plan: FetchPlan, now_ms: int, *, has_room: bool) -> None:
        """Add to the plan what this partition needs next, if it needs anything now."""
        if not needs_step(partition, has_room=has_room):
            return
        leader = None if isinstance(partition.state, AwaitingCommit) else self._leader_of(partition, plan)
        if leader is not None:
            partition.on_leader(leader)
        step = next_step(partition, leader, now_ms)
        if leader is not None and step in LEADER_REQUESTS:
            plan.add(step, partition, leader)
        elif step is Step.WAIT:
            plan.retry_at(partition.retry.at_ms)
        elif step is Step.FIND_COMMIT:
            plan.add_commit(partition)
        elif step is Step.FIND_LATER_LEADER:
            partition.on_leader_behind(now_ms)
            self._client.distrust_metadata()
            plan.leaderless = True
        elif step is Step.RESET:
            self._positions.on_topic_recreated(partition)
            plan.retry_at(partition.retry.at_ms)
        elif step is Step.REPORT_NO_POSITION:
            self._positions.on_no_position(partition)
            plan.retry_at(partition.retry.at_ms)

    def _leader_of(self, partition: AssignedPartition, plan: FetchPlan) -> Leader | None:
        """Return the partition's leader; None if the partition is missing or has no leader, as the plan then says."""
        leader = self._client.view.leader_of(*partition.topic_partition)
        error = partition.standing_error.error
        may_be_gone = leader is None or partition.retry.attempts or error is not None
        if may_be_gone and self._is_refused(partition):
            plan.missing = True
            return None
        if leader is None:
            plan.missing |= error is not None
            plan.leaderless |= error is None
        elif isinstance(error, UnknownTopicOrPartitionError):
            partition.standing_error.clear()  # the partition is there now
        return leader

    def _room_bytes(self) -> int:
        """Return how many more bytes may be fetched ahead; 0 or less: none.

        At the limit, discard the data of paused partitions first.
        """
        limit, held = self._settings.prefetch_max_bytes, self._held_bytes()
        if held >= limit:
            for partition in self.partitions.values():
                if partition.paused and partition.buffer is not None:
                    partition.drop()
            held = self._held_bytes()
        return limit - held

    def _held_bytes(self) -> int:
        buffers = (partition.buffer for partition in self.partitions.values())
        return sum(buffer.held_bytes for buffer in buffers if buffer is not None)

    def _find_commits(self, partitions: list[AssignedPartition]) -> None:
        asked = [(partition, partition.generation) for partition in partitions]
        task = self._begin("the look-up of committed offsets", self._positions.find_committed(asked), partitions)
        task.add_done_callback(self._on_change)

    def _start_fetch(self, broker_id: int, requested: list[RequestedPartition], room_bytes: int) -> None:
        """Fetch these partitions, unless 16 fetches of their leader are in flight."""
        under_way = self._fetches[broker_id]
        if len(under_way) < MAX_FETCHES_PER_BROKER:
            work = self._requests.fetch(broker_id, requested, min(room_bytes, self._settings.fetch_max_bytes))
            task = self._begin(f"the fetch from broker {broker_id}", work, [each.partition for each in requested])
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    def _begin(
        self, what: str, work: Coroutine[Any, Any, None], partitions: Iterable[AssignedPartition]
    ) -> asyncio.Task[None]:
        """Start a task with this work for these partitions, which are busy until the task is done, however it ends."""
        task = self._client.background.run(what, work)
        asked = [(partition, partition.generation) for partition in partitions]
        for partition, _ in asked:
            partition.work = task
        task.add_done_callback(partial(self._ended, asked))
        return task

    def _ended(self, asked: list[tuple[AssignedPartition, int]], task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            for partition, generation in asked:
                if partition.generation == generation:
                    partition.is_alone = True
                    self._failures.back_off(partition, may_last=True)
        self._woken.set()

    def _ask(
        self,
        question: Callable[[list[RequestedPartition]], Coroutine[Any, Any, None]],
        requested: list[RequestedPartition],
    ) -> None:
        """Send a request about positions; the next turn sees its result."""
        partitions = [each.partition for each in requested]
        task = self._begin("the look-up of positions", question(requested), partitions)
        task.add_done_callback(self._on_change)

    def _on_data(self, partition: AssignedPartition) -> None:
        """Wake the reader. The partition moves to the end, so that `fetch_max_bytes` does not starve the others."""
        tp = partition.topic_partition
        if self.partitions.get(tp) is partition:
            self.partitions[tp] = self.partitions.pop(tp)
        self.arrived.set()

    def _on_change(self, _: object) -> None:
        self.arrived.set()

    def _is_refused(self, partition: AssignedPartition) -> bool:
        """Return whether the partition certainly does not exist; report that to its reader once for each new view."""
        refusal = self._client.partition_refusal(partition.topic_partition)
        is_news = partition.standing_error.error is None or self._client.view.version != self._seen_version
        if refusal is not None and is_news:
            self._failures.report(partition, refusal)
        return refusal is not None
