"""`tidelog clients`: who is connected to the brokers, with which software, and which topics they use."""

from __future__ import annotations

import json

import click

from tidelog.cli.admin_factory import open_admin, unknown_topic
from tidelog.cli.cluster.client_rows import (
    CLIENTS,
    CONNECTIONS,
    as_objects,
    connection_rows,
    grouped,
    summary_row,
)
from tidelog.cli.commands import Command
from tidelog.cli.common_options import bootstrap_option, json_option, timeout_option
from tidelog.cli.name_types import BROKER_ID, TOPIC
from tidelog.cli.terminal.long_tables import show_rows
from tidelog.errors import TidelogError
from tidelog.quantities import MOST_NAMED, count_of, first_texts


@click.command(cls=Command)
@click.option(
    "--topic",
    "topics",
    type=TOPIC,
    multiple=True,
    metavar="TOPIC",
    help="Show only clients that read or write this topic; may be repeated.",
)
@click.option(
    "--broker", "brokers", type=BROKER_ID, multiple=True, metavar="ID", help="Ask only this broker; may be repeated."
)
@click.option("--all", "shows_all", is_flag=True, help="Show each connection, with its requests.")
@json_option
@bootstrap_option
@timeout_option
def clients(
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    shows_all: bool,
    as_json: bool,
    bootstrap_servers: str | None,
    timeout: float,
) -> None:
    """Show who is connected: client ids, software, addresses, the topics that they read and write, and bytes.

    Connections with the same client id, software and address are one row. Its age is that of the oldest connection, and
    its idle time the time since the last request. Topics and bytes are those since a connection was opened. With --all,
    each connection is a row. Exit status 1 if a broker did not answer; the connections of the other brokers are shown.
    """
    with open_admin(bootstrap_servers, timeout) as admin:
        if topics:
            known = admin.list_topics()
            for topic in topics:
                if topic not in known:
                    raise unknown_topic(topic)
        answers = admin.describe_clients(brokers or None, topics)
    failed = {broker: answer for broker, answer in answers.items() if isinstance(answer, TidelogError)}
    connections = [
        (broker, each) for broker, answer in answers.items() if not isinstance(answer, TidelogError) for each in answer
    ]
    if as_json:
        states = [{"id": broker, "error": str(failed[broker]) if broker in failed else None} for broker in answers]
        click.echo(json.dumps({"brokers": states, "connections": as_objects(connections)}))
    elif shows_all:
        rows = [row for group in grouped(connections) for row in connection_rows(group)]
        show_rows(CONNECTIONS, rows, shows_all=True)
    else:
        rows = [summary_row(group) for group in grouped(connections)]
        show_rows(CLIENTS, rows, shows_all=False, whole="--all shows each connection")
    if failed:
        named = [f"broker {broker}: {error}" for broker, error in failed.items()]
        reasons = first_texts(named, MOST_NAMED, "broker")
        raise click.ClickException(f"{count_of(len(failed), 'broker')} of {len(answers)} did not answer: {reasons}")
