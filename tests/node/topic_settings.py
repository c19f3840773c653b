"""Settings of topics in memory, and minimal settings of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.zookeeper.topic_configs import Change
from node.settings.broker_settings import BrokerSettings


class TopicSettings:
    """The settings of topics, in memory instead of ZooKeeper."""

    def __init__(self, topics: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.topics = dict(topics or {})

    async def read(self, topic: str) -> Mapping[str, str] | None:
        return self.topics.get(topic)

    async def change(self, topic: str, change: Change) -> Mapping[str, str] | None:
        if topic in self.topics:
            self.topics[topic] = change(self.topics[topic])
        return self.topics.get(topic)


def broker_settings(broker_id: int = 1, **settings: Any) -> BrokerSettings:
    return BrokerSettings(broker_id=broker_id, log_dirs=("d",), zookeeper="h:1", **settings)
