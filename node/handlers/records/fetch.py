"""Fetch: bytes of the log for consumers up to the high watermark, for followers up to its end."""

from __future__ import annotations

from dataclasses import dataclass

from node.handlers.records.follower_fetch import FollowerFetches
from node.handlers.records.read_partition import MAX_RESPONSE_BYTES, leader_for, read_partition, refusal
from node.net.server import RequestContext
from node.purgatory.delayed_produce import DelayedResponse
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.deferred_response import DeferredResponse
from tidelog.errors import BrokerError, InvalidRequestError
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, Response


@dataclass(slots=True)
class Wanted:
    """One partition of a fetch, and what to read it from.

    leader_epoch   when the fetch came; another one later ends the wait
    """

    asked: FetchPartition
    replica: Replica
    leader_epoch: int


class DelayedFetch(DelayedResponse):
    """A consumer's: waits for `min_bytes`, or all that it may be answered with where that is less.

    No longer once an epoch ends, a partition cannot be read, or gives no more since its segment has ended. What there
    is is reckoned by the positions of batches, which are not read before the answer (as in Kafka's DelayedFetch).
    """

    __slots__ = ("_enough", "_replicas", "_request", "_wanted")

    def __init__(
        self,
        deadline_ms: int,
        replicas: ReplicaManager,
        request: FetchRequest,
        wanted: list[Wanted | FetchPartitionResponse],
    ) -> None:
        super().__init__(deadline_ms)
        self._replicas = replicas
        self._request = request
        self._wanted = wanted
        most = sum(asked.partition_max_bytes for asked in request.partitions)
        self._enough = max(1, min(request.min_bytes, request.max_bytes, most, MAX_RESPONSE_BYTES))

    def is_satisfied(self) -> bool:
        available = 0
        for want in self._wanted:
            there = None if isinstance(want, FetchPartitionResponse) else self._bytes_there(want)
            if there is None:
                return True
            available += there
        return available >= self._enough

    def _bytes_there(self, want: Wanted) -> int | None:
        """Of records for this partition (1 for any, where one is enough); None where it gives no more, or an error."""
        replica, offset = want.replica, want.asked.fetch_offset
        if not replica.leads_in(want.leader_epoch) or not replica.is_in_range(offset):
            return None
        high_watermark = replica.partition.high_watermark
        if high_watermark <= offset or self._enough == 1:
            return int(high_watermark > offset)
        try:
            there = replica.log.bytes_between(offset, high_watermark)
        except BrokerError:
            return None
        return None if there is None else min(there, want.asked.partition_max_bytes)

    def answer(self) -> Response:
        budget = min(self._request.max_bytes, MAX_RESPONSE_BYTES)
        size = 0
        answers = []
        for want in self._wanted:
            if isinstance(want, FetchPartitionResponse):
                answers.append(want)
                continue
            answer, read_bytes = read_partition(
                self._replicas, want.asked, want.replica, want.leader_epoch, budget - size,
                for_follower=False, first=size == 0,
            )  # fmt: skip
            size += read_bytes
            answers.append(answer)
        return FetchResponse(tuple(answers))


class Fetches:
    """The handler, for consumers and followers."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._followers = FollowerFetches(replicas)

    def handle(self, request: FetchRequest, context: RequestContext) -> Response | DeferredResponse:
        """The answer, later where it must wait for `min_bytes`. InvalidRequestError."""
        if request.max_wait_ms < 0 or request.min_bytes < 0 or request.max_bytes < 0:
            raise InvalidRequestError("a fetch with a negative wait or size")
        if request.replica_id >= 0:
            return self._followers.handle(request, context)
        replicas = self._replicas
        wanted = [_resolve(replicas, asked) for asked in request.partitions]
        due_ms = context.due_ms(replicas.clock.monotonic_ms(), request.max_wait_ms)
        delayed = DelayedFetch(due_ms, replicas, request, wanted)
        if request.max_wait_ms == 0 or request.min_bytes == 0 or not wanted:
            return delayed.answer()
        keys = {TopicPartition(asked.topic, asked.partition) for asked in request.partitions}
        replicas.purgatories.consumer_fetches.try_complete_else_watch(delayed, keys)
        return delayed.response


def _resolve(replicas: ReplicaManager, asked: FetchPartition) -> Wanted | FetchPartitionResponse:
    try:
        replica = leader_for(replicas, asked)
    except BrokerError as error:
        return refusal(asked, error)
    return Wanted(asked, replica, replica.partition.leader_epoch)
