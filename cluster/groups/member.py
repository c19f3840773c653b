"""One member of a consumer group, as the coordinator knows it."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.groups.effects import Answer, Joined, Synced
from tidelog.errors import BrokerError
from tidelog.frozen_dataclass import frozen
from tidelog.groups.offsets_topic import MemberRecord

#: How long a newcomer is waited for whose request is waiting itself: its connection may be gone (as in Kafka).
NEWCOMER_MS = 300_000


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
    deadline_ms  when it counts as gone unless it is heard of
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

    @classmethod
    def come(cls, request: JoinRequest, member_id: str, now_ms: int) -> Member:
        """Somebody new."""
        member = cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            newcomer=True,
        )
        member.heard(now_ms)
        return member

    @classmethod
    def restore(cls, record: MemberRecord, protocol: str, now_ms: int) -> Member:
        """As it was written last; its session begins anew."""
        member = cls(
            record.member_id,
            record.instance_id,
            record.client_id,
            record.client_host,
            record.session_timeout_ms,
            record.rebalance_timeout_ms,
            (Protocol(protocol, record.subscription),),
            record.assignment,
        )
        member.heard(now_ms)
        return member

    def record(self, protocol: str, assignment: bytes) -> MemberRecord:
        """To be written."""
        return MemberRecord(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    @property
    def names(self) -> list[str]:
        """The protocols that it understands, the preferred one first."""
        return [protocol.name for protocol in self.protocols]

    def metadata(self, protocol: str) -> bytes:
        """Its subscription in this protocol's form."""
        return next(each.metadata for each in self.protocols if each.name == protocol)

    def update(self, request: JoinRequest, now_ms: int) -> None:
        """It wants to be known by what it says now."""
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        self.protocols = request.protocols
        self.heard(now_ms)

    # --- its life ------------------------------------------------------------------------------------

    def heard(self, now_ms: int) -> None:
        """It lives."""
        self.deadline_ms = now_ms + (NEWCOMER_MS if self.newcomer else self.session_timeout_ms)

    @property
    def expires_ms(self) -> int | None:
        """When it is gone. None while somebody waits for an answer to it, who may be gone himself if he is new here."""
        waits = self.joining is not None or self.syncing is not None
        return None if waits and not self.newcomer else self.deadline_ms

    # --- who waits for it ----------------------------------------------------------------------------

    def answer_join(self, outcome: Joined | BrokerError, now_ms: int) -> list[Answer]:
        """To whoever waits for it to have joined."""
        waiter, self.joining = self.joining, None
        return self._answer(waiter, outcome, now_ms)

    def answer_sync(self, outcome: Synced | BrokerError, now_ms: int) -> list[Answer]:
        """To whoever waits for its assignment."""
        waiter, self.syncing = self.syncing, None
        return self._answer(waiter, outcome, now_ms)

    def refuse(self, error: BrokerError) -> list[Answer]:
        """It is no member any more."""
        waiters, self.joining, self.syncing = (self.joining, self.syncing), None, None
        return [Answer(waiter, error) for waiter in waiters if waiter is not None]

    def _answer(self, waiter: object | None, outcome: Joined | Synced | BrokerError, now_ms: int) -> list[Answer]:
        if waiter is None:
            return []
        # That it was silent meanwhile was our doing.
        self.heard(now_ms)
        return [Answer(waiter, outcome)]
