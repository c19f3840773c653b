"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of Kafka clients, over the broker's own handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cluster.zookeeper.topic_configs import Change
from node.handlers.configs import MAX_RESOURCES, Configs
from node.metadata.metadata_cache import MetadataCache
from tests.node.kafka.admin_client import KafkaClient
from tests.node.topic_settings import MemoryBrokers, TopicSettings, broker_settings
from tidelog.clock import SystemClock
from tidelog.errors import InvalidConfigError, InvalidRequestError, UnknownTopicOrPartitionError
from tidelog.protocol.admin_messages import ConfigOp, ConfigResourceType, ConfigSource, ConfigType
from tidelog.protocol.kafka.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tidelog.protocol.messages import ApiKey

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


def client(topics: TopicSettings) -> KafkaClient:
    configs = Configs(MemoryBrokers(broker_settings()), topics, MetadataCache("c"), SystemClock())
    table: dict[ApiKey, Any] = {
        ApiKey.DESCRIBE_CONFIGS: configs.describe,
        ApiKey.ALTER_CONFIGS: configs.replace,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter,
    }
    return KafkaClient(lambda request, _: table[request.api](request, -1), MetadataCache("c"))


async def describe(topics: TopicSettings, version: int, kind: int, name: str, *keys: str, **options: bool) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys or None)
    (found,) = (await client(topics).ask(DescribeConfigsRequest(resources=(resource,), **options), version)).results
    assert (found.resource_type, found.resource_name) == (kind, name)
    return found


def replacing(name: str, kind: int = TOPIC, **configs: str | None) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(AlterableConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()),
    )


async def replace(topics: TopicSettings, version: int, *resources: AlterConfigsResource, dry: bool = False) -> Any:
    request = AlterConfigsRequest(resources=resources, validate_only=dry)
    return (await client(topics).ask(request, version)).responses


@pytest.mark.parametrize("version", range(1, 5))
async def test_settings_come_with_sources_types_and_explanations(version: int) -> None:
    topics = TopicSettings({"t": {"segment.bytes": "5000"}})
    options = {"include_documentation": True} if version >= 3 else {}
    found = await describe(topics, version, TOPIC, "t", "segment.bytes", include_synonyms=True, **options)
    (entry,) = found.configs
    assert (entry.name, entry.value, entry.read_only, entry.is_sensitive) == ("segment.bytes", "5000", False, False)
    assert entry.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("segment.bytes", "5000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    assert entry.config_type == (ConfigType.INT if version >= 3 else 0)
    assert bool(entry.documentation) == (version >= 3)


async def test_nothing_unasked_is_described() -> None:
    topics = TopicSettings({"t": {}})
    everything = await describe(topics, 4, TOPIC, "t")
    assert len(everything.configs) > 20
    assert all(each.synonyms == () and each.documentation is None for each in everything.configs)
    empty = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=())
    (found,) = (await client(topics).ask(DescribeConfigsRequest(resources=(empty,)), 4)).results
    assert found == everything, "an empty list of names means all, as null does"


async def test_settings_of_brokers_are_their_own() -> None:
    found = await describe(TopicSettings(), 4, BROKER, "1")
    assert found.error_code == 0 and found.configs
    assert {each.name: each.read_only for each in found.configs}.items() >= {
        ("max.connections", False),
        ("broker.id", True),
    }
    assert (await describe(TopicSettings(), 4, BROKER, "")).configs == ()
    other = await describe(TopicSettings(), 4, BROKER, "2")
    assert other.error_code == InvalidRequestError.code and other.error_message and not other.configs
    (refused,) = await replace(TopicSettings(), 2, replacing("1", BROKER, num_partitions="5"))
    assert refused.error_code == InvalidConfigError.code and refused.error_message


@pytest.mark.parametrize("version", range(2))
async def test_single_settings_are_changed_and_others_stay(version: int) -> None:
    topics = TopicSettings({"t": {"segment.bytes": "5000", "retention.ms": "9"}})

    async def alter(name: str, key: str, operation: int, value: str | None, *, dry: bool = False) -> Any:
        change = IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
        resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=(change,))
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=dry)
        (altered,) = (await client(topics).ask(request, version)).responses
        assert (altered.resource_type, altered.resource_name) == (TOPIC, name)
        assert bool(altered.error_code) == bool(altered.error_message)
        return altered.error_code

    assert await alter("t", "segment.bytes", ConfigOp.SET, "6000", dry=True) == 0
    assert topics.topics["t"]["segment.bytes"] == "5000", "the change was only validated"
    assert await alter("t", "segment.bytes", ConfigOp.SET, "6000") == 0
    assert await alter("t", "retention.ms", ConfigOp.DELETE, None) == 0
    assert await alter("t", "cleanup.policy", ConfigOp.APPEND, "compact") == 0
    assert topics.topics["t"] == {"segment.bytes": "6000", "cleanup.policy": "delete,compact"}
    assert await alter("t", "cleanup.policy", ConfigOp.SUBTRACT, "delete") == 0
    assert topics.topics["t"]["cleanup.policy"] == "compact"
    assert await alter("t", "segment.bytes", ConfigOp.SET, "x") == InvalidConfigError.code
    assert await alter("t", "segment.bytes", ConfigOp.SET, None) == InvalidRequestError.code
    assert await alter("t", "segment.bytes", 9, "1") == InvalidRequestError.code
    assert await alter("u", "segment.bytes", ConfigOp.SET, "6000") == UnknownTopicOrPartitionError.code


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_replaces_all_settings_of_a_topic(version: int) -> None:
    topics = TopicSettings({"t": {"segment.bytes": "5000", "retention.ms": "9"}, "u": {"retention.ms": "1"}})
    before = dict(topics.topics)
    (checked,) = await replace(topics, version, replacing("t", retention_ms="10"), dry=True)
    assert checked.error_code == 0 and topics.topics == before
    results = await replace(
        topics, version, replacing("t", retention_ms="10"), replacing("u"), replacing("gone", retention_ms="1")
    )
    assert [(each.resource_name, each.error_code) for each in results] == [
        ("t", 0),
        ("u", 0),
        ("gone", UnknownTopicOrPartitionError.code),
    ]
    assert topics.topics == {"t": {"retention.ms": "10"}, "u": {}}


async def test_refused_replacements_change_nothing() -> None:
    topics = TopicSettings({"t": {"retention.ms": "9"}, "u": {"retention.ms": "9"}})
    results = await replace(
        topics,
        2,
        replacing("t", retention_ms=None),
        replacing("u", retention_ms="x"),
        replacing("t", 7, retention_ms="1"),
    )
    assert [each.error_code for each in results] == [
        InvalidRequestError.code,
        InvalidConfigError.code,
        InvalidRequestError.code,
    ]
    assert all(each.error_message for each in results)
    assert topics.topics == {"t": {"retention.ms": "9"}, "u": {"retention.ms": "9"}}


async def test_replacement_deletes_what_another_client_has_just_added() -> None:
    class Busy(TopicSettings):
        async def change(self, topic: str, change: Change) -> Mapping[str, str] | None:
            self.topics[topic] = {**self.topics[topic], "retention.ms": "1"}
            return await super().change(topic, change)

    topics = Busy({"t": {"segment.bytes": "5000"}})
    (replaced,) = await replace(topics, 2, replacing("t", max_message_bytes="10000"))
    assert replaced.error_code == 0
    assert topics.topics == {"t": {"max.message.bytes": "10000"}}


async def test_resource_or_setting_named_twice_is_refused() -> None:
    topics = TopicSettings({"t": {}, "u": {}, "v": {}})
    setting = AlterableConfig(name="retention.ms", value="5")
    twice = AlterConfigsResource(resource_type=TOPIC, resource_name="u", configs=(setting, setting))
    valid = replacing("v", retention_ms="7")
    results = await replace(topics, 2, replacing("t", retention_ms="1"), twice, valid, replacing("t"))
    assert [each.error_code for each in results] == [
        InvalidRequestError.code,
        InvalidRequestError.code,
        0,
        InvalidRequestError.code,
    ]
    assert topics.topics == {"t": {}, "u": {}, "v": {"retention.ms": "7"}}


async def test_request_refused_as_a_whole_names_each_resource() -> None:
    names = [f"t{number}" for number in range(MAX_RESOURCES + 1)]
    results = await replace(TopicSettings(), 2, *map(replacing, names))
    assert [each.resource_name for each in results] == names
    assert {each.error_code for each in results} == {InvalidRequestError.code} and results[0].error_message
    resources = tuple(
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names
    )
    found = (await client(TopicSettings()).ask(DescribeConfigsRequest(resources=resources), 1)).results
    assert {each.error_code for each in found} == {InvalidRequestError.code} and len(found) == len(names)
