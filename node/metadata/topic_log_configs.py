"""The log settings of each topic, parsed once for each change."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from storage.configs.log_config import LogConfig
from tidelog.errors import InvalidConfigError

log = logging.getLogger(__name__)


class TopicLogConfigs:
    """A cache of parsed settings by topic. `defaults` hold for settings that a topic does not override.

    The cache exists because parsing takes 50 µs and a thousand partitions of a topic may get a new leader at once.
    """

    def __init__(self, defaults: LogConfig) -> None:
        self._defaults = defaults
        self._read: dict[str, tuple[Mapping[str, str], LogConfig]] = {}

    def of(self, topic: str, configs: Mapping[str, str], current: LogConfig | None = None) -> LogConfig:
        """Return the log settings of a topic with these `configs`.

        Brokers write only valid settings, but other programs can write to ZooKeeper too. If the settings are invalid,
        the result is `current`, the settings of an open log, or without it the valid part of `configs`. Calls with the
        same `configs` then return the same result until the topic's `configs` change, whatever their `current` is.
        """
        before = self._read.get(topic)
        if before is not None and before[0] == configs:
            return before[1]
        try:
            config = LogConfig.from_topic_configs(configs, self._defaults)
        except InvalidConfigError as error:
            log.error("topic %s: invalid settings in ZooKeeper: %s", topic, error)
            config = current or LogConfig.from_valid_topic_configs(configs, self._defaults)
        self._read[topic] = configs, config
        return config

    def forget(self, topic: str) -> None:
        """Drop the cached settings of a topic of which this broker deletes a partition."""
        self._read.pop(topic, None)
