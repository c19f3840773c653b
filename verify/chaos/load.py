"""What the clients of a run do: to which topics, how much of it, and in how many processes. Pure; travels as JSON."""

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
    """Which timestamps a topic's records get."""

    NOW = "now"
    SCATTERED = "scattered"
    """Up and down as they go: many equal, some far from the others."""


@dataclass(frozen=True, slots=True)
class LoadTopic:
    """A topic that is made for the run.

    share     of all records, beside the other topics' shares
    keys      so many different keys, by which records find their partition; 0: none, they are sent by partition
    configs   of the topic, above what `new_topic` sets
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
        """As the cluster is asked for it; acks=all needs all replicas but one."""
        # Small, so that there are closed segments to be damaged (F47).
        size = {"segment.bytes": str(1 << 20)}
        configs = {"min.insync.replicas": str(max(1, replicas - 1)), "retention.ms": "-1", **size, **self.configs}
        return NewTopic(self.name, self.partitions, replicas, configs=configs)


#: Every kind of topic that I1–I18 speak of, in eight partitions.
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
    """The whole of it; one of each kind of client runs in each process, and what is counted here stands beside it.

    rate                    records a second, of all producers together
    processes               that run clients, each of which may be killed
    producers               of a process, idempotent and with acks=all, besides one that is not
    unsafe_share            percent of the rate for those that are not idempotent, in turn with acks=1, all and 0
    groups                  that share the topics' partitions, by their strategies, with one member in each process
    group_prefix            of the names of all groups
    committers              groups of a process that have no members, and whose offsets are only committed and read
    election_interval_ms    between two preferred elections of all partitions; 0: none
    reassignment_interval_ms  between two reassignments of some partition; 0: none
    delivery_timeout_ms     for a record, and for every other operation, with all its repetitions
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

    def __post_init__(self) -> None:
        if not self.topics or self.rate < 1 or self.processes < 1 or self.producers < 1:
            raise ValueError("a load needs a topic, a rate, a process and a producer")

    @property
    def tps(self) -> tuple[TopicPartition, ...]:
        return tuple(tp for topic in self.topics for tp in topic.tps)

    @property
    def has_administrator(self) -> bool:
        """Whether somebody moves leaders or replicas all the while."""
        return self.election_interval_ms > 0 or self.reassignment_interval_ms > 0

    @property
    def member_groups(self) -> Mapping[str, str]:
        """The names of the groups with members, by strategy."""
        return {strategy: self.group_prefix + strategy for strategy in self.groups}

    def registers(self, process: int) -> list[str]:
        """The names of the groups without members of one process."""
        return [f"{self.group_prefix}registers-{process}-{number}" for number in range(self.committers)]

    def named_apart(self, prefix: str) -> Load:
        """The same under names that nobody else has, for a cluster that others use too."""
        topics = tuple(dataclasses.replace(topic, name=prefix + topic.name) for topic in self.topics)
        return dataclasses.replace(self, topics=topics, group_prefix=prefix)


@dataclass(frozen=True, slots=True)
class Part:
    """What one client process has to do.

    directory   of the run
    process     its number, from 0
    life        how often it was started before: names stay, producers' ids and committed offsets go on
    """

    load: Load
    servers: str
    directory: str
    process: int = 0
    life: int = 0
    seed: int = 0

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Part:
        """KeyError, TypeError, ValueError: it is none."""
        fields: dict[str, Any] = json.loads(text)
        load = fields.pop("load")
        topics = tuple(LoadTopic(**{**each, "times": Times(each["times"])}) for each in load.pop("topics"))
        groups, sizes = tuple(load.pop("groups")), tuple(load.pop("value_bytes"))
        return cls(load=Load(topics=topics, groups=groups, value_bytes=sizes, **load), **fields)
