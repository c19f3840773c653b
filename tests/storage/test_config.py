"""Settings of a topic: Kafka's names, checked when they are given."""

from __future__ import annotations

import pytest

from storage.config import LogConfig
from tidelog.errors import InvalidConfigError


def test_settings_are_read_by_kafkas_names_over_defaults() -> None:
    defaults = LogConfig(min_insync_replicas=2)
    config = LogConfig.from_topic_configs(
        {"segment.bytes": "1000", "cleanup.policy": "compact,delete", "unclean.leader.election.enable": "TRUE"},
        defaults,
    )
    assert (config.segment_bytes, config.min_insync_replicas) == (1000, 2)
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.unclean_leader_election_enable


def test_every_setting_can_be_written_as_text_and_read_back() -> None:
    config = LogConfig(segment_bytes=99, message_timestamp_type="LogAppendTime", retention_ms=-1)
    assert LogConfig.from_topic_configs(config.to_topic_configs()) == config
    assert config.log_append_time


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment.byte", "1", "no topic setting 'segment.byte'"),
        ("segment.bytes", "many", "segment.bytes=many: must be a number"),
        ("segment.bytes", "13", "segment.bytes=13: must be at least 14"),
        ("segment.bytes", str(2**31), "segment.bytes"),
        ("retention.ms", "-2", "must be at least -1"),
        ("min.insync.replicas", "0", "must be at least 1"),
        ("message.timestamp.type", "createtime", "must be one of CreateTime, LogAppendTime"),
        ("cleanup.policy", "shrink", "must be delete, compact or both"),
        ("unclean.leader.election.enable", "yes", "must be true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "must be 0 to 1"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message.replace(".", r"\.")):
        LogConfig.from_topic_configs({name: value})


def test_defaults_are_kafkas_but_for_timestamps_from_the_future() -> None:
    config = LogConfig()
    assert (config.segment_bytes, config.index_interval_bytes, config.max_message_bytes) == (2**30, 4096, 1_048_588)
    assert config.message_timestamp_after_max_ms == 3_600_000
