"""`tidelog config`: shows effective settings, and the source of each value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin, unknown_topic
from tidelog.cli.commands import Group
from tidelog.cli.common_options import bootstrap_option, json_option, timeout_option
from tidelog.cli.name_types import BROKER_ID, TOPIC
from tidelog.cli.terminal.table import format_table
from tidelog.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from tidelog.protocol.admin_messages import ConfigEntry


@click.group(cls=Group)
def config() -> None:
    """Show the settings of a topic or a broker."""


@config.command()
@click.argument("topic", metavar="[TOPIC]", required=False, type=TOPIC)
@click.option("--broker", type=BROKER_ID, metavar="ID", help="Show the settings of this broker.")
@json_option
@bootstrap_option
@timeout_option
def describe(
    topic: str | None, broker: int | None, as_json: bool, bootstrap_servers: str | None, timeout: float
) -> None:
    """Show each setting's value and source.

    The source of a topic's setting is the topic itself (tidelog topic alter), the answering broker, or the default. The
    settings of a broker come from its file, and are shown under the names in that file. Some can be changed for one
    broker or for all brokers while these run, by Kafka's tools: their source is "broker" or "all brokers".
    """
    if (topic is None) == (broker is None):
        raise click.UsageError("name a TOPIC, or give --broker ID")
    with open_admin(bootstrap_servers, timeout) as admin:
        from tidelog.client.admin.config_requests import ConfigResource

        resource = ConfigResource.broker(broker) if broker is not None else ConfigResource.topic(topic or "")
        try:
            described = admin.describe_configs([resource], include_synonyms=True, include_documentation=True)
        except UnknownTopicOrPartitionError:
            raise unknown_topic(topic or "") from None
    entries = list(described[resource].values())
    if as_json:
        resource_key = {"broker": broker} if broker is not None else {"topic": topic}
        settings = [_as_json(each, of_broker=broker is not None) for each in entries]
        click.echo(json.dumps({**resource_key, "settings": settings}))
        return
    rows = [(_name(each.name, broker is not None), _value(each), _source(each)) for each in entries]
    for line in format_table(("setting", "value", "source"), rows):
        click.echo(line)


def _name(name: str, of_broker: bool) -> str:
    """Return the setting's name as users write it: a broker's settings have `_` instead of `.`, as in its file."""
    return name.replace(".", "_") if of_broker else name


def _value(entry: ConfigEntry) -> str:
    return "(hidden)" if entry.is_sensitive else entry.value or '""'


def _source(entry: ConfigEntry) -> str:
    from tidelog.protocol.admin_messages import ConfigSource

    if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG:
        return "topic"
    of_broker = {
        ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
        ConfigSource.STATIC_BROKER_CONFIG: "broker's file",
    }
    source = of_broker.get(ConfigSource(entry.source), "default")
    given = entry.synonyms[0] if entry.synonyms else None
    if source == "default" or given is None or given.name == entry.name:
        return source
    return f"{source}: {_name(given.name, True)}={given.value}"


def _as_json(entry: ConfigEntry, *, of_broker: bool) -> dict[str, object]:
    from tidelog.protocol.admin_messages import ConfigSource, ConfigType

    return {
        "name": _name(entry.name, of_broker),
        "value": entry.value,
        "source": ConfigSource(entry.source).name,
        "type": ConfigType(entry.config_type).name,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {
                "name": _name(each.name, each.source != ConfigSource.DYNAMIC_TOPIC_CONFIG),
                "value": each.value,
                "source": ConfigSource(each.source).name,
            }
            for each in entry.synonyms
        ],
        "meaning": entry.documentation,
    }
