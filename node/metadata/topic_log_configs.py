"""The log settings of each topic, parsed once for each change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from storage.configs.log_config import LogConfig
from tidelog.errors import InvalidConfigError

log = logging.getLogger(__name__)


class _Parsed(NamedTuple):
    """The settings of a topic, and the configuration that all of them give, or their valid part if some are invalid."""

    configs: Mapping[str, str]
    config: LogConfig
    are_valid: bool


class TopicLogConfigs:
    """A cache of parsed settings by topic. `defaults` hold for settings that a topic does not override.

    The cache exists because parsing takes 50 µs and a thousand partitions of a topic may get a new leader at once.
    """

    def __init__(self, defaults: LogConfig) -> None:
        self._defaults = defaults
        self._read: dict[str, _Parsed] = {}

    def of(self, topic: str, configs: Mapping[str, str], current: LogConfig | None = None) -> LogConfig:
        """Return the log settings of a topic with these `configs`.

        Brokers write only valid settings, but other programs can write to ZooKeeper too. If the settings are invalid,
        the result is `current`, the settings of an open log, or without it the valid part of `configs`. Invalid
        settings are logged once.
        """
        parsed = self._read.get(topic)
        if parsed is None or parsed.configs != configs:
            parsed = self._read[topic] = self._parse(topic, configs)
        return parsed.config if parsed.are_valid or current is None else current

    def _parse(self, topic: str, configs: Mapping[str, str]) -> _Parsed:
        try:
            return _Parsed(configs, LogConfig.from_topic_configs(configs, self._defaults), are_valid=True)
        except InvalidConfigError as error:
            log.error("topic %s: invalid settings in ZooKeeper: %s", topic, error)
            valid_part = LogConfig.from_valid_topic_configs(configs, self._defaults)
            return _Parsed(configs, valid_part, are_valid=False)

    def forget(self, topic: str) -> None:
        """Drop the cached settings of a topic of which this broker deletes a partition."""
        self._read.pop(topic, None)
