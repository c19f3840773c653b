"""The errors that the controller answers for a command that failed."""

from __future__ import annotations

from cluster.zookeeper.store import StoreError
from cluster.zookeeper.write_conflicts import ControllerFenced
from tidelog.errors import BrokerError, RequestTimedOutError

#: The command is invalid, ZooKeeper did not accept the write, or another broker is the controller.
COMMAND_ERRORS = (BrokerError, StoreError, ControllerFenced)


def broker_error_of(error: BrokerError | StoreError | ControllerFenced) -> BrokerError:
    """Return the error to answer with. A failure of ZooKeeper becomes a retriable timeout."""
    return error if isinstance(error, BrokerError) else RequestTimedOutError(f"ZooKeeper: {error}")
