"""`tidelog doctor`: checks the cluster and this machine for the common problems, and advises what to do."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.commands import Command
from tidelog.cli.common_options import all_option, bootstrap_option, data_dir_option, find_data_dir, json_option
from tidelog.cli.terminal.long_tables import Kind, Row, show_rows
from tidelog.client.bootstrap import ENVIRONMENT_VARIABLE
from tidelog.clock import SystemClock
from tidelog.local.environment import examine_environment
from tidelog.local.state import load_state
from tidelog.model import Endpoint

if TYPE_CHECKING:
    from tidelog.client.diagnosis.doctor_checks import Check

_TIMEOUT_MS = 3_000
_COLOURS = {"ok": "green", "warning": "yellow", "failure": "red"}
#: What a check counts as in the summary of many, by its state, the worst one first.
_COUNTED = {"failure": "failed", "warning": "with a warning", "ok": "ok"}
_CHECKS = Kind((), tuple(_COUNTED.values()), noun="check")


@click.command(cls=Command)
@bootstrap_option
@data_dir_option
@all_option
@json_option
def doctor(bootstrap_servers: str | None, data_dir: Path | None, shows_all: bool, as_json: bool) -> int:
    """Check a cluster and, if it is a local one, this machine.

    Print one line for each check, with advice if the check is not ok. Exit status 1 if a check fails, else 0.
    """
    checks = _checks(bootstrap_servers or (None if data_dir else os.environ.get(ENVIRONMENT_VARIABLE)), data_dir)
    failed = any(check.state.value == "failure" for check in checks)
    if as_json:
        entries = [
            {"name": check.name, "state": check.state.value, "sentence": check.sentence, "advice": check.advice}
            for check in checks
        ]
        click.echo(json.dumps({"healthy": not failed, "checks": entries}))
        return int(failed)
    width = max(len(check.name) for check in checks)
    rows = []
    for check in checks:
        state = check.state.value
        marked = click.style(f"{state:<7}", fg=_COLOURS[state]) if sys.stdout.isatty() else f"{state:<7}"
        advice = f"; {check.advice}" if check.advice else ""
        rows.append(Row((f"{marked}  {check.name:<{width}}  {check.sentence}{advice}",), _COUNTED[state]))
    show_rows(_CHECKS, rows, shows_all=shows_all)
    return int(failed)


def _checks(servers: str | None, data_dir: Path | None) -> list[Check]:
    from tidelog.client.diagnosis.doctor_checks import examine_cluster
    from tidelog.client.diagnosis.gather_broker_status import ask_cluster

    if servers:
        facts = asyncio.run(ask_cluster(_endpoints(servers), {}, SystemClock(), _TIMEOUT_MS))
        return examine_cluster(facts)
    directory = find_data_dir(data_dir)
    state = load_state(directory)
    checks = examine_environment(directory, state)
    if state is None:
        return checks
    suspended = state.suspended
    brokers = [broker for broker in state.brokers if f"broker {broker.broker_id}" not in suspended]
    if any(broker.running for broker in brokers):
        expected = {broker.broker_id: broker.endpoint for broker in brokers}
        bootstrap = [broker.endpoint for broker in brokers if broker.running]
        facts = asyncio.run(ask_cluster(bootstrap, expected, SystemClock(), _TIMEOUT_MS))
        # A suspended broker has a check already, which explains why it does not answer.
        checks += [check for check in examine_cluster(facts) if check.name not in suspended]
    return checks


def _endpoints(servers: str) -> list[Endpoint]:
    try:
        return [Endpoint.parse(each) for each in servers.split(",")]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--bootstrap-servers'") from None
