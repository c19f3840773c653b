"""Describe a broker's settings for DescribeConfigs: by Kafka's names, each with the source of its value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, replace
from typing import get_type_hints

from node.settings.broker_settings import BrokerSettings
from node.settings.dynamic_settings import DYNAMIC_NAMES, DynamicSettings
from storage.configs.broker_config import SYNONYMS
from storage.configs.log_config import LogConfig, config_type
from storage.configs.parsers import INT32_MAX, as_text
from tidelog.protocol.admin_messages import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType


def describe_broker(settings: DynamicSettings) -> list[ConfigEntry]:
    """Return every setting of a broker, sorted by name. Only some of them can change while the broker runs."""
    entries = {entry.name: entry for entry in (*_for_topics(settings), *_own(settings))}
    return [entries[name] for name in sorted(entries)]


def describe_all_brokers(settings: DynamicSettings) -> list[ConfigEntry]:
    """Return the valid settings that ZooKeeper has for all brokers, with those values, sorted by name."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        replace(
            entry,
            value=settings.of_all[entry.name],
            source=source,
            synonyms=tuple(each for each in entry.synonyms if each.source == source),
        )
        for entry in describe_broker(settings)
        if entry.name in settings.of_all
    ]


def _own(settings: DynamicSettings) -> Iterator[ConfigEntry]:
    hints = get_type_hints(BrokerSettings)
    for each in fields(settings.static):
        if not each.metadata:
            continue
        if hints[each.name] is int:
            kind = ConfigType.INT if each.metadata["most"] <= INT32_MAX else ConfigType.LONG
        else:
            kind = _TYPES.get(hints[each.name], ConfigType.LIST)
        name = each.name.replace("_", ".")
        given = [known for known in settings.synonyms(name) if known.source != ConfigSource.STATIC_BROKER_CONFIG]
        default = None if each.default in (MISSING, ()) else as_text(each.default)
        # A setting without a default must have been given.
        if each.name in settings.static.given or each.default is MISSING:
            value = as_text(getattr(settings.static, each.name))
            given.append(ConfigSynonym(name, value, ConfigSource.STATIC_BROKER_CONFIG))
        yield _entry(name, given, default, kind, each.metadata["meaning"])


_TYPES = {bool: ConfigType.BOOLEAN, str: ConfigType.STRING}


def _for_topics(settings: DynamicSettings) -> Iterator[ConfigEntry]:
    """Yield the broker settings that are defaults of topics. Each topic setting has several names on a broker.

    The given names are described. If none is given, the name with the highest precedence is described.
    """
    built_in = LogConfig().to_topic_configs()
    for topic_name, synonyms in SYNONYMS.items():
        names = [name for name, _ in synonyms]
        for name in [name for name in names if any(settings.synonyms(name))] or names[:1]:
            kind = config_type(topic_name) or ConfigType.STRING
            default = built_in[topic_name] if name == names[0] else None
            meaning = f"{topic_name} of topics without a value of their own"
            yield _entry(name, settings.synonyms(name), default, kind, meaning)


def _entry(
    name: str, given: Iterable[ConfigSynonym], default: str | None, kind: ConfigType, meaning: str
) -> ConfigEntry:
    built_in = () if default is None else (ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG),)
    synonyms = (*given, *built_in)
    return ConfigEntry(
        name,
        synonyms[0].value if synonyms else None,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        kind,
        is_read_only=name not in DYNAMIC_NAMES,
        synonyms=synonyms,
        documentation=meaning,
    )
