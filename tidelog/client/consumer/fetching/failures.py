"""Report failed requests to the readers of partitions, and set the pause before the next request."""

from __future__ import annotations

import asyncio

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.position_state import AwaitingCommit
from tidelog.client.metadata import Leader
from tidelog.errors import TidelogError


class Failures:
    """Handles the failures of one fetcher's partitions.

    arrived   is set when an error is reported, so that a waiting poll raises it
    """

    def __init__(self, client: ClusterClient, arrived: asyncio.Event) -> None:
        self._client = client
        self._arrived = arrived

    def report(self, partition: AssignedPartition, error: TidelogError) -> None:
        """Keep an error for the reader of the partition, and wake a waiting poll.

        The fetcher tries the partition again after a pause, which may already be running.
        """
        partition.standing_error.set(error)
        if partition.retry.at_ms <= self._client.clock.monotonic_ms():
            self.back_off(partition, may_last=True)
        self._arrived.set()

    def back_off(self, partition: AssignedPartition, leader: Leader | None = None, *, may_last: bool) -> None:
        """Send no request to this leader, by default the known one, before a pause. Another leader is asked at once."""
        if leader is None and not isinstance(partition.state, AwaitingCommit):
            leader = self._client.view.leader_of(*partition.topic_partition)
        backoff_ms = self._client.lasting_backoff_ms if may_last else self._client.backoff_ms
        at_ms = self._client.clock.monotonic_ms() + backoff_ms(partition.retry.attempts)
        partition.retry = partition.retry.after_failure(leader, at_ms)

    def report_unexpected(self, partition: AssignedPartition, error: Exception) -> None:
        """Report a defect of this client to the user, and set a pause for the partition; raise nothing."""
        self._client.background.report(f"reading {partition.topic_partition}", error)
        self.back_off(partition, may_last=True)
