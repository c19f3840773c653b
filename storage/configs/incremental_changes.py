"""How a topic's settings are changed one by one (KIP-339).

Pure: what the topic had and what is asked for go in, what it has from then on comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storage.configs.log_config import LogConfig, config_type, no_such_setting
from storage.configs.parsers import items
from tidelog.errors import InvalidConfigError, InvalidRequestError
from tidelog.protocol.admin_messages import ConfigChange, ConfigOp, ConfigType


def changed(configs: Mapping[str, str], changes: Iterable[ConfigChange], defaults: LogConfig) -> dict[str, str]:
    """The topic's own settings after all changes; `defaults` are what holds where it has none.

    A list that the topic has none of is appended to, or subtracted from, as the defaults have it: that is what holds
    before the change. InvalidConfigError names the setting that is wrong; InvalidRequestError: the changes make no
    sense together.
    """
    after = dict(configs)
    seen: set[str] = set()
    for change in changes:
        name = change.name
        if name in seen:
            raise InvalidRequestError(f"{name} is changed twice")
        seen.add(name)
        if config_type(name) is None and name not in configs:
            raise no_such_setting(name)
        if change.operation == ConfigOp.DELETE:
            after.pop(name, None)
        elif change.value is None:
            raise InvalidRequestError(f"{name}: a value is missing")
        elif change.operation == ConfigOp.SET:
            after[name] = change.value
        elif change.operation in (ConfigOp.APPEND, ConfigOp.SUBTRACT):
            if config_type(name) != ConfigType.LIST:
                raise InvalidConfigError(f"{name} is no list: it can be set or deleted only")
            before = items(after.get(name, defaults.to_topic_configs().get(name, "")))
            after[name] = ",".join(_list_after(change, before))
        else:
            raise InvalidRequestError(f"{name}: {change.operation} is no operation on a setting")
    LogConfig.from_topic_configs(after, defaults)  # raises what is wrong with them
    return after


def _list_after(change: ConfigChange, before: tuple[str, ...]) -> Iterable[str]:
    named = items(change.value or "")
    if change.operation == ConfigOp.APPEND:
        return dict.fromkeys((*before, *named))
    return [item for item in before if item not in named]
