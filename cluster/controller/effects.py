"""The effects that the controller yields for its caller to perform, and the outcomes of the state writes.

The caller reports the outcome of each `WriteState` (`cluster.state`) as `Written` or `WriteRefused`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.state import BrokerRegistration, VersionedState, WriteState
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import PartitionStateMessage, StopReplicaPartition


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """Send LeaderAndIsr to one broker until it answers or its channel is closed; after the answer call
    `replicas_answered`.
    """

    broker_id: int
    partitions: tuple[PartitionStateMessage, ...]


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """Send StopReplica to one broker until it answers; then call `replicas_stopped`."""

    broker_id: int
    partitions: tuple[StopReplicaPartition, ...]


@dataclass(frozen=True, slots=True)
class SendMetadata:
    """Send UpdateMetadata to these brokers until they answer.

    The request carries the live brokers, these partitions, and these deleted topics. `whole`: also the list of all
    topics, because these brokers may have missed the deletion of others.
    """

    broker_ids: tuple[int, ...]
    partitions: tuple[PartitionStateMessage, ...] = ()
    deleted_topics: tuple[str, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """Remove the topic's znodes, because no live broker has a replica of it any more; then call `topic_removed`."""

    topic: str


@dataclass(frozen=True, slots=True)
class CompleteReassignment:
    """Write `ReplicaDeletion.completed_assignment` of this topic, because removed replicas have been deleted.

    The caller then calls `assignment_written`.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class AskLogEnds:
    """Ask one broker for the log ends of these partitions until it answers; then call `log_ends_reported`."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ClearPossiblyShort:
    """Clear the mark `possibly_short` in this broker's registration, because no partition depends on it any more."""

    broker: BrokerRegistration


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """Open a channel to this registration of a broker.

    The channel never sends to an earlier registration of the same id.
    """

    broker: BrokerRegistration


@dataclass(frozen=True, slots=True)
class MoveChannel:
    """Have the channel of a broker use the addresses of this registration, which has the epoch of the earlier one.

    Messages without an answer stay, and are sent to the new address.
    """

    broker: BrokerRegistration


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """Close the channel to a broker whose registration has ended, and discard its unsent messages."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Let other tasks run before the rest of the event, because the event concerns many partitions."""


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
    | MoveChannel
    | CloseChannel
    | Pause
)


@dataclass(frozen=True, slots=True)
class Written:
    """The state was written, and its znode now has the version `partition_epoch`."""

    tp: TopicPartition
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """The state was not written, because the version was not the expected one.

    `actual` is the state found instead; None: there is none.
    """

    tp: TopicPartition
    actual: VersionedState | None


WriteOutcome = Written | WriteRefused
