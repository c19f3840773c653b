"""`tidelog logdirs move`: moves replicas between the log directories of their broker."""

from __future__ import annotations

import json

import click

from tidelog.cli.admin_factory import open_admin
from tidelog.cli.commands import Command
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.name_types import BROKER_ID, PARTITION
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.model import TopicPartition

_MOVING, _THERE = "that move", "in the directory"
_REPLICAS = Kind((), (_MOVING, _THERE), noun="replica")


@click.command(cls=Command)
@click.argument("partitions", metavar="TOPIC/PARTITION...", type=PARTITION, nargs=-1, required=True)
@click.option("--broker", type=BROKER_ID, required=True, metavar="ID", help="The broker whose replicas are moved.")
@click.option(
    "--to",
    "directory",
    required=True,
    metavar="DIRECTORY",
    help="The absolute path of the log directory, as `tidelog logdirs` shows it.",
)
@all_option
@json_option
@bootstrap_option
@timeout_option
def move(
    partitions: tuple[TopicPartition, ...],
    broker: int,
    directory: str,
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Move replicas to another log directory of their broker.

    The command returns when the moves have begun; `tidelog logdirs --topic TOPIC` shows their progress. The replicas
    are read and written meanwhile. A move to the directory in which a log already lies ends a move to another one.
    """
    with open_admin(bootstrap_servers, timeout) as admin:
        admin.alter_replica_log_dirs(broker, dict.fromkeys(partitions, directory))
        held = admin.describe_log_dirs([broker])[broker]
    moving = sorted(
        TopicPartition(replica.topic, replica.partition)
        for each in held
        for replica in each.replicas
        if replica.is_future and TopicPartition(replica.topic, replica.partition) in partitions
    )
    if as_json:
        moves = [{"topic": tp.topic, "partition": tp.partition, "moving": tp in moving} for tp in partitions]
        click.echo(json.dumps({"broker": broker, "log_dir": directory, "replicas": moves}))
        return
    rows = []
    for tp in partitions:
        state = "moves to" if tp in moving else "is in"
        line = f"{tp.topic}/{tp.partition} {state} {directory} of broker {broker}"
        rows.append(Row((line,), _MOVING if tp in moving else _THERE))
    show_rows(_REPLICAS, rows, shows_all=shows_all)
