"""`tidelog topic`: creates, lists, describes and deletes topics; the other subcommands are in files of their own."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin, unknown_topic
from tidelog.cli.commands import Group
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.name_types import TOPIC
from tidelog.cli.reassignments.reassign import reassign
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.topics.partitions import elect
from tidelog.cli.topics.record_deletion import delete_records
from tidelog.cli.topics.topic_alter import MOST_PARTITIONS, alter, settings_of
from tidelog.cli.topics.topic_times import show_times
from tidelog.errors import PolicyViolationError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from tidelog.model import NO_LEADER
from tidelog.quantities import count_of

if TYPE_CHECKING:
    from tidelog.client.admin.admin_results import PartitionDescription


_UNLED, _SHORT, _SILENT, _IN_SYNC = "without a leader", "under-replicated", "whose leader did not answer", "in sync"
_PARTITIONS = Kind(
    ("partition", "leader", "epoch", "isr", "replicas", "high watermark", "log end", "lag"),
    (_UNLED, _SHORT, _SILENT, _IN_SYNC),
    ranges=("epoch", "high watermark", "log end"),
)


@click.group(cls=Group)
def topic() -> None:
    """Create, list, describe, change and delete topics."""


topic.add_command(alter)
topic.add_command(delete_records)
topic.add_command(elect)
topic.add_command(reassign)


@topic.command()
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--partitions", type=click.IntRange(1, MOST_PARTITIONS), metavar="N", help="[default: the brokers' setting]"
)
@click.option(
    "--replication-factor", type=click.IntRange(1, 1_000), metavar="N", help="[default: the brokers' setting]"
)
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting of the topic; may be repeated."
)
@json_option
@bootstrap_option
@timeout_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Create a topic. The command returns when every partition has a leader."""
    settings = settings_of(configs)
    with open_admin(bootstrap_servers, timeout) as admin:
        from tidelog.protocol.messages import NewTopic

        new_topic = NewTopic(name, partitions or -1, replication_factor or -1, configs=settings or None)
        try:
            created = admin.create_topics([new_topic])[0]
        except TopicAlreadyExistsError:
            raise click.ClickException(f"topic {name!r} exists already: see tidelog topic describe {name}") from None
    count, replicas = created.num_partitions, created.replication_factor
    if as_json:
        fields = {"topic": name, "topic_id": created.topic_id, "partitions": count, "replication_factor": replicas}
        click.echo(json.dumps(fields))
        return
    click.echo(f"created {name}: {count_of(count, 'partition')}, {count_of(replicas, 'replica')} of each")


@topic.command("list")
@json_option
@bootstrap_option
@timeout_option
def list_(as_json: bool, bootstrap_servers: str | None, timeout: float) -> None:
    """List the names of all topics."""
    with open_admin(bootstrap_servers, timeout) as admin:
        names = admin.list_topics()
    if as_json:
        click.echo(json.dumps({"topics": names}))
        return
    for name in names:
        click.echo(name)
    if not names:
        click.echo("there is no topic yet: tidelog topic create TOPIC creates one", err=True)


@topic.command()
@click.argument("name", metavar="TOPIC", type=TOPIC)
@click.option(
    "--times", is_flag=True, help="Show records, size, oldest and newest timestamp instead, and find timestamp skew."
)
@all_option
@json_option
@bootstrap_option
@timeout_option
def describe(
    name: str, times: bool, shows_all: bool, as_json: bool, bootstrap_servers: str | None, timeout: float
) -> None:
    """Show each partition's leader, epoch, in-sync replicas and offsets, and the kind of cluster.

    The lag is the number of records that each follower is behind its leader. With --times, records are counted by their
    offsets (compaction may have left fewer), and bytes are those of the leader's log. The command also reads the
    timestamps of some records in each partition. Lines on standard error name timestamps that are out of order or in
    the future, and partitions whose times are far apart or which are unevenly filled, because a point in time would
    then mean different things in different partitions.
    """
    with open_admin(bootstrap_servers, timeout) as admin:
        try:
            if times:
                show_times(admin, name, shows_all=shows_all, as_json=as_json)
                return
            partitions, kind = admin.describe_topics([name])[0].partitions, admin.describe_cluster().kind
        except UnknownTopicOrPartitionError:
            raise unknown_topic(name) from None
    if as_json:
        click.echo(json.dumps({"topic": name, "cluster": kind, "partitions": list(map(_as_json, partitions))}))
        return
    show_rows(_PARTITIONS, list(map(_row, partitions)), shows_all=shows_all)
    click.echo(f"cluster: {kind}")


@topic.command()
@click.argument("names", metavar="TOPIC…", nargs=-1, required=True, type=TOPIC)
@json_option
@bootstrap_option
@timeout_option
def delete(names: tuple[str, ...], as_json: bool, bootstrap_servers: str | None, timeout: float) -> None:
    """Delete topics and all their records.

    The command stops at the first topic that cannot be deleted; the topics before are deleted.
    """
    deleted: list[str] = []
    try:
        with open_admin(bootstrap_servers, timeout) as admin:
            for name in dict.fromkeys(names):
                try:
                    admin.delete_topics([name])
                except UnknownTopicOrPartitionError:
                    raise unknown_topic(name) from None
                except PolicyViolationError as error:
                    raise click.ClickException(f"{error}; tidelog group delete GROUP deletes one group") from None
                deleted.append(name)
                if not as_json:
                    click.echo(f"deleted {name}")
    finally:  # topics before the failed one are deleted
        if deleted and as_json:
            click.echo(json.dumps({"deleted": deleted}))


def _as_json(each: PartitionDescription) -> dict[str, object]:
    return {
        "partition": each.partition,
        "leader": each.leader,
        "leader_epoch": each.leader_epoch,
        "isr": list(each.isr),
        "replicas": list(each.replicas),
        "high_watermark": each.high_watermark,
        "log_end_offset": each.log_end_offset,
        "lag": {} if each.lag is None else {str(replica): lag for replica, lag in each.lag.items()},
    }


def _row(each: PartitionDescription) -> Row:
    lags = (each.lag or {}).items()
    farthest = max((math.inf if lag is None else lag for _, lag in lags), default=0)
    cells = (
        each.partition,
        "none" if each.leader == NO_LEADER else each.leader,
        each.leader_epoch,
        ",".join(map(str, each.isr)),
        ",".join(map(str, each.replicas)),
        each.high_watermark,
        each.log_end_offset,
        " ".join(f"{replica}:{'?' if lag is None else lag}" for replica, lag in lags) or None,
    )
    return Row(cells, _state(each), farthest, each.partition)


def _state(each: PartitionDescription) -> str:
    if each.leader == NO_LEADER:
        return _UNLED
    if len(each.isr) < len(each.replicas):
        return _SHORT
    return _SILENT if each.high_watermark is None else _IN_SYNC
