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
from tidelog.client.consumer.fetch_buffer import PartitionBuffer
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
#: Brokers learn of a new leader at different times; an epoch that no broker reports for longer does not exist.
_UNHEARD_EPOCH_GRACE_MS = 3_000
#: The next step in the messages about an unusable offset when auto_offset_reset is "none".
_NEXT_STEP = "seek elsewhere, or set auto_offset_reset to earliest, latest, a duration or a time"

#: Partitions that one broker leads, each with its generation when the request was made.
Led = list[tuple[PartitionBuffer, int, Leader]]

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
        report: Callable[[PartitionBuffer, TidelogError], None],
        ask: Callable[[Callable[[Led], Coroutine[Any, Any, None]], Led], None],
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

    async def find_committed(self, asked: Mapping[tuple[TopicPartition, int], PartitionBuffer]) -> None:
        """Start at the group's committed offsets. A partition without one starts as `reset_to` says."""
        assert self.committed is not None
        deadline_ms = self._client.clock.monotonic_ms() + self._settings.default_api_timeout_ms
        try:
            found = await self.committed.fetch([tp for tp, _ in asked], deadline_ms)
        except TidelogError as error:
            for (_, generation), buffer in asked.items():
                if buffer.generation == generation:
                    self._report(buffer, error)
            return
        for (tp, generation), buffer in asked.items():
            if buffer.generation == generation:
                buffer.awaits_commit = False
                if (at := found[tp]) is not None:
                    buffer.seek(at.offset, -1 if at.leader_epoch is None else at.leader_epoch)

    async def find_ends(self, led: Led) -> None:
        """Look up the start or the end of each log, and read from there."""
        ask = list_offsets(self._settings.isolation_level).try_ask
        for buffer, leader, found in await self._ask(ask, _targets(led), led):
            self._begin_at(found.offset, found.leader_epoch, buffer, leader)

    async def find_times(self, led: Led) -> None:
        """Look up the first offset at or after a time in each log, and read from there."""
        ask = partial(try_starting_points, isolation_level=self._settings.isolation_level)
        targets = _targets(led)
        for buffer, leader, found in await self._ask(ask, targets, led):
            tp = buffer.topic_partition
            level = logging.INFO if found.reason is StartReason.FOUND else logging.WARNING
            _log.log(level, "%s: %s: begins at %d for %s", tp, found.reason, found.offset, format_time(targets[tp]))
            self._begin_at(found.offset, -1 if found.leader_epoch is None else found.leader_epoch, buffer, leader)

    def _begin_at(self, offset: int, epoch: int, buffer: PartitionBuffer, leader: Leader) -> None:
        buffer.set_position(offset, epoch)
        if self._still_leads(leader, buffer):
            buffer.checked_epoch = leader.epoch

    def must_find_newer_leader(self, buffer: PartitionBuffer, leader: Leader) -> bool:
        """Return whether a later leader must be looked for, because the reader has read in a later epoch.

        The known leader may have been replaced without knowing it, and so may the broker that sent the metadata.
        """
        if buffer.fetch_epoch <= leader.epoch or not buffer.is_unchecked_in(leader.epoch):
            return False
        now_ms = self._client.clock.monotonic_ms()
        if buffer.ahead_since_ms is None:
            buffer.ahead_since_ms = now_ms
        return now_ms - buffer.ahead_since_ms < _UNHEARD_EPOCH_GRACE_MS

    async def check(self, led: Led) -> None:
        """Ask a leader whether its log contains the records that were read."""
        epochs = {buffer.topic_partition: buffer.fetch_epoch for buffer, _, _ in led}
        answers = await self._ask(_ENDS_OF_EPOCHS.try_ask, epochs, led)
        answered = {buffer.topic_partition for buffer, _, _ in answers}
        for buffer, _, _ in led:
            if buffer.topic_partition not in answered:
                buffer.ahead_since_ms = None  # this leader may have been replaced, so another one is looked for again
        for buffer, leader, end in answers:
            if not self._still_leads(leader, buffer):
                continue  # the answer may come from another leader; the new one is asked next
            if end.leader_epoch < 0 or end.end_offset < buffer.fetch_offset:
                self._on_truncated(buffer, leader, end)
            elif end.leader_epoch < buffer.fetch_epoch and buffer.epoch_read_from is not None:
                question = partial(self._check_record_before, end=end)
                self._begin(question, [(buffer, buffer.generation, leader)])
            else:
                buffer.checked_epoch = leader.epoch

    async def _check_record_before(self, led: Led, end: EpochEndOffset) -> None:
        """Ask a leader that does not know the epoch whether its record before the position has another epoch."""
        ((buffer, _, leader),) = led
        offset = buffer.fetch_offset - 1
        answers = await self._ask(_BATCHES.try_ask, {buffer.topic_partition: offset}, led)
        if not answers or not self._still_leads(leader, buffer):
            return
        ((_, _, answer),) = answers
        found = _epoch_of(offset, answer)
        if found is None and not answer.error_code and answer.high_watermark <= offset:
            buffer.back_off(leader, self._client.clock.monotonic_ms() + self._client.backoff_ms(buffer.attempts))
        elif found is None or found == buffer.fetch_epoch:
            buffer.checked_epoch = leader.epoch
        else:
            self._on_truncated(buffer, leader, end)

    def _still_leads(self, leader: Leader, buffer: PartitionBuffer) -> bool:
        return self._client.view.leader_of(*buffer.topic_partition) == leader

    def on_topic_recreated(self, buffer: PartitionBuffer) -> None:
        """Apply auto_offset_reset because the topic was deleted and created again; the old offsets mean nothing now."""
        if self._reset(buffer, "the topic was deleted and created again"):
            return
        tp, offset = buffer.topic_partition, buffer.position if buffer.position is not None else -1
        problem = f"{tp}: the topic was deleted and created again; offset {offset} was of the old topic; {_NEXT_STEP}"
        self._report(buffer, OffsetOutOfRangeError(problem, topic_partition=tp, offset=offset, made_anew=True))

    def on_out_of_range(self, buffer: PartitionBuffer, answer: FetchPartitionResponse | None) -> None:
        """Apply auto_offset_reset because the leader has no such offset."""
        tp, asked = buffer.topic_partition, buffer.fetch_offset
        first, end = -1, -1
        if answer is not None:
            first = answer.log_start_offset
            committed = self._settings.isolation_level == READ_COMMITTED
            end = answer.last_stable_offset if committed else answer.high_watermark
        valid = f"{first} to {end}" if first >= 0 else "unknown"
        if self._reset(buffer, f"the offset is out of range, valid is {valid}"):
            return
        if buffer.has_data:
            return  # the records fetched before are read first; the next fetch reports it again
        problem = f"{tp}: offset {asked} is out of range, valid is {valid}; {_NEXT_STEP}"
        self._report(buffer, OffsetOutOfRangeError(problem, topic_partition=tp, offset=asked, first=first, end=end))

    def on_no_position(self, buffer: PartitionBuffer) -> None:
        """Report that the partition has no position, because auto_offset_reset is "none"."""
        tp = buffer.topic_partition
        problem = f"{tp}: no position was given, and auto_offset_reset is 'none'; {_NEXT_STEP}"
        self._report(buffer, OffsetOutOfRangeError(problem, topic_partition=tp))

    def _on_truncated(self, buffer: PartitionBuffer, leader: Leader, end: EpochEndOffset) -> None:
        if buffer.has_data:
            buffer.drop()  # these records are of the old log; the position before them is validated next
            return
        tp, position, parted = buffer.topic_partition, buffer.fetch_offset, _divergent_offset(buffer, end)
        problem = f"{tp}: records that were read are lost, because the leader's log differs from offset {parted} on"
        if end.leader_epoch < 0:
            problem = f"{tp}: records that were read are lost, and the first lost offset is not known"
        if self.policy is None:
            error = LogTruncationError(problem, topic_partition=tp, offset=position, divergent_offset=parted)
            self._report(buffer, error)
        elif end.leader_epoch < 0:
            self._reset(buffer, "records that were read are lost")
        else:
            _log.warning("%s; going back there from offset %d", problem, position)
            if buffer.epoch_read_from is None:
                buffer.set_position(parted, end.leader_epoch)
                buffer.checked_epoch = leader.epoch
            else:
                buffer.rewind(parted)  # the logs may diverge earlier, so the position is validated again from there

    def _reset(self, buffer: PartitionBuffer, why: str) -> bool:
        """Move to where auto_offset_reset says, and return True; return False if it is "none"."""
        policy, tp = self.policy, buffer.topic_partition
        if policy is None:
            return False
        name = self._settings.reset_strategy.name
        _log.warning("%s: going from offset %d to the %s: %s", tp, buffer.fetch_offset, name, why)
        buffer.reset(policy)
        return True

    async def _ask(
        self, ask: _Asker[_A], subjects: dict[TopicPartition, int], led: Led
    ) -> list[tuple[PartitionBuffer, Leader, _A]]:
        """Return the answers for buffers of the same generation; report errors to the readers of the others."""
        try:
            outcomes = await ask(self._client, subjects, _PATIENCE_MS)
            answers, refused = outcomes.answers, outcomes.refused
        except TidelogError as error:
            answers, refused = {}, dict.fromkeys(subjects, error)
        waiting = [(buffer, leader) for buffer, generation, leader in led if buffer.generation == generation]
        for buffer, _ in waiting:
            if (refusal := refused.get(buffer.topic_partition)) is not None:
                self._report(buffer, refusal)
        return [(each, leader, answers[tp]) for each, leader in waiting if (tp := each.topic_partition) in answers]


def _targets(led: Led) -> dict[TopicPartition, int]:
    return {buffer.topic_partition: buffer.reset_to for buffer, _, _ in led if buffer.reset_to is not None}


def _divergent_offset(buffer: PartitionBuffer, end: EpochEndOffset) -> int:
    """Return the largest offset up to which the logs can be equal.

    If the leader lacks the reader's epoch, it has none of the records that were read of this epoch.
    """
    first = buffer.epoch_read_from
    lacks_epoch = end.leader_epoch < buffer.fetch_epoch
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
