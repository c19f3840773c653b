"""`tidelog logdirs`: the log directories of the brokers, the logs in them, and moves of logs between them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_factory import open_admin
from tidelog.cli.cluster.logdirs_move import move
from tidelog.cli.commands import Group
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.name_types import BROKER_ID, TOPIC
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.cli.terminal.table import Quantity
from tidelog.model import TopicPartition
from tidelog.quantities import count_of, format_size

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.protocol.admin_messages import LogDir, LogDirReplica

#: The number of records that each replica is behind its leader; a replica without a known lag is absent.
Lags = dict[tuple[int, TopicPartition], int]
_OFFLINE, _ONLINE = "offline", "online"
_DIRECTORIES = Kind(
    ("broker", "directory", "logs", "size", "free", "state"), (_OFFLINE, _ONLINE), noun="directory", sums=("logs",)
)
_ARRIVING, _BEHIND, _CAUGHT_UP = "arriving", "behind or without a known lag", "caught up"
_LOGS = Kind(
    ("broker", "log", "size", "lag", "directory"), (_ARRIVING, _BEHIND, _CAUGHT_UP), noun="log", ranges=("lag",)
)


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--broker", "brokers", type=BROKER_ID, multiple=True, metavar="ID", help="Show only this broker; may be repeated."
)
@click.option(
    "--topic",
    "topics",
    type=TOPIC,
    multiple=True,
    metavar="TOPIC",
    help="Show each log of this topic; may be repeated.",
)
@all_option
@json_option
@bootstrap_option
@timeout_option
@click.pass_context
def logdirs(
    ctx: click.Context,
    brokers: tuple[int, ...],
    topics: tuple[str, ...],
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Show each broker's log directories: whether one is offline and why, sizes, and free space.

    With --topic, show each log of the topic, and how many records it is behind its leader. A log that moves is shown
    twice: "(future)" is its copy in the new directory, and the lag of the copy counts the records still to be copied.
    """
    if ctx.invoked_subcommand is not None:
        if brokers or topics or shows_all or as_json or bootstrap_servers:
            raise click.UsageError(f"write the options after `{ctx.invoked_subcommand}`")
        return
    with open_admin(bootstrap_servers, timeout) as admin:
        described = admin.describe_log_dirs(brokers or None)
        lags = _lags(admin, topics) if topics or as_json else {}
    if as_json:
        listed = [
            {"id": broker, "log_dirs": [_as_json(broker, each, topics, lags) for each in dirs]}
            for broker, dirs in described.items()
        ]
        click.echo(json.dumps({"brokers": listed}))
        return
    if topics:
        rows = [row for broker, dirs in described.items() for each in dirs for row in _logs(broker, each, topics, lags)]
    else:
        rows = [_summary(broker, each) for broker, dirs in described.items() for each in dirs]
    show_rows(_LOGS if topics else _DIRECTORIES, rows, shows_all=shows_all)


logdirs.add_command(move)


def _lags(admin: Admin, topics: tuple[str, ...]) -> Lags:
    lags: Lags = {}
    for topic in admin.describe_topics(topics or None):
        for partition in topic.partitions:
            tp = TopicPartition(topic.topic, partition.partition)
            lags[partition.leader, tp] = 0
            lags |= {(broker, tp): lag for broker, lag in (partition.lag or {}).items() if lag is not None}
    return lags


def _summary(broker: int, each: LogDir) -> Row:
    if each.error_code:
        return Row((broker, each.path, None, None, None, f"offline: {each.error_message}"), _OFFLINE)
    size = Quantity(format_size(sum(replica.size_bytes for replica in each.replicas)))
    free = Quantity(format_size(each.usable_bytes)) if each.usable_bytes >= 0 else None
    arriving = sum(replica.is_future for replica in each.replicas)
    state = f"online, {count_of(arriving, 'log')} arriving" if arriving else "online"
    cells = (broker, each.path, len(each.replicas) - arriving, size, free, state)
    return Row(cells, _ONLINE, -each.usable_bytes)


def _logs(broker: int, each: LogDir, topics: tuple[str, ...], lags: Lags) -> Iterator[Row]:
    for replica in each.replicas:
        if replica.topic in topics:
            tp = TopicPartition(replica.topic, replica.partition)
            name = f"{tp} (future)" if replica.is_future else str(tp)
            lag = _lag(broker, replica, lags)
            state = _ARRIVING if replica.is_future else _CAUGHT_UP if lag == 0 else _BEHIND
            cells = (broker, name, Quantity(format_size(replica.size_bytes)), lag, each.path)
            yield Row(cells, state, math.inf if lag is None else lag)


def _lag(broker: int, replica: LogDirReplica, lags: Lags) -> int | None:
    if replica.is_future:
        return replica.offset_lag
    return lags.get((broker, TopicPartition(replica.topic, replica.partition)))


def _as_json(broker: int, each: LogDir, topics: tuple[str, ...], lags: Lags) -> dict[str, object]:
    return {
        "path": each.path,
        "error": each.error_message,
        "total_bytes": each.total_bytes if each.total_bytes >= 0 else None,
        "usable_bytes": each.usable_bytes if each.usable_bytes >= 0 else None,
        "replicas": [
            {
                "topic": replica.topic,
                "partition": replica.partition,
                "size_bytes": replica.size_bytes,
                "lag": _lag(broker, replica, lags),
                "future": replica.is_future,
            }
            for replica in each.replicas
            if not topics or replica.topic in topics
        ],
    }
