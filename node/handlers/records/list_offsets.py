"""ListOffsets and OffsetForLeaderEpoch: look up offsets by time, position or leader epoch. Only the leader answers.

The rules are those of KIP-79 (search by time), KIP-207 (after an election) and KIP-734 (maximum timestamp).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable

from node.handlers.records.read_bounds import find_read_bounds
from node.net.server import RequestContext
from node.replication.replica_manager import ReplicaManager
from storage.segments.timestamp_search import LongSearchError, QuickSearcher, Search
from tidelog.errors import (
    BrokerError,
    InvalidRequestError,
    OffsetNotAvailableError,
    RequestTimedOutError,
    UnreadableRecordsError,
)
from tidelog.model import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TopicPartition,
)
from tidelog.protocol.messages import (
    EpochEndOffset,
    EpochPartition,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

log = logging.getLogger(__name__)

#: The limit of requests that wait for a thread, because each holds a batch in memory. The client must retry the others.
MAX_LONG_LOOK_UPS = 32
#: The number of partitions that a request handles in one turn of the event loop: a few ms.
AT_ONCE = 64


class OffsetLookUps:
    """The handler of ListOffsets. Work that would block the event loop too long is deferred.

    Deferred are searches through very many records, of which one runs at a time on a thread, and the partitions of a
    request beyond the first `AT_ONCE`.
    """

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._waiting = 0
        self._turn = asyncio.Lock()

    def list_offsets(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
        """Return one answer or one error for each partition. A partition that occurs twice gets an error.

        Raises InvalidRequestError if the isolation level is unknown.
        """
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise InvalidRequestError(
                f"isolation level {request.isolation_level}: must be {READ_UNCOMMITTED} (read uncommitted) "
                f"or {READ_COMMITTED} (read committed)"
            )
        named = [(part.topic, part.partition) for part in request.partitions]
        counts = Counter(named) if len(set(named)) < len(named) else {}
        answers: list[ListOffsetsPartitionResponse | _LongLookUp] = []
        for number, part in enumerate(request.partitions):
            if counts and counts[part.topic, part.partition] > 1:
                answers.append(ListOffsetsPartitionResponse(part.topic, part.partition, InvalidRequestError.code))
            else:
                look_up = _LongLookUp(self._replicas, request.replica_id, part)
                answers.append(look_up.go_on() if number < AT_ONCE else look_up)
        settled = [answer for answer in answers if isinstance(answer, ListOffsetsPartitionResponse)]
        if len(settled) == len(answers):
            return ListOffsetsResponse(tuple(settled))
        return self._finish(answers, context)

    async def _finish(
        self, answers: list[ListOffsetsPartitionResponse | _LongLookUp], context: RequestContext
    ) -> ListOffsetsResponse:
        if self._waiting >= MAX_LONG_LOOK_UPS:
            raise RequestTimedOutError(f"{self._waiting} look-ups are waiting already; retry later")
        self._waiting += 1
        try:
            settled = []
            for number, answer in enumerate(answers):
                if number and not number % AT_ONCE:
                    await asyncio.sleep(0)  # lets other requests run
                if isinstance(answer, _LongLookUp) and answer.is_new:
                    answer = answer.go_on()
                while not isinstance(answer, ListOffsetsPartitionResponse):
                    async with self._turn:
                        if 0 <= context.deadline_ms < self._replicas.clock.monotonic_ms():
                            raise RequestTimedOutError("timed out waiting for earlier look-ups")
                        answer = await answer.search_on_thread()
                settled.append(answer)
            return ListOffsetsResponse(tuple(settled))
        finally:
            self._waiting -= 1


class _LongLookUp:
    """The look-up in one partition, which starts again after each search that was too long for the event loop.

    The searcher keeps the results of finished searches, so each start gets further than the one before.
    """

    def __init__(self, replicas: ReplicaManager, replica_id: int, part: ListOffsetsPartition) -> None:
        self._replicas = replicas
        self._replica_id = replica_id
        self._part = part
        self._searcher = QuickSearcher()
        self._search: Search | None = None

    @property
    def is_new(self) -> bool:
        """Return whether the look-up has not begun yet."""
        return self._search is None

    def go_on(self) -> ListOffsetsPartitionResponse | _LongLookUp:
        """Return the answer, or this look-up itself if a long search must run first."""
        try:
            return _look_up(self._replicas, self._replica_id, self._part, self._searcher)
        except LongSearchError as error:
            self._search = error.search
            return self
        except BrokerError as error:
            return self._refusal(error)

    async def search_on_thread(self) -> ListOffsetsPartitionResponse | _LongLookUp:
        """Run the long search on a thread, then go on."""
        assert self._search is not None
        try:
            self._searcher.learn(self._search, await self._replicas.offload(self._search.run))
        except BrokerError as error:
            return self._refusal(error)
        return self.go_on()

    def _refusal(self, error: BrokerError) -> ListOffsetsPartitionResponse:
        tp = TopicPartition(self._part.topic, self._part.partition)
        code = self._replicas.code_of(error, tp)
        if not isinstance(error, UnreadableRecordsError):
            return ListOffsetsPartitionResponse(*tp, code)
        log.error("%s: a look-up by time found unreadable records: %s", tp, error)
        return ListOffsetsPartitionResponse(*tp, code, offset=error.offset)


def _look_up(
    replicas: ReplicaManager, replica_id: int, part: ListOffsetsPartition, searcher: QuickSearcher
) -> ListOffsetsPartitionResponse:
    bounds = find_read_bounds(
        replicas, replica_id, TopicPartition(part.topic, part.partition), part.current_leader_epoch
    )
    log = bounds.replica.log
    if part.timestamp == EARLIEST_TIMESTAMP:
        start = log.log_start_offset
        epoch = log.epoch_at(start) if start < log.log_end_offset else None
        return _answer(part, NO_TIMESTAMP, start, epoch)
    if part.timestamp == LATEST_TIMESTAMP:
        bounds.require_known_end()
        return _answer(part, NO_TIMESTAMP, bounds.upper_bound, log.latest_epoch)
    if part.timestamp == MAX_TIMESTAMP:
        bounds.require_known_end()
        found = log.offset_of_max_timestamp(bounds.upper_bound, searcher)
    elif part.timestamp < 0:
        raise InvalidRequestError(f"timestamp {part.timestamp}: must be at least 0, or −1, −2 or −3 for a position")
    else:
        found = log.offset_for_timestamp(part.timestamp, bounds.upper_bound, searcher)
    if found is not None:
        return _answer(part, found.timestamp, found.offset, found.leader_epoch)
    bounds.require_known_end()
    return _answer(part, NO_TIMESTAMP, -1, None)


def _answer(part: ListOffsetsPartition, timestamp: int, offset: int, epoch: int | None) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        part.topic, part.partition, 0, timestamp, offset, -1 if epoch is None else epoch
    )


def offset_for_leader_epoch(
    replicas: ReplicaManager, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return the end offsets of leader epochs in this leader's log."""
    for_consumer = request.replica_id == CONSUMER_REPLICA_ID
    return OffsetForLeaderEpochResponse(
        tuple(_end_of_epoch(replicas, part, for_consumer=for_consumer) for part in request.partitions)
    )


def _end_of_epoch(replicas: ReplicaManager, part: EpochPartition, *, for_consumer: bool) -> EpochEndOffset:
    try:
        replica = replicas.get_or_raise(TopicPartition(part.topic, part.partition))
        replica.leader_or_raise(part.current_leader_epoch)
        if replicas.cut_off and for_consumer and part.leader_epoch > replica.partition.leader_epoch:
            # Another broker may lead in that epoch already. The answer "no such epoch" would make a consumer reset its
            # position.
            raise OffsetNotAvailableError(f"{replica.topic_partition}: another broker may lead now; retry")
        found = replica.log.end_offset_for_epoch(part.leader_epoch)
    except BrokerError as error:
        return EpochEndOffset(part.topic, part.partition, error.code)
    if found is None:
        return EpochEndOffset(part.topic, part.partition, 0)
    leader_epoch, end_offset = found
    return EpochEndOffset(part.topic, part.partition, 0, leader_epoch, end_offset)
