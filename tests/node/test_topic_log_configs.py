"""The log settings of a topic, also if ZooKeeper holds invalid settings."""

from __future__ import annotations

import pytest

from node.metadata.topic_log_configs import TopicLogConfigs
from storage.configs.log_config import LogConfig

WRONG = {"retention.ms": "soon", "segment.bytes": "5000", "no.such": "1"}


def test_settings_are_parsed_once_until_they_change() -> None:
    settings = TopicLogConfigs(LogConfig())
    first = settings.of("t", {"retention.ms": "5"})
    assert settings.of("t", {"retention.ms": "5"}) is first
    assert settings.of("other", {"retention.ms": "5"}) == first
    assert settings.of("t", {"retention.ms": "6"}).retention_ms == 6
    assert settings.of("t", {}) == LogConfig()
    settings.forget("t")
    assert settings.of("t", {"retention.ms": "5"}) == first


def test_open_log_keeps_its_settings_if_the_new_ones_are_invalid() -> None:
    current = LogConfig.from_topic_configs({"retention.ms": "-1"})
    assert TopicLogConfigs(LogConfig()).of("t", WRONG, current) is current


def test_each_open_log_keeps_its_own_settings_if_the_new_ones_are_invalid(caplog: pytest.LogCaptureFixture) -> None:
    settings = TopicLogConfigs(LogConfig())
    one, other = (LogConfig.from_topic_configs({"retention.ms": text}) for text in ("1", "2"))
    opened = settings.of("t", WRONG)
    assert opened.segment_bytes == 5000
    assert settings.of("t", WRONG, one) is one
    assert settings.of("t", WRONG, other) is other
    assert settings.of("t", WRONG) is opened, "a log that is opened now gets the valid part"
    assert caplog.text.count("invalid settings in ZooKeeper") == 1


def test_log_opened_with_invalid_settings_uses_the_valid_part() -> None:
    defaults = LogConfig.from_topic_configs({"retention.ms": "7"})
    config = TopicLogConfigs(defaults).of("t", WRONG)
    assert (config.retention_ms, config.segment_bytes) == (7, 5000)
