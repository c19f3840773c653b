"""Look up the positions of assigned partitions, and validate them against the log of each new leader.

An unclean election may choose a leader that lacks records which readers have received. The reader's position may still
be in range in the new log, but among other records. Therefore a reader asks each new leader, before it fetches, where
the epoch of the last received record ends in the leader's log (KIP-320). If that end is at or after the position, the
leader has all received records. If the end is before the position, the logs diverge there.

If the leader does not know the epoch, but an earlier epoch ends after the position, Kafka's consumer goes on. Either
the logs diverge before the position, or compaction has removed all records of the epoch from this replica. The batch
that holds the record before the position decides: its epoch is the reader's, or another epoch, or the batch is gone. In
the last case the difference cannot be detected.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.fetch_plan import RequestedPartition
from tidelog.client.consumer.fetching.position_state import Resetting
from tidelog.client.consumer.offset_lookup import list_offsets
from tidelog.client.consumer.seek_to_time import StartReason, try_starting_points
from tidelog.client.leader_requests import Asked, Outcomes, PerLeaderRequest
from tidelog.client.metadata import Leader
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import BrokerError, LogTruncationError, OffsetOutOfRangeError, TidelogError, error_for
from tidelog.model import CONSUMER_REPLICA_ID, READ_COMMITTED, TopicPartition
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
from tidelog.timestamps import format_time

if TYPE_CHECKING:
    from tidelog.groups.committed_offsets import CommittedOffsets

_A = TypeVar("_A")

_log = logging.getLogger(__name__)

#: Timeout of one request. Partitions whose leader does not answer are asked again; the others go on.
_PATIENCE_MS = 5_000
#: The next step in the messages about an unusable offset when auto_offset_reset is "none".
_NEXT_STEP = "seek elsewhere, or set auto_offset_reset to earliest, latest, a duration or a time"

#: A request about positions, to be run as a task.
_Question = Callable[[list[RequestedPartition]], Coroutine[Any, Any, None]]
#: A function that sends requests to leaders, as `PerLeaderRequest.try_ask` does.
_Asker = Callable[[ClusterClient, Mapping[TopicPartition, int], int], Awaitable[Outcomes[_A]]]


class SubscriptionPositions:
    """Finds and validates the positions of one fetcher's partitions.

    report      reports an error to the reader of a partition
    ask         starts a further request about partitions as a task
    committed   the group's committed offsets; None: the consumer has no group
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ConsumerSettings,
        report: Callable[[AssignedPartition, TidelogError], None],
        ask: Callable[[_Question, list[RequestedPartition]], None],
        committed: CommittedOffsets | None = None,
    ) -> None:
        self.committed = committed
        self._client = client
        self._settings = settings
        self._report = report
        self._begin = ask

    @property
    def policy(self) -> int | None:
        """Return the timestamp that auto_offset_reset looks up now; None for "none": the reader gets the error."""
        return self._settings.reset_strategy.target_ms(self._client.clock.now_ms())

    async def find_committed(self, asked: list[tuple[AssignedPartition, int]]) -> None:
        """Start these partitions of these generations at the group's committed offsets, or by auto_offset_reset."""
        assert self.committed is not None
        deadline_ms = self._client.clock.monotonic_ms() + self._settings.default_api_timeout_ms
        try:
            found = await self.committed.fetch([partition.topic_partition for partition, _ in asked], deadline_ms)
        except TidelogError as error:
            for partition, generation in asked:
                if partition.generation == generation:
                    self._report(partition, error)
            return
        for partition, generation in asked:
            if partition.generation == generation:
                at = found[partition.topic_partition]
                if at is None:
                    partition.on_no_commit()
                else:
                    partition.on_commit_found(at.offset, -1 if at.leader_epoch is None else at.leader_epoch)

    async def find_ends(self, requested: list[RequestedPartition]) -> None:
        """Look up the start or the end of each log, and read from there."""
        ask = list_offsets(self._settings.isolation_level).try_ask
        for partition, leader, found in await self._ask(ask, _targets(requested), requested):
            self._start_at(found.offset, found.leader_epoch, partition, leader)

    async def find_times(self, requested: list[RequestedPartition]) -> None:
        """Look up the first offset at or after a time in each log, and read from there."""
        ask = partial(try_starting_points, isolation_level=self._settings.isolation_level)
        targets = _targets(requested)
        for partition, leader, found in await self._ask(ask, targets, requested):
            tp = partition.topic_partition
            level = logging.INFO if found.reason is StartReason.FOUND else logging.WARNING
            _log.log(level, "%s: %s: begins at %d for %s", tp, found.reason, found.offset, format_time(targets[tp]))
            epoch = -1 if found.leader_epoch is None else found.leader_epoch
            self._start_at(found.offset, epoch, partition, leader)

    def _start_at(self, offset: int, epoch: int, partition: AssignedPartition, leader: Leader) -> None:
        partition.on_offset_found(offset, epoch)
        if self._still_leads(leader, partition):
            partition.on_validated(leader.epoch)

    async def validate(self, requested: list[RequestedPartition]) -> None:
        """Ask a leader whether its log contains the records that were read."""
        requested = [each for each in requested if each.is_current]
        epochs = {each.partition.topic_partition: each.partition.fetch_epoch for each in requested}
        answers = await self._ask(_ENDS_OF_EPOCHS.try_ask, epochs, requested)
        answered = {partition for partition, _, _ in answers}
        for each in requested:
            if each.is_current and each.partition not in answered:
                each.partition.on_no_answer()
        for partition, leader, end in answers:
            if not self._still_leads(leader, partition):
                continue  # the answer may come from another leader; the new one is asked next
            if end.leader_epoch < 0 or end.end_offset < partition.fetch_offset:
                self._on_truncated(partition, leader, end)
            elif end.leader_epoch < partition.fetch_epoch and partition.epoch_read_from is not None:
                question = partial(self._check_record_before, end=end)
                self._begin(question, [RequestedPartition(partition, partition.generation, leader)])
            else:
                partition.on_validated(leader.epoch)

    async def _check_record_before(self, requested: list[RequestedPartition], end: EpochEndOffset) -> None:
        """Ask a leader that does not know the epoch whether its record before the position has another epoch."""
        ((partition, _, leader),) = requested
        if not requested[0].is_current:
            return
        offset = partition.fetch_offset - 1
        answers = await self._ask(_BATCHES.try_ask, {partition.topic_partition: offset}, requested)
        if not answers or not self._still_leads(leader, partition):
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

    def _still_leads(self, leader: Leader, partition: AssignedPartition) -> bool:
        return self._client.view.leader_of(*partition.topic_partition) == leader

    def on_topic_recreated(self, partition: AssignedPartition) -> None:
        """Apply auto_offset_reset because the topic was deleted and created again; the old offsets mean nothing now."""
        if self._reset(partition, "the topic was deleted and created again"):
            return
        tp, offset = partition.topic_partition, partition.position if partition.position is not None else -1
        problem = f"{tp}: the topic was deleted and created again; offset {offset} was of the old topic; {_NEXT_STEP}"
        self._report(partition, OffsetOutOfRangeError(problem, topic_partition=tp, offset=offset, made_anew=True))

    def on_out_of_range(self, partition: AssignedPartition, answer: FetchPartitionResponse | None) -> None:
        """Apply auto_offset_reset because the leader has no such offset."""
        tp, asked = partition.topic_partition, partition.fetch_offset
        first, end = -1, -1
        if answer is not None:
            first = answer.log_start_offset
            committed = self._settings.isolation_level == READ_COMMITTED
            end = answer.last_stable_offset if committed else answer.high_watermark
        valid = f"{first} to {end}" if first >= 0 else "unknown"
        if self._reset(partition, f"the offset is out of range, valid is {valid}"):
            return
        if partition.has_data:
            return  # the records fetched before are read first; the next fetch reports it again
        problem = f"{tp}: offset {asked} is out of range, valid is {valid}; {_NEXT_STEP}"
        self._report(partition, OffsetOutOfRangeError(problem, topic_partition=tp, offset=asked, first=first, end=end))

    def on_no_position(self, partition: AssignedPartition) -> None:
        """Report that the partition has no position, because auto_offset_reset is "none"."""
        tp = partition.topic_partition
        problem = f"{tp}: no position was given, and auto_offset_reset is 'none'; {_NEXT_STEP}"
        self._report(partition, OffsetOutOfRangeError(problem, topic_partition=tp))

    def _on_truncated(self, partition: AssignedPartition, leader: Leader, end: EpochEndOffset) -> None:
        if partition.has_data:
            partition.drop()  # these records are of the old log; the position before them is validated next
            return
        tp, position, parted = partition.topic_partition, partition.fetch_offset, _divergent_offset(partition, end)
        problem = f"{tp}: records that were read are lost, because the leader's log differs from offset {parted} on"
        if end.leader_epoch < 0:
            problem = f"{tp}: records that were read are lost, and the first lost offset is not known"
        if self.policy is None:
            error = LogTruncationError(problem, topic_partition=tp, offset=position, divergent_offset=parted)
            self._report(partition, error)
        elif end.leader_epoch < 0:
            self._reset(partition, "records that were read are lost")
        else:
            _log.warning("%s; going back there from offset %d", problem, position)
            partition.on_diverged(parted, end.leader_epoch, leader.epoch)

    def _reset(self, partition: AssignedPartition, why: str) -> bool:
        """Move to where auto_offset_reset says, and return True; return False if it is "none"."""
        policy, tp = self.policy, partition.topic_partition
        if policy is None:
            return False
        name = self._settings.reset_strategy.name
        _log.warning("%s: going from offset %d to the %s: %s", tp, partition.fetch_offset, name, why)
        partition.reset(policy)
        return True

    async def _ask(
        self, ask: _Asker[_A], subjects: dict[TopicPartition, int], requested: list[RequestedPartition]
    ) -> list[tuple[AssignedPartition, Leader, _A]]:
        """Return the answers for partitions of the same generation; report errors to the readers of the others."""
        try:
            outcomes = await ask(self._client, subjects, _PATIENCE_MS)
            answers, refused = outcomes.answers, outcomes.refused
        except TidelogError as error:
            answers, refused = {}, dict.fromkeys(subjects, error)
        waiting = [each for each in requested if each.is_current]
        for each in waiting:
            if (refusal := refused.get(each.partition.topic_partition)) is not None:
                self._report(each.partition, refusal)
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


def _divergent_offset(partition: AssignedPartition, end: EpochEndOffset) -> int:
    """Return the largest offset up to which the logs can be equal.

    If the leader lacks the reader's epoch, it has none of the records that were read of this epoch.
    """
    first = partition.epoch_read_from
    lacks_epoch = end.leader_epoch < partition.fetch_epoch
    return min(first, end.end_offset) if lacks_epoch and first is not None else end.end_offset


def _epoch_of(offset: int, answer: FetchPartitionResponse) -> int | None:
    """Return the leader epoch of the batch that holds the offset; None if the answer does not show it."""
    for _, header in iter_headers(b"" if answer.records is None else answer.records):
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
    """Request one byte of one partition, because the first batch is returned whole whatever the limit is."""
    partitions = tuple(
        FetchPartition(*tp, leader.epoch, offset, 1, topic_id=leader.topic_id) for tp, offset, leader in asked
    )
    return FetchRequest(CONSUMER_REPLICA_ID, 0, 0, 1, partitions)


def _read_batches(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, FetchPartitionResponse]]:
    """Read the answers; treat OFFSET_OUT_OF_RANGE as an answer, because it says that the batch is gone."""
    assert isinstance(response, FetchResponse)
    for each in response.partitions:
        gone = each.error_code == OffsetOutOfRangeError.code
        yield TopicPartition(each.topic, each.partition), None if gone else error_for(each.error_code), each


_BATCHES: PerLeaderRequest[int, FetchPartitionResponse] = PerLeaderRequest(
    "check of the record before the position", _make_batch_request, _read_batches
)
