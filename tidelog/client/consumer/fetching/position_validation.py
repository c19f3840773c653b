"""Validate the positions of assigned partitions against the log of each new leader (KIP-320).

An unclean election may choose a leader that lacks records which readers have received. The reader's position may still
be in range in the new log, but among other records. Therefore a reader asks each new leader, before it fetches, where
the epoch of the last received record ends in the leader's log. If that end is at or after the position, the
leader has all received records. If the end is before the position, the logs diverge there.

If the leader does not know the epoch, but an earlier epoch ends after the position, Kafka's consumer goes on. Either
the logs diverge before the position, or compaction has removed all records of the epoch from this replica. The batch
that holds the record before the position decides: its epoch is the reader's, or another epoch, or the batch is gone. In
the last case the difference cannot be detected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.failures import Failures
from tidelog.client.consumer.fetching.fetch_plan import RequestedPartition
from tidelog.client.consumer.fetching.subscription_positions import SubscriptionPositions
from tidelog.client.leader_requests import Asked, PerLeaderRequest
from tidelog.client.metadata import Leader
from tidelog.errors import BrokerError, LogTruncationError, OffsetOutOfRangeError, error_for
from tidelog.model import CONSUMER_REPLICA_ID, TopicPartition
from tidelog.protocol.messages import (
    EpochEndOffset,
    EpochPartition,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    Response,
)
from tidelog.records.header import iter_headers
from tidelog.records.message_set import is_message_set

_log = logging.getLogger(__name__)

#: A request about positions, to be run as a task.
_Question = Callable[[list[RequestedPartition]], Coroutine[Any, Any, None]]


class PositionValidation:
    """Validates the positions of one fetcher's partitions.

    ask_later   starts a further request about partitions as a task
    """

    def __init__(
        self,
        client: ClusterClient,
        positions: SubscriptionPositions,
        failures: Failures,
        ask_later: Callable[[_Question, list[RequestedPartition]], None],
    ) -> None:
        self._client = client
        self._positions = positions
        self._failures = failures
        self._ask_later = ask_later

    async def validate(self, requested: list[RequestedPartition]) -> None:
        """Ask a leader whether its log contains the records that were read, and act on the answer for each partition.

        A confirmed partition is fetched next. A diverged one goes back, is reset, or gets a LogTruncationError. A
        partition without an answer is asked again. Answers of a broker that no longer leads are ignored.
        """
        requested = [each for each in requested if each.is_current]
        epochs = {each.partition.topic_partition: each.partition.fetch_epoch for each in requested}
        answers = await self._positions.ask(_ENDS_OF_EPOCHS.try_ask, epochs, requested)
        answered = {partition for partition, _, _ in answers}
        for each in requested:
            if each.is_current and each.partition not in answered:
                each.partition.on_no_answer()
        for partition, leader, end in answers:
            if not self._positions.still_leads(leader, partition):
                continue  # the answer may come from another leader; the new one is asked next
            if end.leader_epoch < 0 or end.end_offset < partition.fetch_offset:
                self._on_truncated(partition, leader, end)
            elif end.leader_epoch < partition.fetch_epoch and partition.epoch_read_from is not None:
                question = partial(self._check_record_before, end=end)
                self._ask_later(question, [RequestedPartition(partition, partition.generation, leader)])
            else:
                partition.on_validated(leader.epoch)

    async def _check_record_before(self, requested: list[RequestedPartition], end: EpochEndOffset) -> None:
        """Ask a leader that does not know the epoch for its record before the position, and compare the record's epoch.

        Another epoch means that the logs diverge. If the record is above the high watermark, ask again later. Otherwise
        the position is valid.
        """
        ((partition, _, leader),) = requested
        if not requested[0].is_current:
            return
        offset = partition.fetch_offset - 1
        answers = await self._positions.ask(_BATCHES.try_ask, {partition.topic_partition: offset}, requested)
        if not answers or not self._positions.still_leads(leader, partition):
            return
        ((_, _, answer),) = answers
        found = _epoch_of(offset, answer)
        if found is None and not answer.error_code and answer.high_watermark <= offset:
            pause_ms = self._client.backoff_ms(partition.retry.attempts)
            partition.retry = partition.retry.after_failure(leader, self._client.clock.monotonic_ms() + pause_ms)
        elif found is None or found == partition.fetch_epoch:
            partition.on_validated(leader.epoch)
        else:
            self._on_truncated(partition, leader, end)

    def _on_truncated(self, partition: AssignedPartition, leader: Leader, end: EpochEndOffset) -> None:
        if partition.has_data:
            partition.drop()  # these records are of the old log; the position before them is validated next
            return
        tp, position, parted = partition.topic_partition, partition.fetch_offset, _divergent_offset(partition, end)
        problem = f"{tp}: records that were read are lost, because the leader's log differs from offset {parted} on"
        if end.leader_epoch < 0:
            problem = f"{tp}: records that were read are lost, and the first lost offset is not known"
        if self._positions.policy is None:
            error = LogTruncationError(problem, topic_partition=tp, offset=position, divergent_offset=parted)
            self._failures.report(partition, error)
        elif end.leader_epoch < 0:
            self._positions.reset(partition, "records that were read are lost")
        else:
            _log.warning("%s; going back there from offset %d", problem, position)
            partition.on_diverged(parted, end.leader_epoch, leader.epoch)


def _divergent_offset(partition: AssignedPartition, end: EpochEndOffset) -> int:
    """Return the largest offset up to which the logs can be equal.

    If the leader lacks the reader's epoch, it has none of the records that were read of this epoch.
    """
    first = partition.epoch_read_from
    lacks_epoch = end.leader_epoch < partition.fetch_epoch
    return min(first, end.end_offset) if lacks_epoch and first is not None else end.end_offset


def _epoch_of(offset: int, answer: FetchPartitionResponse) -> int | None:
    """Return the leader epoch of the batch that holds the offset; None if the answer does not show it."""
    records = b"" if answer.records is None else answer.records
    if is_message_set(records):
        return None  # messages of formats 0 and 1 have no leader epoch
    for _, header in iter_headers(records):
        known = header.base_offset <= offset and header.partition_leader_epoch >= 0
        return header.partition_leader_epoch if known else None
    return None


def _make_epoch_request(asked: Asked[int]) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(tuple(EpochPartition(*tp, leader.epoch, epoch) for tp, epoch, leader in asked))


def _read_ends(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, EpochEndOffset]]:
    assert isinstance(response, OffsetForLeaderEpochResponse)
    for each in response.partitions:
        yield TopicPartition(each.topic, each.partition), error_for(each.error_code), each


_ENDS_OF_EPOCHS: PerLeaderRequest[int, EpochEndOffset] = PerLeaderRequest(
    "check of the position", _make_epoch_request, _read_ends
)


def _make_batch_request(asked: Asked[int]) -> FetchRequest:
    """Make a request for the batch at one offset. One byte suffices, because the first batch comes whole."""
    partitions = tuple(
        FetchPartition(*tp, leader.epoch, offset, 1, topic_id=leader.topic_id) for tp, offset, leader in asked
    )
    return FetchRequest(CONSUMER_REPLICA_ID, 0, 0, 1, partitions)


def _read_batches(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, FetchPartitionResponse]]:
    """Yield each partition's answer; OFFSET_OUT_OF_RANGE is an answer, because it says that the batch is gone."""
    assert isinstance(response, FetchResponse)
    for each in response.partitions:
        gone = each.error_code == OffsetOutOfRangeError.code
        yield TopicPartition(each.topic, each.partition), None if gone else error_for(each.error_code), each


_BATCHES: PerLeaderRequest[int, FetchPartitionResponse] = PerLeaderRequest(
    "check of the record before the position", _make_batch_request, _read_batches
)
