"""The settings of a broker that can change while the broker runs (Kafka's dynamic broker configs, KIP-226).

A broker takes them from ZooKeeper, where one set is for this broker and another for all brokers. A setting of the first
set hides that of the second, and both hide the broker's file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from node.settings.broker_settings import BrokerSettings
from storage.configs.broker_config import SYNONYMS
from tidelog.errors import InvalidConfigError
from tidelog.protocol.admin_messages import ConfigSource, ConfigSynonym

log = logging.getLogger(__name__)

#: Topics get these settings from the controller's broker, which takes them when it becomes the controller.
_OF_THE_CONTROLLER = {"min.insync.replicas", "unclean.leader.election.enable"}
#: The addresses of one broker. The setting cannot be given for all brokers.
ADVERTISED_LISTENERS = "advertised.listeners"
#: The names of Kafka that can change. Of several names for a default of topics, only the first one can, as in Kafka.
DYNAMIC_NAMES = frozenset(
    {
        ADVERTISED_LISTENERS,
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.io.max.bytes.per.second",
        "max.broker.partitions",
        "max.connections",
        "max.connections.per.ip",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        *(synonyms[0][0] for synonyms in SYNONYMS.values()),
    }
    - _OF_THE_CONTROLLER
)


class DynamicSettings:
    """The settings of one broker as they are now.

    static    the settings of the broker's files
    current   the settings with all changes, replaced as a whole
    of_all    the valid changes for all brokers, by Kafka's names
    own       the valid changes for this broker, by Kafka's names
    """

    def __init__(self, static: BrokerSettings) -> None:
        self.static = static
        self.current = static
        self.of_all: Mapping[str, str] = {}
        self.own: Mapping[str, str] = {}
        self._listeners: list[Callable[[], object]] = []

    def subscribe(self, changed: Callable[[], object]) -> None:
        """Have `changed` called after each change of `current`."""
        self._listeners.append(changed)

    def apply(self, of_all: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Take over both sets, as they are in ZooKeeper. A setting that `check` refuses is logged and ignored.

        Brokers write only valid settings, but other programs can write to ZooKeeper too.
        """
        accepted: dict[str, str] = {}
        self.of_all = self._accepted(of_all, accepted, for_all=True)
        self.own = self._accepted(own, accepted)
        before, self.current = self.current, self.static.replaced(accepted)
        if self.current != before:
            log.info("settings from ZooKeeper: %s", accepted)
            for changed in self._listeners:
                changed()

    def check(self, configs: Mapping[str, str], *, for_all: bool = False) -> BrokerSettings:
        """Return the settings with these changes of one broker, or of all brokers (`for_all`).

        Raise InvalidConfigError if a setting is unknown or wrong, or cannot change while the broker runs.
        """
        for name in configs:
            if name == ADVERTISED_LISTENERS and for_all:
                raise InvalidConfigError(f"{name}: each broker has its own addresses; name the broker")
            if not BrokerSettings.knows(name):
                raise InvalidConfigError(f"there is no broker setting {name[:100]!r}")
            if name not in DYNAMIC_NAMES:
                raise InvalidConfigError(
                    f"{name}: a broker takes this setting from its file when it starts; edit the file and restart"
                    " the broker"
                )
        return self.static.replaced(configs)

    def synonyms(self, name: str) -> Iterator[ConfigSynonym]:
        """Yield the values that were given for a setting by Kafka's name, the one that counts first."""
        if name in self.own:
            yield ConfigSynonym(name, self.own[name], ConfigSource.DYNAMIC_BROKER_CONFIG)
        if name in self.of_all:
            yield ConfigSynonym(name, self.of_all[name], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        text = self.static.given.get(name.replace(".", "_"))
        if text is not None:
            yield ConfigSynonym(name, text, ConfigSource.STATIC_BROKER_CONFIG)

    def _accepted(
        self, configs: Mapping[str, str], accepted: dict[str, str], *, for_all: bool = False
    ) -> dict[str, str]:
        """Return the valid settings of one set, and add them to those that were accepted before."""
        valid: dict[str, str] = {}
        for name, text in configs.items():
            try:
                self.check({**accepted, name: text}, for_all=for_all)
            except InvalidConfigError as error:
                log.error("a setting of brokers in ZooKeeper is ignored: %s", error)
            else:
                accepted[name] = valid[name] = text
        return valid
