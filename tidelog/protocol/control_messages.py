"""Define the requests between brokers and the controller: leadership, stopped replicas, metadata, shutdown, log ends.

The form is that of `tidelog.protocol.messages`. Only the REPLICATION listener accepts these requests.
"""

from __future__ import annotations

from dataclasses import field

from tidelog.errors import ProtocolError
from tidelog.frozen_dataclass import frozen, since
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
    """A live broker and its listeners. `epoch` is the broker epoch (the czxid of its registration).

    `shutting_down` is True from the broker's ControlledShutdown request on. `rack` is None if the broker has none.
    """

    broker_id: int
    epoch: int
    listeners: tuple[ListenerAddress, ...]
    shutting_down: bool = False
    rack: str | None = field(default=None, metadata=since(1))

    def endpoint_of(self, listener: str) -> Endpoint | None:
        """Return the address of the listener with this name; None if the broker has none."""
        return next((Endpoint(each.host, each.port) for each in self.listeners if each.name == listener), None)

    @property
    def replication_endpoint(self) -> Endpoint:
        """The address of the listener REPLICATION, for brokers and the controller; ProtocolError if there is none."""
        endpoint = self.endpoint_of(BROKERS)
        if endpoint is None:
            raise ProtocolError(f"broker {self.broker_id} has no listener {BROKERS}")
        return endpoint


@frozen
class PartitionStateMessage(Message):
    """A partition's state as its state znode in ZooKeeper has it, with the replicas that the controller knows.

    leader            −1 for none
    partition_epoch   the version of the state znode
    unclean           the leader is known to lack committed records, and leads nevertheless
    leaving           brokers that are no longer replicas, but keep their log until a StopReplica request deletes it
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
    """A topic's id, the settings that were set for this topic, and its number of partitions."""

    name: str
    topic_id: str
    configs: dict[str, str]
    partition_count: int


@frozen
class PartitionOutcome(Message):
    """The outcome for one partition; an `error_code` of 0 means that the request was carried out for it."""

    topic: str
    partition: int
    error_code: int


@frozen
class LeaderAndIsrResponse(Response):
    """The answer, with one entry for each partition of the request, in order.

    A non-zero `error_code` rejects the request as a whole (a stale controller epoch); then there are no entries.
    """

    error_code: int
    partitions: tuple[PartitionOutcome, ...] = ()


@frozen
class LeaderAndIsrRequest(Request):
    """Makes the addressee leader or follower of the partitions, and opens or creates their logs.

    The controller sends the request again until the addressee answers. A state that is older than the addressee's own
    gets an error in its entry, and changes nothing. `topics` describes the topics of `partitions`.
    """

    controller_id: int
    controller_epoch: int
    partitions: tuple[PartitionStateMessage, ...]
    topics: tuple[TopicInfo, ...]
    live_brokers: tuple[BrokerInfo, ...]

    api = ApiKey.LEADER_AND_ISR
    response = LeaderAndIsrResponse
    versions = (0, 1)
    between_brokers = True


#: The epoch in a StopReplica request that stops a replica whatever leader epoch it knows.
ANY_EPOCH = -1


@frozen
class StopReplicaPartition(Message):
    """A replica to stop; `delete` also removes its log.

    A replica with a later leader epoch than `leader_epoch` is not stopped, and answers FENCED_LEADER_EPOCH; ANY_EPOCH
    stops every replica.
    """

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


@frozen
class StopReplicaResponse(Response):
    """The answer, with one entry for each partition of the request, in order.

    A non-zero `error_code` rejects the request as a whole (a stale controller epoch); then there are no entries.
    """

    error_code: int
    partitions: tuple[PartitionOutcome, ...] = ()


@frozen
class StopReplicaRequest(Request):
    """Stops replicas of the addressee, and deletes some.

    A replica that the addressee does not have counts as stopped.
    """

    controller_id: int
    controller_epoch: int
    partitions: tuple[StopReplicaPartition, ...]

    api = ApiKey.STOP_REPLICA
    response = StopReplicaResponse
    between_brokers = True


@frozen
class UpdateMetadataResponse(Response):
    """The answer; a non-zero `error_code` means that nothing was applied, because the controller epoch is stale."""

    error_code: int


@frozen
class UpdateMetadataRequest(Request):
    """Updates the metadata that the addressee gives to clients.

    live_brokers     all live brokers; they replace the known ones
    partitions       partitions whose state is new or has changed
    topics           topics that are new or have changed
    deleted_topics   topics to remove
    every_topic      the id of every topic by name ("" if not known), and all other topics are removed; None removes
                     only `deleted_topics`
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
    versions = (0, 1)
    between_brokers = True


@frozen
class ControlledShutdownResponse(Response):
    """The answer; `remaining` are the partitions that the broker still leads.

    A partition remains if no other replica may lead it, or if its move is not stored in time. A non-zero `error_code`
    means that this broker is not the controller (any more), or that the broker epoch is stale.
    """

    error_code: int
    remaining: tuple[DescribePartition, ...] = ()


@frozen
class ControlledShutdownRequest(Request):
    """Sent by a broker that shuts down: the controller moves the leadership of its partitions to other replicas.

    The answer comes when the moves are stored and the new leaders have confirmed, or after the controller's time limit.
    """

    broker_id: int
    broker_epoch: int

    api = ApiKey.CONTROLLED_SHUTDOWN
    response = ControlledShutdownResponse
    between_brokers = True


@frozen
class EpochBegin(Message):
    """A leader epoch of a log, and the offset at which it begins there."""

    epoch: int
    start_offset: int


@frozen
class LogEndAnswer(Message):
    """The end of one replica's log, and its latest leader epochs (at most 32), the oldest first.

    INELIGIBLE_REPLICA: the broker has no log of the partition (`log_end_offset` is −1), or the log ends before the high
    watermark that the broker had recorded before its start. `last_epoch` is −1 if the log has no epoch.
    """

    topic: str
    partition: int
    error_code: int
    last_epoch: int = -1
    log_end_offset: int = -1
    epochs: tuple[EpochBegin, ...] = ()


@frozen
class LogEndsResponse(Response):
    """The answer, with one entry for each partition of the request, in order.

    A non-zero `error_code` rejects the request as a whole (a stale controller epoch); then there are no entries.
    """

    error_code: int
    partitions: tuple[LogEndAnswer, ...] = ()


@frozen
class LogEndsRequest(Request):
    """Asks for the ends of the addressee's logs (KIP-966), also of partitions without a leader.

    The controller compares them to choose a leader when every ISR member may have lost records.
    """

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
