"""`tidelog topic delete-records`: a partition's oldest records go for good."""

from __future__ import annotations

import json
import re

import click

from tidelog.cli.admins import open_admin, unknown_topic
from tidelog.cli.find import bootstrap_option, json_option, timeout_option
from tidelog.cli.names import TOPIC
from tidelog.errors import UnknownTopicOrPartitionError
from tidelog.model import TopicPartition

_BEFORE = re.compile(r"([0-9]{1,10}):([0-9]{1,18}|end)\Z", re.ASCII)
_HIGH_WATERMARK = -1


@click.command("delete-records")
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--before",
    "bounds",
    multiple=True,
    required=True,
    metavar="PARTITION:OFFSET",
    help="All of the partition below this offset; `end` is all that is committed. May be repeated.",
)
@json_option
@bootstrap_option
@timeout_option
def delete_records(
    name: str, bounds: tuple[str, ...], as_json: bool, bootstrap_servers: str | None, timeout: float
) -> None:
    """Delete a topic's oldest records, for good.

    Returns when every live replica of the partition begins at the offset.
    """
    before: dict[TopicPartition, int] = {}
    for text in bounds:
        partition, offset = _bound(text)
        tp = TopicPartition(name, partition)
        if tp in before:
            raise click.BadParameter(f"partition {partition} is named twice", param_hint="'--before'")
        before[tp] = offset
    with open_admin(bootstrap_servers, timeout) as admin:
        try:
            starts = admin.delete_records(before)
        except UnknownTopicOrPartitionError as error:
            if name in admin.list_topics():
                raise click.ClickException(str(error)) from None
            raise unknown_topic(name) from None
    if as_json:
        partitions = [{"partition": tp.partition, "log_start_offset": starts[tp]} for tp in sorted(starts)]
        click.echo(json.dumps({"topic": name, "partitions": partitions}))
        return
    for tp in sorted(starts):
        click.echo(f"{tp} begins at {starts[tp]}")


def _bound(text: str) -> tuple[int, int]:
    found = _BEFORE.match(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not PARTITION:OFFSET, such as 0:1500 or 0:end", param_hint="'--before'")
    return int(found[1]), _HIGH_WATERMARK if found[2] == "end" else int(found[2])
