"""What the controller asks its shell to do, and how the shell answers."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.state import BrokerRegistration, PartitionState, VersionedState
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import PartitionStateMessage, StopReplicaPartition


@dataclass(frozen=True, slots=True)
class WriteState:
    """Write a state under the controller's fence and on this version; answer with `Written` or `WriteRefused`."""

    tp: TopicPartition
    state: PartitionState
    expected: int


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """To one broker, until it answers."""

    broker_id: int
    partitions: tuple[PartitionStateMessage, ...]


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """To one broker, until it answers; then `replicas_stopped`."""

    broker_id: int
    partitions: tuple[StopReplicaPartition, ...]


@dataclass(frozen=True, slots=True)
class SendMetadata:
    """To these brokers, until they answer: the live brokers as of now, these partitions, these topics gone.

    `whole`: also which topics there are at all, since they may not have heard what has become of others.
    """

    broker_ids: tuple[int, ...]
    partitions: tuple[PartitionStateMessage, ...] = ()
    deleted_topics: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """No live broker holds the topic any more: remove its znodes; answer with `topic_removed`."""

    topic: str


@dataclass(frozen=True, slots=True)
class CompleteReassignment:
    """Replicas of this topic have left: write `ReplicaDeletion.completed_assignment`, and answer with
    `assignment_written`.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class AskLogEnds:
    """To one broker, until it answers: how far do its logs of these reach? Answer with `log_ends_told`."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ClearPossiblyShort:
    """Nothing depends any more on what this broker may have lost: take the mark from its registration."""

    broker: BrokerRegistration


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """A broker has come: talk to this registration, and to no earlier one of the same id."""

    broker: BrokerRegistration


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """A broker is gone, and what it was still to be told with it."""

    broker_id: int


Effect = (
    WriteState
    | SendLeaderAndIsr
    | SendStopReplica
    | SendMetadata
    | RemoveTopic
    | CompleteReassignment
    | AskLogEnds
    | ClearPossiblyShort
    | OpenChannel
    | CloseChannel
)


@dataclass(frozen=True, slots=True)
class Written:
    """The state stands, with this version."""

    tp: TopicPartition
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """The version had moved on; `actual` is what stands there (None: nothing)."""

    tp: TopicPartition
    actual: VersionedState | None


WriteOutcome = Written | WriteRefused
