"""Fetch the timestamp of the record at an offset, from which the lag of a reader in time follows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.leader_requests import Asked, Outcomes, PerLeaderRequest
from tidelog.errors import BrokerError, UnreadableRecordsError, error_for
from tidelog.model import CONSUMER_REPLICA_ID, TopicPartition
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, Response
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES
from tidelog.records.header import read_header
from tidelog.records.message_set import is_message_set, to_record_batches
from tidelog.records.time_search import RecordTime, first_record_at_or_after

#: Maximum number of concurrent fetches.
_MOST_AT_ONCE = 16
_ANY_TIME = -(1 << 63)


async def record_times(
    client: ClusterClient, offsets: Mapping[TopicPartition, int], timeout_ms: int
) -> Outcomes[RecordTime | None]:
    """Return the offset and time of the first record at or after each offset; None: no such record is readable yet.

    Each look-up transfers one batch, or more if batches have no such record. Errors are in the result: those of
    `PerLeaderRequest.try_ask`, including OffsetOutOfRangeError, and UnreadableRecordsError for a batch that cannot be
    decoded. NoBrokersError is raised if no broker was ever reached.
    """
    outcomes: Outcomes[RecordTime | None] = Outcomes()
    deadline_ms = client.clock.monotonic_ms() + timeout_ms
    slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def look(tp: TopicPartition, offset: int) -> None:
        async with slots:
            await _look(client, tp, offset, deadline_ms, outcomes)

    await asyncio.gather(*(look(tp, offset) for tp, offset in offsets.items()))
    return outcomes


async def _look(
    client: ClusterClient, tp: TopicPartition, offset: int, deadline_ms: int, outcomes: Outcomes[RecordTime | None]
) -> None:
    at = offset
    while True:
        left_ms = max(1, deadline_ms - client.clock.monotonic_ms())
        outcome = await _FETCH_ONE.try_ask(client, {tp: at}, left_ms)
        outcomes.refused |= outcome.refused
        outcomes.errors |= outcome.errors
        if tp not in outcome.answers:
            return
        batch = outcome.answers[tp].records
        if not batch:
            outcomes.answers[tp] = None
            return
        try:
            if is_message_set(batch):
                batch = to_record_batches(batch, MAX_DECOMPRESSED_BYTES)
            header = read_header(batch)
            found = None if header.is_control else first_record_at_or_after(batch, _ANY_TIME, offset)
        except BrokerError as error:
            outcomes.refused[tp] = UnreadableRecordsError(
                f"{tp}: the batch at offset {at} cannot be read: {error}", offset=at
            )
            return
        if found is not None:
            outcomes.answers[tp] = found
            return
        # A control batch, or a batch that compaction has emptied: the next record is in the next batch.
        at = max(at + 1, header.next_offset)


def _fetch_one_batch(asked: Asked[int]) -> FetchRequest:
    # One byte at most, because an answer always begins with a whole batch.
    partitions = tuple(
        FetchPartition(*tp, leader.epoch, offset, 1, topic_id=leader.topic_id) for tp, offset, leader in asked
    )
    return FetchRequest(CONSUMER_REPLICA_ID, 0, 0, 1, partitions)


def _read(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, FetchPartitionResponse]]:
    assert isinstance(response, FetchResponse)
    for each in response.partitions:
        yield TopicPartition(each.topic, each.partition), error_for(each.error_code), each


_FETCH_ONE: PerLeaderRequest[int, FetchPartitionResponse] = PerLeaderRequest("the record", _fetch_one_batch, _read)
