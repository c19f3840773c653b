"""One member of a consumer group, as the coordinator knows it."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.frozen import frozen


@frozen
class Protocol:
    """A way to be assigned partitions that a member understands, and its subscription in that protocol's own form."""

    name: str
    metadata: bytes


@frozen
class JoinRequest:
    """What somebody says who wants to be a member.

    member_id      "" where none was given out yet
    instance_id    of a static member (KIP-345), which keeps its place while it restarts
    protocols      in the order of its preference, one at least
    needs_id       whether a dynamic newcomer must come back with the id that it is given (KIP-394)
    candidate_id   the id that a newcomer gets
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_id: bool
    candidate_id: str


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group.

    joining      who waits for the answer to its JoinGroup; None: nobody
    syncing      who waits for the answer to its SyncGroup
    deadline_ms  when it counts as gone unless it is heard of; not while somebody waits for it, but for a newcomer,
                 whose connection may be gone without anybody's knowing
    newcomer     it has not seen a generation yet
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    joining: object | None = None
    syncing: object | None = None
    deadline_ms: int = 0
    newcomer: bool = False

    @property
    def names(self) -> list[str]:
        """The protocols that it understands, the preferred one first."""
        return [protocol.name for protocol in self.protocols]

    def metadata(self, protocol: str) -> bytes:
        """Its subscription in this protocol's form."""
        return next(each.metadata for each in self.protocols if each.name == protocol)

    def heard(self, now_ms: int) -> None:
        """It lives."""
        self.deadline_ms = now_ms + self.session_timeout_ms

    def is_gone(self, now_ms: int) -> bool:
        """Nothing was heard of it for too long."""
        waits = self.joining is not None or self.syncing is not None
        return now_ms >= self.deadline_ms and (self.newcomer or not waits)
