"""One member of a consumer group, as the coordinator keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.groups.effects import Answer, Joined, Synced
from tidelog.errors import BrokerError
from tidelog.frozen_dataclass import frozen
from tidelog.groups.offsets_topic import MemberRecord

#: The session timeout of a new member while its JoinGroup waits, because its connection may be lost (as in Kafka).
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


@frozen
class Protocol:
    """An assignment protocol that a member supports, with its subscription encoded by that protocol."""

    name: str
    metadata: bytes


@frozen
class JoinRequest:
    """The content of a JoinGroup request.

    member_id             "" if the client has no id yet
    instance_id           the id of a static member (KIP-345), which keeps its place while it restarts
    protocols             at least one, in order of preference
    needs_id              whether a new dynamic member must join again with the id that it is given (KIP-394)
    candidate_id          the id that a new or restarted static member gets
    can_skip_assignment   whether the client understands that it leads and is not to assign (KIP-814)
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
    can_skip_assignment: bool = True


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group.

    joining               the waiter of the member's JoinGroup, or None
    syncing               the waiter of the member's SyncGroup, or None
    deadline_ms           when the member's session ends unless it is heard from before
    is_new                the member has not been in a generation yet
    former_id             the id of a static member before it joined again; "" if it did not
    can_skip_assignment   as in the member's last JoinGroup
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
    is_new: bool = False
    former_id: str = ""
    can_skip_assignment: bool = True

    @classmethod
    def create(cls, request: JoinRequest, member_id: str, now_ms: int) -> Member:
        """Return a new member with this id, whose session begins now; no request of it waits yet."""
        member = cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            is_new=True,
            can_skip_assignment=request.can_skip_assignment,
        )
        member.note_alive(now_ms)
        return member

    @classmethod
    def restore(cls, record: MemberRecord, protocol: str, now_ms: int) -> Member:
        """Return a member as its record describes it, with a new session."""
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
        member.note_alive(now_ms)
        return member

    def record(self, protocol: str, assignment: bytes) -> MemberRecord:
        """Return the member's part of the group's record, with its subscription for `protocol`."""
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
        """Return the names of the protocols that the member supports, in order of preference."""
        return [protocol.name for protocol in self.protocols]

    def metadata(self, protocol: str) -> bytes:
        """Return the member's subscription, encoded by this protocol, which the member must support."""
        return next(each.metadata for each in self.protocols if each.name == protocol)

    def update(self, request: JoinRequest, now_ms: int) -> None:
        """Replace the member's client, timeouts and protocols by those of a newer request, and restart its session."""
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        self.protocols, self.can_skip_assignment = request.protocols, request.can_skip_assignment
        self.note_alive(now_ms)

    # --- the session ---------------------------------------------------------------------------------

    def note_alive(self, now_ms: int) -> None:
        """Restart the session timeout. Until the member's first generation it is 5 minutes."""
        self.deadline_ms = now_ms + (NEW_MEMBER_JOIN_TIMEOUT_MS if self.is_new else self.session_timeout_ms)

    @property
    def expires_ms(self) -> int | None:
        """Return when the member's session ends.

        Return None while a request of the member waits, unless the member is new, because a new client's connection may
        be lost.
        """
        waits = self.joining is not None or self.syncing is not None
        return None if waits and not self.is_new else self.deadline_ms

    # --- waiting requests ----------------------------------------------------------------------------

    def answer_join(self, outcome: Joined | BrokerError, now_ms: int) -> list[Answer]:
        """Return the answer to the member's waiting JoinGroup, and restart its session; nothing if none waits."""
        waiter, self.joining = self.joining, None
        return self._answer(waiter, outcome, now_ms)

    def answer_sync(self, outcome: Synced | BrokerError, now_ms: int) -> list[Answer]:
        """Return the answer to the member's waiting SyncGroup, and restart its session; nothing if none waits."""
        waiter, self.syncing = self.syncing, None
        return self._answer(waiter, outcome, now_ms)

    def refuse(self, error: BrokerError) -> list[Answer]:
        """Return this error as the answer to all waiting requests of the member. Its session does not restart."""
        waiters, self.joining, self.syncing = (self.joining, self.syncing), None, None
        return [Answer(waiter, error) for waiter in waiters if waiter is not None]

    def _answer(self, waiter: object | None, outcome: Joined | Synced | BrokerError, now_ms: int) -> list[Answer]:
        if waiter is None:
            return []
        # The member could send no heartbeat while its request waited here.
        self.note_alive(now_ms)
        return [Answer(waiter, outcome)]
