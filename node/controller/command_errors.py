"""What clients are told of a command that the cluster could not carry out."""

from __future__ import annotations

from cluster.zookeeper.store import StoreError
from cluster.zookeeper.write_conflicts import ControllerFenced
from tidelog.errors import BrokerError, RequestTimedOutError

#: A rule forbids it, ZooKeeper did not take it, or another controller reigns.
FAILURES = (BrokerError, StoreError, ControllerFenced)


def refusal(error: BrokerError | StoreError | ControllerFenced) -> BrokerError:
    """What to answer. What went wrong with ZooKeeper may go well when it is asked for again."""
    return error if isinstance(error, BrokerError) else RequestTimedOutError(f"ZooKeeper: {error}")
