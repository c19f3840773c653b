"""ListOffsets and OffsetForLeaderEpoch: look up offsets by time, position or leader epoch.

Only the leader answers; a debugging client (replica id −2) may ask any replica for offsets by time or position.
The rules are those of KIP-79 (search by time), KIP-207 (after an election) and KIP-734 (maximum timestamp).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from functools import partial

from node.handlers.records.read_bounds import ReadBounds, find_read_bounds
from node.net.server import RequestContext
from node.replication.replica_manager import ReplicaManager
from node.runtime.step_runner import StepRunner
from storage.segments.timestamp_search import TimestampOffset
from storage.steps import SteppedWork, Steps, steps_until_change
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

    Deferred are look-ups in several steps (`storage.steps`), of which one step runs at a time, and the partitions of a
    request beyond the first `AT_ONCE`.
    """

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._waiting = 0
        self._step_runner = StepRunner(replicas.offload, at_once=1)

    def list_offsets(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
        """Return one answer or one error for each partition, at once or later. A partition named twice gets an error.

        Raises InvalidRequestError if the isolation level is unknown. A deferred answer may raise RequestTimedOutError,
        at the deadline or because MAX_LONG_LOOK_UPS requests wait already.
        """
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise InvalidRequestError(
                f"isolation level {request.isolation_level}: must be {READ_UNCOMMITTED} (read uncommitted) "
                f"or {READ_COMMITTED} (read committed)"
            )
        named = [(part.topic, part.partition) for part in request.partitions]
        counts = Counter(named) if len(set(named)) < len(named) else {}
        look_ups = []
        for number, part in enumerate(request.partitions):
            twice = bool(counts) and counts[part.topic, part.partition] > 1
            look_up = SteppedWork(self._answer_partition(request.replica_id, part, named_twice=twice))
            if number < AT_ONCE:
                look_up.resume()
            look_ups.append(look_up)
        if all(look_up.finished for look_up in look_ups):
            return ListOffsetsResponse(tuple(look_up.result for look_up in look_ups))
        return self._finish(look_ups, context)

    async def _finish(
        self, look_ups: list[SteppedWork[ListOffsetsPartitionResponse]], context: RequestContext
    ) -> ListOffsetsResponse:
        if self._waiting >= MAX_LONG_LOOK_UPS:
            raise RequestTimedOutError(f"{self._waiting} look-ups are waiting already; retry later")
        self._waiting += 1
        raise_if_late = partial(self._raise_if_late, context.deadline_ms)
        try:
            answers = []
            for number, look_up in enumerate(look_ups):
                if number and not number % AT_ONCE:
                    await asyncio.sleep(0)  # lets other requests run
                answers.append(await self._step_runner.finish(look_up, raise_if_late))
            return ListOffsetsResponse(tuple(answers))
        finally:
            self._waiting -= 1

    def _raise_if_late(self, deadline_ms: int) -> None:
        if 0 <= deadline_ms < self._replicas.clock.monotonic_ms():
            raise RequestTimedOutError("timed out waiting for earlier look-ups")

    # --- one partition ---------------------------------------------------------------------------------------

    def _answer_partition(
        self, replica_id: int, part: ListOffsetsPartition, *, named_twice: bool
    ) -> Steps[ListOffsetsPartitionResponse]:
        """Return the answer for one partition, or its error."""
        tp = TopicPartition(part.topic, part.partition)
        try:
            if named_twice:
                raise InvalidRequestError(f"{tp} is named twice")
            return (yield from self._look_up(replica_id, tp, part))
        except UnreadableRecordsError as error:
            log.error("%s: a look-up by time found unreadable records: %s", tp, error)
            return ListOffsetsPartitionResponse(*tp, self._replicas.code_of(error, tp), offset=error.offset)
        except BrokerError as error:
            return ListOffsetsPartitionResponse(*tp, self._replicas.code_of(error, tp))

    def _look_up(
        self, replica_id: int, tp: TopicPartition, part: ListOffsetsPartition
    ) -> Steps[ListOffsetsPartitionResponse]:
        """Return the answer of the replica that may answer.

        Start again if another replica, or another log of the same replica, takes its place between two steps.

        The answer holds for the bounds at the start, because all records below them stay committed. Each step is
        followed by the checks of a new request, because the replica may not lead any more.
        """
        find_bounds = partial(find_read_bounds, self._replicas, replica_id, tp, part.current_leader_epoch)
        while True:
            bounds = find_bounds()
            if part.timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
                return _position(bounds, part)
            search = yield from steps_until_change(_search(bounds, part.timestamp), lambda: _log_of(find_bounds()))
            if search.finished:
                break
        if (found := search.result) is not None:
            return _answer(part, found.timestamp, found.offset, found.leader_epoch)
        bounds.require_known_end()
        return _answer(part, NO_TIMESTAMP, -1, None)


def _log_of(bounds: ReadBounds) -> tuple[object, object]:
    return bounds.replica, bounds.replica.log


def _position(bounds: ReadBounds, part: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """Answer EARLIEST_TIMESTAMP with the log start offset, or LATEST_TIMESTAMP with the end that the sender may see."""
    log = bounds.replica.log
    if part.timestamp == EARLIEST_TIMESTAMP:
        start = log.log_start_offset
        epoch = log.epoch_at(start) if start < log.log_end_offset else None
        return _answer(part, NO_TIMESTAMP, start, epoch)
    bounds.require_known_end()
    return _answer(part, NO_TIMESTAMP, bounds.upper_bound, log.latest_epoch)


def _search(bounds: ReadBounds, timestamp: int) -> Steps[TimestampOffset | None]:
    """Return the search for the first record at or after a time, or for the record with the largest timestamp."""
    if timestamp == MAX_TIMESTAMP:
        bounds.require_known_end()
        return bounds.replica.log.offset_of_max_timestamp_steps(bounds.upper_bound)
    if timestamp < 0:
        raise InvalidRequestError(f"timestamp {timestamp}: must be at least 0, or −1, −2 or −3 for a position")
    return bounds.replica.log.offset_for_timestamp_steps(timestamp, bounds.upper_bound)


def _answer(part: ListOffsetsPartition, timestamp: int, offset: int, epoch: int | None) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        part.topic, part.partition, 0, timestamp, offset, -1 if epoch is None else epoch
    )


def offset_for_leader_epoch(
    replicas: ReplicaManager, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return, for each partition, the largest epoch of this leader's log up to the named one, and its end offset.

    If all epochs of the log are later, the answer is the named epoch and the first epoch's start offset. If the named
    epoch is negative or later than the log's latest, or the log has none, both are −1. A partition that this broker
    does not lead has an error. A consumer that names a later leader epoch gets an error too while another broker may
    lead.
    """
    for_consumer = request.replica_id == CONSUMER_REPLICA_ID
    return OffsetForLeaderEpochResponse(
        tuple(_end_of_epoch(replicas, part, for_consumer=for_consumer) for part in request.partitions)
    )


def _end_of_epoch(replicas: ReplicaManager, part: EpochPartition, *, for_consumer: bool) -> EpochEndOffset:
    try:
        replica = replicas.get_or_raise(TopicPartition(part.topic, part.partition))
        replica.leader_or_raise(part.current_leader_epoch)
        if replicas.may_be_deposed and for_consumer and part.leader_epoch > replica.partition.leader_epoch:
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
