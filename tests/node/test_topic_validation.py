"""Rules for the creation of topics."""

from __future__ import annotations

import random

import pytest

from node.controller.topic_validation import plan_topic
from node.metadata.internal_topics import InternalTopicRules
from storage.configs.log_config import LogConfig
from tidelog.errors import InvalidConfigError
from tidelog.protocol.messages import NewTopic


def test_settings_that_contradict_the_brokers_defaults_are_refused() -> None:
    """No replica could use these settings, so that the topic would exist without partitions."""
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
            internal=InternalTopicRules(1, 1024, defaults),
            rng=random.Random(0),
        )

    plan(min_compaction_lag_ms="1000")
    plan(min_compaction_lag_ms="5000", max_compaction_lag_ms="6000")
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms=5000 is more than max.*=1000"):
        plan(min_compaction_lag_ms="5000")
