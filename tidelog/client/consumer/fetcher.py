"""Keep the buffers of the assigned partitions filled ahead of the reader.

Each partition is in at most one fetch request (besides requests that became useless when its position moved). A leader
may hold several requests, so that a partition that has just been read need not wait for the long poll of idle ones.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.client.async_event import Signal
from tidelog.client.background import SupervisedTask
from tidelog.client.cluster_client import ClusterClient, is_retriable
from tidelog.client.consumer.fetch_buffer import PartitionBuffer
from tidelog.client.consumer.standing_error import StandingError
from tidelog.client.consumer.subscription_positions import Led, SubscriptionPositions
from tidelog.client.leader_discovery import LeaderSearch
from tidelog.client.metadata import ClusterView, Leader
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    NetworkError,
    NoBrokersError,
    OffsetOutOfRangeError,
    TidelogError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from tidelog.model import CONSUMER_REPLICA_ID, TopicPartition
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tidelog.groups.committed_offsets import CommittedOffsets

#: Maximum number of concurrent fetches per leader. Their partitions differ, except after a position has moved.
MAX_FETCHES_PER_BROKER = 16
#: After so many attempts that return a corrupt batch the reader gets the error.
MAX_CORRUPT_ATTEMPTS = 5

#: A broker, and the partition if the request must name no other one (`PartitionBuffer.is_alone`).
_Addressee = tuple[int, TopicPartition | None]


@dataclass(slots=True)
class _Plan:
    """The requests that one turn of the fetcher sends, by kind and addressee.

    uncommitted   partitions whose committed offset must be looked up
    at_ends       partitions that start at the beginning or the end of the log
    at_times      partitions that start at a time
    unchecked     partitions whose leader must confirm that it has the records that were read
    fetches       partitions to fetch
    later_ms      when the next turn is due, if nothing happens before
    leaderless    whether a partition waits for a leader
    missing       whether a partition does not exist, as far as this client knows
    """

    uncommitted: defaultdict[TopicPartition | None, list[PartitionBuffer]] = field(
        default_factory=lambda: defaultdict(list)
    )
    at_ends: defaultdict[_Addressee, Led] = field(default_factory=lambda: defaultdict(list))
    at_times: defaultdict[_Addressee, Led] = field(default_factory=lambda: defaultdict(list))
    unchecked: defaultdict[_Addressee, Led] = field(default_factory=lambda: defaultdict(list))
    fetches: defaultdict[_Addressee, Led] = field(default_factory=lambda: defaultdict(list))
    later_ms: int | None = None
    leaderless: bool = False
    missing: bool = False

    def retry_at(self, at_ms: int) -> None:
        self.later_ms = at_ms if self.later_ms is None else min(self.later_ms, at_ms)


class Fetcher:
    """Owns the buffers and fetches their partitions, in one task on the event loop.

    cluster_error   the error as long as no broker has answered
    unassigned_error          the error of a partition that was unassigned before a call could raise it
    """

    def __init__(
        self, client: ClusterClient, settings: ConsumerSettings, committed: CommittedOffsets | None = None
    ) -> None:
        self.buffers: dict[TopicPartition, PartitionBuffer] = {}
        self.cluster_error = StandingError()
        self.unassigned_error: TidelogError | None = None
        self.arrived = asyncio.Event()
        self._client = client
        self._settings = settings
        self._woken = Signal()
        self._fetches: defaultdict[int, set[asyncio.Task[None]]] = defaultdict(set)
        self._seen_version = 0
        self._positions = SubscriptionPositions(client, settings, self._report, self._ask, committed)
        self._search = LeaderSearch(client, self._woken.set)
        self._running = SupervisedTask(client.background, "the consumer's fetcher", self._run)
        client.listeners.append(self._woken.set)
        client.needs.append(self._topics)
        client.background.on_failure.append(self.arrived.set)

    def start(self) -> None:
        """Start the fetcher's task. Needs the running loop."""
        self._running.start()

    async def stop(self) -> None:
        """Stop starting requests; the client ends those in flight when it closes."""
        try:
            await self._running.stop()
        finally:
            await self._search.stop()

    def wake(self) -> None:
        """Start a turn, because a buffer has space or a position has moved."""
        self._woken.set()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment; partitions that stay assigned keep their position and buffer."""
        policy = self._positions.policy
        kept, limit = self.buffers, self._settings.max_decompressed_batch_bytes
        in_group = self._positions.committed is not None
        self.buffers = {
            tp: kept.get(tp) or PartitionBuffer(tp, policy, limit, awaits_commit=in_group) for tp in partitions
        }
        for tp, buffer in kept.items():
            if tp not in self.buffers:
                buffer.generation += 1
                # A group unassigns a deleted partition, but the reader must still get its error.
                is_gone = isinstance(buffer.standing_error.error, UnknownTopicOrPartitionError)
                if in_group and is_gone and buffer.standing_error.is_new():
                    self.unassigned_error = self.unassigned_error or buffer.standing_error.error
        self._client.track(*self._topics())
        self.wake()

    def _topics(self) -> set[str]:
        return {tp.topic for tp in self.buffers}

    # --- one turn ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if self.buffers and not self._client.view.version:
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
        plan, room_bytes = _Plan(), self._room_bytes()
        for buffer in self.buffers.values():
            try:
                self._consider(buffer, plan, now_ms, has_room=room_bytes > 0)
            except Exception as error:
                self._failed_unexpectedly(buffer, error)
                plan.retry_at(buffer.retry_at_ms)
        self._seen_version = self._client.view.version
        for buffers in plan.uncommitted.values():
            asked = {(buffer.topic_partition, buffer.generation): buffer for buffer in buffers}
            work = self._positions.find_committed(asked)
            self._begin("the look-up of committed offsets", work, buffers).add_done_callback(self._on_change)
        for led in plan.at_ends.values():
            self._ask(self._positions.find_ends, led)
        for led in plan.at_times.values():
            self._ask(self._positions.find_times, led)
        for led in plan.unchecked.values():
            self._ask(self._positions.check, led)
        for (broker_id, _), led in plan.fetches.items():
            under_way = self._fetches[broker_id]
            if len(under_way) < MAX_FETCHES_PER_BROKER:
                work = self._fetch(broker_id, led, min(room_bytes, self._settings.fetch_max_bytes))
                task = self._begin(f"the fetch from broker {broker_id}", work, [buffer for buffer, _, _ in led])
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        if plan.leaderless or plan.missing:
            self._search.search(patiently=not plan.leaderless)
        else:
            self._search.stop_waiting()
        return plan.later_ms

    def _consider(self, buffer: PartitionBuffer, plan: _Plan, now_ms: int, *, has_room: bool) -> None:
        """Add to the plan the request that this partition needs next, if it needs one now."""
        starting = buffer.position is None
        if buffer.is_busy or (not starting and not (has_room and buffer.wants_data)):
            return
        if starting and buffer.awaits_commit:
            if buffer.must_wait(None, now_ms):
                plan.retry_at(buffer.retry_at_ms)
            else:
                plan.uncommitted[buffer.topic_partition if buffer.is_alone else None].append(buffer)
        elif (leader := self._leader_of(buffer, plan)) is None:
            pass  # the plan has the reason
        elif buffer.must_wait(leader, now_ms):
            plan.retry_at(buffer.retry_at_ms)
        elif starting:
            self._consider_start(buffer, leader, plan)
        else:
            self._consider_fetch(buffer, leader, plan)

    def _leader_of(self, buffer: PartitionBuffer, plan: _Plan) -> Leader | None:
        """Return the partition's leader; None if the partition is missing or has no leader, as the plan then says."""
        leader = self._client.view.leader_of(*buffer.topic_partition)
        may_be_gone = leader is None or buffer.attempts or buffer.standing_error.error is not None
        if may_be_gone and self._is_refused(buffer):
            plan.missing = True
            return None
        if leader is None:
            plan.missing |= buffer.standing_error.error is not None
            plan.leaderless |= buffer.standing_error.error is None
        elif isinstance(buffer.standing_error.error, UnknownTopicOrPartitionError):
            buffer.standing_error.clear()  # the partition is there now
        return leader

    def _consider_start(self, buffer: PartitionBuffer, leader: Leader, plan: _Plan) -> None:
        """Plan how a partition without a position gets one."""
        if not buffer.is_of_topic(leader.topic_id):
            self._positions.on_topic_recreated(buffer)
            plan.retry_at(buffer.retry_at_ms)
        elif buffer.reset_to is None:
            self._positions.on_no_position(buffer)
            plan.retry_at(buffer.retry_at_ms)
        else:
            look_ups = plan.at_ends if buffer.reset_to < 0 else plan.at_times
            look_ups[_addressee(buffer, leader)].append((buffer, buffer.generation, leader))

    def _consider_fetch(self, buffer: PartitionBuffer, leader: Leader, plan: _Plan) -> None:
        """Plan a fetch, or before it a check that the leader has the records that were read."""
        led = buffer, buffer.generation, leader
        if not buffer.is_of_topic(leader.topic_id):
            # The view shows another topic of this name, but may be old. The answer to a fetch decides.
            plan.fetches[_addressee(buffer, leader)].append(led)
        elif self._positions.must_find_newer_leader(buffer, leader):
            self._client.distrust_metadata()
            plan.leaderless = True
        elif buffer.is_unchecked_in(leader.epoch):
            plan.unchecked[_addressee(buffer, leader)].append(led)
        else:
            plan.fetches[_addressee(buffer, leader)].append(led)

    def _room_bytes(self) -> int:
        """Return how many more bytes may be fetched ahead; at the limit, discard the data of paused partitions."""
        limit = self._settings.prefetch_max_bytes
        if sum(buffer.held_bytes for buffer in self.buffers.values()) >= limit:
            for buffer in self.buffers.values():
                if buffer.paused:
                    buffer.drop()
        return limit - sum(buffer.held_bytes for buffer in self.buffers.values())

    def _begin(
        self, what: str, work: Coroutine[Any, Any, None], buffers: Iterable[PartitionBuffer]
    ) -> asyncio.Task[None]:
        """Start work for these partitions. They are busy until its task is done, however it ends."""
        task = self._client.background.run(what, work)
        asked = [(buffer, buffer.generation) for buffer in buffers]
        for buffer, _ in asked:
            buffer.work = task
        task.add_done_callback(partial(self._ended, asked))
        return task

    def _ended(self, asked: list[tuple[PartitionBuffer, int]], task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            for buffer, generation in asked:
                if buffer.generation == generation:
                    buffer.is_alone = True
                    self._back_off(buffer, may_last=True)
        self._woken.set()

    def _ask(self, question: Callable[[Led], Coroutine[Any, Any, None]], led: Led) -> None:
        """Send a request about positions; the next turn sees its result."""
        buffers = [buffer for buffer, _, _ in led]
        self._begin("the look-up of positions", question(led), buffers).add_done_callback(self._on_change)

    def _on_change(self, _: object) -> None:
        self.arrived.set()

    def _is_refused(self, buffer: PartitionBuffer) -> bool:
        """Return whether the partition certainly does not exist; report that to its reader once for each new view."""
        refusal = self._client.partition_refusal(buffer.topic_partition)
        is_news = buffer.standing_error.error is None or self._client.view.version != self._seen_version
        if refusal is not None and is_news:
            self._report(buffer, refusal)
        return refusal is not None

    def _report(self, buffer: PartitionBuffer, error: TidelogError) -> None:
        """Report an error to the reader of the partition. The fetcher tries the partition again later."""
        buffer.standing_error.set(error)
        if buffer.retry_at_ms <= self._client.clock.monotonic_ms():
            self._back_off(buffer, may_last=True)
        self.arrived.set()

    def _back_off(self, buffer: PartitionBuffer, leader: Leader | None = None, *, may_last: bool) -> None:
        """Send no request to this leader, by default the known one, before a pause. Another leader is asked at once."""
        if leader is None and not buffer.awaits_commit:
            leader = self._client.view.leader_of(*buffer.topic_partition)
        backoff_ms = self._client.lasting_backoff_ms if may_last else self._client.backoff_ms
        buffer.back_off(leader, self._client.clock.monotonic_ms() + backoff_ms(buffer.attempts))

    def _failed_unexpectedly(self, buffer: PartitionBuffer, error: Exception) -> None:
        """Report an unexpected error to the user, and go on with the other partitions."""
        self._client.background.report(f"reading {buffer.topic_partition}", error)
        self._back_off(buffer, may_last=True)

    # --- fetches ----------------------------------------------------------------------------------

    async def _fetch(self, broker_id: int, led: Led, max_bytes: int) -> None:
        settings = self._settings
        request = self._request(led, max_bytes)

        def moved(view: ClusterView) -> bool:
            return any(view.has_newer_leader(*buffer.topic_partition, leader.epoch) for buffer, _, leader in led)

        answers: dict[tuple[str, int], FetchPartitionResponse] = {}
        failure: TidelogError | None = None
        try:
            peer = await self._client.peer(broker_id, settings.request_timeout_ms)
            timeout_ms = settings.fetch_max_wait_ms + settings.request_timeout_ms
            response = await self._client.call_leader(peer, request, timeout_ms, moved)
            assert isinstance(response, FetchResponse)
            answers = {(each.topic, each.partition): each for each in response.partitions}
        except TidelogError as error:
            failure = error
        stale = isinstance(failure, TimeoutError)
        for buffer, generation, leader in led:
            if buffer.generation != generation:
                continue
            answer = answers.get(buffer.topic_partition)
            try:
                problem = failure or self._accept(buffer, leader, answer)
                if problem is not None:
                    stale |= problem.stale_metadata
                    buffer.is_alone |= failure is not None and not is_retriable(failure)
                    self._failed(buffer, leader, problem, answer)
            except Exception as error:
                self._failed_unexpectedly(buffer, error)
        if stale:
            self._client.refresh_soon()

    def _request(self, load: Led, max_bytes: int) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            CONSUMER_REPLICA_ID,
            settings.fetch_max_wait_ms,
            settings.fetch_min_bytes,
            max_bytes,
            tuple(
                FetchPartition(
                    *buffer.topic_partition,
                    leader.epoch,
                    buffer.fetch_offset,
                    settings.max_partition_fetch_bytes,
                    topic_id=buffer.topic_id or leader.topic_id,
                )
                for buffer, _, leader in load
            ),
            settings.isolation_level,
        )

    def _accept(
        self, buffer: PartitionBuffer, leader: Leader, answer: FetchPartitionResponse | None
    ) -> TidelogError | None:
        if answer is None:
            return NetworkError("the broker's answer does not contain this partition")
        if refusal := error_for(answer.error_code):
            return refusal
        if buffer.is_unchecked_in(leader.epoch):
            return FencedLeaderEpochError("the records were fetched in an epoch of another topic with the same name")
        try:
            filled = buffer.put(
                memoryview(answer.records if answer.records is not None else b""),
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                check_crcs=self._settings.check_crcs,
            )
        except TidelogError as error:
            return error
        if buffer.attempts:
            self._client.background.recovered(f"reading {buffer.topic_partition}")
        buffer.attempts = buffer.attempts_elsewhere = 0
        buffer.is_alone = False
        buffer.checked_epoch = leader.epoch
        if not buffer.is_unreadable:
            buffer.standing_error.clear()
        if filled:
            tp = buffer.topic_partition
            # A partition that returned records moves to the end, so that `fetch_max_bytes` does not starve the others.
            if self.buffers.get(tp) is buffer:
                self.buffers[tp] = self.buffers.pop(tp)
            self.arrived.set()
        return None

    def _failed(
        self, buffer: PartitionBuffer, leader: Leader, error: TidelogError, answer: FetchPartitionResponse | None
    ) -> None:
        self._back_off(buffer, leader, may_last=buffer.standing_error.error is not None)
        is_elsewhere = isinstance(error, InconsistentTopicIdError) and not buffer.is_of_topic(leader.topic_id)
        buffer.attempts_elsewhere = buffer.attempts_elsewhere + 1 if is_elsewhere else 0
        if isinstance(error, OffsetOutOfRangeError):
            self._positions.on_out_of_range(buffer, answer)
        elif is_elsewhere:
            # The broker may be behind both as leader and in its metadata, so the metadata is refreshed first.
            if buffer.attempts_elsewhere > 1:
                self._positions.on_topic_recreated(buffer)
        elif isinstance(error, CorruptMessageError) and buffer.attempts >= MAX_CORRUPT_ATTEMPTS:
            self._report(buffer, CorruptMessageError(f"{buffer.topic_partition} at {buffer.fetch_offset}: {error}"))
        elif not is_retriable(error):
            self._report(buffer, type(error)(f"{buffer.topic_partition}: {error}"))


def _addressee(buffer: PartitionBuffer, leader: Leader) -> _Addressee:
    return leader.broker_id, buffer.topic_partition if buffer.is_alone else None
