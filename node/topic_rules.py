"""Which topics may be created, and as what."""

from __future__ import annotations

import random
from collections.abc import Collection

from cluster.placement import check_assignment, place_replicas
from cluster.state import TopicAssignment
from cluster.topic_nodes import new_topic_id
from storage.config import LogConfig
from tidelog.errors import InvalidPartitionsError, InvalidRequestError, InvalidTopicError, TopicAlreadyExistsError
from tidelog.messages import NewTopic
from tidelog.model import validate_topic

#: One znode holds the assignment of all partitions, and has to stay below ZooKeeper's 1 MB.
MAX_PARTITIONS = 10_000


def plan_topic(
    new: NewTopic,
    *,
    existing: Collection[str],
    brokers: Collection[int],
    num_partitions: int,
    replication_factor: int,
    defaults: LogConfig,
    source: random.Random,
) -> TopicAssignment:
    """The topic to create; raises the BrokerError to answer with.

    `num_partitions`, `replication_factor` and the settings in `defaults` are the broker's; `source` chooses where
    placing begins.
    """
    validate_topic(new.name)
    if new.name in existing:
        raise TopicAlreadyExistsError(f"topic {new.name!r} exists")
    flat = new.name.replace(".", "_")
    for other in existing:
        if other.replace(".", "_") == flat:
            raise InvalidTopicError(f"topic {new.name!r} differs from {other!r} only in '.' and '_'")
    configs = dict(new.configs or {})
    LogConfig.from_topic_configs(configs, defaults)  # raises what is wrong with them
    if new.assignment is not None:
        if new.num_partitions != -1 or new.replication_factor != -1:
            raise InvalidRequestError("a manual assignment says both how many partitions and how many replicas")
        partitions = check_assignment(new.assignment, brokers)
    else:
        count = num_partitions if new.num_partitions == -1 else new.num_partitions
        factor = replication_factor if new.replication_factor == -1 else new.replication_factor
        if count > MAX_PARTITIONS:
            raise InvalidPartitionsError(f"a topic has at most {MAX_PARTITIONS} partitions, not {count}")
        partitions = place_replicas(brokers, count, factor, source)
    if len(partitions) > MAX_PARTITIONS:
        raise InvalidPartitionsError(f"a topic has at most {MAX_PARTITIONS} partitions, not {len(partitions)}")
    return TopicAssignment(new.name, new_topic_id(), partitions, configs)
