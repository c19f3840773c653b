"""Define the requests between brokers and the controller: leadership, stopped replicas, metadata, shutdown.

The form is that of `tidelog.protocol.messages`. Only the REPLICATION listener accepts these requests.
"""

from __future__ import annotations

from tidelog.errors import ProtocolError
from tidelog.frozen_dataclass import frozen
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS
from tidelog.protocol.messages import ApiKey, DescribePartition, Message, Request, Response


@frozen
class ListenerAddress(Message):
    """The address of one listener of a broker; `tidelog.protocol.listeners` defines the names."""

    name: str
    host: str
    port: int


@frozen
class BrokerInfo(Message):
    """A live broker and its listeners by name. `epoch` is the czxid of its registration."""

    broker_id: int
    epoch: int
    listeners: tuple[ListenerAddress, ...]
    shutting_down: bool = False

    def endpoint_of(self, listener: str) -> Endpoint | None:
        """Return the address of the listener with this name; None if the broker has none."""
        return next((Endpoint(each.host, each.port) for each in self.listeners if each.name == listener), None)

    @property
    def replication_endpoint(self) -> Endpoint:
        """The address for other brokers and the controller."""
        endpoint = self.endpoint_of(BROKERS)
        if endpoint is None:
            raise ProtocolError(f"broker {self.broker_id} has no listener {BROKERS}")
        return endpoint


@frozen
class PartitionStateMessage(Message):
    """A partition's state as its state znode has it; `partition_epoch` is that znode's version.

    unclean   the leader is known to lack committed records, and leads nevertheless
    leaving   brokers that are no longer replicas, but keep their log until a StopReplica request deletes it
    """

    topic: str
    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    unclean: bool = False
    leaving: tuple[int, ...] = ()


@frozen
class TopicInfo(Message):
    """A topic's id, its settings that differ from the defaults, and its number of partitions."""

    name: str
    topic_id: str
    configs: dict[str, str]
    partition_count: int


@frozen
class PartitionOutcome(Message):
    """The outcome for one partition."""

    topic: str
    partition: int
    error_code: int


@frozen
class LeaderAndIsrResponse(Response):
    """The answer; `error_code` is for the request as a whole."""

    error_code: int
    partitions: tuple[PartitionOutcome, ...] = ()


@frozen
class LeaderAndIsrRequest(Request):
    """Makes the addressee leader or follower. The controller repeats it until answered; stale states are ignored."""

    controller_id: int
    controller_epoch: int
    partitions: tuple[PartitionStateMessage, ...]
    topics: tuple[TopicInfo, ...]
    live_brokers: tuple[BrokerInfo, ...]

    api = ApiKey.LEADER_AND_ISR
    response = LeaderAndIsrResponse
    between_brokers = True


#: The epoch in a StopReplica request that stops a replica whatever leader epoch it knows.
ANY_EPOCH = -1


@frozen
class StopReplicaPartition(Message):
    """A replica to stop; `delete` also removes its log. A replica with a later leader epoch ignores the request."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


@frozen
class StopReplicaResponse(Response):
    """The answer; `error_code` is for the request as a whole."""

    error_code: int
    partitions: tuple[PartitionOutcome, ...] = ()


@frozen
class StopReplicaRequest(Request):
    """Stops replicas of the addressee."""

    controller_id: int
    controller_epoch: int
    partitions: tuple[StopReplicaPartition, ...]

    api = ApiKey.STOP_REPLICA
    response = StopReplicaResponse
    between_brokers = True


@frozen
class UpdateMetadataResponse(Response):
    """The answer; `error_code` is for the request as a whole."""

    error_code: int


@frozen
class UpdateMetadataRequest(Request):
    """Replaces the metadata that the addressee gives to clients: all live brokers, and the changed partitions.

    Topics in `deleted_topics` are removed, and so are topics that are not in `every_topic`. This dict has the ids of
    all topics by name ("" if not known); None if the request has changes only.
    """

    controller_id: int
    controller_epoch: int
    live_brokers: tuple[BrokerInfo, ...]
    partitions: tuple[PartitionStateMessage, ...]
    topics: tuple[TopicInfo, ...]
    deleted_topics: tuple[str, ...] = ()
    every_topic: dict[str, str] | None = None

    api = ApiKey.UPDATE_METADATA
    response = UpdateMetadataResponse
    between_brokers = True


@frozen
class ControlledShutdownResponse(Response):
    """The answer; `remaining` are the partitions that the broker still leads."""

    error_code: int
    remaining: tuple[DescribePartition, ...] = ()


@frozen
class ControlledShutdownRequest(Request):
    """A broker asks the controller to move its leaderships away before it stops."""

    broker_id: int
    broker_epoch: int

    api = ApiKey.CONTROLLED_SHUTDOWN
    response = ControlledShutdownResponse
    between_brokers = True


@frozen
class EpochBegin(Message):
    """The first offset of a leader epoch in a log."""

    epoch: int
    start_offset: int


@frozen
class LogEndAnswer(Message):
    """The end of a log, and its latest leader epochs in order.

    INELIGIBLE_REPLICA means that the log is gone (−1), or ends before its known high watermark.
    """

    topic: str
    partition: int
    error_code: int
    last_epoch: int = -1
    log_end_offset: int = -1
    epochs: tuple[EpochBegin, ...] = ()


@frozen
class LogEndsResponse(Response):
    """The answer; `error_code` is for the request as a whole."""

    error_code: int
    partitions: tuple[LogEndAnswer, ...] = ()


@frozen
class LogEndsRequest(Request):
    """Asks for the ends of the addressee's logs, when every ISR member may have lost records."""

    controller_id: int
    controller_epoch: int
    partitions: tuple[DescribePartition, ...]

    api = ApiKey.LOG_ENDS
    response = LogEndsResponse
    between_brokers = True


#: Requests of a controller; a broker rejects those of an older controller epoch than the latest it knows.
ControllerRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest | LogEndsRequest

#: Every request of this module.
CONTROL_REQUESTS: tuple[type[Request], ...] = (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
    ControlledShutdownRequest,
    LogEndsRequest,
)
