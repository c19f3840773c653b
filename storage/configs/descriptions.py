"""A topic's effective settings on a broker, each with its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from storage.configs.broker_config import SYNONYMS
from storage.configs.docs import MEANINGS
from storage.configs.log_config import NO_EFFECT, LogConfig, config_type
from tidelog.protocol.admin_messages import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType

_BUILT_IN = LogConfig().to_topic_configs()


def describe_topic(
    configs: Mapping[str, str], given: Callable[[str], Iterable[ConfigSynonym]], defaults: LogConfig
) -> Iterator[ConfigEntry]:
    """Yield every topic setting, and unknown ones among the topic's own, ordered by name, with its effective value.

    The synonyms of a setting are its sources, the effective one first: topic, broker, built-in default.

    configs    the topic's own settings
    given      returns the values that the broker was given for a setting by Kafka's name, the effective one first
    defaults   the effective settings of a topic without any of its own
    """
    inherited = defaults.to_topic_configs()
    for name in sorted({*inherited, *configs}):
        synonyms = tuple(_synonyms(name, configs, given))
        value = configs[name] if name in configs else inherited[name]
        kind = config_type(name)
        yield ConfigEntry(
            name,
            value,
            synonyms[0].source,
            ConfigType.STRING if kind is None else kind,
            synonyms=synonyms,
            documentation=_documentation(name),
        )


def _synonyms(
    name: str, configs: Mapping[str, str], given: Callable[[str], Iterable[ConfigSynonym]]
) -> Iterator[ConfigSynonym]:
    if name in configs:
        yield ConfigSynonym(name, configs[name], ConfigSource.DYNAMIC_TOPIC_CONFIG)
    names = [broker_name for broker_name, _ in SYNONYMS.get(name, ())]
    for broker_name in names:
        yield from given(broker_name)
    if name in _BUILT_IN:
        yield ConfigSynonym(names[0] if names else name, _BUILT_IN[name], ConfigSource.DEFAULT_CONFIG)


def _documentation(name: str) -> str | None:
    meaning, without_effect = MEANINGS.get(name), NO_EFFECT.get(name)
    return f"{meaning}; has no effect: {without_effect}" if without_effect else meaning
