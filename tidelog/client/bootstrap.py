"""Find the bootstrap servers of a client or a command whose user names none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import LocalError
from tidelog.local.home import data_home, last_up, up_command
from tidelog.local.state import load_state

ENVIRONMENT_VARIABLE = "TIDELOG_BOOTSTRAP_SERVERS"


class FoundBrokers(NamedTuple):
    """Bootstrap servers as `host:port,…`.

    source   where the servers were found, for error messages: the environment variable, or the cluster's data directory
    """

    servers: str
    source: str


def find_brokers(argument: str, environment: Mapping[str, str] = os.environ) -> FoundBrokers:
    """Return the servers of `TIDELOG_BOOTSTRAP_SERVERS`, else of this user's last `tidelog up`.

    argument   how a user names the servers in this call or command, for the message of LocalError

    Raises LocalError if no cluster is known, or all brokers of the last one are stopped. The variable's value is not
    checked.
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
