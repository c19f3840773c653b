"""Look up the positions of assigned partitions, and reset positions that have become invalid."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.failures import Failures
from tidelog.client.consumer.fetching.fetch_plan import RequestedPartition
from tidelog.client.consumer.fetching.position_state import Resetting
from tidelog.client.consumer.offset_lookup import list_offsets
from tidelog.client.consumer.seek_to_time import StartReason, try_starting_points
from tidelog.client.leader_requests import Outcomes
from tidelog.client.metadata import Leader
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import OffsetOutOfRangeError, TidelogError
from tidelog.model import READ_COMMITTED, TopicPartition
from tidelog.protocol.messages import FetchPartitionResponse
from tidelog.timestamps import format_time

if TYPE_CHECKING:
    from tidelog.groups.committed_offsets import CommittedOffsets

_A = TypeVar("_A")

_log = logging.getLogger(__name__)

#: Timeout of one request. Partitions whose leader does not answer are asked again; the others go on.
_TIME_LIMIT_MS = 5_000
#: The next step in the messages about an unusable offset when auto_offset_reset is "none".
_NEXT_STEP = "seek elsewhere, or set auto_offset_reset to earliest, latest, a duration or a time"

#: A function that sends requests to leaders, as `PerLeaderRequest.try_ask` does.
_Asker = Callable[[ClusterClient, Mapping[TopicPartition, int], int], Awaitable[Outcomes[_A]]]


class SubscriptionPositions:
    """Finds the positions of one fetcher's partitions.

    committed   the group's committed offsets; None: the consumer has no group
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ConsumerSettings,
        failures: Failures,
        committed: CommittedOffsets | None = None,
    ) -> None:
        self.committed = committed
        self._client = client
        self._settings = settings
        self._failures = failures

    @property
    def policy(self) -> int | None:
        """Return the timestamp that auto_offset_reset looks up now; None for "none": the reader gets the error."""
        return self._settings.reset_strategy.target_ms(self._client.clock.now_ms())

    async def find_committed(self, asked: list[tuple[AssignedPartition, int]]) -> None:
        """Start these partitions of these generations at the group's committed offsets, or as auto_offset_reset says.

        An error of the look-up is reported to the readers. Partitions of a later generation are left alone.
        """
        assert self.committed is not None
        deadline_ms = self._client.clock.monotonic_ms() + self._settings.default_api_timeout_ms
        try:
            found = await self.committed.fetch([partition.topic_partition for partition, _ in asked], deadline_ms)
        except TidelogError as error:
            for partition, generation in asked:
                if partition.generation == generation:
                    self._failures.report(partition, error)
            return
        for partition, generation in asked:
            if partition.generation == generation:
                at = found[partition.topic_partition]
                if at is None:
                    partition.on_no_commit()
                else:
                    partition.on_commit_found(at.offset, -1 if at.leader_epoch is None else at.leader_epoch)

    async def find_ends(self, requested: list[RequestedPartition]) -> None:
        """Look up the start or the end of each log, as the partition's state says, and read from there."""
        ask = list_offsets(self._settings.isolation_level).try_ask
        for partition, leader, found in await self.ask(ask, _targets(requested), requested):
            self._start_at(found.offset, found.leader_epoch, partition, leader)

    async def find_times(self, requested: list[RequestedPartition]) -> None:
        """Look up the first record at or after a time in each log, and read from there; without one, from the end."""
        ask = partial(try_starting_points, isolation_level=self._settings.isolation_level)
        targets = _targets(requested)
        for partition, leader, found in await self.ask(ask, targets, requested):
            tp = partition.topic_partition
            level = logging.INFO if found.reason is StartReason.FOUND else logging.WARNING
            _log.log(level, "%s: %s: begins at %d for %s", tp, found.reason, found.offset, format_time(targets[tp]))
            epoch = -1 if found.leader_epoch is None else found.leader_epoch
            self._start_at(found.offset, epoch, partition, leader)

    def _start_at(self, offset: int, epoch: int, partition: AssignedPartition, leader: Leader) -> None:
        partition.on_offset_found(offset, epoch)
        if self.still_leads(leader, partition):
            partition.on_validated(leader.epoch)

    def still_leads(self, leader: Leader, partition: AssignedPartition) -> bool:
        """Return whether this leader, with its epoch, is the one that the metadata shows, so that its answer counts."""
        return self._client.view.leader_of(*partition.topic_partition) == leader

    def on_topic_recreated(self, partition: AssignedPartition) -> None:
        """Apply auto_offset_reset, because the topic was deleted and created again; the old offsets mean nothing now.

        With "none", report OffsetOutOfRangeError to the reader.
        """
        if self.reset(partition, "the topic was deleted and created again"):
            return
        tp, offset = partition.topic_partition, partition.position if partition.position is not None else -1
        problem = f"{tp}: the topic was deleted and created again; offset {offset} was of the old topic; {_NEXT_STEP}"
        error = OffsetOutOfRangeError(problem, topic_partition=tp, offset=offset, made_anew=True)
        self._failures.report(partition, error)

    def on_out_of_range(self, partition: AssignedPartition, answer: FetchPartitionResponse | None) -> None:
        """Apply auto_offset_reset, because the leader has no such offset.

        With "none", report OffsetOutOfRangeError with the valid range, once the reader has got the records fetched
        before.
        """
        tp, asked = partition.topic_partition, partition.fetch_offset
        first, end = -1, -1
        if answer is not None:
            first = answer.log_start_offset
            committed = self._settings.isolation_level == READ_COMMITTED
            end = answer.last_stable_offset if committed else answer.high_watermark
        valid = f"{first} to {end}" if first >= 0 else "unknown"
        if self._reset(partition, f"the offset is out of range, valid is {valid}", partition.reset_from_out_of_range):
            if partition.resets > 1:
                # The leader has returned the offset itself, and refuses to read there. Without a pause, the requests
                # would follow each other as fast as the leader answers.
                self._failures.back_off(partition, may_last=True)
            return
        if partition.has_data:
            return  # the records fetched before are read first; the next fetch reports it again
        problem = f"{tp}: offset {asked} is out of range, valid is {valid}; {_NEXT_STEP}"
        error = OffsetOutOfRangeError(problem, topic_partition=tp, offset=asked, first=first, end=end)
        self._failures.report(partition, error)

    def on_no_position(self, partition: AssignedPartition) -> None:
        """Report that the partition has no position, because auto_offset_reset is "none"."""
        tp = partition.topic_partition
        problem = f"{tp}: no position was given, and auto_offset_reset is 'none'; {_NEXT_STEP}"
        self._failures.report(partition, OffsetOutOfRangeError(problem, topic_partition=tp))

    def reset(self, partition: AssignedPartition, why: str) -> bool:
        """Discard the position, so that the one which auto_offset_reset says is looked up, and return True; with "none"
        only return False.
        """
        return self._reset(partition, why, partition.reset)

    def _reset(self, partition: AssignedPartition, why: str, reset_to: Callable[[int], None]) -> bool:
        policy, tp = self.policy, partition.topic_partition
        if policy is None:
            return False
        name = self._settings.reset_strategy.name
        _log.warning("%s: going from offset %d to the %s: %s", tp, partition.fetch_offset, name, why)
        reset_to(policy)
        return True

    async def ask(
        self, ask: _Asker[_A], subjects: dict[TopicPartition, int], requested: list[RequestedPartition]
    ) -> list[tuple[AssignedPartition, Leader, _A]]:
        """Return the answers for partitions of the same generation; report final errors to the readers of the others.

        Partitions with a retriable error are in neither group, and are asked again. Each request has 5 s.
        """
        try:
            outcomes = await ask(self._client, subjects, _TIME_LIMIT_MS)
            answers, refused = outcomes.answers, outcomes.refused
        except TidelogError as error:
            answers, refused = {}, dict.fromkeys(subjects, error)
        waiting = [each for each in requested if each.is_current]
        for each in waiting:
            if (refusal := refused.get(each.partition.topic_partition)) is not None:
                self._failures.report(each.partition, refusal)
        return [
            (each.partition, each.leader, answers[tp])
            for each in waiting
            if (tp := each.partition.topic_partition) in answers
        ]


def _targets(requested: list[RequestedPartition]) -> dict[TopicPartition, int]:
    """Return the timestamp to look up for each partition that is still to be reset."""
    return {
        each.partition.topic_partition: each.partition.state.to
        for each in requested
        if isinstance(each.partition.state, Resetting)
    }
