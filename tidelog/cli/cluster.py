"""`tidelog down`, `status` and `broker`: the processes of a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from tidelog.cli.find import data_dir_option, find_data_dir, up_command
from tidelog.cli.table import format_table
from tidelog.errors import LocalError
from tidelog.local.broker import broker_command, broker_environment
from tidelog.local.cluster import LocalCluster


@click.command()
@data_dir_option
@click.option("--purge", is_flag=True, help="Remove the cluster's data and logs as well.")
def down(data_dir: Path | None, purge: bool) -> None:
    """Stop the local cluster: the brokers politely, then ZooKeeper."""
    cluster = LocalCluster(find_data_dir(data_dir))
    if cluster.state is None and not purge:
        cluster.known_state()
    stopped = cluster.stop()
    click.echo(f"stopped the cluster in {cluster.data_dir}" if stopped else f"nothing ran in {cluster.data_dir}")
    if purge:
        purged = cluster.purge()
        click.echo("removed its data and logs" if purged else "there was nothing to remove")


@click.command()
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(data_dir: Path | None, as_json: bool) -> None:
    """Show the local cluster's processes."""
    cluster = LocalCluster(find_data_dir(data_dir))
    state = cluster.known_state()
    if as_json:
        brokers = [
            {
                "id": broker.broker_id,
                "pid": broker.pid or None,
                "alive": broker.running,
                "host": broker.address.rpartition(":")[0],
                "port": broker.port,
                "replication_port": broker.replication_port,
                "data_dir": str(cluster.broker_dir(broker.broker_id)),
                "log": str(cluster.log_file(broker.broker_id)),
            }
            for broker in state.brokers
        ]
        answer = {
            "bootstrap_servers": state.bootstrap_servers,
            "zookeeper": state.zookeeper,
            "brokers": brokers,
            "zookeeper_pid": state.embedded.pid or None if state.embedded else None,
            "zookeeper_alive": state.embedded.running if state.embedded else None,
            "data_dir": str(cluster.data_dir),
            "log_dir": str(cluster.log_dir),
        }
        click.echo(json.dumps(answer))
        return
    rows = [
        (f"broker {broker.broker_id}", broker.address, broker.pid or None, _condition(broker.pid, broker.running))
        for broker in state.brokers
    ]
    if state.embedded is None:
        rows.append(("ZooKeeper", state.zookeeper, None, "not ours"))
    else:
        condition = _condition(state.embedded.pid, state.embedded.running)
        rows.append(("ZooKeeper", state.zookeeper, state.embedded.pid or None, condition))
    for line in format_table(("process", "address", "pid", "state"), rows):
        click.echo(line)
    click.echo(f"\ndata  {cluster.data_dir}\nlogs  {cluster.log_dir}")
    if not all(process.running for process in state.processes):
        what = "what does not run" if state.running else "it"
        click.echo(f"\nstart {what} with {up_command(cluster.data_dir, cluster.home)}")


@click.command()
@click.option(
    "--config",
    "configs",
    required=True,
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    metavar="FILE",
    help="The broker's settings (TOML). Repeated: each setting stands in one of the files.",
)
def broker(configs: tuple[Path, ...]) -> None:
    """Run one broker in the foreground (for compose or systemd)."""
    command = broker_command(*configs)
    try:
        os.execve(command[0], command, broker_environment())
    except OSError as error:
        raise LocalError(f"cannot start {command[0]}: {error.strerror}") from None


def _condition(pid: int, running: bool) -> str:
    if running:
        return "running"
    return "ended by itself" if pid else "stopped"
