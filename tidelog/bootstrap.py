"""Finds the brokers that a client or a command starts from, when its user names none."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import LocalError
from tidelog.local.home import data_home, last_up
from tidelog.local.state import load_state

ENVIRONMENT_VARIABLE = "TIDELOG_BOOTSTRAP_SERVERS"


class FoundBrokers(NamedTuple):
    """Bootstrap servers as `host:port,…`, and the place where they stand, for error messages."""

    servers: str
    source: str


def find_brokers(argument: str, environment: Mapping[str, str] = os.environ) -> FoundBrokers:
    """Return the servers of `TIDELOG_BOOTSTRAP_SERVERS`, else of this user's last `tidelog up`.

    argument   how the caller's user would name the servers: part of the message of LocalError, if there are none
    """
    if named := environment.get(ENVIRONMENT_VARIABLE):
        return FoundBrokers(named, ENVIRONMENT_VARIABLE)
    home = data_home(environment)
    data_dir = last_up(home)
    state = load_state(data_dir) if data_dir else None
    if data_dir is None or state is None:
        raise LocalError(
            f"no cluster is known: start one with tidelog up, set {ENVIRONMENT_VARIABLE}, or pass {argument}"
        )
    if not any(broker.running for broker in state.brokers):
        raise LocalError(f"the cluster in {data_dir} is stopped: start it with {up_command(data_dir, home)}")
    return FoundBrokers(state.bootstrap_servers, str(data_dir))


def up_command(data_dir: Path, home: Path) -> str:
    """Return the command that starts the cluster in `data_dir`."""
    return "tidelog up" + _data_dir_option(data_dir, home)


def down_command(data_dir: Path, home: Path) -> str:
    """Return the command that stops the cluster in `data_dir`."""
    return "tidelog down" + _data_dir_option(data_dir, home)


def _data_dir_option(data_dir: Path, home: Path) -> str:
    return "" if data_dir == home else f" --data-dir {shlex.quote(str(data_dir))}"
