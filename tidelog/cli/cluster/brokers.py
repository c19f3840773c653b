"""`tidelog brokers`: the live brokers of a cluster, their addresses and racks, and which one is the controller."""

from __future__ import annotations

import json

import click

from tidelog.cli.admin_factory import open_admin
from tidelog.cli.commands import Command
from tidelog.cli.common_options import all_option, bootstrap_option, json_option, timeout_option
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows

_CONTROLLER, _FOLLOWS = "controller", "not controller"


@click.command(cls=Command)
@all_option
@json_option
@bootstrap_option
@timeout_option
def brokers(shows_all: bool, as_json: bool, bootstrap_servers: str | None, timeout: float) -> None:
    """List the live brokers: addresses, racks, and which one is the controller.

    The column of racks is shown if a broker has one (broker_rack). With --json, a broker without a rack has null.
    """
    with open_admin(bootstrap_servers, timeout) as admin:
        cluster = admin.describe_cluster()
    controller, racks = cluster.controller, cluster.racks
    if as_json:
        listed = [
            {
                "id": broker,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": racks.get(broker),
                "controller": broker == controller,
            }
            for broker, endpoint in cluster.brokers.items()
        ]
        click.echo(json.dumps({"cluster_id": cluster.cluster_id, "kind": cluster.kind, "brokers": listed}))
        return
    rows = []
    for broker, endpoint in cluster.brokers.items():
        state = _CONTROLLER if broker == controller else _FOLLOWS
        cells = (broker, endpoint, "yes" if state == _CONTROLLER else "no")
        rows.append(Row((*cells, racks.get(broker)) if racks else cells, state))
    # The rack is the last column, because it may contain spaces.
    headings = ("broker", "address", "controller", *(("rack",) if racks else ()))
    show_rows(Kind(headings, (_CONTROLLER, _FOLLOWS), noun="broker"), rows, shows_all=shows_all)
