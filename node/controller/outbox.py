"""What the controller still has to tell one broker.

Only the newest word on a partition counts, so the box is bounded by the number of partitions however long a
broker does not answer. What was sent stays in the box until it is answered, and is sent again otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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

#: Entries of one request, so that a request stays far below the largest frame.
MAX_ENTRIES = 2000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Entries of a LeaderAndIsr."""

    entries: dict[TopicPartition, PartitionStateMessage]

    def request(self, controller: Controller) -> Request:
        """With the live brokers and the topics as the controller knows them now."""
        return LeaderAndIsrRequest(
            controller.controller_id,
            controller.epoch,
            tuple(self.entries.values()),
            controller.topic_infos(tp.topic for tp in self.entries),
            controller.live_brokers(),
        )


@dataclass(frozen=True, slots=True)
class StopBatch:
    """Entries of a StopReplica."""

    entries: dict[TopicPartition, StopReplicaPartition]

    def request(self, controller: Controller) -> Request:
        """To delete these."""
        return StopReplicaRequest(controller.controller_id, controller.epoch, tuple(self.entries.values()))


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """Entries of an UpdateMetadata, which is also sent with none: the live brokers have changed.

    `whole`: and with the names of all topics.
    """

    entries: dict[TopicPartition, PartitionStateMessage]
    deleted_topics: frozenset[str]
    generation: int
    whole: bool = False

    def request(self, controller: Controller) -> Request:
        """With the live brokers and the topics as the controller knows them now."""
        return UpdateMetadataRequest(
            controller.controller_id,
            controller.epoch,
            controller.live_brokers(),
            tuple(self.entries.values()),
            controller.topic_infos(tp.topic for tp in self.entries),
            tuple(sorted(self.deleted_topics)),
            controller.every_topic() if self.whole else None,
        )


@dataclass(frozen=True, slots=True)
class QuestionBatch:
    """Entries of a LogEnds."""

    entries: dict[TopicPartition, DescribePartition]

    def request(self, controller: Controller) -> Request:
        """How far do the logs of these reach?"""
        return LogEndsRequest(controller.controller_id, controller.epoch, tuple(self.entries.values()))


Batch = StateBatch | StopBatch | QuestionBatch | MetadataBatch


class Outbox:
    """First who leads, then what to stop, then what to tell clients: so no client is sent where nobody leads yet.

    Where more leaders are elected all the time, clients hear of the earlier ones in between.
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
        self._clients_turn = False

    def put_states(self, messages: Iterable[PartitionStateMessage]) -> None:
        """These partitions, for LeaderAndIsr."""
        for message in messages:
            tp = TopicPartition(message.topic, message.partition)
            self._stops.pop(tp, None)
            self._states[tp] = message

    def put_stops(self, partitions: Iterable[StopReplicaPartition]) -> None:
        """These partitions, for StopReplica."""
        for stop in partitions:
            tp = TopicPartition(stop.topic, stop.partition)
            self._states.pop(tp, None)
            self._stops[tp] = stop

    def put_questions(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions, for LogEnds; what is on its way already does not answer it."""
        self._questions |= {tp: DescribePartition(tp.topic, tp.partition) for tp in partitions}

    def put_metadata(
        self, messages: Iterable[PartitionStateMessage], deleted_topics: Iterable[str] = (), *, whole: bool = False
    ) -> None:
        """These partitions, for UpdateMetadata; with none, the live brokers alone. `whole`: and all topics' names."""
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
        """What to send next; it stays here until `answered`."""
        metadata = self._peek_metadata()
        if self._states and self._clients_turn and metadata is not None and metadata.entries:
            return metadata
        if self._states:
            return StateBatch(dict(list(self._states.items())[:MAX_ENTRIES]))
        if self._stops:
            return StopBatch(dict(list(self._stops.items())[:MAX_ENTRIES]))
        if self._questions:
            return QuestionBatch(dict(list(self._questions.items())[:MAX_ENTRIES]))
        return metadata

    def _peek_metadata(self) -> MetadataBatch | None:
        """What clients may hear of now: not of what this broker is still to be told itself."""
        if self._generation == self._answered_generation:
            return None
        untold = self._states.keys() | self._stops.keys()
        ready = [(tp, message) for tp, message in self._metadata.items() if tp not in untold]
        entries = dict(ready[:MAX_ENTRIES])
        has_all = len(entries) == len(self._metadata)
        # Last of all: of a topic that is on its way out a broker is told to delete it, and would set it aside.
        whole = self._whole and has_all and not untold
        # With more to come the request is not the last one of its generation.
        generation = self._generation if has_all and whole == self._whole else self._answered_generation
        return MetadataBatch(entries, frozenset(self._deleted), generation, whole)

    def answered(self, batch: Batch) -> None:
        """What was sent has arrived; what has changed meanwhile stays."""
        self._clients_turn = isinstance(batch, StateBatch)
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
        """Everything was answered."""
        return self.peek() is None


def _drop(box: dict[TopicPartition, T], sent: dict[TopicPartition, T]) -> None:
    for tp, entry in sent.items():
        if box.get(tp) is entry:
            del box[tp]
