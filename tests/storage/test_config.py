"""Settings of a topic: Kafka's names, limits and defaults, checked when they are set."""

from __future__ import annotations

import dataclasses

import pytest

from storage.configs.broker_config import SYNONYMS, topic_defaults
from storage.configs.log_config import NO_EFFECT, LogConfig
from tidelog.errors import InvalidConfigError
from tidelog.records import Codec

MAX = str(2**63 - 1)

#: The topic settings as Kafka 3.9.1 lists them: the default, and the name of the broker setting.
KAFKA: dict[str, tuple[str, str | None]] = {
    "cleanup.policy": ("delete", "log.cleanup.policy"),
    "compression.gzip.level": ("-1", "compression.gzip.level"),
    "compression.lz4.level": ("9", "compression.lz4.level"),
    "compression.type": ("producer", "compression.type"),
    "compression.zstd.level": ("3", "compression.zstd.level"),
    "delete.retention.ms": ("86400000", "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": ("60000", "log.segment.delete.delay.ms"),
    "flush.messages": (MAX, "log.flush.interval.messages"),
    "flush.ms": (MAX, "log.flush.interval.ms"),
    "follower.replication.throttled.replicas": ("", None),
    "index.interval.bytes": ("4096", "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": ("", None),
    "local.retention.bytes": ("-2", "log.local.retention.bytes"),
    "local.retention.ms": ("-2", "log.local.retention.ms"),
    "max.compaction.lag.ms": (MAX, "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": ("1048588", "message.max.bytes"),
    "message.downconversion.enable": ("true", "log.message.downconversion.enable"),
    "message.format.version": ("3.0-IV1", "log.message.format.version"),
    "message.timestamp.after.max.ms": (MAX, "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": (MAX, "log.message.timestamp.before.max.ms"),
    "message.timestamp.difference.max.ms": (MAX, "log.message.timestamp.difference.max.ms"),
    "message.timestamp.type": ("CreateTime", "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": ("0.5", "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": ("0", "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": ("1", "min.insync.replicas"),
    "preallocate": ("false", "log.preallocate"),
    "remote.log.copy.disable": ("false", None),
    "remote.log.delete.on.disable": ("false", None),
    "remote.storage.enable": ("false", None),
    "retention.bytes": ("-1", "log.retention.bytes"),
    "retention.ms": ("604800000", "log.retention.ms"),
    "segment.bytes": ("1073741824", "log.segment.bytes"),
    "segment.index.bytes": ("10485760", "log.index.size.max.bytes"),
    "segment.jitter.ms": ("0", "log.roll.jitter.ms"),
    "segment.ms": ("604800000", "log.roll.ms"),
    "unclean.leader.election.enable": ("false", "unclean.leader.election.enable"),
}


def test_every_setting_of_kafka_is_known_with_its_default_but_one() -> None:
    defaults = LogConfig().to_topic_configs()
    assert defaults.pop("message.timestamp.after.max.ms") == "3600000"
    assert defaults == {
        name: default for name, (default, _) in KAFKA.items() if name != "message.timestamp.after.max.ms"
    }


def test_settings_are_read_by_kafkas_names_over_defaults() -> None:
    defaults = LogConfig(min_insync_replicas=2)
    config = LogConfig.from_topic_configs(
        {"segment.bytes": " 1000 ", "cleanup.policy": "compact, delete", "unclean.leader.election.enable": "TRUE"},
        defaults,
    )
    assert (config.segment_bytes, config.min_insync_replicas) == (1000, 2)
    assert config.cleanup_policy == {"compact", "delete"}
    assert (config.compact, config.delete) == (True, True)
    assert config.unclean_leader_election_enable


def test_every_setting_can_be_written_as_text_and_read_back() -> None:
    config = LogConfig(
        segment_bytes=99,
        message_timestamp_type="LogAppendTime",
        retention_ms=-1,
        retention_bytes=-7,
        cleanup_policy=frozenset({"compact", "delete"}),
        leader_replication_throttled_replicas=("0:1", "1:2"),
        follower_replication_throttled_replicas=("*",),
        message_format_version="2.8",
    )
    assert LogConfig.from_topic_configs(config.to_topic_configs()) == config
    assert config.log_append_time


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment.byte", "1", "no topic setting 'segment.byte'"),
        ("segment.bytes", "many", "segment.bytes=many: must be a whole number"),
        ("segment.bytes", "1_000", "must be a whole number"),
        ("segment.bytes", "٣٠", "must be a whole number"),
        ("segment.bytes", "9" * 5000, "must be a whole number"),
        ("segment.bytes", "1e6", "must be a whole number"),
        ("segment.bytes", "", "must be a whole number"),
        ("segment.bytes", "13", "segment.bytes=13: must be at least 14"),
        ("segment.bytes", str(2**31), "must be at most 2147483647"),
        ("segment.ms", "0", "must be at least 1"),
        ("segment.index.bytes", "3", "must be at least 4"),
        ("retention.ms", "-2", "must be at least -1"),
        ("retention.ms", str(2**63), f"must be at most {MAX}"),
        ("flush.messages", "0", "must be at least 1"),
        ("flush.ms", "-1", "must be at least 0"),
        ("min.insync.replicas", "0", "must be at least 1"),
        ("max.compaction.lag.ms", "0", "must be at least 1"),
        ("message.timestamp.type", "createtime", "must be one of CreateTime, LogAppendTime"),
        ("cleanup.policy", "shrink", "must be delete, compact or both"),
        ("cleanup.policy", "", "must be delete, compact or both"),
        ("unclean.leader.election.enable", "yes", "must be true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "must be 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "must be a number"),
        ("compression.type", "brotli", "must be one of producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("compression.gzip.level", "0", "must be at least 1, or -1"),
        ("compression.lz4.level", "18", "must be at most 17"),
        ("compression.zstd.level", "23", "must be at most 22"),
        ("message.format.version", "new", "must be the version of a release"),
        ("leader.replication.throttled.replicas", "0:1,1", "must be * or a list of partition:broker"),
        ("follower.replication.throttled.replicas", "*,0:1", "must be * or a list of partition:broker"),
        ("follower.replication.throttled.replicas", f"0:{10**10}", "must be * or a list of partition:broker"),
        ("remote.storage.enable", "true", "must be false: there is no tiered storage"),
        ("remote.log.copy.disable", "true", "must be false: there is no tiered storage"),
        ("remote.log.delete.on.disable", "true", "must be false: there is no tiered storage"),
        ("local.retention.ms", "-3", "must be at least -2"),
    ],
)
def test_error_names_the_wrong_setting(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        LogConfig.from_topic_configs({name: value})
    assert message in str(caught.value)


def test_settings_that_contradict_each_other_are_refused_defaults_included() -> None:
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms=2 is more than"):
        LogConfig.from_topic_configs({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"})
    defaults = LogConfig(max_compaction_lag_ms=10)
    with pytest.raises(InvalidConfigError, match=r"max\.compaction\.lag\.ms=10"):
        LogConfig.from_topic_configs({"min.compaction.lag.ms": "11"}, defaults)
    assert LogConfig.from_topic_configs({"min.compaction.lag.ms": "10"}, defaults).min_compaction_lag_ms == 10


@pytest.mark.parametrize(
    ("setting", "named"),
    [("", []), ("*", [(0, 1), (0, 2), (1, 1), (1, 2)]), (" 0:1, 01:2 ,", [(0, 1), (1, 2)]), ("7:1", [])],
)
def test_throttled_replicas_are_those_that_the_setting_names(setting: str, named: list[tuple[int, int]]) -> None:
    replicas = [(partition, broker) for partition in (0, 1) for broker in (1, 2)]
    for side in ("leader", "follower"):
        config = LogConfig.from_topic_configs({f"{side}.replication.throttled.replicas": setting})
        of_leaders, of_followers = (
            [replica for replica in replicas if each.has(*replica)]
            for each in (config.throttled_leaders, config.throttled_followers)
        )
        assert (of_leaders, of_followers) == ((named, []) if side == "leader" else ([], named))


def test_a_setting_without_effect_says_why() -> None:
    assert set(NO_EFFECT) == {
        "preallocate",
        "message.format.version",
        "message.downconversion.enable",
        "local.retention.ms",
        "local.retention.bytes",
    }
    assert all(NO_EFFECT.values())


@pytest.mark.parametrize(
    ("given", "earliest_lag_ms", "latest_lead_ms"),
    [
        ({}, 2**63 - 1, 3_600_000),
        ({"message.timestamp.before.max.ms": "5"}, 5, 3_600_000),
        ({"message.timestamp.difference.max.ms": "7"}, 7, 7),
        ({"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "9"}, 7, 9),
        ({"message.timestamp.after.max.ms": MAX}, 2**63 - 1, 2**63 - 1),
    ],
)
def test_older_timestamp_setting_applies_to_default_bounds(
    given: dict[str, str], earliest_lag_ms: int, latest_lead_ms: int
) -> None:
    config = LogConfig.from_topic_configs(given)
    assert (config.earliest_lag_ms, config.latest_lead_ms) == (earliest_lag_ms, latest_lead_ms)


@pytest.mark.parametrize(
    ("given", "codec", "level"),
    [
        ({}, None, None),
        ({"compression.type": "uncompressed"}, Codec.NONE, None),
        ({"compression.type": "snappy"}, Codec.SNAPPY, None),
        ({"compression.type": "zstd"}, Codec.ZSTD, None),
        ({"compression.type": "zstd", "compression.zstd.level": "7"}, Codec.ZSTD, 7),
        ({"compression.type": "gzip", "compression.zstd.level": "7"}, Codec.GZIP, None),
    ],
)
def test_a_topic_may_choose_how_its_batches_are_compressed(
    given: dict[str, str], codec: Codec | None, level: int | None
) -> None:
    config = LogConfig.from_topic_configs(given)
    assert (config.codec, config.compression_level) == (codec, level)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("compression.gzip.level", 1, 9),
        ("compression.lz4.level", 1, 17),
        ("compression.zstd.level", -131_072, 22),
        ("segment.bytes", 14, 2**31 - 1),
        ("segment.index.bytes", 4, 2**31 - 1),
        ("max.message.bytes", 0, 2**31 - 1),
        ("segment.ms", 1, 2**63 - 1),
        ("retention.ms", -1, 2**63 - 1),
        ("flush.messages", 1, 2**63 - 1),
        ("min.insync.replicas", 1, 2**31 - 1),
        ("max.compaction.lag.ms", 1, 2**63 - 1),
    ],
)
def test_numbers_have_kafkas_limits(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert LogConfig.from_topic_configs({name: str(value)}).to_topic_configs()[name] == str(value)
    for value in (least - 1 if name != "compression.gzip.level" else 0, most + 1):
        with pytest.raises(InvalidConfigError, match=name):
            LogConfig.from_topic_configs({name: str(value)})


def test_every_default_has_kafkas_name_on_a_broker() -> None:
    assert {name: synonyms[0][0] for name, synonyms in SYNONYMS.items()} == {
        name: broker for name, (_, broker) in KAFKA.items() if broker is not None
    }


def test_a_brokers_settings_are_the_defaults_of_its_topics() -> None:
    assert topic_defaults({}) == LogConfig()
    assert topic_defaults({"broker.id": "1", "segment.bytes": "20"}) == LogConfig()
    for name, (default, broker) in KAFKA.items():
        if broker is not None:
            assert topic_defaults({broker: default}) == LogConfig.from_topic_configs({name: default}), broker


def test_a_brokers_setting_has_the_unit_of_its_name() -> None:
    units = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}
    for name, synonyms in SYNONYMS.items():
        if name.endswith(".ms"):
            for broker, _ in synonyms:
                expected = 7 * units[broker.rpartition(".")[2]]
                assert topic_defaults({broker: "7"}).to_topic_configs()[name] == str(expected), broker
        elif name.endswith(".bytes"):
            assert topic_defaults({synonyms[0][0]: "77"}).to_topic_configs()[name] == "77"


def test_the_finer_unit_wins_and_the_coarser_is_converted() -> None:
    assert topic_defaults({"log.retention.hours": "2"}).retention_ms == 7_200_000
    assert topic_defaults({"log.retention.hours": "2", "log.retention.minutes": "3"}).retention_ms == 180_000
    every = {"log.retention.ms": "4", "log.retention.minutes": "3", "log.retention.hours": "2"}
    assert topic_defaults(every).retention_ms == 4
    assert topic_defaults({"log.retention.hours": "-1"}).retention_ms == -1
    assert topic_defaults({"log.roll.hours": "1"}).segment_ms == 3_600_000


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"log.segment.bytes": "13"}, "log.segment.bytes=13: must be at least 14"),
        ({"log.roll.hours": "0"}, "log.roll.hours=0: must be at least 1"),
        ({"log.roll.hours": "soon"}, "log.roll.hours=soon: must be a whole number"),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "log.cleaner.min.compaction.lag.ms=2 is more than log.cleaner.max.compaction.lag.ms=1",
        ),
    ],
)
def test_a_wrong_setting_of_a_broker_is_named(configs: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        topic_defaults(configs)
    assert str(caught.value).startswith(message)


def test_a_config_is_never_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogConfig().segment_bytes = 1  # type: ignore[misc]
