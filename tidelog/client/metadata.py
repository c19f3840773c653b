"""Model the client's knowledge of brokers and leaders, as an immutable value that each answer replaces.

Any broker may be asked, and some brokers know less than others: a broker that has just started, or one that is cut off
from the controller. Therefore answers are merged, and a partition's leader epoch never decreases while the topic id
stays the same.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from tidelog.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from tidelog.model import NO_LEADER, Endpoint, TopicPartition
from tidelog.protocol.messages import MetadataResponse, PartitionMetadata, TopicMetadata


@dataclass(frozen=True, slots=True)
class Leader:
    """A partition's leader and its leader epoch.

    topic_id   distinguishes topics of the same name; the comparison of leaders ignores it
    """

    broker_id: int
    epoch: int
    topic_id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic; `partitions` by number, each with its newest known metadata."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as the newest answers show it.

    controller_id   −1: no controller is known
    brokers         the addresses of the live brokers by id
    topics          the topics that a broker has described
    refused         the topics whose latest answer was an error, with the error's code; `topics` may still have them
    version         counts the merged answers; 0 means that no broker has answered yet
    racks           the racks of those of `brokers` that have one, by id
    """

    cluster_id: str = ""
    controller_id: int = NO_LEADER
    brokers: Mapping[int, Endpoint] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    version: int = 0
    racks: Mapping[int, str] = field(default_factory=dict)

    def leader_of(self, topic: str, partition: int) -> Leader | None:
        """Return the leader; None if the partition is unknown or has no leader, or its leader is no known broker."""
        view = self.topics.get(topic)
        known = view.partitions.get(partition) if view else None
        if view is None or known is None or known.leader not in self.brokers:
            return None
        return Leader(known.leader, known.leader_epoch, view.topic_id)

    def has_newer_leader(self, topic: str, partition: int, leader_epoch: int) -> bool:
        """Return whether the known leader of the partition has a later epoch than `leader_epoch`."""
        leader = self.leader_of(topic, partition)
        return leader is not None and leader.epoch > leader_epoch

    def partition_count(self, topic: str) -> int:
        """Return the topic's known number of partitions; 0 for an unknown topic."""
        view = self.topics.get(topic)
        return len(view.partitions) if view else 0

    def merged(self, answer: MetadataResponse) -> ClusterView:
        """Return the view after `answer`, with `version` + 1.

        The answer's brokers (if it names any) and controller replace the known ones. Topics that the answer lacks or
        refuses stay. While a topic's id is the same, each partition keeps the metadata with the larger leader epoch.
        """
        topics, refused = dict(self.topics), dict(self.refused)
        for topic in answer.topics:
            if topic.error_code in (0, LeaderNotAvailableError.code) and topic.partitions:
                topics[topic.name] = _merged_topic(topics.get(topic.name), topic)
                refused.pop(topic.name, None)
            elif topic.error_code:
                refused[topic.name] = topic.error_code
        brokers = {each.broker_id: Endpoint(each.host, each.port) for each in answer.brokers}
        return replace(
            self,
            cluster_id=answer.cluster_id or self.cluster_id,
            controller_id=answer.controller_id,
            brokers=brokers or self.brokers,
            racks={each.broker_id: each.rack for each in answer.brokers if each.rack} if brokers else self.racks,
            topics=topics,
            refused=refused,
            version=self.version + 1,
        )

    def only(self, topics: Container[str]) -> ClusterView:
        """Return the view with only these topics, described or refused."""
        return replace(
            self,
            topics={name: view for name, view in self.topics.items() if name in topics},
            refused={name: code for name, code in self.refused.items() if name in topics},
        )

    def without(self, topic: str) -> ClusterView:
        """Return the view without a topic that does not exist, or that this client may not see.

        `refused` then has the topic: with its known error code, else with UNKNOWN_TOPIC_OR_PARTITION.
        """
        topics = {name: view for name, view in self.topics.items() if name != topic}
        refused = {topic: UnknownTopicOrPartitionError.code, **self.refused}
        return replace(self, topics=topics, refused=refused)


def _merged_topic(old: TopicView | None, topic: TopicMetadata) -> TopicView:
    new = {each.partition: each for each in topic.partitions}
    if old is not None and old.topic_id == topic.topic_id:
        for number, known in old.partitions.items():
            if number not in new or new[number].leader_epoch < known.leader_epoch:
                new[number] = known
    return TopicView(topic.name, topic.topic_id, topic.is_internal, new)


def no_such_partition(tp: TopicPartition, count: int) -> UnknownTopicOrPartitionError:
    """Return the error of a call that names a partition beyond the topic's `count`."""
    known = "its only partition is 0" if count == 1 else f"its partitions are 0 to {count - 1}"
    return UnknownTopicOrPartitionError(f"topic {tp.topic!r} has no partition {tp.partition}: {known}")
