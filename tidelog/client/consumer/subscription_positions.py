"""Where readers stand: looked up by policy at the start, and held against the log of each new leader.

An unclean election may give the lead to a replica that lacks records which readers were shown. A position beyond them
may even be in range there, among other records. So whoever has read something asks each new leader, before fetching
from it, where the epoch of the last record ends in its log (KIP-320): behind the position, and all that was read is
still there, or before it, and there the two logs part.

Where the leader knows nothing of that epoch, but an earlier one ends behind the position in its log, Kafka's consumer
goes on. Either the two logs part before the position, or compaction took all that this replica ever could have had of
the epoch. The batch that holds the record before the position tells: it is of the epoch that was read, or it is
another one, or it is gone, and then nobody can tell.
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

#: For the answers to one question. Partitions whose leader is silent are asked about again, those of others go on.
_PATIENCE_MS = 5_000
#: Brokers hear of a new leader one after the other; an epoch of which none has told for longer never was.
_UNHEARD_EPOCH_GRACE_MS = 3_000
#: What to do about an offset that is of no use, where nobody has said it beforehand.
_WAYS_OUT = "seek elsewhere, or set auto_offset_reset to earliest, latest, a duration or a time"

#: Partitions that one broker leads, each with its generation at the time of asking.
Led = list[tuple[PartitionBuffer, int, Leader]]

#: Who asks leaders, as `PerLeaderRequest.try_ask` does.
_Asker = Callable[[ClusterClient, Mapping[TopicPartition, int], int], Awaitable[Outcomes[_A]]]


class SubscriptionPositions:
    """Of one fetcher's partitions.

    tell        how the reader of a partition is told of an error
    ask         starts a further request about partitions, as a task of its own
    committed   where its group left off; None: it is in none
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ConsumerSettings,
        tell: Callable[[PartitionBuffer, TidelogError], None],
        ask: Callable[[Callable[[Led], Coroutine[Any, Any, None]], Led], None],
        committed: CommittedOffsets | None = None,
    ) -> None:
        self.committed = committed
        self._client = client
        self._settings = settings
        self._tell = tell
        self._begin = ask

    @property
    def policy(self) -> int | None:
        """The timestamp to look up where a position is of no use now; None: the reader is told."""
        return self._settings.reset_strategy.target_ms(self._client.clock.now_ms())

    async def find_committed(self, asked: Mapping[tuple[TopicPartition, int], PartitionBuffer]) -> None:
        """Begin where the group left off. A partition without a committed offset begins as `reset_to` says."""
        assert self.committed is not None
        deadline_ms = self._client.clock.monotonic_ms() + self._settings.default_api_timeout_ms
        try:
            found = await self.committed.fetch([tp for tp, _ in asked], deadline_ms)
        except TidelogError as error:
            for (_, generation), buffer in asked.items():
                if buffer.generation == generation:
                    self._tell(buffer, error)
            return
        for (tp, generation), buffer in asked.items():
            if buffer.generation == generation:
                buffer.awaits_commit = False
                if (at := found[tp]) is not None:
                    buffer.seek(at.offset, -1 if at.leader_epoch is None else at.leader_epoch)

    async def find_ends(self, led: Led) -> None:
        """Look up the first or the next offset of each log, and begin there."""
        ask = list_offsets(self._settings.isolation_level).try_ask
        for buffer, leader, found in await self._ask(ask, _targets(led), led):
            self._begin_at(found.offset, found.leader_epoch, buffer, leader)

    async def find_times(self, led: Led) -> None:
        """Look up the first offset at or after a time in each log, and begin there."""
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

    def is_ahead(self, buffer: PartitionBuffer, leader: Leader) -> bool:
        """Whether a later leader is to be looked for: whoever has read in a later epoch has read from it.

        The leader that is known may be deposed and not have heard of it, and so may whoever told of it.
        """
        if buffer.fetch_epoch <= leader.epoch or not buffer.is_unchecked_in(leader.epoch):
            return False
        now_ms = self._client.clock.monotonic_ms()
        if buffer.ahead_since_ms is None:
            buffer.ahead_since_ms = now_ms
        return now_ms - buffer.ahead_since_ms < _UNHEARD_EPOCH_GRACE_MS

    async def check(self, led: Led) -> None:
        """Ask a leader whether it has what was read."""
        epochs = {buffer.topic_partition: buffer.fetch_epoch for buffer, _, _ in led}
        answers = await self._ask(_ENDS_OF_EPOCHS.try_ask, epochs, led)
        answered = {buffer.topic_partition for buffer, _, _ in answers}
        for buffer, _, _ in led:
            if buffer.topic_partition not in answered:
                buffer.ahead_since_ms = None  # a leader that cannot tell may be deposed: another is looked for again
        for buffer, leader, end in answers:
            if not self._still_leads(leader, buffer):
                continue  # who answered may have been another; the new one is asked next
            if end.leader_epoch < 0 or end.end_offset < buffer.fetch_offset:
                self._lost(buffer, leader, end)
            elif end.leader_epoch < buffer.fetch_epoch and buffer.epoch_read_from is not None:
                question = partial(self._check_record_before, end=end)
                self._begin(question, [(buffer, buffer.generation, leader)])
            else:
                buffer.checked_epoch = leader.epoch

    async def _check_record_before(self, led: Led, end: EpochEndOffset) -> None:
        """Ask a leader that knows nothing of the epoch whether the last record that was read is another one there."""
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
            self._lost(buffer, leader, end)

    def _still_leads(self, leader: Leader, buffer: PartitionBuffer) -> bool:
        return self._client.view.leader_of(*buffer.topic_partition) == leader

    def on_topic_recreated(self, buffer: PartitionBuffer) -> None:
        """The topic was deleted, and there is another of its name: its offsets have nothing to do with the old ones."""
        if self._reset(buffer, "the topic was deleted and made anew"):
            return
        tp, offset = buffer.topic_partition, buffer.position if buffer.position is not None else -1
        problem = f"{tp}: the topic was deleted and made anew; offset {offset} was the old one's; {_WAYS_OUT}"
        self._tell(buffer, OffsetOutOfRangeError(problem, topic_partition=tp, offset=offset, made_anew=True))

    def out_of_range(self, buffer: PartitionBuffer, answer: FetchPartitionResponse | None) -> None:
        """The leader has no such offset."""
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
        problem = f"{tp}: offset {asked} is out of range, valid is {valid}; {_WAYS_OUT}"
        self._tell(buffer, OffsetOutOfRangeError(problem, topic_partition=tp, offset=asked, first=first, end=end))

    def nowhere(self, buffer: PartitionBuffer) -> None:
        """There is no position to begin at."""
        tp = buffer.topic_partition
        problem = f"{tp}: no position was given, and auto_offset_reset is 'none'; {_WAYS_OUT}"
        self._tell(buffer, OffsetOutOfRangeError(problem, topic_partition=tp))

    def _lost(self, buffer: PartitionBuffer, leader: Leader, end: EpochEndOffset) -> None:
        if buffer.has_data:
            buffer.drop()  # of the old log; whether what was read before it is in the new one is asked next
            return
        tp, position, parted = buffer.topic_partition, buffer.fetch_offset, _parted_at(buffer, end)
        problem = f"{tp}: what was read is lost, the log is another one from offset {parted} on"
        if end.leader_epoch < 0:
            problem = f"{tp}: what was read is lost, and from which offset on is not known"
        if self.policy is None:
            error = LogTruncationError(problem, topic_partition=tp, offset=position, divergent_offset=parted)
            self._tell(buffer, error)
        elif end.leader_epoch < 0:
            self._reset(buffer, "what was read is lost")
        else:
            _log.warning("%s; going back there from offset %d", problem, position)
            if buffer.epoch_read_from is None:
                buffer.set_position(parted, end.leader_epoch)
                buffer.checked_epoch = leader.epoch
            else:
                buffer.rewind(parted)  # the logs may have parted earlier: what was read before it is asked next

    def _reset(self, buffer: PartitionBuffer, why: str) -> bool:
        """Go where the policy says; False where there is none."""
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
        """The answers of those who still wait for them; others are told their errors."""
        try:
            outcomes = await ask(self._client, subjects, _PATIENCE_MS)
            answers, refused = outcomes.answers, outcomes.refused
        except TidelogError as error:
            answers, refused = {}, dict.fromkeys(subjects, error)
        waiting = [(buffer, leader) for buffer, generation, leader in led if buffer.generation == generation]
        for buffer, _ in waiting:
            if (refusal := refused.get(buffer.topic_partition)) is not None:
                self._tell(buffer, refusal)
        return [(each, leader, answers[tp]) for each, leader in waiting if (tp := each.topic_partition) in answers]


def _targets(led: Led) -> dict[TopicPartition, int]:
    return {buffer.topic_partition: buffer.reset_to for buffer, _, _ in led if buffer.reset_to is not None}


def _parted_at(buffer: PartitionBuffer, end: EpochEndOffset) -> int:
    """Where the reader's log and the leader's part at the latest: of an epoch that it lacks it has no record."""
    first = buffer.epoch_read_from
    lacks_epoch = end.leader_epoch < buffer.fetch_epoch
    return min(first, end.end_offset) if lacks_epoch and first is not None else end.end_offset


def _epoch_of(offset: int, answer: FetchPartitionResponse) -> int | None:
    """The leader epoch of the batch that holds it; None: there is none to be seen."""
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
    """For one partition: the first batch comes whole, however little is asked for."""
    partitions = tuple(
        FetchPartition(*tp, leader.epoch, offset, 1, topic_id=leader.topic_id) for tp, offset, leader in asked
    )
    return FetchRequest(CONSUMER_REPLICA_ID, 0, 0, 1, partitions)


def _read_batches(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, FetchPartitionResponse]]:
    """That an offset is out of range is an answer, too: there is nothing."""
    assert isinstance(response, FetchResponse)
    for each in response.partitions:
        gone = each.error_code == OffsetOutOfRangeError.code
        yield TopicPartition(each.topic, each.partition), None if gone else error_for(each.error_code), each


_BATCHES: PerLeaderRequest[int, FetchPartitionResponse] = PerLeaderRequest(
    "check of the record before the position", _make_batch_request, _read_batches
)
