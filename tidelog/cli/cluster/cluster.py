"""`tidelog down`, `status` and `broker`: the processes of a cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import click

from tidelog.cli.cluster.cluster_object import as_object
from tidelog.cli.commands import Command
from tidelog.cli.common_options import data_dir_option, find_data_dir, json_option
from tidelog.cli.terminal.table import format_table
from tidelog.cli.terminal.waiting import Waiting
from tidelog.errors import LocalError
from tidelog.local.broker import broker_command, broker_environment
from tidelog.local.cluster import LocalCluster
from tidelog.local.home import up_command
from tidelog.local.processes.process import Condition
from tidelog.local.readiness import reasons
from tidelog.local.state import BrokerState, ProcessState


@click.command(cls=Command)
@data_dir_option
@click.option("--purge", is_flag=True, help="Remove the cluster's data and logs as well.")
@json_option
def down(data_dir: Path | None, purge: bool, as_json: bool) -> None:
    """Stop the local cluster: first the brokers, each by a controlled shutdown, then ZooKeeper."""
    cluster = LocalCluster(find_data_dir(data_dir))
    if cluster.state is None and not purge:
        cluster.known_state()
    with Waiting("stopping the cluster"):
        stopped, purged = cluster.purge() if purge else (cluster.stop(), False)
    if as_json:
        click.echo(json.dumps({"data_dir": str(cluster.data_dir), "stopped": stopped, "purged": purged}))
        return
    click.echo(f"stopped the cluster in {cluster.data_dir}" if stopped else f"no process ran in {cluster.data_dir}")
    if purge:
        click.echo("removed its data and logs" if purged else "there was nothing to remove")


@click.command(cls=Command)
@data_dir_option
@json_option
def status(data_dir: Path | None, as_json: bool) -> None:
    """Show the local cluster's processes."""
    cluster = LocalCluster(find_data_dir(data_dir))
    state = cluster.known_state()
    not_ready = reasons(state.brokers)
    if as_json:
        click.echo(json.dumps(as_object(cluster, state, not_ready)))
        return
    rows = [
        (
            f"broker {broker.broker_id}",
            broker.address,
            broker.http_address if broker.http_port else None,
            broker.pid or None,
            _condition(broker) + _readiness(broker, not_ready),
        )
        for broker in state.brokers
    ]
    if state.embedded is None:
        rows.append(("ZooKeeper", state.zookeeper, None, None, "not started by tidelog up"))
    else:
        condition = _condition(state.embedded)
        rows.append(("ZooKeeper", state.zookeeper, None, state.embedded.pid or None, condition))
    for line in format_table(("process", "address", "http", "pid", "state"), rows):
        click.echo(line)
    click.echo(f"\ndata  {cluster.data_dir}\nlogs  {cluster.log_dir}")
    if not all(process.running for process in state.processes):
        missing = "the missing processes" if state.running else "the cluster"
        click.echo(f"\nstart {missing} with {up_command(cluster.data_dir, cluster.home)}")


@click.command(cls=Command)
@click.option(
    "--config",
    "configs",
    required=True,
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    metavar="FILE",
    help="The broker's settings (TOML); may be repeated, if no two files have the same setting.",
)
def broker(configs: tuple[Path, ...]) -> None:
    """Run one broker in the foreground (for compose or systemd)."""
    command = broker_command(*configs)
    try:
        os.execve(command[0], command, broker_environment())
    except OSError as error:
        raise LocalError(f"cannot start {command[0]}: {error.strerror}") from None


def _readiness(broker: BrokerState, not_ready: Mapping[int, str]) -> str:
    if not broker.running or not broker.http_port or broker.condition is Condition.SUSPENDED:
        return ""
    reason = not_ready.get(broker.broker_id)
    return ", ready" if reason is None else f", not ready: {reason}"


def _condition(process: ProcessState) -> str:
    match process.condition:
        case None:
            return "stopped"
        case Condition.RUNNING:
            return "running"
        case Condition.SUSPENDED:
            return f"suspended by a signal (state T): kill -CONT {process.pid} resumes it"
        case Condition.BLOCKED:
            return "running, blocked on a device (state D)"
        case Condition.ENDED:
            return "ended by itself"
