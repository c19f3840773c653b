"""Settings of topics and brokers in memory, and minimal settings of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.zookeeper.broker_configs import ALL_BROKERS
from cluster.zookeeper.topic_configs import Change
from node.settings.broker_settings import BrokerSettings
from node.settings.dynamic_settings import DynamicSettings


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


class MemoryBrokers:
    """The settings of brokers that can change while they run, in memory instead of ZooKeeper, as one broker sees them.

    configs   the settings by name: a broker id or ALL_BROKERS
    """

    def __init__(self, static: BrokerSettings) -> None:
        self.settings = DynamicSettings(static)
        self.configs: dict[str, Mapping[str, str]] = {}

    async def read(self, name: str) -> Mapping[str, str]:
        return self.configs.get(name, {})

    async def change(self, name: str, change: Change) -> Mapping[str, str]:
        self.configs[name] = change(await self.read(name))
        own = str(self.settings.static.broker_id)
        self.settings.apply(self.configs.get(ALL_BROKERS, {}), self.configs.get(own, {}))
        return self.configs[name]


def broker_settings(broker_id: int = 1, **settings: Any) -> BrokerSettings:
    return BrokerSettings(broker_id=broker_id, log_dirs=("d",), zookeeper="h:1", **settings)
