"""The description of settings by a broker, the changes that it accepts, and how changes take effect."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.zookeeper.store import OutcomeUnknownError
from cluster.zookeeper.topic_configs import Change
from node.handlers.configs import Configs
from node.metadata.metadata_cache import MetadataCache
from node.settings.broker_settings import BrokerSettings
from storage.configs.log_config import LogConfig
from tests.node.client_requests import TP, fetch_request
from tests.node.memory_cluster import TOPIC_ID, MemoryCluster
from tests.node.memory_node import Node
from tests.node.topic_settings import MemoryBrokers, TopicSettings, broker_settings
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.clock import SystemClock
from tidelog.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from tidelog.protocol.admin_messages import (
    AlteredConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigEntry,
    ConfigOp,
    ConfigQuery,
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribedConfigs,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.control_messages import BrokerInfo, ListenerAddress, TopicInfo, UpdateMetadataRequest

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


async def describe(configs: Configs, kind: int, name: str, *keys: str, **options: bool) -> DescribedConfigs:
    request = DescribeConfigsRequest((ConfigQuery(kind, name, keys or None),), **options)
    (described,) = (await configs.describe(request, -1)).resources
    return described


async def alter(configs: Configs, kind: int, name: str, *changes: ConfigChange, dry: bool = False) -> AlteredConfigs:
    request = IncrementalAlterConfigsRequest((ConfigAlteration(kind, name, changes),), dry)
    (altered,) = (await configs.alter(request, -1)).resources
    return altered


def by_name(described: DescribedConfigs) -> dict[str, ConfigEntry]:
    assert described.error_code == 0, described.error_message
    return {entry.name: entry for entry in described.entries}


def loaded(tmp_path: Path, text: str) -> BrokerSettings:
    (tmp_path / "b.toml").write_text(f'broker_id = 1\nlog_dirs = "d"\nzookeeper = "h:1"\n{text}')
    return BrokerSettings.load(tmp_path / "b.toml")


# --- describing --------------------------------------------------------------------------------------------


async def test_all_brokers_together_have_no_settings_at_first() -> None:
    configs = Configs(MemoryBrokers(broker_settings()), TopicSettings(), MetadataCache("c"), SystemClock())
    assert by_name(await describe(configs, BROKER, "")) == {}


async def test_settings_of_a_topic_come_with_their_sources(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "log_retention_hours = 2\n")
    configs = Configs(
        MemoryBrokers(settings), TopicSettings({"t": {"segment.bytes": "5000"}}), MetadataCache("c"), SystemClock()
    )
    entries = by_name(await describe(configs, TOPIC, "t", include_synonyms=True))
    assert (entries["segment.bytes"].value, entries["segment.bytes"].source) == (
        "5000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )
    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("7200000", ConfigSource.STATIC_BROKER_CONFIG)
    assert retention.synonyms[0].name == "log.retention.hours"
    assert (entries["flush.ms"].source, entries["flush.ms"].is_read_only) == (ConfigSource.DEFAULT_CONFIG, False)


async def test_description_contains_only_the_requested_fields() -> None:
    configs = Configs(MemoryBrokers(broker_settings()), TopicSettings({"t": {}}), MetadataCache("c"), SystemClock())
    (entry,) = (await describe(configs, TOPIC, "t", "flush.ms", "no.such")).entries
    assert (entry.name, entry.synonyms, entry.documentation) == ("flush.ms", (), None)
    (entry,) = (await describe(configs, TOPIC, "t", "flush.ms", include_documentation=True)).entries
    assert "flushed" in (entry.documentation or "")


async def test_settings_of_a_broker_come_from_its_file_and_the_defaults(tmp_path: Path) -> None:
    text = 'log_retention_hours = 2\nnum_partitions = 7\nlog_cleanup_policy = ["compact", "delete"]\n'
    configs = Configs(MemoryBrokers(loaded(tmp_path, text)), TopicSettings(), MetadataCache("c"), SystemClock())
    entries = by_name(await describe(configs, BROKER, "1", include_synonyms=True, include_documentation=True))
    described = {name: (entries[name].value, entries[name].source) for name in entries}
    assert described["num.partitions"] == ("7", ConfigSource.STATIC_BROKER_CONFIG)
    assert described["log.retention.hours"] == ("2", ConfigSource.STATIC_BROKER_CONFIG)
    assert described["log.cleanup.policy"] == ("compact,delete", ConfigSource.STATIC_BROKER_CONFIG)
    assert described["broker.id"] == ("1", ConfigSource.STATIC_BROKER_CONFIG)
    assert described["log.level"] == ("INFO", ConfigSource.DEFAULT_CONFIG)
    assert described["log.segment.bytes"] == (str(1 << 30), ConfigSource.DEFAULT_CONFIG)
    assert "log.retention.ms" not in entries, "the file gives this setting under another name"
    assert [synonym.value for synonym in entries["num.partitions"].synonyms] == ["7", "1"]
    assert all(entry.documentation for entry in entries.values())
    assert [name for name in ("num.partitions", "log.segment.bytes", "min.insync.replicas", "max.connections")
            if entries[name].is_read_only] == ["num.partitions", "min.insync.replicas"]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nowhere", UnknownTopicOrPartitionError),
        (TOPIC, "../t", InvalidTopicError),
        (TOPIC, "", InvalidTopicError),
        (BROKER, "2", InvalidRequestError),
        (8, "t", InvalidRequestError),
    ],
)
async def test_resource_types_without_settings_are_refused(kind: int, name: str, error: Any) -> None:
    configs = Configs(MemoryBrokers(broker_settings(1)), TopicSettings({"t": {}}), MetadataCache("c"), SystemClock())
    described = await describe(configs, kind, name)
    assert (described.error_code, described.entries) == (error.code, ())
    assert described.error_message


async def test_request_with_too_many_resources_is_refused_as_a_whole() -> None:
    configs = Configs(MemoryBrokers(broker_settings()), TopicSettings({"t": {}}), MetadataCache("c"), SystemClock())
    many = 1001
    with pytest.raises(InvalidRequestError, match="1001 resources"):
        await configs.describe(DescribeConfigsRequest((ConfigQuery(TOPIC, "t"),) * many), -1)
    with pytest.raises(InvalidRequestError, match="1001 resources"):
        await configs.alter(IncrementalAlterConfigsRequest((ConfigAlteration(TOPIC, "t", ()),) * many), -1)


# --- changing ----------------------------------------------------------------------------------------------


async def test_changes_are_written_together_or_not_at_all() -> None:
    topics = TopicSettings({"t": {"retention.ms": "5"}})
    configs = Configs(MemoryBrokers(broker_settings()), topics, MetadataCache("c"), SystemClock())
    drop = ConfigChange("retention.ms", None, ConfigOp.DELETE)
    assert (await alter(configs, TOPIC, "t", drop, ConfigChange("flush.ms", "9"))).error_code == 0
    assert topics.topics == {"t": {"flush.ms": "9"}}
    refused = await alter(configs, TOPIC, "t", ConfigChange("flush.ms", "8"), ConfigChange("segment.bytes", "13"))
    assert (refused.error_code, topics.topics) == (InvalidConfigError.code, {"t": {"flush.ms": "9"}})
    assert refused.error_message == "segment.bytes=13: must be at least 14"


@on_virtual_time
async def test_answer_waits_until_this_broker_has_the_settings_or_a_bound() -> None:
    topics, metadata = TopicSettings({"t": {}}), MetadataCache("c")

    def controller_sends(flush_ms: str) -> None:
        described = (TopicInfo("t", TOPIC_ID, {"flush.ms": flush_ms}, 1),)
        metadata.update(UpdateMetadataRequest(1, 1, (), (), described))

    controller_sends("1")
    configs = Configs(MemoryBrokers(broker_settings()), topics, metadata, SystemClock())
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answer = asyncio.ensure_future(alter(configs, TOPIC, "t", ConfigChange("flush.ms", "9")))
    await asyncio.sleep(0.1)
    assert topics.topics == {"t": {"flush.ms": "9"}} and not answer.done()
    controller_sends("9")
    assert (await answer).error_code == 0
    assert loop.time() - begun < 0.11, "the answer waits for the controller, not for a timer"
    assert (await alter(configs, TOPIC, "t", ConfigChange("flush.ms", "8"))).error_code == 0
    assert 0.4 < loop.time() - begun < 1, "there is no controller"


async def test_validate_only_refuses_invalid_settings_and_writes_nothing() -> None:
    topics = TopicSettings({"t": {}})
    configs = Configs(MemoryBrokers(broker_settings()), topics, MetadataCache("c"), SystemClock())
    assert (await alter(configs, TOPIC, "t", ConfigChange("flush.ms", "9"), dry=True)).error_code == 0
    refused = await alter(configs, TOPIC, "t", ConfigChange("flush.ms", "x"), dry=True)
    assert (refused.error_code, topics.topics) == (InvalidConfigError.code, {"t": {}})
    nowhere = await alter(configs, TOPIC, "nowhere", ConfigChange("flush.ms", "9"), dry=True)
    assert nowhere.error_code == UnknownTopicOrPartitionError.code


async def test_each_resource_of_a_request_has_its_own_outcome() -> None:
    topics = TopicSettings({"a": {}, "b": {}})
    change = (ConfigChange("flush.ms", "9"),)
    resources = tuple(ConfigAlteration(TOPIC, name, change) for name in ("a", "nowhere", "b", "b"))
    answer = await Configs(MemoryBrokers(broker_settings()), topics, MetadataCache("c"), SystemClock()).alter(
        IncrementalAlterConfigsRequest(resources), -1
    )
    assert [(each.resource_name, each.error_code) for each in answer.resources] == [
        ("a", 0),
        ("nowhere", UnknownTopicOrPartitionError.code),
        ("b", InvalidRequestError.code),
        ("b", InvalidRequestError.code),
    ]
    assert topics.topics == {"a": {"flush.ms": "9"}, "b": {}}


@pytest.mark.parametrize(
    ("broker", "setting", "error", "message"),
    [
        ("1", "num.partitions", InvalidConfigError, "num.partitions: a broker takes this setting from its file"),
        ("", "min.insync.replicas", InvalidConfigError, "min.insync.replicas: a broker takes this setting from its"),
        ("1", "log.retention.hours", InvalidConfigError, "log.retention.hours: a broker takes this setting"),
        ("1", "log.retention.ms", InvalidConfigError, "log.retention.ms=x: must be a whole number"),
        ("1", "max.connections", InvalidConfigError, "max.connections=x: must be a whole number"),
        ("1", "leader.replication.throttled.rate", InvalidConfigError, "throttled.rate=x: must be a whole number"),
        ("1", "no.such", InvalidConfigError, "no broker setting 'no.such'"),
        ("2", "num.partitions", InvalidRequestError, "broker '2': broker 1 knows only its own settings"),
    ],
)
async def test_setting_that_a_running_broker_cannot_change_is_refused(
    broker: str, setting: str, error: Any, message: str
) -> None:
    brokers = MemoryBrokers(broker_settings(1))
    configs = Configs(brokers, TopicSettings(), MetadataCache("c"), SystemClock())
    for dry in (True, False):
        refused = await alter(configs, BROKER, broker, ConfigChange(setting, "x"), dry=dry)
        assert refused.error_code == error.code
        assert message in (refused.error_message or "")
    assert not brokers.configs and brokers.settings.current == brokers.settings.static


async def test_settings_of_this_broker_hide_those_of_all_and_of_its_file(tmp_path: Path) -> None:
    brokers = MemoryBrokers(loaded(tmp_path, "max_connections = 70\n"))
    configs = Configs(brokers, TopicSettings({"t": {}}), MetadataCache("c"), SystemClock())

    async def source(kind: int, resource: str, name: str) -> tuple[str | None, int]:
        (entry,) = (await describe(configs, kind, resource, name)).entries
        return entry.value, entry.source

    file, of_all, own = (
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
    )
    assert (await alter(configs, BROKER, "", ConfigChange("max.connections", "5"), dry=True)).error_code == 0
    assert await source(BROKER, "1", "max.connections") == ("70", file), "the change was only validated"
    for name in ("max.connections", "log.retention.ms"):
        assert (await alter(configs, BROKER, "", ConfigChange(name, "50000"))).error_code == 0
    assert (await alter(configs, BROKER, "1", ConfigChange("max.connections", "6"))).error_code == 0
    assert await source(BROKER, "1", "max.connections") == ("6", own)
    assert await source(BROKER, "", "max.connections") == ("50000", of_all)
    assert await source(TOPIC, "t", "retention.ms") == ("50000", of_all)
    (entry,) = (await describe(configs, BROKER, "1", "max.connections", include_synonyms=True)).entries
    assert [each.value for each in entry.synonyms] == ["6", "50000", "70", "10000"]
    assert (brokers.settings.current.max_connections, brokers.settings.current.topic_defaults.retention_ms) == (
        6,
        50000,
    )
    assert (await alter(configs, BROKER, "1", ConfigChange("max.connections", None, ConfigOp.DELETE))).error_code == 0
    assert brokers.settings.current.max_connections == 50000
    append = ConfigChange("log.cleanup.policy", "compact", ConfigOp.APPEND)
    assert (await alter(configs, BROKER, "1", append)).error_code == 0
    assert await source(TOPIC, "t", "cleanup.policy") == ("compact,delete", own)


async def test_setting_that_is_not_set_can_be_deleted_whatever_its_name() -> None:
    brokers = MemoryBrokers(broker_settings())
    configs = Configs(brokers, TopicSettings(), MetadataCache("c"), SystemClock())
    for name in ("leader.replication.throttled.rate", "zookeeper.connect", "num.partitions", "no.such"):
        for broker in ("1", ""):
            assert (await alter(configs, BROKER, broker, ConfigChange(name, None, ConfigOp.DELETE))).error_code == 0
    assert brokers.settings.current == brokers.settings.static


async def test_settings_that_another_program_wrote_wrongly_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    brokers = MemoryBrokers(broker_settings())
    lags = {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"}
    brokers.configs["1"] = {"no.such": "1", "num.partitions": "3", "max.connections": "-1", **lags}
    configs = Configs(brokers, TopicSettings(), MetadataCache("c"), SystemClock())
    assert (await alter(configs, BROKER, "", ConfigChange("max.connections.per.ip", "7"))).error_code == 0
    current = brokers.settings.current
    assert (current.max_connections_per_ip, current.max_connections, current.num_partitions) == (7, 10_000, 1)
    assert current.topic_defaults.min_compaction_lag_ms == 9
    assert [name for name in brokers.configs["1"] if name in caplog.text] == [
        "no.such",
        "num.partitions",
        "max.connections",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
    ]


async def test_settings_requests_fail_without_zookeeper() -> None:
    class Silent(TopicSettings):
        async def read(self, topic: str) -> Mapping[str, str] | None:
            raise OutcomeUnknownError("no answer")

        async def change(self, topic: str, change: Change) -> Mapping[str, str] | None:
            raise OutcomeUnknownError("no answer")

    configs = Configs(MemoryBrokers(broker_settings()), Silent(), MetadataCache("c"), SystemClock())
    assert (await describe(configs, TOPIC, "t")).error_code == RequestTimedOutError.code
    altered = await alter(configs, TOPIC, "t", ConfigChange("flush.ms", "9"))
    assert (altered.error_code, altered.error_message) == (RequestTimedOutError.code, "ZooKeeper: no answer")


@on_virtual_time
async def test_items_not_started_by_the_deadline_are_not_carried_out() -> None:
    begun: list[str] = []

    class Away(TopicSettings):
        async def read(self, topic: str) -> Mapping[str, str] | None:
            begun.append(topic)
            await asyncio.sleep(2)
            raise OutcomeUnknownError("no answer")

        async def change(self, topic: str, change: Change) -> Mapping[str, str] | None:
            return await self.read(topic)

    clock = VirtualClock()
    configs = Configs(MemoryBrokers(broker_settings()), Away(), MetadataCache("c"), clock)
    names = [f"t{number}" for number in range(1000)]
    queries = tuple(ConfigQuery(TOPIC, name) for name in names)
    described = await configs.describe(DescribeConfigsRequest(queries), clock.monotonic_ms() + 3000)
    assert {each.error_code for each in described.resources} == {RequestTimedOutError.code}
    assert begun == names[:200]
    begun.clear()
    alterations = tuple(ConfigAlteration(TOPIC, name, (ConfigChange("flush.ms", "9"),)) for name in names)
    altered = await configs.alter(IncrementalAlterConfigsRequest(alterations), clock.monotonic_ms() + 3000)
    assert {each.error_code for each in altered.resources} == {RequestTimedOutError.code}
    assert begun == names[:200]


# --- taking effect -----------------------------------------------------------------------------------------


async def send_settings(cluster: MemoryCluster, topic_id: str = TOPIC_ID, **settings: str) -> None:
    """Send changed settings to the brokers, as the controller does."""
    info = TopicInfo(TP.topic, topic_id, {name.replace("_", "."): value for name, value in settings.items()}, 1)
    for node in cluster.nodes.values():
        update = UpdateMetadataRequest(1, cluster.controller_epoch, cluster.live(), (), (info,))
        assert (await node.ask(update, sender_epoch=1)).error_code == 0


def config_of(node: Node) -> Any:
    return node.replica().log.config


@on_virtual_time
async def test_new_settings_apply_to_open_logs() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await send_settings(cluster, retention_ms="5", segment_bytes="100", cleanup_policy="compact")
        for node in cluster.nodes.values():
            assert (config_of(node).retention_ms, config_of(node).segment_bytes) == (5, 100)
            assert config_of(node).compact
            assert node.replica().partition.min_insync_replicas == 1, "the topic no longer overrides the setting"


@on_virtual_time
async def test_new_defaults_apply_to_the_settings_that_a_topic_lacks() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await send_settings(cluster, retention_ms="5")
        for node in cluster.nodes.values():
            defaults = LogConfig.from_topic_configs({"retention.ms": "7", "max.message.bytes": "100"})
            node.replicas.replace_topic_defaults(defaults)
            assert (config_of(node).retention_ms, config_of(node).max_message_bytes) == (5, 100)
        assert (await cluster.produce(b"x" * 200))[0] == MessageTooLargeError.code
        await send_settings(cluster)
        assert config_of(cluster.leader).retention_ms == 7


@on_virtual_time
async def test_new_batch_limits_apply_to_the_next_batch() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert (await cluster.produce(b"x" * 200))[0] == 0
        await send_settings(cluster, max_message_bytes="100", min_insync_replicas="2")
        assert (await cluster.produce(b"x" * 200))[0] == MessageTooLargeError.code
        await send_settings(cluster, min_insync_replicas="2")
        assert (await cluster.produce(b"x" * 200))[0] == 0


@on_virtual_time
async def test_smaller_min_insync_replicas_raises_the_high_watermark_at_once() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1, isr=(1,), send_to=(1,))
        assert (await cluster.produce(b"x"))[0] == NotEnoughReplicasError.code
        assert (await cluster.produce(b"x", acks=1))[0] == 0
        assert cluster.leader.replica().partition.high_watermark == 0
        reader = asyncio.ensure_future(cluster.leader.fetch(fetch_request(0, max_wait_ms=10_000)))
        await asyncio.sleep(0.05)
        clock = cluster.leader.replicas.clock
        begun_ms = clock.monotonic_ms()
        await send_settings(cluster, min_insync_replicas="1")
        assert (await reader)[1] == [b"x"]
        assert clock.monotonic_ms() - begun_ms < 50, "the change does not wait for the next ISR check"
        assert (await cluster.produce(b"y"))[0] == 0


@on_virtual_time
async def test_invalid_settings_change_nothing() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await send_settings(cluster, retention_ms="soon")
        assert config_of(cluster.leader).retention_ms == 7 * 86_400_000
        assert cluster.leader.replica().partition.min_insync_replicas == 2


@on_virtual_time
async def test_earlier_topic_of_the_name_does_not_get_the_new_settings() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await send_settings(cluster, topic_id="another", retention_ms="5")
        assert config_of(cluster.leader).retention_ms == 7 * 86_400_000


@on_virtual_time
async def test_unknown_setting_makes_no_partition_unavailable() -> None:
    async with MemoryCluster() as cluster:
        cluster.configs = {"min.insync.replicas": "2", "of.tomorrow": "1", "retention.ms": "soon"}
        await cluster.elect(1)
        assert (await cluster.produce(b"x"))[0] == 0
        assert cluster.leader.replica().partition.min_insync_replicas == 2


# --- the addresses of a broker -----------------------------------------------------------------------------

ADVERTISED = "advertised.listeners"
LISTENERS = "".join(
    (
        'listeners = ["KAFKA_B://127.0.0.1:9192", "REPLICATION://127.0.0.1:9601", "KAFKA://127.0.0.1:9092"]\n',
        'advertised_listeners = ["KAFKA://host-1:9092"]\n',
    )
)


def addresses(settings: BrokerSettings) -> dict[str, str]:
    return {each.name: str(each.advertised) for each in settings.listener_endpoints}


async def test_unset_addresses_have_neither_a_value_nor_synonyms() -> None:
    """Kafka describes this setting so, and calls it changeable."""
    configs = Configs(MemoryBrokers(broker_settings()), TopicSettings(), MetadataCache("c"), SystemClock())
    (entry,) = (await describe(configs, BROKER, "1", ADVERTISED, include_synonyms=True)).entries
    assert (entry.value, entry.source, entry.synonyms) == (None, ConfigSource.DEFAULT_CONFIG, ())
    assert not entry.is_read_only


async def test_changed_address_hides_that_of_the_file_until_it_is_deleted(tmp_path: Path) -> None:
    brokers = MemoryBrokers(loaded(tmp_path, LISTENERS))
    configs = Configs(brokers, TopicSettings(), MetadataCache("c"), SystemClock())
    before = addresses(brokers.settings.current)
    change = ConfigChange(ADVERTISED, value="REPLICATION://host-9:19601, KAFKA://[::1]:19092")
    assert (await alter(configs, BROKER, "1", change)).error_code == 0
    after = addresses(brokers.settings.current)
    assert after == {"KAFKA_B": "127.0.0.1:9192", "REPLICATION": "host-9:19601", "KAFKA": "[::1]:19092"}
    (entry,) = (await describe(configs, BROKER, "1", ADVERTISED, include_synonyms=True)).entries
    assert (entry.value, entry.source) == (change.value, ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [each.value for each in entry.synonyms] == [change.value, "KAFKA://host-1:9092"]
    change = ConfigChange(ADVERTISED, value="KAFKA_B://host-9:9192")
    assert (await alter(configs, BROKER, "1", change)).error_code == 0
    after = addresses(brokers.settings.current)
    assert after == {**before, "KAFKA_B": "host-9:9192"}, "the other listeners have the addresses of the file again"
    assert (await alter(configs, BROKER, "1", ConfigChange(ADVERTISED, operation=ConfigOp.DELETE))).error_code == 0
    assert addresses(brokers.settings.current) == before


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("1", "KAFKA_X://h:1", "advertised.listeners: KAFKA_X is not among the listeners"),
        ("1", "PLAINTEXT://h:1", "advertised.listeners: 'PLAINTEXT' is not a listener name"),
        ("1", "KAFKA://h:70000", "advertised.listeners: 'h:70000' is not host:port"),
        ("1", "KAFKA://h:1,KAFKA://h:2", "advertised.listeners: KAFKA is listed twice"),
        ("1", "KAFKA://0.0.0.0:1", "advertised.listeners must have an address for KAFKA"),
        ("1", " , ", "advertised.listeners: names no listener"),
        ("", "KAFKA://h:1", "advertised.listeners: each broker has its own addresses; name the broker"),
    ],
)
async def test_wrong_addresses_are_refused(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    brokers = MemoryBrokers(loaded(tmp_path, LISTENERS))
    configs = Configs(brokers, TopicSettings(), MetadataCache("c"), SystemClock())
    refused = await alter(configs, BROKER, name, ConfigChange(ADVERTISED, value=text))
    assert refused.error_code == InvalidConfigError.code
    assert str(refused.error_message).startswith(complaint)
    assert brokers.configs == {}


@pytest.mark.parametrize("dry", [False, True])
async def test_addresses_that_do_not_lead_to_the_broker_are_not_written(tmp_path: Path, dry: bool) -> None:
    checked: list[dict[str, str]] = []

    async def refuse(settings: BrokerSettings) -> None:
        checked.append(addresses(settings))
        raise InvalidConfigError("not here")

    brokers = MemoryBrokers(loaded(tmp_path, LISTENERS))
    configs = Configs(brokers, TopicSettings(), MetadataCache("c"), SystemClock(), refuse)
    change = ConfigChange(ADVERTISED, value="REPLICATION://host-9:1")
    refused = await alter(configs, BROKER, "1", change, dry=dry)
    assert (refused.error_code, refused.error_message) == (InvalidConfigError.code, "not here")
    assert [each["REPLICATION"] for each in checked] == ["host-9:1"]
    assert brokers.configs == {}


@on_virtual_time
async def test_changed_address_is_answered_when_metadata_has_it(tmp_path: Path) -> None:
    metadata = MetadataCache("c")
    brokers = MemoryBrokers(loaded(tmp_path, LISTENERS))
    configs = Configs(brokers, TopicSettings(), metadata, VirtualClock())

    def receive() -> None:
        at = [
            ListenerAddress(each.name, each.advertised.host, each.advertised.port)
            for each in brokers.settings.current.listener_endpoints
        ]
        metadata.set_brokers([BrokerInfo(1, 10, tuple(at))], 0)
        metadata.update(UpdateMetadataRequest(1, 1, (), (), ()))

    receive()
    altering = asyncio.create_task(alter(configs, BROKER, "1", ConfigChange(ADVERTISED, value="KAFKA://host-9:1")))
    await asyncio.sleep(0.3)
    assert not altering.done()
    receive()
    await asyncio.sleep(0.01)
    assert altering.done() and altering.result().error_code == 0


def test_invalid_addresses_in_zookeeper_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = MemoryBrokers(loaded(tmp_path, LISTENERS)).settings
    before = settings.current
    settings.apply({ADVERTISED: "KAFKA://h:1"}, {ADVERTISED: "KAFKA_X://h:1"})
    assert settings.current == before
    assert "KAFKA_X is not among the listeners" in caplog.text
    assert "each broker has its own addresses" in caplog.text
