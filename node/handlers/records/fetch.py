"""Fetch: read the log up to the high watermark for consumers, and up to the log end for followers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from node.handlers.records.follower_fetch import FollowerFetches
from node.handlers.records.read_partition import MAX_RESPONSE_BYTES, leader_for, read_partition, refusal
from node.net.server import RequestContext
from node.purgatory.delayed_response import DelayedResponse
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.runtime.deferred_response import DeferredResponse
from node.runtime.old_kafka_requests import ZstdFreeFetch
from tidelog.errors import BrokerError, InvalidRequestError, UnsupportedCompressionTypeError
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, Response
from tidelog.records import Codec

#: The most bytes in one answer of a listener that sends files, unless the fetch waits for more. A socket accepts about
#: this many at once, and a broker reads the rest of a file into memory.
MAX_STORED_BYTES = 4 << 20


@dataclass(slots=True)
class FetchTarget:
    """One partition of a fetch, and the replica to read from.

    leader_epoch   the leader epoch when the fetch arrived; the wait ends with this epoch
    """

    requested: FetchPartition
    replica: Replica
    leader_epoch: int


class DelayedFetch(DelayedResponse):
    """A consumer's fetch that waits for `min_bytes`, or for the size limit of its answer if that is less.

    The wait also ends at the deadline, or if a leader epoch ends or a partition cannot be read. If the fetch offset is
    in a segment that is no longer appended to, waiting brings no more bytes, so the wait ends too. The available bytes
    are computed from the positions of batches. No batch is read before the answer (as in Kafka's DelayedFetch).
    """

    __slots__ = ("_min_bytes", "_replicas", "_request", "_stored", "_targets")

    def __init__(
        self,
        deadline_ms: int,
        replicas: ReplicaManager,
        request: FetchRequest,
        targets: list[FetchTarget | FetchPartitionResponse],
        stored: bool,
    ) -> None:
        super().__init__(deadline_ms)
        self._stored = stored
        self._replicas = replicas
        self._request = request
        self._targets = targets
        most = sum(requested.partition_max_bytes for requested in request.partitions)
        self._min_bytes = max(1, min(request.min_bytes, request.max_bytes, most, MAX_RESPONSE_BYTES))

    def is_satisfied(self) -> bool:
        total = 0
        for target in self._targets:
            available = None if isinstance(target, FetchPartitionResponse) else self._available_bytes(target)
            if available is None:
                return True
            total += available
        return total >= self._min_bytes

    def _available_bytes(self, target: FetchTarget) -> int | None:
        """Return the committed bytes that this partition can return now, or None if the wait must end.

        None means an error, or that the segment has ended. If one byte is enough, the result is only 0 or 1.
        """
        replica, offset = target.replica, target.requested.fetch_offset
        if not replica.leads_in(target.leader_epoch) or not replica.is_in_range(offset):
            return None
        high_watermark = replica.partition.high_watermark
        if high_watermark <= offset or self._min_bytes == 1:
            return int(high_watermark > offset)
        try:
            available = replica.log.bytes_between(offset, high_watermark)
        except BrokerError:
            return None
        return None if available is None else min(available, target.requested.partition_max_bytes)

    def answer(self) -> Response:
        most = max(self._min_bytes, MAX_STORED_BYTES) if self._stored else MAX_RESPONSE_BYTES
        budget = min(self._request.max_bytes, most)
        size = 0
        answers = []
        for target in self._targets:
            if isinstance(target, FetchPartitionResponse):
                answers.append(target)
                continue
            if isinstance(self._request, ZstdFreeFetch) and _is_in_zstd(target.replica):
                answers.append(refusal(target.requested, UnsupportedCompressionTypeError()))
                continue
            answer, read_bytes = read_partition(
                self._replicas, target.requested, target.replica, target.leader_epoch, budget - size,
                for_follower=False, first=size == 0, stored=self._stored,
            )  # fmt: skip
            size += read_bytes
            answers.append(answer)
        return FetchResponse(tuple(answers))


class Fetches:
    """The handler of Fetch, for consumers and followers."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._followers = FollowerFetches(replicas)

    def handle(self, request: FetchRequest, context: RequestContext) -> Response | DeferredResponse:
        """Return the answer, with one entry for each partition, or a deferred one if the fetch waits for `min_bytes`.

        Raise InvalidRequestError if a limit is negative. A follower's fetch is handled by `FollowerFetches`.
        """
        if request.max_wait_ms < 0 or request.min_bytes < 0 or request.max_bytes < 0:
            raise InvalidRequestError(
                f"max_wait_ms={request.max_wait_ms}, min_bytes={request.min_bytes}, max_bytes={request.max_bytes}: "
                "all must be at least 0"
            )
        if request.replica_id >= 0:
            return self._followers.handle(request, context)
        replicas = self._replicas
        targets = [_resolve(replicas, requested) for requested in request.partitions]
        due_ms = context.due_ms(replicas.clock.monotonic_ms(), request.max_wait_ms)
        delayed = DelayedFetch(due_ms, replicas, request, targets, context.sends_files)
        if request.max_wait_ms == 0 or request.min_bytes == 0 or not targets:
            return delayed.answer()
        # A fetch with a partition that was refused does not wait.
        keys = {target.replica.topic_partition for target in targets if isinstance(target, FetchTarget)}
        fetches = replicas.purgatories.consumer_fetches
        if not fetches.try_complete_else_watch(delayed, keys):
            delayed.response.on_abandon(partial(fetches.drop, delayed))
        return delayed.response


def _is_in_zstd(replica: Replica) -> bool:
    """Return whether the topic's compression.type is zstd.

    As in Kafka, batches are not looked at, so that a sender without zstd gets the zstd of producers if the topic has
    compression.type=producer.
    """
    return replica.log.config.codec == Codec.ZSTD


def _resolve(replicas: ReplicaManager, requested: FetchPartition) -> FetchTarget | FetchPartitionResponse:
    """Return what to read for a partition, or the answer that refuses it."""
    try:
        replica = leader_for(replicas, requested)
    except BrokerError as error:
        return refusal(requested, error)
    return FetchTarget(requested, replica, replica.partition.leader_epoch)
