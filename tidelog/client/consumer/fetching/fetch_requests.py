"""Fetch partitions from their leader, and handle the answer for each of them."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.client.cluster_client import ClusterClient, is_retriable
from tidelog.client.connections import Purpose
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.failures import Failures
from tidelog.client.consumer.fetching.fetch_plan import RequestedPartition
from tidelog.client.consumer.fetching.position_state import Validating
from tidelog.client.consumer.fetching.subscription_positions import SubscriptionPositions
from tidelog.client.metadata import ClusterView, Leader
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    NetworkError,
    OffsetOutOfRangeError,
    TidelogError,
    TimeoutError,
    UnknownTopicIdError,
    error_for,
)
from tidelog.model import CONSUMER_REPLICA_ID
from tidelog.protocol.kafka.client.translation.committed_records import CommittedRecords
from tidelog.protocol.messages import FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse

#: After so many attempts that return a corrupt batch the reader gets the error.
MAX_CORRUPT_ATTEMPTS = 5
#: Errors for a topic id that the broker does not know, or does not know for this name.
_WRONG_TOPIC = (InconsistentTopicIdError, UnknownTopicIdError)


class FetchRequests:
    """Fetches the partitions of one fetcher.

    on_data   is called with each partition whose answer has records
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ConsumerSettings,
        positions: SubscriptionPositions,
        failures: Failures,
        on_data: Callable[[AssignedPartition], None],
    ) -> None:
        self._client = client
        self._settings = settings
        self._positions = positions
        self._failures = failures
        self._on_data = on_data

    async def fetch(self, broker_id: int, requested: list[RequestedPartition], max_bytes: int) -> None:
        """Send one fetch to a leader, wait for the answer, and give each partition its part or its error.

        Partitions whose position has changed since the request was planned are left out, or their answer is ignored.
        Errors set a pause, reset the position or are reported to the reader; nothing is raised.
        """
        settings = self._settings
        requested = [each for each in requested if each.is_current]
        if not requested:
            return
        request = self._request(requested, max_bytes)

        def moved(view: ClusterView) -> bool:
            return any(
                view.has_newer_leader(*partition.topic_partition, leader.epoch) for partition, _, leader in requested
            )

        answers: dict[tuple[str, int], FetchPartitionResponse] = {}
        failure: TidelogError | None = None
        try:
            peer = await self._client.peer(broker_id, settings.request_timeout_ms, Purpose.FETCH)
            timeout_ms = settings.fetch_max_wait_ms + settings.request_timeout_ms
            response = await self._client.call_leader(peer, request, timeout_ms, moved)
            assert isinstance(response, FetchResponse)
            answers = {(each.topic, each.partition): each for each in response.partitions}
            self._client.metrics.fetched_bytes.add(
                sum(len(each.records) for each in response.partitions if each.records is not None)
            )
        except TidelogError as error:
            failure = error
        stale = isinstance(failure, TimeoutError)
        for each in requested:
            if not each.is_current:
                continue
            partition, _, leader = each
            answer = answers.get(partition.topic_partition)
            try:
                problem = failure or self._accept(partition, leader, answer)
                if problem is not None:
                    stale |= problem.stale_metadata
                    partition.is_alone |= failure is not None and not is_retriable(failure)
                    self._failed(partition, leader, problem, answer)
            except Exception as error:
                self._failures.report_unexpected(partition, error)
        if stale:
            self._client.refresh_soon()

    def _request(self, requested: list[RequestedPartition], max_bytes: int) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            CONSUMER_REPLICA_ID,
            settings.fetch_max_wait_ms,
            settings.fetch_min_bytes,
            max_bytes,
            tuple(
                FetchPartition(
                    *partition.topic_partition,
                    leader.epoch,
                    partition.fetch_offset,
                    settings.max_partition_fetch_bytes,
                    topic_id=partition.topic_id or leader.topic_id,
                )
                for partition, _, leader in requested
            ),
            settings.isolation_level,
        )

    def _accept(
        self, partition: AssignedPartition, leader: Leader, answer: FetchPartitionResponse | None
    ) -> TidelogError | None:
        """Put the records of an answer into the buffer and return None, or return the error that prevents this."""
        if answer is None:
            return NetworkError("the broker's answer does not contain this partition")
        if refusal := error_for(answer.error_code):
            return refusal
        if isinstance(partition.state, Validating):
            return FencedLeaderEpochError("the records were fetched in an epoch of another topic with the same name")
        had_failed = partition.retry.attempts > 0
        try:
            has_data = partition.on_fetched(
                memoryview(answer.records if answer.records is not None else b""),
                leader.epoch,
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                check_crcs=self._settings.check_crcs,
                aborted=answer.aborted if isinstance(answer, CommittedRecords) else (),
            )
        except TidelogError as error:
            return error
        if had_failed:
            self._client.background.recovered(f"reading {partition.topic_partition}")
        if has_data:
            self._on_data(partition)
        return None

    def _failed(
        self,
        partition: AssignedPartition,
        leader: Leader,
        error: TidelogError,
        answer: FetchPartitionResponse | None,
    ) -> None:
        self._failures.back_off(partition, leader, may_last=partition.standing_error.error is not None)
        is_wrong_topic = isinstance(error, _WRONG_TOPIC) and partition.topic_id != leader.topic_id
        partition.retry = partition.retry.after_topic(is_wrong=is_wrong_topic)
        tp = partition.topic_partition
        if isinstance(error, OffsetOutOfRangeError):
            self._positions.on_out_of_range(partition, answer)
        elif is_wrong_topic:
            # The broker may be behind both as leader and in its metadata, so the metadata is refreshed first.
            if partition.retry.wrong_topics > 1:
                self._positions.on_topic_recreated(partition)
        elif isinstance(error, CorruptMessageError) and partition.retry.attempts >= MAX_CORRUPT_ATTEMPTS:
            self._failures.report(partition, CorruptMessageError(f"{tp} at {partition.fetch_offset}: {error}"))
        elif not is_retriable(error):
            self._failures.report(partition, type(error)(f"{tp}: {error}"))
