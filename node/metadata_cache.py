"""What this broker believes of the cluster, as the controller told it: brokers, topics, leaders.

It is a picture for clients and a source of registrations for the leader's rules. It may be old; whoever acts on
it is fenced by epochs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from node.internal_topics import is_internal
from node.runtime.condition import Condition
from tidelog.errors import (
    BrokerNotAvailableError,
    InvalidRequestError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import NO_LEADER
from tidelog.protocol.control_messages import BrokerInfo, PartitionStateMessage, TopicInfo, UpdateMetadataRequest
from tidelog.protocol.listeners import CLIENTS
from tidelog.protocol.messages import BrokerAddress, MetadataResponse, PartitionMetadata, TopicMetadata

#: Of one topic: more than its znode can list, which is a megabyte at most. Of all: more than ZooKeeper bears.
_MAX_PARTITIONS, _MOST_OF_ALL = 1 << 17, 1 << 20


@dataclass(slots=True)
class CachedTopic:
    """One topic: its identity, its settings, and what is known of its partitions.

    `partition_count`: how many it has. Of some nothing may have been told yet: what clients are told must name them all
    the same, since who writes chooses a partition by a key and their number.
    """

    name: str
    topic_id: str = ""
    configs: Mapping[str, str] = field(default_factory=dict)
    partition_count: int = 0
    partitions: dict[int, PartitionStateMessage] = field(default_factory=dict)


class MetadataCache:
    """The picture. `brokers` maps the ids of live brokers to what is known of them, and is replaced whole.

    informed   a controller has told of all topics since this broker started, so what is not here is not there
    progress   made with each update
    on_deleted told of topics that are gone
    on_named   told of each topic that is new here, and of its id
    """

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = NO_LEADER
        self.controller_epoch = -1
        self.brokers: Mapping[int, BrokerInfo] = {}
        self.informed = False
        self.progress = Condition()
        self.on_deleted: Callable[[tuple[str, ...]], object] = lambda topics: None
        self.on_named: Callable[[str, str], object] = lambda topic, topic_id: None
        self._topics: dict[str, CachedTopic] = {}

    def admit_controller(self, controller_id: int, controller_epoch: int) -> bool:
        """False where a later controller has already been heard: the request is a dead one's."""
        if controller_epoch < self.controller_epoch:
            return False
        self.controller_id, self.controller_epoch = controller_id, controller_epoch
        return True

    def set_brokers(self, live: Iterable[BrokerInfo]) -> bool:
        """These brokers are live, and no others. True where that is news."""
        brokers = {broker.broker_id: broker for broker in live}
        if brokers == self.brokers:
            return False
        self.brokers = brokers
        return True

    def update(self, request: UpdateMetadataRequest) -> list[TopicInfo]:
        """Apply what an admitted controller says. A deleted topic may stand beside a new one of the same name.

        Returns the topics whose settings are others than were known. InvalidRequestError where there are more
        partitions than there can be: what clients ask for would be made of all of them.
        """
        self._raise_if_too_many(request)
        reconfigured = []
        named: dict[str, str] = {}
        deleted = request.deleted_topics
        if request.every_topic is not None:
            deleted += tuple(name for name in self._topics if name not in request.every_topic and name not in deleted)
            self.informed = True
        for name in deleted:
            self._topics.pop(name, None)
        for info in request.topics:
            topic = self._topics.get(info.name)
            if topic is None or topic.topic_id != info.topic_id:
                if topic is not None and topic.topic_id:
                    deleted += (info.name,)  # and made anew before this broker heard of it
                topic = self._topics[info.name] = CachedTopic(info.name, info.topic_id)
                named[info.name] = info.topic_id
            topic.partition_count = info.partition_count
            if topic.configs != info.configs:
                topic.configs = info.configs
                reconfigured.append(info)
        for state in request.partitions:
            self._topics.setdefault(state.topic, CachedTopic(state.topic)).partitions[state.partition] = state
        self.progress.made()
        if deleted:
            self.on_deleted(deleted)
        for name, topic_id in named.items():
            self.on_named(name, topic_id)
        return reconfigured

    def _raise_if_too_many(self, request: UpdateMetadataRequest) -> None:
        grown: dict[str, int] = {}
        for info in request.topics:
            if not 0 <= info.partition_count <= _MAX_PARTITIONS:
                raise InvalidRequestError(f"{info.name} has {info.partition_count} partitions, it is said")
            topic = self._topics.get(info.name)
            if topic is None or info.partition_count > topic.partition_count:
                grown[info.name] = info.partition_count
        if not grown:
            return  # as nearly always
        gone, every = request.deleted_topics, request.every_topic
        stay = (name for name in self._topics if name not in gone and (every is None or name in every))
        counts = {name: self._topics[name].partition_count for name in stay} | grown
        if (total := sum(counts.values())) > _MOST_OF_ALL:
            raise InvalidRequestError(f"{len(counts)} topics have {total} partitions, it is said")

    @property
    def partitions(self) -> Iterator[PartitionStateMessage]:
        """The state of every partition that is known."""
        return (state for topic in self._topics.values() for state in topic.partitions.values())

    def topic(self, name: str) -> CachedTopic | None:
        """What is known of one topic."""
        return self._topics.get(name)

    def partition_state(self, topic: str, partition: int) -> PartitionStateMessage | None:
        """What is known of one partition."""
        cached = self._topics.get(topic)
        return None if cached is None else cached.partitions.get(partition)

    def exists(self, topic: str, partition: int) -> bool:
        """Whether the topic has this partition, also where nothing is known of it yet."""
        cached = self._topics.get(topic)
        return cached is not None and (partition in cached.partitions or 0 <= partition < cached.partition_count)

    def fewest_replicas(self, topic: str) -> int | None:
        """Return the smallest number of replicas of any partition of the topic; None if no partition is known."""
        cached = self._topics.get(topic)
        states = () if cached is None else cached.partitions.values()
        return min((len(state.replicas) for state in states), default=None)

    def describe(self, topics: tuple[str, ...] | None, listener: str = CLIENTS) -> MetadataResponse:
        """The answer to a client that asks for these topics, or for all, and that came through this listener.

        It is told the brokers' addresses for that listener, and those brokers alone that have it.
        BrokerNotAvailableError where it asks for all and this broker may know of some: the others would pass for gone.
        """
        if topics is None and not self.informed:
            raise BrokerNotAvailableError("this broker has not been told of all topics yet; others may have been")
        names = sorted(self._topics) if topics is None else list(dict.fromkeys(topics))
        reachable = {
            broker_id: BrokerAddress(broker_id, endpoint.host, endpoint.port)
            for broker_id, broker in sorted(self.brokers.items())
            if (endpoint := broker.endpoint_of(listener)) is not None
        }
        return MetadataResponse(
            self.cluster_id,
            self.controller_id if self.controller_id in reachable else NO_LEADER,
            tuple(reachable.values()),
            tuple(self._describe_topic(name, reachable) for name in names),
        )

    def _describe_topic(self, name: str, reachable: Container[int]) -> TopicMetadata:
        topic = self._topics.get(name)
        if topic is None:
            error = UnknownTopicOrPartitionError if self.informed else LeaderNotAvailableError
            return TopicMetadata(name, error.code)
        described = {number: self._describe_partition(state, reachable) for number, state in topic.partitions.items()}
        for number in range(topic.partition_count):
            if number not in described:
                described[number] = PartitionMetadata(number, LeaderNotAvailableError.code, NO_LEADER, -1, (), ())
        partitions = tuple(described[number] for number in sorted(described))
        return TopicMetadata(name, 0, topic.topic_id, is_internal(name), partitions)

    def _describe_partition(self, state: PartitionStateMessage, reachable: Container[int]) -> PartitionMetadata:
        # A leader whose broker is gone is no leader to a client: it waits for the election instead of dialling.
        if state.leader in reachable:
            error_code, leader = 0, state.leader
        else:
            gone = state.leader not in self.brokers
            error_code, leader = (LeaderNotAvailableError if gone else ListenerNotFoundError).code, NO_LEADER
        return PartitionMetadata(
            state.partition,
            error_code,
            leader,
            state.leader_epoch,
            state.replicas,
            state.isr,
            tuple(replica for replica in state.replicas if replica not in self.brokers),
        )
