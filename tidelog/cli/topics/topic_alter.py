"""`tidelog topic alter`: changes settings and adds partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

import click

from tidelog.cli.admin_factory import open_admin, unknown_topic
from tidelog.cli.commands import Command
from tidelog.cli.common_options import bootstrap_option, json_option, timeout_option
from tidelog.cli.consent import refuse_losses, yes_option
from tidelog.cli.name_types import TOPIC
from tidelog.cli.topics.losses import DELETES, MAY_LOSE, losses
from tidelog.clock import SystemClock
from tidelog.errors import UnknownTopicOrPartitionError
from tidelog.quantities import count_of

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.protocol.admin_messages import ConfigEntry

MOST_PARTITIONS = 100_000


class _Done(TypedDict, total=False):
    """The changes that `alter` has made so far."""

    configs: dict[str, str | None]
    partitions: int


@click.command(cls=Command)
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--partitions", type=click.IntRange(1, MOST_PARTITIONS), metavar="N", help="The new number of partitions."
)
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a setting of the topic; may be repeated."
)
@click.option(
    "--delete-config", "deleted", multiple=True, metavar="KEY", help="Use the brokers' value again; may be repeated."
)
@yes_option
@json_option
@bootstrap_option
@timeout_option
def alter(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    yes: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Change the settings of a topic, or add partitions.

    Settings take effect on every broker within a moment; `tidelog config describe TOPIC` shows them. After partitions
    were added, new records of a key may go to another partition than the older ones. A change that deletes existing
    records, or that allows acknowledged records to be lost, is refused with a line that says so, unless --yes is given.
    """
    settings = _changes(configs, deleted)
    if not settings and partitions is None:
        raise click.UsageError("nothing to change: name --partitions N, a --config KEY=VALUE or a --delete-config KEY")
    with open_admin(bootstrap_servers, timeout) as admin:
        from tidelog.client.admin.config_requests import ConfigResource
        from tidelog.protocol.partition_messages import NewPartitions

        done: _Done = {}
        try:
            if settings:
                if not yes:
                    refuse_losses(_losses(admin, name, settings))
                admin.alter_configs({ConfigResource.topic(name): settings})
                done["configs"] = settings
            if partitions is not None:
                admin.create_partitions([NewPartitions(name, partitions)])
                done["partitions"] = partitions
        except UnknownTopicOrPartitionError:
            raise unknown_topic(name) from None
        finally:  # the settings are changed even if the new partitions are refused
            _show_changes(name, done, as_json)


def _setting(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE, such as retention.ms=-1", param_hint="'--config'")
    return key.strip(), value.strip()


def settings_of(configs: tuple[str, ...]) -> dict[str, str]:
    """Return each setting's value from texts KEY=VALUE.

    Raises BadParameter for another form, and UsageError if a setting is named twice.
    """
    settings: dict[str, str] = {}
    for key, value in map(_setting, configs):
        if key in settings:
            raise click.UsageError(f"{key} is named twice: give it one value")
        settings[key] = value
    return settings


def _changes(configs: tuple[str, ...], deleted: tuple[str, ...]) -> dict[str, str | None]:
    """Return each setting's new value; None means that the setting is deleted.

    Raises UsageError if one is named twice.
    """
    changes: dict[str, str | None] = {}
    for key, value in [*settings_of(configs).items(), *((key.strip(), None) for key in deleted)]:
        if key in changes:
            raise click.UsageError(f"{key} is named twice: set it, or delete it")
        changes[key] = value
    return changes


def _losses(admin: Admin, name: str, changes: Mapping[str, str | None]) -> list[str]:
    """Return a clause for each loss that the changes of the topic's settings may cause; empty if there is none.

    The cluster is queried only if a change may cause a loss.
    """
    from tidelog.client.admin.config_requests import ConfigResource

    if MAY_LOSE.isdisjoint(changes):
        return []
    resource = ConfigResource.topic(name)
    entries = admin.describe_configs([resource], include_synonyms=True)[resource]
    before = {key: each.value for key, each in entries.items() if each.value is not None}
    after = {key: value for key in before if (value := _value_after(entries[key], changes)) is not None}
    held = [] if DELETES.isdisjoint(changes) else admin.describe_times(name)
    return losses(before, after, held, SystemClock().now_ms())


def _value_after(entry: ConfigEntry, changes: Mapping[str, str | None]) -> str | None:
    """Return the setting's effective value after the changes; None if it is unknown.

    A deleted setting gets the value of the brokers.
    """
    from tidelog.protocol.admin_messages import ConfigSource

    if entry.name not in changes:
        return entry.value
    if (value := changes[entry.name]) is not None:
        return value
    others = (each.value for each in entry.synonyms if each.source != ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return next(others, None)


def _show_changes(name: str, done: _Done, as_json: bool) -> None:
    if as_json and done:
        click.echo(json.dumps({"topic": name, **done}))
        return
    for key, value in done.get("configs", {}).items():
        click.echo(f"{name}: {key} has the brokers' value again" if value is None else f"{name}: {key}={value}")
    if "partitions" in done:
        click.echo(f"{name} has {count_of(done['partitions'], 'partition')} now")
