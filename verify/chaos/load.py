"""Describe the load of a run: its topics, rate and client processes. This module does no I/O."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidelog.model import TopicPartition
from tidelog.protocol.messages import NewTopic

_HOUR_MS = 3_600_000


class Times(StrEnum):
    """The kind of timestamps that the records of a topic get."""

    NOW = "now"
    SCATTERED = "scattered"
    """The timestamps go up and down. Many are equal, and some are far from the others."""


@dataclass(frozen=True, slots=True)
class LoadTopic:
    """A topic that is created for the run.

    share     the share of all records, relative to the shares of the other topics
    keys      the number of distinct keys, which determine the partition; 0: records have no key and an explicit
              partition
    times     the kind of the records' timestamps
    configs   the topic configs, in addition to those that `new_topic` sets; the values here take precedence
    """

    name: str
    partitions: int
    share: int = 1
    keys: int = 0
    times: Times = Times.NOW
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def tps(self) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(self.name, number) for number in range(self.partitions))

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "")

    def new_topic(self, replicas: int) -> NewTopic:
        """Return the topic for a CreateTopics request with `replicas` replicas per partition.

        min.insync.replicas is one less, but at least 1. Records are kept without a time limit, in segments of 1 MiB,
        unless `configs` says otherwise.
        """
        # Segments are small, so that there are closed segments to damage (F47).
        size = {"segment.bytes": str(1 << 20)}
        configs = {"min.insync.replicas": str(max(1, replicas - 1)), "retention.ms": "-1", **size, **self.configs}
        return NewTopic(self.name, self.partitions, replicas, configs=configs)


#: Every kind of topic that the invariants I1–I18 need, in eight partitions.
TOPICS = (
    LoadTopic("orders", 3, share=5),
    LoadTopic("clicks", 2, share=3, keys=500),
    LoadTopic("scattered", 1, share=2, times=Times.SCATTERED),
    LoadTopic("stamped", 1, share=1, configs={"message.timestamp.type": "LogAppendTime"}),
    LoadTopic(
        "latest",
        1,
        share=1,
        keys=200,
        configs={"cleanup.policy": "compact", "segment.bytes": "262144", "min.cleanable.dirty.ratio": "0.1"},
    ),
)


@dataclass(frozen=True, slots=True)
class Load:
    """The complete load.

    Each process of our own clients also runs four readers (tail, random seeks, resets, direct) and one client that
    looks up offsets. Process 0 also runs the administrator, if one of its two intervals is not 0. The constructor
    raises ValueError without a topic, rate, process or producer.

    The processes of Kafka clients have the numbers after those of our own clients. Each runs one idempotent producer,
    one reader, one client that looks up offsets, and one member of each group. Each process has the same share of the
    rate.

    rate                    records per second of all producers together
    processes               the number of processes of our own clients, each of which may be killed
    producers               the number of idempotent producers with acks=all per process of our own clients
    unsafe_share            percent of the rate for the producers that are not idempotent, one per process of our own
                            clients; 0: none. Processes 0, 1 and 2 use acks=1, acks=all and acks=0, and so on in turn
    groups                  assignment strategies, each with one group; each process runs one member of each group
    group_prefix            the prefix of the names of all groups and of the topic without records
    committers              the number of groups per process without members, whose offsets are only committed and read
    election_interval_ms    the interval of preferred elections of all partitions; 0: none
    reassignment_interval_ms  the interval of reassignments of one partition; 0: none
    delivery_timeout_ms     the time limit of a record's delivery and of most other operations, including retries
    value_bytes             the least and greatest size of most values; one in fifty values is larger
    kafka_processes         the number of processes whose clients are those of confluent-kafka
    idle_partitions         the partitions of one more topic, which gets no records; 0: no such topic
    """

    topics: tuple[LoadTopic, ...] = TOPICS
    rate: int = 500
    processes: int = 2
    producers: int = 2
    unsafe_share: int = 5
    groups: tuple[str, ...] = ("range", "cooperative-sticky")
    group_prefix: str = "chaos-"
    committers: int = 2
    election_interval_ms: int = 0
    reassignment_interval_ms: int = 0
    delivery_timeout_ms: int = 15_000
    value_bytes: tuple[int, int] = (12, 300)
    kafka_processes: int = 0
    idle_partitions: int = 0

    def __post_init__(self) -> None:
        if not self.topics or self.rate < 1 or self.processes < 1 or self.producers < 1:
            raise ValueError("a load needs a topic, a rate, a process and a producer")

    @property
    def tps(self) -> tuple[TopicPartition, ...]:
        return tuple(tp for topic in self.topics for tp in topic.tps)

    @property
    def all_topics(self) -> tuple[LoadTopic, ...]:
        """Return the topics to create: those of the clients, and the one without records if there is one."""
        idle = LoadTopic(self.group_prefix + "idle", self.idle_partitions)
        return (*self.topics, idle) if self.idle_partitions else self.topics

    @property
    def all_processes(self) -> int:
        return self.processes + self.kafka_processes

    @property
    def has_administrator(self) -> bool:
        """Return whether an administrator moves leaders or replicas during the run."""
        return self.election_interval_ms > 0 or self.reassignment_interval_ms > 0

    @property
    def member_groups(self) -> Mapping[str, str]:
        """Return the name of each group with members, by assignment strategy."""
        return {strategy: self.group_prefix + strategy for strategy in self.groups}

    def registers(self, process: int) -> list[str]:
        """Return the names of one process's groups without members."""
        return [f"{self.group_prefix}registers-{process}-{number}" for number in range(self.committers)]

    def named_apart(self, prefix: str) -> Load:
        """Return the same load with `prefix` before each topic's name and as the prefix of all groups, for a cluster
        that others use too.
        """
        topics = tuple(dataclasses.replace(topic, name=prefix + topic.name) for topic in self.topics)
        return dataclasses.replace(self, topics=topics, group_prefix=prefix)


@dataclass(frozen=True, slots=True)
class Part:
    """The work of one client process.

    servers     the bootstrap servers; for a process of Kafka clients those of the Kafka listeners
    directory   the directory of the run
    process     the number of the process, from 0
    life        how often the process was restarted; clients keep their names, but record ids and committed values
                differ in each life
    seed        the seed of the run, from which clients derive their random choices together with process and life
    """

    load: Load
    servers: str
    directory: str
    process: int = 0
    life: int = 0
    seed: int = 0

    @property
    def has_kafka_clients(self) -> bool:
        return self.process >= self.load.processes

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Part:
        """Return the work that `to_json` wrote.

        Raise KeyError, TypeError, AttributeError or ValueError for any other text.
        """
        fields: dict[str, Any] = json.loads(text)
        load = fields.pop("load")
        topics = tuple(LoadTopic(**{**each, "times": Times(each["times"])}) for each in load.pop("topics"))
        groups, sizes = tuple(load.pop("groups")), tuple(load.pop("value_bytes"))
        return cls(load=Load(topics=topics, groups=groups, value_bytes=sizes, **load), **fields)
