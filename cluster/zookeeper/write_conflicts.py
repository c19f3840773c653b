"""What a writer finds in ZooKeeper that it did not expect: another controller, another state, another owner."""

from __future__ import annotations

from cluster.state import TopicAssignment, VersionedState
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition


class ControllerFenced(TidelogError):
    """Another controller was elected: this one's writes are refused for ever."""


class StateConflict(TidelogError):
    """A partition's state is not what the writer thought. `actual` is what stands there, None: no such partition."""

    def __init__(self, tp: TopicPartition, actual: VersionedState | None) -> None:
        super().__init__(f"{tp}: the state is {actual}")
        self.tp = tp
        self.actual = actual


class AssignmentConflict(TidelogError):
    """A topic's assignment is not what the controller thought. `actual` is what stands there, None: no such topic."""

    def __init__(self, topic: str, actual: TopicAssignment | None) -> None:
        super().__init__(f"{topic}: the assignment is {actual}")
        self.actual = actual


class BrokerIdTaken(TidelogError):
    """Another live process is registered under this broker id."""
