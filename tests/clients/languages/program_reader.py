"""A member of a group that is a client in another language."""

from __future__ import annotations

from collections.abc import Iterable

from tests.clients.adapters.client_program import ProgramClient
from tests.clients.adapters.foreign_client import RefusedError
from tests.clients.adapters.registry import JAVA_VERSIONS
from tests.clients.group_readers import SESSION_TIMEOUT_MS, GroupReader, Seen

_JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class ProgramReader(GroupReader):
    """Reads in a process of its own. `assignments` counts how often its assignment changed."""

    def __init__(
        self,
        client: ProgramClient,
        topic: str,
        group: str,
        *,
        assignor: str = "range",
        instance: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        settings = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": str(session_timeout_ms),
            "heartbeat.interval.ms": "1000",
            "partition.assignment.strategy": _JAVA_ASSIGNORS[assignor] if client.name in JAVA_VERSIONS else assignor,
        }
        if instance is not None:
            settings["group.instance.id"] = instance
        self.assignments = 0
        self._process = client.start()
        self._process.write({"do": "read_group", "topic": topic, "settings": settings})
        super().__init__()

    def _read(self) -> Iterable[Seen]:
        """Read one line of the program. Its result is its last line."""
        line = self._process.read()
        if "error" in line:
            raise RefusedError(line["error"])
        if "owned" in line:
            self.owned = set(line["owned"])
            self.assignments += 1
        self.revoked |= set(line.get("revoked", ()))
        if "result" in line:
            self._stopping.set()
        return [(partition, offset) for partition, offset in line.get("seen", ())]

    def _close(self) -> None:
        pass

    def close(self) -> None:
        """Let the program commit and leave the group, and wait for its result."""
        self._process.write({"do": "stop"})
        self._thread.join(30)
        self._process.stop()
        assert not self._thread.is_alive()
        assert self.error is None, self.error
