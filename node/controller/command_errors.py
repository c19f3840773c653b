"""The errors with which a command of a client may fail in ZooKeeper, and the errors that are answered for them."""

from __future__ import annotations

from cluster.zookeeper.store import StoreError
from cluster.zookeeper.write_conflicts import ControllerFenced
from tidelog.errors import BrokerError, RequestTimedOutError

#: The command is invalid, ZooKeeper did not accept the write, or another broker is the controller.
COMMAND_ERRORS = (BrokerError, StoreError, ControllerFenced)


def broker_error_of(error: BrokerError | StoreError | ControllerFenced) -> BrokerError:
    """Return a BrokerError as it is, and for every other error a RequestTimedOutError, which clients retry."""
    return error if isinstance(error, BrokerError) else RequestTimedOutError(f"ZooKeeper: {error}")
