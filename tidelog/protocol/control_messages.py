"""What brokers and the controller ask of each other: who leads what, who stops, who leaves.

Messages as in `tidelog.protocol.messages`; only the endpoint between brokers takes them.
"""

from __future__ import annotations

from tidelog.errors import ProtocolError
from tidelog.frozen_dataclass import frozen
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS
from tidelog.protocol.messages import ApiKey, DescribePartition, Message, Request, Response


@frozen
class ListenerAddress(Message):
    """Where one door of a broker is found; what its name means stands in `tidelog.protocol.listeners`."""

    name: str
    host: str
    port: int


@frozen
class BrokerInfo(Message):
    """A live broker and its doors, by name. `epoch` is the czxid of its registration."""

    broker_id: int
    epoch: int
    listeners: tuple[ListenerAddress, ...]
    shutting_down: bool = False

    def endpoint_of(self, listener: str) -> Endpoint | None:
        """Where its door of this name is, None where it has none."""
        return next((Endpoint(each.host, each.port) for each in self.listeners if each.name == listener), None)

    @property
    def replication_endpoint(self) -> Endpoint:
        """Where its peers and the controller connect."""
        endpoint = self.endpoint_of(BROKERS)
        if endpoint is None:
            raise ProtocolError(f"broker {self.broker_id} has no listener {BROKERS}")
        return endpoint


@frozen
class PartitionStateMessage(Message):
    """A partition as its state znode has it; `partition_epoch` is that znode's version.

    `unclean`: its leader is known to lack committed records, and is to lead all the same. `leaving`: who is no replica
    any more, and keeps its log until it is told to delete it.
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
    """A topic's identity, its settings (only those that differ from the defaults), and how many partitions it has."""

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
    """`error_code` is for the request as a whole."""

    error_code: int
    partitions: tuple[PartitionOutcome, ...] = ()


@frozen
class LeaderAndIsrRequest(Request):
    """Makes the addressee leader or follower. Repeated until answered; older epochs are ignored one by one."""

    controller_id: int
    controller_epoch: int
    partitions: tuple[PartitionStateMessage, ...]
    topics: tuple[TopicInfo, ...]
    live_brokers: tuple[BrokerInfo, ...]

    api = ApiKey.LEADER_AND_ISR
    response = LeaderAndIsrResponse
    between_brokers = True


#: Of a replica that is to stop whatever epoch it knows.
ANY_EPOCH = -1


@frozen
class StopReplicaPartition(Message):
    """`delete` also removes the log. A replica that knows a later epoch than `leader_epoch` is left alone."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


@frozen
class StopReplicaResponse(Response):
    """`error_code` is for the request as a whole."""

    error_code: int
    partitions: tuple[PartitionOutcome, ...] = ()


@frozen
class StopReplicaRequest(Request):
    """The addressee stops being a replica of these."""

    controller_id: int
    controller_epoch: int
    partitions: tuple[StopReplicaPartition, ...]

    api = ApiKey.STOP_REPLICA
    response = StopReplicaResponse
    between_brokers = True


@frozen
class UpdateMetadataResponse(Response):
    """`error_code` is for the request as a whole."""

    error_code: int


@frozen
class UpdateMetadataRequest(Request):
    """What the addressee tells clients from now on: all live brokers, and the partitions that changed.

    `deleted_topics` leave the picture, and so does what is not in `every_topic`: the ids of all topics by their names,
    "" where that is not known; None where only what has changed is told.
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
    """`remaining` are the partitions that the broker still leads."""

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
    """At which offset a leader epoch begins in a log."""

    epoch: int
    start_offset: int


@frozen
class LogEndAnswer(Message):
    """How far a log reaches, and its latest epochs, in their order. INELIGIBLE_REPLICA: it is gone (−1), or ends before
    what was known as committed.
    """

    topic: str
    partition: int
    error_code: int
    last_epoch: int = -1
    log_end_offset: int = -1
    epochs: tuple[EpochBegin, ...] = ()


@frozen
class LogEndsResponse(Response):
    """`error_code` is for the request as a whole."""

    error_code: int
    partitions: tuple[LogEndAnswer, ...] = ()


@frozen
class LogEndsRequest(Request):
    """The controller asks how far the addressee's logs reach, where no member of an ISR is sure to have everything."""

    controller_id: int
    controller_epoch: int
    partitions: tuple[DescribePartition, ...]

    api = ApiKey.LOG_ENDS
    response = LogEndsResponse
    between_brokers = True


#: What a controller asks of a broker: of a later one than has been heard, or not at all.
ControllerRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest | LogEndsRequest

#: Every request in here.
CONTROL_REQUESTS: tuple[type[Request], ...] = (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
    ControlledShutdownRequest,
    LogEndsRequest,
)
