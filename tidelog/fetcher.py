"""Keeps the buffers of the assigned partitions filled, ahead of the reader.

Each partition is in one fetch at most (and in those that a jump of its reader made useless), but a leader may hold
several: a partition that has just been read must not wait until the long poll of an idle neighbour ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from tidelog.client import ClusterClient, is_retriable
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
from tidelog.fetch_buffer import PartitionBuffer
from tidelog.leader_search import LeaderSearch
from tidelog.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse
from tidelog.metadata import ClusterView, Leader
from tidelog.model import CONSUMER_REPLICA_ID, TopicPartition
from tidelog.positions import Led, Positions
from tidelog.settings import ConsumerSettings
from tidelog.signals import Signal

if TYPE_CHECKING:
    from tidelog.groups.committed_offsets import CommittedOffsets

_log = logging.getLogger(__name__)

#: Long polls held at one leader; but for jumps, their partitions differ.
MAX_FETCHES_PER_BROKER = 16
#: A batch that stays corrupt for so many attempts is the reader's to know.
MAX_CORRUPT_ATTEMPTS = 5


class Fetcher:
    """One task on the event loop, which owns all of its state."""

    def __init__(
        self, client: ClusterClient, settings: ConsumerSettings, committed: CommittedOffsets | None = None
    ) -> None:
        self.buffers: dict[TopicPartition, PartitionBuffer] = {}
        self.error: TidelogError | None = None
        self.arrived = asyncio.Event()
        self._client = client
        self._settings = settings
        self._woken = Signal()
        self._in_flight: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._positions = Positions(client, settings, self._report, committed)
        self._search = LeaderSearch(client, self._woken.set)
        self._running: asyncio.Task[None] | None = None
        client.listeners.append(self._woken.set)
        client.needs.append(self._topics)

    def start(self) -> None:
        """Needs the running loop."""
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Give up what is in flight."""
        tasks = [task for task in (self._running, *self._tasks) if task]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self._search.stop()

    def wake(self) -> None:
        """A buffer has room, or a position has changed."""
        self._woken.set()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these from now on; those that stay keep their position and buffer."""
        policy = self._positions.policy
        kept, limit = self.buffers, self._settings.max_decompressed_batch_bytes
        in_group = self._positions.committed is not None
        self.buffers = {
            tp: kept.get(tp) or PartitionBuffer(tp, policy, limit, awaits_commit=in_group) for tp in partitions
        }
        for tp, buffer in kept.items():
            if tp not in self.buffers:
                buffer.generation += 1
                # A group gives up what is deleted; whoever reads is told of it all the same.
                if in_group and isinstance(buffer.error, UnknownTopicOrPartitionError):
                    self.error = self.error or buffer.error
        self._client.track(*self._topics())
        self.wake()

    def _topics(self) -> set[str]:
        return {tp.topic for tp in self.buffers}

    # --- one turn ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            next_ms: int | None = None
            try:
                if self.buffers and not self._client.view.version:
                    await self._find_cluster()
                next_ms = self._turn(self._client.clock.monotonic_ms())
            except Exception:
                _log.exception("the consumer's fetcher stumbled")
                next_ms = self._client.clock.monotonic_ms() + self._settings.retry_backoff_ms
            await self._woken.wait(None if next_ms is None else max(1, next_ms - self._client.clock.monotonic_ms()))

    async def _find_cluster(self) -> None:
        try:
            await self._client.bootstrapped(self._client.clock.monotonic_ms() + self._settings.bootstrap_timeout_ms)
        except NoBrokersError as error:
            self.error = error
            self.arrived.set()

    def _turn(self, now_ms: int) -> int | None:
        fetches: dict[int, Led] = {}
        unknown: dict[int, Led] = {}
        unchecked: dict[int, Led] = {}
        new: list[PartitionBuffer] = []
        later_ms: int | None = None
        leaderless = False
        room_bytes = self._room_bytes()
        for tp, buffer in self.buffers.items():
            starting = buffer.position is None and buffer.error is None
            if not starting and (room_bytes <= 0 or not buffer.wants_data):
                continue
            if starting and buffer.awaits_commit:
                if not self._positions.is_asked(buffer):
                    new.append(buffer)
                continue
            leader = self._client.view.leader_of(*tp)
            is_of_topic = leader is None or buffer.is_of_topic(leader.topic_id)
            if leader is None:
                leaderless = True
                self._is_refused(buffer)
            elif buffer.attempts and self._is_refused(buffer):
                leaderless = True
            elif starting and not is_of_topic:
                self._positions.made_anew(buffer)
                later_ms = now_ms
            elif starting and buffer.reset_to is None:
                self._positions.nowhere(buffer)
            elif buffer.retry_at_ms > now_ms:
                later_ms = buffer.retry_at_ms if later_ms is None else min(later_ms, buffer.retry_at_ms)
            elif not starting and is_of_topic and self._positions.is_ahead(buffer, leader):
                self._client.doubt()
                leaderless = True
            elif not starting and not (is_of_topic and buffer.is_unchecked_in(leader.epoch)):
                # Of another topic of the name, the broker that told of it may be behind; the leader says which it is.
                fetches.setdefault(leader.broker_id, []).append((buffer, buffer.generation, leader))
            elif not self._positions.is_asked(buffer):
                questions = unknown if starting else unchecked
                questions.setdefault(leader.broker_id, []).append((buffer, buffer.generation, leader))
        if new:
            self._positions.begin_asking(new)
            asked = {(buffer.topic_partition, buffer.generation): buffer for buffer in new}
            self._spawn(self._positions.find_committed(asked)).add_done_callback(self._on_change)
        for led in unknown.values():
            self._ask(self._positions.find, led)
        for led in unchecked.values():
            self._ask(self._positions.check, led)
        for broker_id, load in fetches.items():
            if self._in_flight[broker_id] < MAX_FETCHES_PER_BROKER:
                self._in_flight[broker_id] += 1
                for buffer, _, _ in load:
                    buffer.in_flight = True
                self._spawn(self._fetch(broker_id, load, min(room_bytes, self._settings.fetch_max_bytes)))
        if leaderless:
            self._search.go_on()
        else:
            self._search.rest()
        return later_ms

    def _room_bytes(self) -> int:
        """How much more may be fetched ahead. What nobody reads for now gives way to what somebody does."""
        limit = self._settings.prefetch_max_bytes
        if sum(buffer.held_bytes for buffer in self.buffers.values()) >= limit:
            for buffer in self.buffers.values():
                if buffer.paused:
                    buffer.drop()
        return limit - sum(buffer.held_bytes for buffer in self.buffers.values())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _ask(self, question: Callable[[Led], Coroutine[Any, Any, None]], led: Led) -> None:
        """What comes of it is seen in the next turn."""
        self._positions.begin_asking(buffer for buffer, _, _ in led)
        self._spawn(question(led)).add_done_callback(self._on_change)

    def _on_change(self, _: object) -> None:
        self._woken.set()
        self.arrived.set()

    def _is_refused(self, buffer: PartitionBuffer) -> bool:
        """Whether the partition does not exist, as far as can be known; its reader is told."""
        refusal = self._client.partition_refusal(buffer.topic_partition)
        if refusal is not None:
            self._report(buffer, refusal)
        return refusal is not None

    def _report(self, buffer: PartitionBuffer, error: TidelogError) -> None:
        buffer.error = error
        self.arrived.set()

    # --- fetches ----------------------------------------------------------------------------------

    async def _fetch(self, broker_id: int, load: Led, max_bytes: int) -> None:
        settings, clock = self._settings, self._client.clock
        request = self._request(load, max_bytes)

        def moved(view: ClusterView) -> bool:
            return any(view.has_newer_leader(*buffer.topic_partition, leader.epoch) for buffer, _, leader in load)

        try:
            peer = await self._client.peer(broker_id, settings.request_timeout_ms)
            timeout_ms = settings.fetch_max_wait_ms + settings.request_timeout_ms
            response = await self._client.call_leader(peer, request, timeout_ms, moved)
            assert isinstance(response, FetchResponse)
            told = {(each.topic, each.partition): each for each in response.partitions}
            failure: TidelogError | None = None
        except TidelogError as error:
            told, failure = {}, error
        finally:
            self._in_flight[broker_id] -= 1
            for buffer, generation, _ in load:
                if buffer.generation == generation:
                    buffer.in_flight = False
            self._woken.set()
        stale = isinstance(failure, TimeoutError)
        for buffer, generation, leader in load:
            if buffer.generation != generation:
                continue
            answer = told.get(buffer.topic_partition)
            problem = failure or self._accept(buffer, leader, answer)
            if problem is not None:
                stale |= problem.stale_metadata
                self._failed(buffer, leader, problem, answer)
        if stale:
            await self._client.refresh_or_not(clock.monotonic_ms() + settings.request_timeout_ms)
            for buffer, generation, leader in load:
                now = self._client.view.leader_of(*buffer.topic_partition)
                if buffer.generation == generation and now is not None and now != leader:
                    buffer.retry_at_ms = 0
            self._woken.set()

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
            return NetworkError("the broker's answer leaves this partition out")
        if refusal := error_for(answer.error_code):
            return refusal
        if buffer.is_unchecked_in(leader.epoch):
            return FencedLeaderEpochError("it was fetched by an epoch that another topic of the name has")
        try:
            filled = buffer.put(
                memoryview(answer.records if answer.records is not None else b""),
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                check_crcs=self._settings.check_crcs,
            )
        except TidelogError as error:
            return error
        buffer.attempts = buffer.attempts_elsewhere = 0
        buffer.checked_epoch = leader.epoch
        if filled:
            tp = buffer.topic_partition
            # Whoever got something goes to the end, so that `fetch_max_bytes` starves nobody.
            if self.buffers.get(tp) is buffer:
                self.buffers[tp] = self.buffers.pop(tp)
            self.arrived.set()
        return None

    def _failed(
        self, buffer: PartitionBuffer, leader: Leader, error: TidelogError, answer: FetchPartitionResponse | None
    ) -> None:
        buffer.retry_at_ms = self._client.clock.monotonic_ms() + self._client.backoff_ms(buffer.attempts)
        buffer.attempts += 1
        is_elsewhere = isinstance(error, InconsistentTopicIdError) and not buffer.is_of_topic(leader.topic_id)
        buffer.attempts_elsewhere = buffer.attempts_elsewhere + 1 if is_elsewhere else 0
        if isinstance(error, OffsetOutOfRangeError):
            self._positions.out_of_range(buffer, answer)
        elif is_elsewhere:
            # One broker may be behind both as a teller and as a leader. So the picture is refreshed first.
            if buffer.attempts_elsewhere > 1:
                self._positions.made_anew(buffer)
        elif isinstance(error, CorruptMessageError) and buffer.attempts >= MAX_CORRUPT_ATTEMPTS:
            buffer.attempts = 0
            self._report(buffer, CorruptMessageError(f"{buffer.topic_partition} at {buffer.fetch_offset}: {error}"))
        elif not is_retriable(error):
            self._report(buffer, type(error)(f"{buffer.topic_partition}: {error}"))
