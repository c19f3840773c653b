"""`tidelog up`: starts ZooKeeper and brokers on this machine."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from tidelog.cli.cluster.cluster_object import as_object
from tidelog.cli.commands import Command
from tidelog.cli.common_options import data_dir_option
from tidelog.cli.terminal.interrupts import interrupted_by
from tidelog.clock import SystemClock
from tidelog.local.cluster import DEFAULT_BROKERS, LocalCluster
from tidelog.local.processes.ports import CLIENT_PORT
from tidelog.local.readiness import reasons
from tidelog.local.state import ClusterState
from tidelog.quantities import format_duration

_LOOK_EVERY_S = 0.5
_MOST_BROKERS = 100
_HIGHEST_PORT = 65_535
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(cls=Command)
@click.option(
    "--brokers",
    type=click.IntRange(1, _MOST_BROKERS),
    metavar="N",
    help=f"Number of brokers [default: {DEFAULT_BROKERS}, or the number in an existing cluster]",
)
@data_dir_option
@click.option(
    "--zookeeper", metavar="HOST:PORT,…/CHROOT", help="Use this ZooKeeper instead of starting an embedded one."
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    metavar="FILE",
    help="Settings for every broker (TOML, as for tidelog broker); kept for the next tidelog up.",
)
@click.option(
    "--histories",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    metavar="DIR",
    help="Directory in which each started broker records its event history; kept for the next tidelog up.",
)
@click.option(
    "--port",
    type=click.IntRange(0, _HIGHEST_PORT),
    envvar="TIDELOG_PORT",
    default=CLIENT_PORT,
    show_default=True,
    help="Port of the first new broker for clients, if it is free; each further broker takes the next one."
    " A broker gets any free port if its own is taken, or if this is 0, and keeps it.",
)
@click.option("--detach", is_flag=True, help="Return when the cluster is ready; stop it with tidelog down.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="When the cluster is ready, print one JSON object, as tidelog status --json does.",
)
def up(
    brokers: int | None,
    data_dir: Path | None,
    zookeeper: str | None,
    config: Path | None,
    histories: Path | None,
    port: int,
    detach: bool,
    as_json: bool,
) -> int | None:
    """Start a local cluster, and keep its data for the next tidelog up.

    The command stays in the foreground until Ctrl-C, which stops the cluster. With --detach, or if processes
    of the cluster ran before, the command returns when the cluster is ready.
    """
    cluster = LocalCluster(data_dir, histories=histories and histories.absolute())
    joined = cluster.state is not None and cluster.state.running
    reporter = _ready_reporter(_running(cluster), to_error=as_json)
    with interrupted_by(*_STOP_SIGNALS):
        state = cluster.start(
            brokers,
            zookeeper=zookeeper,
            config=config,
            port=port,
            on_ready=reporter,
            on_lost=_report_lost_directory,
            on_wait=_report_wait,
        )
        in_background = detach or joined

        def report() -> None:
            if as_json:
                click.echo(json.dumps(as_object(cluster, state, reasons(state.brokers))))
                sys.stdout.flush()
            else:
                _show_ready(cluster, state, in_background)

        if in_background:
            report()
            return None
        try:
            report()  # inside the block, because a program that reads the report may interrupt this process at once
            return _watch(cluster)
        except KeyboardInterrupt:
            click.echo("\nstopping …", err=True)
            cluster.stop()
            click.echo("stopped; the data stays for the next tidelog up", err=True)
            return None


def _report_lost_directory(directory: Path) -> None:
    click.echo(
        f"{directory} is missing: its broker starts with an empty directory, and copies the records of other replicas",
        err=True,
    )


def _report_wait(process: str, reason: str, waited_ms: int) -> None:
    click.echo(f"still waiting for {process} after {format_duration(waited_ms)}: {reason}", err=True)


def _running(cluster: LocalCluster) -> set[str]:
    """Return the addresses of the brokers that run before this command starts any."""
    return {broker.address for broker in cluster.state.brokers if broker.running} if cluster.state else set()


def _ready_reporter(running: set[str], to_error: bool) -> Callable[[str, str], None]:
    clock = SystemClock()
    started_ms = clock.monotonic_ms()

    def report(process: str, address: str) -> None:
        took = format_duration(clock.monotonic_ms() - started_ms)
        click.echo(
            f"{process:<10} {address:<16} " + ("is already running" if address in running else f"ready after {took}"),
            err=to_error,
        )

    return report


def _show_ready(cluster: LocalCluster, state: ClusterState, in_background: bool) -> None:
    here = "" if cluster.data_dir == cluster.home else f" --data-dir {shlex.quote(str(cluster.data_dir))}"
    watched = " ".join(f"{broker.http_address}/metrics" for broker in state.brokers if broker.http_port)
    stop = f"tidelog down{here}" + ("" if in_background else "   (or Ctrl-C here)")
    click.echo(
        f"""
bootstrap servers  {state.bootstrap_servers}
ZooKeeper          {state.zookeeper}
metrics            {watched}
data               {cluster.data_dir}
logs               {cluster.log_dir}

Next commands{"" if in_background else ", in another terminal"}:
  tidelog topic create lines --partitions 6
  echo hello | tidelog produce lines
  tidelog consume lines
  {stop}"""
    )


def _watch(cluster: LocalCluster) -> int | None:
    """Print each broker that ends, runs again or is suspended; return when no process of the cluster runs any more.

    Return the exit status: None if another command has stopped the cluster, 1 if all processes have ended by
    themselves.
    """
    gone: set[int] = set()
    suspended: dict[str, int] = {}
    while True:
        time.sleep(_LOOK_EVERY_S)
        state = cluster.refresh()
        if state is None or all(process.pid == 0 for process in state.processes):
            click.echo("stopped by another command", err=True)
            return None
        for broker in state.brokers:
            if not broker.running and broker.broker_id not in gone:
                gone.add(broker.broker_id)
                log = cluster.log_file(broker.broker_id)
                click.echo(f"broker {broker.broker_id} has ended: see {log}; tidelog up starts it again", err=True)
            elif broker.running and broker.broker_id in gone:
                gone.remove(broker.broker_id)
                click.echo(f"broker {broker.broker_id} runs again", err=True)
        previous, suspended = suspended, state.suspended
        for name, pid in suspended.items():
            if name not in previous:
                click.echo(f"{name} (pid {pid}) is suspended by a signal: kill -CONT {pid} resumes it", err=True)
        if not state.running:
            click.echo("tidelog: every process of the cluster has ended", err=True)
            return 1
