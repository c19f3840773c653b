"""Validation of commands on topics: plan the assignment that a command leads to, or raise the error to answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Set

from cluster.controller.replicas.capacity import BrokerCapacity
from cluster.controller.replicas.placement import (
    NO_LOAD,
    NO_RACKS,
    BrokerLoad,
    check_assignment,
    check_replicas,
    place_more_replicas,
    place_replicas,
)
from cluster.state import ReplicaAssignment, TopicAssignment
from cluster.uuids import random_uuid
from cluster.zookeeper.znodes import encode_topic
from node.metadata.internal_topics import INTERNAL_TOPICS, InternalTopicRules, check_new_partitions
from storage.configs.log_config import LogConfig
from tidelog.errors import (
    BrokerError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    NoReassignmentInProgressError,
    PolicyViolationError,
    TopicAlreadyExistsError,
)
from tidelog.model import TopicPartition, validate_topic
from tidelog.protocol.messages import NewTopic
from tidelog.protocol.partition_messages import NewPartitions, WantedReplicas
from tidelog.quantities import count_of, format_size

#: One znode holds the assignment of all partitions of a topic. ZooKeeper closes the connection if a request has
#: more than 1 MiB (`jute.maxbuffer`), and a request has other parts too.
MAX_PARTITIONS = 10_000
MAX_ASSIGNMENT_BYTES = 512 << 10


def plan_topic(
    new: NewTopic,
    *,
    existing: Collection[str],
    brokers: Collection[int],
    num_partitions: int,
    replication_factor: int,
    defaults: LogConfig,
    internal: InternalTopicRules,
    rng: random.Random,
    load: BrokerLoad = NO_LOAD,
    racks: Mapping[int, str] = NO_RACKS,
) -> TopicAssignment:
    """Return the topic to create, with a new id, its replicas and its own settings, or raise the BrokerError to answer.

    existing            the names of all topics; a name that differs from one only in '.' and '_' is refused
    brokers             the brokers that may get replicas
    num_partitions      used if the request has −1, and so is `replication_factor`
    defaults            the broker's defaults of topic settings, with which the topic's settings are validated
    rng                 chooses the topic id, and the broker at which placement begins
    load                what the brokers have of the other topics
    racks               the racks of those brokers that have one
    """
    validate_topic(new.name)
    if new.name in existing:
        raise TopicAlreadyExistsError(f"topic {new.name!r} already exists")
    flat = new.name.replace(".", "_")
    for other in (*existing, *INTERNAL_TOPICS):
        if other != new.name and other.replace(".", "_") == flat:
            raise InvalidTopicError(
                f"topic {new.name!r} differs from {other!r} only in '.' and '_'; choose another name"
            )
    configs = dict(new.configs or {})
    LogConfig.from_topic_configs(configs, defaults)  # raises if a setting is invalid
    if new.assignment is not None:
        if new.num_partitions != -1 or new.replication_factor != -1:
            raise InvalidRequestError(
                f"topic {new.name!r}: a manual assignment must not be combined with a number of partitions or a"
                " replication factor"
            )
        partitions = check_assignment(new.assignment, brokers)
    else:
        count = num_partitions if new.num_partitions == -1 else new.num_partitions
        factor = replication_factor if new.replication_factor == -1 else new.replication_factor
        if count > MAX_PARTITIONS:
            raise InvalidPartitionsError(f"a topic has at most {MAX_PARTITIONS} partitions, not {count}")
        partitions = place_replicas(brokers, count, factor, rng, load, racks)
    if len(partitions) > MAX_PARTITIONS:
        raise InvalidPartitionsError(f"a topic has at most {MAX_PARTITIONS} partitions, not {len(partitions)}")
    internal.check_creation(new.name, configs, partitions)
    return fit_for_znode(TopicAssignment(new.name, random_uuid(rng), partitions, configs))


def plan_partitions(
    new: NewPartitions,
    assignment: TopicAssignment,
    brokers: Collection[int],
    load: BrokerLoad = NO_LOAD,
    racks: Mapping[int, str] = NO_RACKS,
) -> TopicAssignment:
    """Return the topic's assignment with partitions added up to `new.total_count`, or raise the BrokerError to answer.

    The new partitions have as many replicas as partition 0: those that the request names, or else replicas that are
    placed on `brokers`, which have `load` of all topics and are in `racks`. Internal topics are refused.
    """
    check_new_partitions(new.name)
    existing = {number: assignment.assigned(number).target for number in assignment.partitions}
    if new.total_count > MAX_PARTITIONS:
        raise InvalidPartitionsError(f"a topic has at most {MAX_PARTITIONS} partitions, not {new.total_count}")
    factor = len(existing[0])
    if new.assignment is not None:
        racks = NO_RACKS  # a manual assignment needs none
    added = place_more_replicas(brokers, existing, new.total_count, factor, load, racks)
    if new.assignment is not None:
        if len(new.assignment) != len(added):
            raise InvalidReplicaAssignmentError(
                f"topic {new.name!r}: the assignment has {len(new.assignment)} partitions, but {len(added)} are added"
            )
        added = check_assignment(new.assignment, brokers, first=len(existing), factor=factor)
    return fit_for_znode(
        assignment.reassigned({number: ReplicaAssignment(replicas) for number, replicas in added.items()})
    )


def fit_for_znode(assignment: TopicAssignment) -> TopicAssignment:
    """Return the assignment as it is. Raise PolicyViolationError if it is too large for one znode."""
    size = len(encode_topic(assignment))
    if size > MAX_ASSIGNMENT_BYTES:
        partitions = count_of(len(assignment.partitions), "partition")
        raise PolicyViolationError(
            f"topic {assignment.topic!r}: the assignment of {partitions} would have {format_size(size)} in ZooKeeper, "
            f"and may have {format_size(MAX_ASSIGNMENT_BYTES)}; choose fewer partitions or replicas, or move fewer "
            "partitions at once"
        )
    return assignment


def plan_within(
    capacity: BrokerCapacity,
    topic: str,
    brokers: Set[int],
    plan: Callable[[Set[int]], TopicAssignment],
    before: TopicAssignment | None = None,
) -> TopicAssignment:
    """Return the plan on those of `brokers` that have room for it.

    Brokers that would get too many partitions are left out, and the others are planned for again. Raise
    PolicyViolationError, about the first plan, if the other brokers are too few or the plan needs these brokers.

    plan     returns the topic's assignment on some of the brokers
    before   the assignment of an existing topic, whose partitions stay
    """
    first: BrokerError | None = None
    while True:
        try:
            planned = plan(brokers)
        except (InvalidReplicationFactorError, InvalidReplicaAssignmentError):
            if first is not None:
                raise first from None
            raise
        existing = before.partitions.keys() if before is not None else ()
        replicas = [each for number in planned.partitions.keys() - existing for each in planned.partitions[number]]
        full = capacity.without_room(replicas)
        if not full:
            return planned
        first = first or capacity.refusal(topic, replicas)
        brokers = brokers - full


def plan_reassignment(
    wanted: WantedReplicas, assignment: TopicAssignment, brokers: Collection[int], internal: InternalTopicRules
) -> ReplicaAssignment:
    """Return the partition's assignment after the request, or raise the BrokerError to answer.

    If `wanted.replicas` is None, the partition goes back to the replicas from before the reassignment in progress.
    Raise NoReassignmentInProgressError if there is none. Named replicas must be among `brokers`.
    """
    now = assignment.assigned(wanted.partition)
    if wanted.replicas is not None:
        check_replicas(wanted.partition, wanted.replicas, brokers)
        tp = TopicPartition(wanted.topic, wanted.partition)
        internal.check_reassignment(tp, assignment.configs, now.target, wanted.replicas)
        return now.toward(wanted.replicas)
    if not now.moving:
        raise NoReassignmentInProgressError(f"{wanted.topic}-{wanted.partition} is not being reassigned")
    return now.toward(now.origin)
