"""What the logs of each topic obey: its settings, read once for each change of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from storage.configs.log_config import LogConfig
from tidelog.errors import InvalidConfigError

log = logging.getLogger(__name__)


class TopicLogConfigs:
    """By topic. `defaults` hold where a topic has no setting of its own.

    To read settings takes 50 µs, and a thousand partitions of a topic may get a new leader at once.
    """

    def __init__(self, defaults: LogConfig) -> None:
        self._defaults = defaults
        self._read: dict[str, tuple[Mapping[str, str], LogConfig]] = {}

    def of(self, topic: str, configs: Mapping[str, str], current: LogConfig | None = None) -> LogConfig:
        """What the topic's logs obey when it has these settings.

        Nobody of ours writes settings that are wrong, but ZooKeeper is open to others. A log that is open then goes on
        with those that it has, its `current` ones; one that is opened obeys what is right of them.
        """
        before = self._read.get(topic)
        if before is not None and before[0] == configs:
            return before[1]
        try:
            config = LogConfig.from_topic_configs(configs, self._defaults)
        except InvalidConfigError as error:
            log.error("topic %s: %s", topic, error)
            config = current or LogConfig.as_far_as_right(configs, self._defaults)
        self._read[topic] = configs, config
        return config

    def forget(self, topic: str) -> None:
        """The topic is gone from here."""
        self._read.pop(topic, None)
