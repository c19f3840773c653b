"""The messages that one broker has not yet answered to the controller.

The outbox keeps only the newest message per partition, so that its size is bounded by the number of partitions however
long a broker does not answer. A sent message stays in the outbox until the broker has answered it; otherwise it is
sent again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from cluster.controller.controller import Controller
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import (
    LeaderAndIsrRequest,
    LogEndsRequest,
    PartitionStateMessage,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidelog.protocol.messages import DescribePartition, Request

#: The largest number of entries in a request, so that neither the broker nor the controller handles it for long.
MAX_ENTRIES = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Entries of a LeaderAndIsr request, by partition."""

    entries: dict[TopicPartition, PartitionStateMessage]

    def request(self, controller: Controller) -> Request:
        """Return the LeaderAndIsr, with the live brokers and its topics as the controller knows them now."""
        return LeaderAndIsrRequest(
            controller.controller_id,
            controller.epoch,
            tuple(self.entries.values()),
            controller.context.topic_infos(tp.topic for tp in self.entries),
            controller.context.live_brokers(),
        )


@dataclass(frozen=True, slots=True)
class StopBatch:
    """Entries of a StopReplica request, by partition."""

    entries: dict[TopicPartition, StopReplicaPartition]

    def request(self, controller: Controller) -> Request:
        """Return the StopReplica, which stops these replicas, and deletes those whose entry says so."""
        return StopReplicaRequest(controller.controller_id, controller.epoch, tuple(self.entries.values()))


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """Entries of an UpdateMetadata request. Each such request also announces the live brokers.

    deleted_topics   the topics that the broker must remove from its metadata
    generation       the number of `put_metadata` calls of which nothing is left once this request is answered
    whole            whether the request also lists the names of all topics
    """

    entries: dict[TopicPartition, PartitionStateMessage]
    deleted_topics: frozenset[str]
    generation: int
    whole: bool = False

    def request(self, controller: Controller) -> Request:
        """Return the UpdateMetadata, with the live brokers and its topics as the controller knows them now."""
        return UpdateMetadataRequest(
            controller.controller_id,
            controller.epoch,
            controller.context.live_brokers(),
            tuple(self.entries.values()),
            controller.context.topic_infos(tp.topic for tp in self.entries),
            tuple(sorted(self.deleted_topics)),
            controller.every_topic() if self.whole else None,
        )


@dataclass(frozen=True, slots=True)
class QuestionBatch:
    """Entries of a LogEnds request, by partition."""

    entries: dict[TopicPartition, DescribePartition]

    def request(self, controller: Controller) -> Request:
        """Return the LogEnds, which asks for the log ends of these replicas."""
        return LogEndsRequest(controller.controller_id, controller.epoch, tuple(self.entries.values()))


Batch = StateBatch | StopBatch | QuestionBatch | MetadataBatch


class Outbox:
    """Yields LeaderAndIsr first, then StopReplica, LogEnds and UpdateMetadata.

    In this order the broker tells clients that it leads a partition only after it knows that itself. If new
    LeaderAndIsr entries arrive all the time, UpdateMetadata for earlier ones is sent in between.
    """

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionStateMessage] = {}
        self._stops: dict[TopicPartition, StopReplicaPartition] = {}
        self._questions: dict[TopicPartition, DescribePartition] = {}
        self._metadata: dict[TopicPartition, PartitionStateMessage] = {}
        self._deleted: set[str] = set()
        self._whole = False
        self._generation = 0
        self._answered_generation = 0
        self._metadata_is_next = False

    def put_states(self, messages: Iterable[PartitionStateMessage]) -> None:
        """Add LeaderAndIsr entries, which replace older LeaderAndIsr and StopReplica entries of their partitions."""
        for message in messages:
            tp = TopicPartition(message.topic, message.partition)
            self._stops.pop(tp, None)
            self._states[tp] = message

    def put_stops(self, partitions: Iterable[StopReplicaPartition]) -> None:
        """Add StopReplica entries, which replace older LeaderAndIsr and StopReplica entries of their partitions."""
        for stop in partitions:
            tp = TopicPartition(stop.topic, stop.partition)
            self._states.pop(tp, None)
            self._stops[tp] = stop

    def put_questions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add LogEnds entries. A LogEnds request that was sent earlier does not answer them."""
        self._questions |= {tp: DescribePartition(tp.topic, tp.partition) for tp in partitions}

    def put_metadata(
        self, messages: Iterable[PartitionStateMessage], deleted_topics: Iterable[str] = (), *, whole: bool = False
    ) -> None:
        """Add UpdateMetadata entries, which replace older ones; without entries, the live brokers are announced.

        deleted_topics   the topics that the broker must remove; their entries in the outbox are dropped
        whole            whether a request must also list the names of all topics
        """
        self._generation += 1
        self._whole = self._whole or whole
        for topic in deleted_topics:
            self._deleted.add(topic)
            for tp in [tp for tp in self._metadata if tp.topic == topic]:
                del self._metadata[tp]
        for message in messages:
            self._deleted.discard(message.topic)
            self._metadata[TopicPartition(message.topic, message.partition)] = message

    def peek(self) -> Batch | None:
        """Return the next batch to send, with at most MAX_ENTRIES entries, or None if nothing waits.

        The entries stay in the outbox until `answered`.
        """
        if self._states:
            metadata = self._peek_metadata() if self._metadata_is_next else None
            return metadata if metadata is not None and metadata.entries else StateBatch(_first(self._states))
        if self._stops:
            return StopBatch(_first(self._stops))
        if self._questions:
            return QuestionBatch(_first(self._questions))
        return self._peek_metadata()

    def _peek_metadata(self) -> MetadataBatch | None:
        """Return the UpdateMetadata that may be sent now, or None if the broker has answered all metadata.

        The request leaves out partitions whose LeaderAndIsr or StopReplica this broker has not answered yet.
        """
        if self._generation == self._answered_generation:
            return None
        states, stops = self._states, self._stops
        ready = ((tp, each) for tp, each in self._metadata.items() if tp not in states and tp not in stops)
        entries = dict(islice(ready, MAX_ENTRIES))
        has_all = len(entries) == len(self._metadata)
        # The names of all topics are sent last. A topic whose deletion is in progress is not among them. Without its
        # StopReplica, a broker would set the log of such a topic aside as stray instead of deleting it.
        whole = self._whole and has_all and not states and not stops
        # If more entries follow, this request does not complete its generation.
        generation = self._generation if has_all and whole == self._whole else self._answered_generation
        return MetadataBatch(entries, frozenset(self._deleted), generation, whole)

    def answered(self, batch: Batch) -> None:
        """Remove the entries of a batch that the broker has answered. Entries that were replaced since `peek` stay."""
        self._metadata_is_next = isinstance(batch, StateBatch)
        match batch:
            case StateBatch(entries):
                _drop(self._states, entries)
            case StopBatch(entries):
                _drop(self._stops, entries)
            case QuestionBatch(entries):
                _drop(self._questions, entries)
            case MetadataBatch(entries, deleted, generation):
                _drop(self._metadata, entries)
                if generation == self._generation:
                    self._deleted -= deleted
                    self._whole = False
                self._answered_generation = max(self._answered_generation, generation)

    @property
    def empty(self) -> bool:
        """Return whether the broker has answered every message, so that `peek` returns None."""
        waits = self._states or self._stops or self._questions
        return not waits and self._generation == self._answered_generation


def _first(entries: dict[TopicPartition, T]) -> dict[TopicPartition, T]:
    return dict(islice(entries.items(), MAX_ENTRIES))


def _drop(entries: dict[TopicPartition, T], sent: dict[TopicPartition, T]) -> None:
    for tp, entry in sent.items():
        if entries.get(tp) is entry:
            del entries[tp]
