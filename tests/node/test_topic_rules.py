"""Which topics may be created, and extended."""

from __future__ import annotations

import random

import pytest

from cluster.state import TopicAssignment
from node.topic_rules import plan_partitions, plan_topic
from storage.configs.log_config import LogConfig
from tidelog.errors import InvalidConfigError, InvalidPartitionsError
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.messages import NewTopic
from tidelog.partition_messages import NewPartitions


def test_settings_that_contradict_the_brokers_own_are_refused() -> None:
    """No replica could follow them, so that the topic would be there and have no partition."""
    defaults = LogConfig(max_compaction_lag_ms=1000)

    def plan(**configs: str) -> None:
        new = NewTopic("t", configs={name.replace("_", "."): value for name, value in configs.items()})
        plan_topic(
            new,
            existing=(),
            brokers=(1,),
            num_partitions=1,
            replication_factor=1,
            defaults=defaults,
            source=random.Random(0),
        )

    plan(min_compaction_lag_ms="1000")
    plan(min_compaction_lag_ms="5000", max_compaction_lag_ms="6000")
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms=5000 is more than max.*=1000"):
        plan(min_compaction_lag_ms="5000")


def test_the_offsets_topic_gets_no_more_partitions() -> None:
    assignment = TopicAssignment(OFFSETS_TOPIC, "id", {0: (1,)})
    with pytest.raises(InvalidPartitionsError, match="groups would be looked for in other partitions"):
        plan_partitions(NewPartitions(OFFSETS_TOPIC, 2), assignment, (1,))
