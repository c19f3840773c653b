"""Conflicts of a write in ZooKeeper: another controller, another state, another owner."""

from __future__ import annotations

from cluster.state import TopicAssignment, VersionedState
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition


class ControllerFenced(TidelogError):
    """Another controller was elected, so that this one's writes are refused for ever."""


class StateConflict(TidelogError):
    """A partition's state is not the expected one. `actual` is the state found; None: the partition has no state."""

    def __init__(self, tp: TopicPartition, actual: VersionedState | None) -> None:
        super().__init__(f"{tp}: the state in ZooKeeper is not the expected one but {actual}")
        self.tp = tp
        self.actual = actual


class AssignmentConflict(TidelogError):
    """A topic's assignment is not the expected one. `actual` is the one found; None: it is gone or unreadable."""

    def __init__(self, topic: str, actual: TopicAssignment | None) -> None:
        super().__init__(f"topic {topic!r}: the assignment in ZooKeeper is not the expected one but {actual}")
        self.actual = actual


class BrokerIdTaken(TidelogError):
    """Another live process is registered under this broker id."""
