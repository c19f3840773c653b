"""The cluster's brokers, topics and leaders as the controller has sent them to this broker.

Clients get their metadata from this cache, and leaders get the registrations of followers from it. The cache may be
outdated. Epochs fence every action that is based on outdated entries.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from node.metadata.internal_topics import is_internal
from node.runtime.condition import Condition
from tidelog.errors import (
    BrokerError,
    BrokerNotAvailableError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import NO_LEADER, validate_topic
from tidelog.protocol.control_messages import BrokerInfo, PartitionStateMessage, TopicInfo, UpdateMetadataRequest
from tidelog.protocol.listeners import CLIENTS
from tidelog.protocol.messages import BrokerAddress, MetadataResponse, PartitionMetadata, TopicMetadata

#: The limit for one topic is above what its znode of 1 MB can list; the limit for all is above what ZooKeeper can hold.
_MAX_PARTITIONS, _MAX_PARTITIONS_OF_ALL = 1 << 17, 1 << 20


@dataclass(slots=True)
class _Description:
    """The description of a topic for the clients of one listener. It is valid while `brokers` are live.

    partitions   by number, as they were described last
    changed      the numbers of the partitions to describe again
    topic        the whole topic; None after a change
    """

    brokers: Mapping[int, BrokerInfo]
    changed: set[int]
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    topic: TopicMetadata | None = None


@dataclass(slots=True)
class CachedTopic:
    """One topic: its id, its settings, and the known states of its partitions.

    `partition_count` includes partitions whose state is not known yet. Responses to clients list these partitions too,
    because a producer chooses a partition from the key and the number of partitions.

    descriptions   by listener, so that a response describes only what has changed since the last one
    """

    name: str
    topic_id: str = ""
    configs: Mapping[str, str] = field(default_factory=dict)
    partition_count: int = 0
    partitions: dict[int, PartitionStateMessage] = field(default_factory=dict)
    descriptions: dict[str, _Description] = field(default_factory=dict)

    def set_state(self, state: PartitionStateMessage) -> None:
        """Replace the state of a partition."""
        self.partitions[state.partition] = state
        for description in self.descriptions.values():
            description.changed.add(state.partition)
            description.topic = None


class MetadataCache:
    """The cache. `brokers` maps the ids of live brokers to their registrations, and is replaced as a whole.

    registrations
                 the registration epoch of each live broker that is not shutting down. The controller removes a broker
                 that is shutting down from ISRs, and such a broker must not rejoin
    controller_id, controller_epoch
                 those of the latest controller that has sent a request; −1: none yet
    informed     a controller has sent the names of all topics since this broker started, so that other topics do not
                 exist
    progress     notified after each update
    """

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = NO_LEADER
        self.controller_epoch = -1
        self.brokers: Mapping[int, BrokerInfo] = {}
        self.registrations: Mapping[int, int] = {}
        self.informed = False
        self.progress = Condition()
        self._deletion_listeners: list[Callable[[tuple[str, ...]], object]] = []
        self._name_listeners: list[Callable[[str, str], object]] = []
        self._topics: dict[str, CachedTopic] = {}
        self._departed: dict[int, tuple[BrokerInfo, int]] = {}

    def subscribe(
        self,
        *,
        on_deleted: Callable[[tuple[str, ...]], object],
        on_named: Callable[[str, str], object] = lambda topic, topic_id: None,
    ) -> None:
        """Have the functions called after each update with news about topics.

        on_deleted   gets the names of deleted topics
        on_named     gets the name and the id of each topic that is new in the cache or has a new id
        """
        self._deletion_listeners.append(on_deleted)
        self._name_listeners.append(on_named)

    def admit_controller(self, controller_id: int, controller_epoch: int) -> bool:
        """Record the sender of a control request. Return False if a controller of a later epoch has been seen.

        In that case the sender is a deposed controller, and the request must be refused.
        """
        if controller_epoch < self.controller_epoch:
            return False
        self.controller_id, self.controller_epoch = controller_id, controller_epoch
        return True

    def set_brokers(self, live: Iterable[BrokerInfo], now_ms: int) -> bool:
        """Replace `brokers` and `registrations`, and return whether a live broker or its registration has changed."""
        brokers = {broker.broker_id: broker for broker in live}
        if brokers == self.brokers:
            return False
        departed = {id_: (broker, now_ms) for id_, broker in self.brokers.items()}
        self._departed = {id_: each for id_, each in (self._departed | departed).items() if id_ not in brokers}
        self.brokers = brokers
        self.registrations = {id_: broker.epoch for id_, broker in brokers.items() if not broker.shutting_down}
        return True

    def departed(self, since_ms: int, listener: str) -> list[BrokerAddress]:
        """Return the addresses for this listener of brokers that were live at `since_ms` or later and are not now."""
        return [
            BrokerAddress(id_, endpoint.host, endpoint.port, broker.rack)
            for id_, (broker, at_ms) in sorted(self._departed.items())
            if at_ms >= since_ms and (endpoint := broker.endpoint_of(listener)) is not None
        ]

    def update(self, request: UpdateMetadataRequest) -> list[TopicInfo]:
        """Apply a request of an admitted controller, and return the topics whose settings have changed.

        Topics that the request does not name stay, unless it lists every topic (`every_topic`) without them. A request
        may delete a topic and announce a new topic of the same name. Afterwards `progress` and the subscribers are
        notified. Raise InvalidRequestError, and apply nothing, if one topic or all topics together would have too many
        partitions, or a count is negative. Each metadata response to a client lists all partitions.
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
                    deleted += (info.name,)  # deleted and created again before this broker learned of the deletion
                topic = self._topics[info.name] = CachedTopic(info.name, info.topic_id)
                named[info.name] = info.topic_id
            if topic.partition_count != info.partition_count:
                topic.partition_count = info.partition_count
                topic.descriptions.clear()
            if topic.configs != info.configs:
                topic.configs = info.configs
                reconfigured.append(info)
        for state in request.partitions:
            topic = self._topics.get(state.topic)
            if topic is None:
                topic = self._topics[state.topic] = CachedTopic(state.topic)
            topic.set_state(state)
        self.progress.notify()
        if deleted:
            for on_deleted in self._deletion_listeners:
                on_deleted(deleted)
        for name, topic_id in named.items():
            for on_named in self._name_listeners:
                on_named(name, topic_id)
        return reconfigured

    def _raise_if_too_many(self, request: UpdateMetadataRequest) -> None:
        grown: dict[str, int] = {}
        for info in request.topics:
            if not 0 <= info.partition_count <= _MAX_PARTITIONS:
                raise InvalidRequestError(
                    f"topic {info.name!r}: {info.partition_count} partitions: must be between 0 and {_MAX_PARTITIONS}"
                )
            topic = self._topics.get(info.name)
            if topic is None or info.partition_count > topic.partition_count:
                grown[info.name] = info.partition_count
        if not grown:
            return  # the usual case
        gone, every = request.deleted_topics, request.every_topic
        stay = (name for name in self._topics if name not in gone and (every is None or name in every))
        counts = {name: self._topics[name].partition_count for name in stay} | grown
        if (total := sum(counts.values())) > _MAX_PARTITIONS_OF_ALL:
            raise InvalidRequestError(
                f"{len(counts)} topics have {total} partitions: must be at most {_MAX_PARTITIONS_OF_ALL}"
            )

    @property
    def partitions(self) -> Iterator[PartitionStateMessage]:
        """Yield the state of every partition whose state is known."""
        return (state for topic in self._topics.values() for state in topic.partitions.values())

    def topic(self, name: str) -> CachedTopic | None:
        """Return the topic, or None if it is not in the cache."""
        return self._topics.get(name)

    def partition_state(self, topic: str, partition: int) -> PartitionStateMessage | None:
        """Return the state of the partition, or None if it is not known."""
        cached = self._topics.get(topic)
        return None if cached is None else cached.partitions.get(partition)

    def exists(self, topic: str, partition: int) -> bool:
        """Return whether the topic has this partition, even if the partition's state is not known yet."""
        cached = self._topics.get(topic)
        return cached is not None and (partition in cached.partitions or 0 <= partition < cached.partition_count)

    def fewest_replicas(self, topic: str) -> int | None:
        """Return the smallest number of replicas of any known partition of the topic; None if no state is known."""
        cached = self._topics.get(topic)
        states = () if cached is None else cached.partitions.values()
        return min((len(state.replicas) for state in states), default=None)

    def describe(self, topics: tuple[str, ...] | None, listener: str = CLIENTS) -> MetadataResponse:
        """Return the response to a client that has sent its request to this listener; None stands for all topics.

        The response has the brokers' addresses of that listener, and omits brokers that do not have it. An unknown
        topic has UNKNOWN_TOPIC_OR_PARTITION, or LEADER_NOT_AVAILABLE until this broker is `informed`. A name that no
        topic may have has INVALID_TOPIC_EXCEPTION. Raise BrokerNotAvailableError for all topics if this broker may not
        know all, because the client would take the others for deleted.

        A topic without an error is the same object as in the previous response for this listener, unless the topic or
        the live brokers have changed.
        """
        if topics is None and not self.informed:
            raise BrokerNotAvailableError(
                "this broker has not received the names of all topics from the controller yet; try another broker"
            )
        names = sorted(self._topics) if topics is None else list(dict.fromkeys(topics))
        reachable = {
            broker_id: BrokerAddress(broker_id, endpoint.host, endpoint.port, broker.rack)
            for broker_id, broker in sorted(self.brokers.items())
            if (endpoint := broker.endpoint_of(listener)) is not None
        }
        return MetadataResponse(
            self.cluster_id,
            self.controller_id if self.controller_id in reachable else NO_LEADER,
            tuple(reachable.values()),
            tuple(self._describe_topic(name, listener, reachable) for name in names),
        )

    def _describe_topic(self, name: str, listener: str, reachable: Container[int]) -> TopicMetadata:
        topic = self._topics.get(name)
        if topic is None:
            return TopicMetadata(name, self._error_of_missing(name).code)
        known = topic.descriptions.get(listener)
        if known is None or known.brokers is not self.brokers:
            everything = {*topic.partitions, *range(topic.partition_count)}
            known = topic.descriptions[listener] = _Description(self.brokers, everything)
        if known.topic is None:
            described = known.partitions
            for number in known.changed:
                described[number] = self._describe_partition(number, topic.partitions.get(number), reachable)
            known.changed.clear()
            partitions = tuple(map(described.__getitem__, sorted(described)))
            known.topic = TopicMetadata(name, 0, topic.topic_id, is_internal(name), partitions)
        return known.topic

    def _error_of_missing(self, name: str) -> BrokerError:
        try:
            validate_topic(name)
        except InvalidTopicError as error:
            return error
        return UnknownTopicOrPartitionError() if self.informed else LeaderNotAvailableError()

    def _describe_partition(
        self, number: int, state: PartitionStateMessage | None, reachable: Container[int]
    ) -> PartitionMetadata:
        if state is None:
            return PartitionMetadata(number, LeaderNotAvailableError.code, NO_LEADER, -1, (), ())
        # If the leader's broker is not live, the client gets no leader, so that it waits for the election instead of
        # connecting to a dead broker.
        if state.leader in reachable:
            error_code, leader = 0, state.leader
        else:
            gone = state.leader not in self.brokers
            error_code, leader = (LeaderNotAvailableError if gone else ListenerNotFoundError).code, NO_LEADER
        return PartitionMetadata(
            number,
            error_code,
            leader,
            state.leader_epoch,
            state.replicas,
            state.isr,
            tuple(replica for replica in state.replicas if replica not in self.brokers),
        )
