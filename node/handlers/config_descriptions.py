"""Describe a broker's settings for DescribeConfigs: by Kafka's names, each with the source of its value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import get_type_hints

from node.settings.broker_settings import BrokerSettings
from storage.configs.broker_config import SYNONYMS
from storage.configs.log_config import LogConfig, config_type
from storage.configs.parsers import INT32_MAX, as_text
from tidelog.protocol.admin_messages import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType


def given_by_kafkas_names(settings: BrokerSettings) -> dict[str, str]:
    """Return the settings of the broker's files by Kafka's names. Our names have `_` instead of `.`."""
    return {name.replace("_", "."): text for name, text in settings.given.items()}


def describe_broker(settings: BrokerSettings) -> list[ConfigEntry]:
    """Return every setting of a broker, sorted by name. All of them are read-only while the broker runs."""
    entries = {entry.name: entry for entry in (*_for_topics(settings), *_own(settings))}
    return [entries[name] for name in sorted(entries)]


def _own(settings: BrokerSettings) -> Iterator[ConfigEntry]:
    hints = get_type_hints(BrokerSettings)
    for each in fields(settings):
        if not each.metadata:
            continue
        value = as_text(getattr(settings, each.name))
        if hints[each.name] is int:
            kind = ConfigType.INT if each.metadata["most"] <= INT32_MAX else ConfigType.LONG
        else:
            kind = _TYPES.get(hints[each.name], ConfigType.LIST)
        default = None if each.default is MISSING else as_text(each.default)
        # A setting without a default must have been given.
        given = each.name in settings.given or default is None
        yield _entry(each.name, value if given else None, default, kind, each.metadata["meaning"])


_TYPES = {bool: ConfigType.BOOLEAN, str: ConfigType.STRING}


def _for_topics(settings: BrokerSettings) -> Iterator[ConfigEntry]:
    """Yield the broker settings that are defaults of topics. Each topic setting has several names on a broker.

    The given names are described. If none is given, the name with the highest precedence is described.
    """
    built_in = LogConfig().to_topic_configs()
    for topic_name, synonyms in SYNONYMS.items():
        names = [name.replace(".", "_") for name, _ in synonyms]
        for name in [name for name in names if name in settings.given] or names[:1]:
            kind = config_type(topic_name) or ConfigType.STRING
            default = built_in[topic_name] if name == names[0] else None
            yield _entry(
                name, settings.given.get(name), default, kind, f"{topic_name} of topics without a value of their own"
            )


def _entry(name: str, given: str | None, default: str | None, kind: ConfigType, meaning: str) -> ConfigEntry:
    name = name.replace("_", ".")
    synonyms = []
    if given is not None:
        synonyms.append(ConfigSynonym(name, given, ConfigSource.STATIC_BROKER_CONFIG))
    if default is not None:
        synonyms.append(ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG))
    return ConfigEntry(
        name,
        synonyms[0].value,
        synonyms[0].source,
        kind,
        is_read_only=True,
        synonyms=tuple(synonyms),
        documentation=meaning,
    )
