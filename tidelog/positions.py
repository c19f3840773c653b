"""Where readers stand: looked up by policy at the start, and held against the log of each new leader.

An unclean election may give the lead to a replica that lacks records which readers were shown. A position beyond them
may even be in range there, among other records. So whoever has read something asks each new leader, before fetching
from it, where the epoch of the last record ends in its log (KIP-320): behind the position, and all that was read is
still there, or before it, and there the two logs part.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from tidelog.client import ClusterClient
from tidelog.errors import BrokerError, LogTruncationError, OffsetOutOfRangeError, TidelogError, error_for
from tidelog.fetch_buffer import PartitionBuffer
from tidelog.leader_calls import Asked, LeaderQuestion
from tidelog.messages import (
    EpochEndOffset,
    EpochPartition,
    FetchPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    Response,
)
from tidelog.metadata import Leader
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, READ_COMMITTED, TopicPartition
from tidelog.offsets import list_offsets
from tidelog.settings import ConsumerSettings

_A = TypeVar("_A")

_log = logging.getLogger(__name__)

_POLICIES = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}

#: Partitions that one broker leads, each with its generation at the time of asking.
Led = list[tuple[PartitionBuffer, int, Leader]]


class Positions:
    """Of one fetcher's partitions.

    policy   the timestamp to look up where a position is of no use; None: the reader is told
    tell     how the reader of a partition is told of an error
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ConsumerSettings,
        tell: Callable[[PartitionBuffer, TidelogError], None],
    ) -> None:
        self.policy = _POLICIES.get(settings.auto_offset_reset)
        self._client = client
        self._settings = settings
        self._tell = tell
        self._asked: set[tuple[TopicPartition, int]] = set()

    def is_asked(self, buffer: PartitionBuffer) -> bool:
        """Whether a leader is being asked about the partition."""
        return (buffer.topic_partition, buffer.generation) in self._asked

    async def find(self, led: Led) -> None:
        """Look up where to begin."""
        targets = {buffer.topic_partition: buffer.reset_to for buffer, _, _ in led if buffer.reset_to is not None}
        question = list_offsets(self._settings.isolation_level)
        for buffer, leader, found in await self._ask(question, targets, led):
            buffer.stand_at(found.offset, found.leader_epoch)
            if self._still_leads(leader, buffer):
                buffer.checked_epoch = leader.epoch

    async def check(self, led: Led) -> None:
        """Ask a leader whether it has what was read."""
        epochs = {buffer.topic_partition: buffer.fetch_epoch for buffer, _, _ in led}
        for buffer, leader, end in await self._ask(_ENDS_OF_EPOCHS, epochs, led):
            if not self._still_leads(leader, buffer):
                continue  # who answered may have been another; the new one is asked next
            if end.leader_epoch >= 0 and end.end_offset >= buffer.fetch_offset:
                buffer.checked_epoch = leader.epoch
            elif buffer.has_data:
                buffer.drop()  # of the old log; whether what was read before it is in the new one is asked next
            else:
                self._parted(buffer, leader, end)

    def begin_asking(self, led: Led) -> None:
        """From here on, until `find` or `check` is over, they are `is_asked`."""
        self._asked.update((buffer.topic_partition, generation) for buffer, generation, _ in led)

    def _still_leads(self, leader: Leader, buffer: PartitionBuffer) -> bool:
        return self._client.view.leader_of(*buffer.topic_partition) == leader

    def made_anew(self, buffer: PartitionBuffer) -> None:
        """The topic was deleted, and there is another of its name: its offsets have nothing to do with the old ones."""
        if self._reset(buffer, "the topic was deleted and made anew"):
            return
        tp, offset = buffer.topic_partition, buffer.position if buffer.position is not None else -1
        problem = f"{tp}: the topic was deleted and made anew; offset {offset} was the old one's"
        self._tell(buffer, OffsetOutOfRangeError(problem, topic_partition=tp, offset=offset))

    def out_of_range(self, buffer: PartitionBuffer, answer: FetchPartitionResponse | None) -> None:
        """The leader has no such offset."""
        tp, asked = buffer.topic_partition, buffer.fetch_offset
        if self._reset(buffer, "it is out of range"):
            return
        if buffer.has_data:
            return  # what was fetched before is read first; the next fetch will tell again
        first, end = -1, -1
        if answer is not None:
            first = answer.log_start_offset
            committed = self._settings.isolation_level == READ_COMMITTED
            end = answer.last_stable_offset if committed else answer.high_watermark
        valid = f"{first} to {end}" if first >= 0 else "unknown"
        problem = f"{tp}: offset {asked} is out of range, valid is {valid}"
        self._tell(
            buffer, OffsetOutOfRangeError(problem, topic_partition=tp, offset=asked, valid_from=first, valid_to=end)
        )

    def _parted(self, buffer: PartitionBuffer, leader: Leader, end: EpochEndOffset) -> None:
        tp, position = buffer.topic_partition, buffer.fetch_offset
        problem = f"{tp}: what was read is lost, the log is another one from offset {end.end_offset} on"
        if end.leader_epoch < 0:
            problem = f"{tp}: what was read is lost, and from which offset on is not known"
        if self.policy is None:
            parted = end.end_offset
            error = LogTruncationError(problem, topic_partition=tp, offset=position, divergent_offset=parted)
            self._tell(buffer, error)
        elif end.leader_epoch < 0:
            self._reset(buffer, "what was read is lost")
        else:
            _log.warning("%s; going back there from offset %d", problem, position)
            buffer.stand_at(end.end_offset, end.leader_epoch)
            buffer.checked_epoch = leader.epoch

    def _reset(self, buffer: PartitionBuffer, why: str) -> bool:
        """Go where the policy says; False where there is none."""
        if self.policy is None:
            return False
        policy = self._settings.auto_offset_reset
        _log.warning("%s: going from offset %d to the %s: %s", buffer.topic_partition, buffer.fetch_offset, policy, why)
        buffer.reset(self.policy)
        return True

    async def _ask(
        self, question: LeaderQuestion[int, _A], subjects: dict[TopicPartition, int], led: Led
    ) -> list[tuple[PartitionBuffer, Leader, _A]]:
        """The answers of those who still wait for them; others are told their errors."""
        try:
            outcomes = await question.try_ask(self._client, subjects, self._settings.default_api_timeout_ms)
            answers, refused = outcomes.answers, outcomes.refused
        except TidelogError as error:
            answers, refused = {}, dict.fromkeys(subjects, error)
        finally:
            self._asked.difference_update((buffer.topic_partition, generation) for buffer, generation, _ in led)
        waiting = [(buffer, leader) for buffer, generation, leader in led if buffer.generation == generation]
        for buffer, _ in waiting:
            if (refusal := refused.get(buffer.topic_partition)) is not None:
                self._tell(buffer, refusal)
        return [(each, leader, answers[tp]) for each, leader in waiting if (tp := each.topic_partition) in answers]


def _make_epoch_request(asked: Asked[int]) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(tuple(EpochPartition(*tp, leader.epoch, epoch) for tp, epoch, leader in asked))


def _read_ends(response: Response) -> Iterable[tuple[TopicPartition, BrokerError | None, EpochEndOffset]]:
    assert isinstance(response, OffsetForLeaderEpochResponse)
    for each in response.partitions:
        yield TopicPartition(each.topic, each.partition), error_for(each.error_code), each


_ENDS_OF_EPOCHS: LeaderQuestion[int, EpochEndOffset] = LeaderQuestion(
    "check of the position", _make_epoch_request, _read_ends
)
