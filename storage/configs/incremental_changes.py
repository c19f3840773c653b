"""Changes single settings of a topic or a broker (KIP-339).

Pure: the settings and the changes go in, the new settings come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storage.configs.log_config import LogConfig, config_type, no_such_setting
from storage.configs.parsers import items
from tidelog.errors import InvalidConfigError, InvalidRequestError
from tidelog.protocol.admin_messages import ConfigChange, ConfigOp, ConfigType


def changed(configs: Mapping[str, str], changes: Iterable[ConfigChange], defaults: LogConfig) -> dict[str, str]:
    """Return the topic's own settings after all changes. `defaults` hold for settings that the topic does not have.

    APPEND and SUBTRACT start from the default if the topic does not have the list, because the default is in effect
    before the change. InvalidConfigError names a wrong or unknown setting. InvalidRequestError if a setting is changed
    twice, or if a change has no value or an unknown operation.
    """
    changes = list(changes)
    for change in changes:
        if config_type(change.name) is None and change.name not in configs:
            raise no_such_setting(change.name)
    inherited = defaults.to_topic_configs()
    lists = {name for name in inherited if config_type(name) == ConfigType.LIST}
    after = changed_texts(configs, changes, {name: inherited[name] for name in lists})
    LogConfig.from_topic_configs(after, defaults)  # raises the error of a wrong value
    return after


def changed_texts(
    configs: Mapping[str, str], changes: Iterable[ConfigChange], lists: Mapping[str, str]
) -> dict[str, str]:
    """Return any settings after all changes, without a check of their names and values.

    `lists` has the defaults of the settings that are lists. The errors are those of `changed` for a change of its own.
    """
    after = dict(configs)
    seen: set[str] = set()
    for change in changes:
        name = change.name
        if name in seen:
            raise InvalidRequestError(f"{name}: changed twice in one request")
        seen.add(name)
        if change.operation == ConfigOp.DELETE:
            after.pop(name, None)
        elif change.value is None:
            raise InvalidRequestError(f"{name}: the change has no value")
        elif change.operation == ConfigOp.SET:
            after[name] = change.value
        elif change.operation in (ConfigOp.APPEND, ConfigOp.SUBTRACT):
            if name not in lists:
                raise InvalidConfigError(f"{name}: not a list, so it can only be set or deleted")
            before = items(after.get(name, lists[name]))
            after[name] = ",".join(_list_after(change, before))
        else:
            raise InvalidRequestError(f"{name}: unknown operation {change.operation}")
    return after


def _list_after(change: ConfigChange, before: tuple[str, ...]) -> Iterable[str]:
    named = items(change.value or "")
    if change.operation == ConfigOp.APPEND:
        return dict.fromkeys((*before, *named))
    return [item for item in before if item not in named]
