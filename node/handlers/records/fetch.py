"""Fetch: read the log up to the high watermark for consumers, and up to the log end for followers."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from node.handlers.records.follower_fetch import FollowerFetches
from node.handlers.records.read_partition import MAX_RESPONSE_BYTES, error_response, leader_for, read_partition
from node.net.server import RequestContext
from node.purgatory.delayed_response import DelayedResponse
from node.replication.replica import Replica
from node.replication.replica_manager import ReplicaManager
from node.replication.sessions.consumer_fetch import ConsumerFetch, ConsumerFetchResponse, check_limits
from node.replication.sessions.consumer_sessions import ConsumerSession, FetchTarget, Target
from node.runtime.deferred_response import DeferredResponse
from tidelog.errors import BrokerError, UnknownTopicIdError, UnsupportedCompressionTypeError
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, Response
from tidelog.records import Codec

#: The most bytes in one answer of a listener that sends files, unless the fetch waits for more. A socket accepts about
#: this many at once, and a broker reads the rest of a file into memory.
MAX_STORED_BYTES = 4 << 20


class DelayedFetch(DelayedResponse):
    """A consumer's fetch that waits for `min_bytes`, or for the size limit of its answer if that is less.

    The wait also ends at the deadline, or if a leader epoch ends or a partition cannot be read. If the fetch offset is
    in a segment that is no longer appended to, waiting brings no more bytes, so the wait ends too. The available bytes
    are computed from the positions of batches. No batch is read before the answer (as in Kafka's DelayedFetch).
    """

    __slots__ = ("_min_bytes", "_reads_zstd", "_replicas", "_request", "_sends_files", "_targets")

    def __init__(
        self,
        deadline_ms: int,
        replicas: ReplicaManager,
        request: FetchRequest,
        targets: list[Target],
        most_bytes: int,
        *,
        sends_files: bool,
        reads_zstd: bool = True,
    ) -> None:
        """Make a fetch that waits.

        most_bytes    the sum of the limits of all partitions
        sends_files   whether the answer may have stored bytes in place of records
        """
        super().__init__(deadline_ms)
        self._sends_files = sends_files
        self._reads_zstd = reads_zstd
        self._replicas = replicas
        self._request = request
        self._targets = targets
        self._min_bytes = max(1, min(request.min_bytes, request.max_bytes, most_bytes, MAX_RESPONSE_BYTES))

    def targets(self) -> list[Target]:
        """Return the partitions that the answer would read now."""
        return self._targets

    def is_satisfied(self) -> bool:
        total = 0
        for target in self.targets():
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
        return FetchResponse(self.read(self.targets()))

    def read(self, targets: list[Target]) -> tuple[FetchPartitionResponse, ...]:
        """Return the data of these partitions, within the size limit of an answer."""
        most = max(self._min_bytes, MAX_STORED_BYTES) if self._sends_files else MAX_RESPONSE_BYTES
        budget = min(self._request.max_bytes, most)
        size = 0
        answers = []
        for target in targets:
            if isinstance(target, FetchPartitionResponse):
                answers.append(target)
                continue
            if not self._reads_zstd and _is_in_zstd(target.replica):
                answers.append(error_response(target.requested, UnsupportedCompressionTypeError()))
                continue
            answer, read_bytes = read_partition(
                self._replicas, target.requested, target.replica, target.leader_epoch, budget - size,
                for_follower=False, first=size == 0, stored=self._sends_files,
            )  # fmt: skip
            size += read_bytes
            answers.append(answer)
        return tuple(answers)


class DelayedConsumerFetch(DelayedFetch):
    """A fetch of a Kafka consumer.

    The answer has all members of its session that are active when it is made, including those that became active during
    the wait. A member is idle after the answer if the consumer has read all its committed records.
    """

    __slots__ = ("_session",)

    def __init__(
        self, deadline_ms: int, replicas: ReplicaManager, request: ConsumerFetch, *, sends_files: bool
    ) -> None:
        self._session = session = request.session
        super().__init__(
            deadline_ms, replicas, request, [], session.most_bytes,
            sends_files=sends_files, reads_zstd=request.reads_zstd,
        )  # fmt: skip

    def targets(self) -> list[Target]:
        return self._session.targets

    def answer(self) -> Response:
        members = self._session.active()
        answers = self.read(self._session.targets)
        for member, answer in zip(members, answers, strict=True):
            if not answer.error_code and answer.high_watermark <= member.to_read.fetch_offset:
                self._session.mark_idle(member)
        return ConsumerFetchResponse(answers, members=tuple(members))


class Fetches:
    """The handler of Fetch, for consumers and followers."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._followers = FollowerFetches(replicas)

    def handle(self, request: FetchRequest, context: RequestContext) -> Response | DeferredResponse:
        """Return the answer, with one entry for each partition, or a deferred one if the fetch waits for `min_bytes`.

        Raise InvalidRequestError if a limit is negative. A follower's fetch is handled by `FollowerFetches`.
        """
        check_limits(request)
        if request.replica_id >= 0:
            return self._followers.handle(request, context)
        due_ms = context.due_ms(self._replicas.clock.monotonic_ms(), request.max_wait_ms)
        if isinstance(request, ConsumerFetch):
            return self._handle_consumer(request, due_ms, context)
        targets = [self._resolve(requested) for requested in request.partitions]
        most_bytes = sum(requested.partition_max_bytes for requested in request.partitions)
        delayed = DelayedFetch(due_ms, self._replicas, request, targets, most_bytes, sends_files=context.sends_files)
        return self._answer(delayed, request, _partitions(targets))

    def _handle_consumer(
        self, request: ConsumerFetch, due_ms: int, context: RequestContext
    ) -> Response | DeferredResponse:
        session = request.session
        session.resolve(self._resolve_member)
        delayed = DelayedConsumerFetch(due_ms, self._replicas, request, sends_files=context.sends_files)
        if session.is_kept and len(session):
            return self._answer(delayed, request, (session,))  # a change of a member is a change of its session
        return self._answer(delayed, request, _partitions(delayed.targets()))

    def _answer(
        self, delayed: DelayedFetch, request: FetchRequest, keys: Collection[TopicPartition | ConsumerSession]
    ) -> Response | DeferredResponse:
        """Answer at once, or when the wait of this fetch ends, which watches these keys (none: it reads nothing)."""
        if request.max_wait_ms == 0 or request.min_bytes == 0 or not keys:
            return delayed.answer()
        fetches = self._replicas.purgatories.consumer_fetches
        if not fetches.try_complete_else_watch(delayed, keys):
            delayed.response.on_abandon(partial(fetches.drop, delayed))
        return delayed.response

    def _resolve_member(self, requested: FetchPartition) -> Target:
        if not requested.topic:
            return FetchPartitionResponse("", requested.partition, UnknownTopicIdError.code)
        return self._resolve(requested)

    def _resolve(self, requested: FetchPartition) -> Target:
        """Return what to read for a partition, or the answer that refuses it."""
        try:
            replica = leader_for(self._replicas, requested)
        except BrokerError as error:
            return error_response(requested, error)
        return FetchTarget(requested, replica, replica.partition.leader_epoch)


def _partitions(targets: list[Target]) -> set[TopicPartition]:
    """Return the partitions that are read. A fetch with one that is refused does not wait."""
    return {target.replica.topic_partition for target in targets if isinstance(target, FetchTarget)}


def _is_in_zstd(replica: Replica) -> bool:
    """Return whether the topic's compression.type is zstd.

    As in Kafka, only the setting is compared. With compression.type=producer a consumer without zstd may therefore
    receive batches in zstd.
    """
    return replica.log.config.codec == Codec.ZSTD
