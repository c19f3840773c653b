"""Fetch: bytes of the log for consumers up to the high watermark, for followers up to its end.

A follower's fetch is also its acknowledgement of everything before the offset that it asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from node.delayed import DelayedResponse
from node.later import LaterResponse
from node.replica import Replica
from node.replicas import Replicas
from node.server import RequestContext
from tidelog.errors import (
    BrokerError,
    InvalidFetchSizeError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from tidelog.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, Response
from tidelog.model import Buffer, TopicPartition

#: No answer is larger, whatever was asked for.
MAX_RESPONSE_BYTES = 52_428_800


@dataclass(slots=True)
class Wanted:
    """One partition of a fetch. With an `error_code` there is no replica to read from.

    leader_epoch   when the fetch came; another one later ends the wait
    """

    asked: FetchPartition
    replica: Replica | None
    error_code: int
    leader_epoch: int


class DelayedFetch(DelayedResponse):
    """Waits for `min_bytes`, but no longer once an epoch ends, a disk fails or a partition cannot be read.

    when_complete   called before the answer
    """

    __slots__ = ("_replicas", "_request", "_wanted", "when_complete")

    def __init__(self, deadline_ms: int, replicas: Replicas, request: FetchRequest, wanted: list[Wanted]) -> None:
        super().__init__(deadline_ms)
        self.when_complete: Callable[[], None] | None = None
        self._replicas = replicas
        self._request = request
        self._wanted = wanted

    def is_satisfied(self) -> bool:
        for_follower = self._request.replica_id >= 0
        something = False
        for want in self._wanted:
            replica = want.replica
            if replica is None or not replica.leads_in(want.leader_epoch):
                return True
            readable = replica.log.log_end_offset if for_follower else replica.partition.high_watermark
            if readable > want.asked.fetch_offset:
                something = True
            elif not replica.is_in_range(want.asked.fetch_offset):
                return True
        if not something or self._request.min_bytes <= 1:
            return something
        return _read(self._replicas, self._request, self._wanted)[1] >= self._request.min_bytes

    def on_complete(self) -> None:
        if self.when_complete is not None:
            # Let go of: it refers back to this, and a cycle waits for the collector, which comes seldom.
            when_complete, self.when_complete = self.when_complete, None
            when_complete()
        super().on_complete()

    def answer(self) -> Response:
        return _read(self._replicas, self._request, self._wanted)[0]


class Fetches:
    """The handler; remembers each follower's parked fetch, since a new one over the same connection replaces it."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._parked: dict[tuple[int, bytes], DelayedFetch] = {}

    def handle(self, request: FetchRequest, context: RequestContext) -> Response | LaterResponse:
        """The answer, later where it must wait for `min_bytes`. InvalidRequestError."""
        if request.max_wait_ms < 0 or request.min_bytes < 0 or request.max_bytes < 0:
            raise InvalidRequestError("a fetch with a negative wait or size")
        replicas = self._replicas
        now_ms = replicas.clock.monotonic_ms()
        for_follower = request.replica_id >= 0
        wanted = [_resolve(replicas, asked, for_follower) for asked in request.partitions]
        if for_follower:
            parked = self._parked.pop((request.replica_id, context.peer), None)
            if parked is not None:
                replicas.waiting.follower_fetches.force_complete_operation(parked)
            for want in wanted:
                _acknowledge(replicas, want, request.replica_id, context.sender_epoch, now_ms)
        if request.max_wait_ms == 0 or request.min_bytes == 0 or not wanted:
            return _read(replicas, request, wanted)[0]
        delayed = DelayedFetch(context.due_ms(now_ms, request.max_wait_ms), replicas, request, wanted)
        keys = {TopicPartition(want.asked.topic, want.asked.partition) for want in wanted}
        if not for_follower:
            replicas.waiting.consumer_fetches.try_complete_else_watch(delayed, keys)
        elif not replicas.waiting.follower_fetches.try_complete_else_watch(delayed, keys):
            self._park((request.replica_id, context.peer), delayed)
        return delayed.response

    def _park(self, peer: tuple[int, bytes], delayed: DelayedFetch) -> None:
        def unpark() -> None:
            if self._parked.get(peer) is delayed:
                del self._parked[peer]

        self._parked[peer] = delayed
        delayed.when_complete = unpark


def _resolve(replicas: Replicas, asked: FetchPartition, for_follower: bool) -> Wanted:
    try:
        replica = replicas.get_or_raise(TopicPartition(asked.topic, asked.partition))
        replica.leader_or_raise(asked.current_leader_epoch)
        if for_follower and asked.current_leader_epoch < 0:
            raise UnknownLeaderEpochError("a follower must say in which epoch it follows")
        if asked.partition_max_bytes < 0:
            raise InvalidFetchSizeError(f"{asked.partition_max_bytes} bytes")
    except BrokerError as error:
        return Wanted(asked, None, error.code, -1)
    return Wanted(asked, replica, 0, replica.partition.leader_epoch)


def _acknowledge(replicas: Replicas, want: Wanted, replica_id: int, broker_epoch: int, now_ms: int) -> None:
    replica = want.replica
    if replica is None:
        return
    end = replica.log.log_end_offset
    # An offset that this log does not have acknowledges nothing: the follower's log is another one still.
    if replica.log.log_start_offset <= want.asked.fetch_offset <= end:
        partition = replica.partition
        replicas.act(
            replica, partition.follower_fetched(replica_id, want.asked.fetch_offset, broker_epoch, end, now_ms)
        )


def _read(replicas: Replicas, request: FetchRequest, wanted: list[Wanted]) -> tuple[FetchResponse, int]:
    """The answer as of now, and its bytes of records."""
    for_follower = request.replica_id >= 0
    budget = min(request.max_bytes, MAX_RESPONSE_BYTES)
    size = 0
    answers = []
    for want in wanted:
        answer, read_bytes = _read_one(replicas, want, for_follower, budget - size, first=size == 0)
        size += read_bytes
        answers.append(answer)
    return FetchResponse(tuple(answers)), size


def _read_one(
    replicas: Replicas, want: Wanted, for_follower: bool, budget: int, *, first: bool
) -> tuple[FetchPartitionResponse, int]:
    asked, replica = want.asked, want.replica
    if replica is None:
        return FetchPartitionResponse(asked.topic, asked.partition, want.error_code), 0
    log, partition = replica.log, replica.partition
    records: Buffer | None = None
    try:
        if not replica.leads_in(want.leader_epoch):
            replica.leader_or_raise(want.leader_epoch)
        replica.in_range_or_raise(asked.fetch_offset)
        bound = log.log_end_offset if for_follower else partition.high_watermark
        if bound > asked.fetch_offset and (first or budget > 0):
            limit = min(asked.partition_max_bytes, max(0, budget))
            # The first batch is sent whole, however large, else a reader with a small limit would stand still.
            records = log.read(asked.fetch_offset, limit, bound, at_least_one=first) or None
    except OffsetOutOfRangeError as error:
        # With the bounds of the log, so that a follower knows at once on which side of it it is.
        bounds = (partition.high_watermark, partition.high_watermark, log.log_start_offset)
        return FetchPartitionResponse(asked.topic, asked.partition, error.code, *bounds), 0
    except BrokerError as error:
        return FetchPartitionResponse(asked.topic, asked.partition, replicas.code_of(error, replica.topic_partition)), 0
    high_watermark = partition.high_watermark
    answer = FetchPartitionResponse(
        asked.topic, asked.partition, 0, high_watermark, high_watermark, log.log_start_offset, records
    )
    return answer, 0 if records is None else len(records)
