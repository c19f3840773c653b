"""Each setting of a topic with its source."""

from __future__ import annotations

from storage.configs.broker_config import topic_defaults
from storage.configs.descriptions import describe_topic
from storage.configs.docs import MEANINGS
from storage.configs.log_config import LogConfig
from tidelog.protocol.admin_messages import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType

TOPIC, FILE, DEFAULT = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)


def described(configs: dict[str, str], given: dict[str, str]) -> dict[str, ConfigEntry]:
    def of(name: str) -> list[ConfigSynonym]:
        return [ConfigSynonym(name, given[name], FILE)] if name in given else []

    return {entry.name: entry for entry in describe_topic(configs, of, topic_defaults(given))}


def test_synonyms_list_topic_then_broker_then_default() -> None:
    given = {"log.retention.hours": "2"}
    own = described({"retention.ms": "5"}, given)["retention.ms"]
    assert (own.value, own.source) == ("5", TOPIC)
    assert own.synonyms == (
        ConfigSynonym("retention.ms", "5", TOPIC),
        ConfigSynonym("log.retention.hours", "2", FILE),
        ConfigSynonym("log.retention.ms", "604800000", DEFAULT),
    )
    inherited = described({}, given)["retention.ms"]
    assert (inherited.value, inherited.source) == ("7200000", FILE)
    assert (described({}, {})["retention.ms"].value, described({}, {})["retention.ms"].source) == ("604800000", DEFAULT)


def test_the_stronger_of_two_names_in_the_file_counts() -> None:
    entry = described({}, {"log.retention.hours": "2", "log.retention.ms": "9"})["retention.ms"]
    assert entry.value == "9"
    assert [synonym.name for synonym in entry.synonyms] == [
        "log.retention.ms",
        "log.retention.hours",
        "log.retention.ms",
    ]


def test_types_are_kafkas() -> None:
    kinds = {name: entry.config_type for name, entry in described({}, {}).items()}
    assert kinds["segment.bytes"] == kinds["min.insync.replicas"] == ConfigType.INT
    assert kinds["retention.ms"] == kinds["retention.bytes"] == ConfigType.LONG
    assert kinds["cleanup.policy"] == kinds["leader.replication.throttled.replicas"] == ConfigType.LIST
    assert kinds["unclean.leader.election.enable"] == ConfigType.BOOLEAN
    assert kinds["min.cleanable.dirty.ratio"] == ConfigType.DOUBLE
    assert kinds["compression.type"] == ConfigType.STRING


def test_every_setting_has_documentation() -> None:
    assert MEANINGS.keys() == LogConfig().to_topic_configs().keys()
    documentation = described({}, {})["preallocate"].documentation
    assert documentation is not None and "no effect: files grow" in documentation


def test_unknown_setting_is_described_unchanged() -> None:
    strange = described({"of.tomorrow": "1"}, {})["of.tomorrow"]
    assert (strange.value, strange.source, strange.documentation) == ("1", TOPIC, None)
