"""A consumer's membership in its group, as far as it knows of it: what it asks of the coordinator, and what it makes of
the answers. Pure.

    OUT        no member: it has not joined yet, or was lost
      ↓ join_request
    JOINING    waits for a generation to begin
      ↓ joined
    SYNCING    is in it, and waits for its assignment
      ↓ synced
    STABLE     has it; lives by heartbeats

From every state a refusal leads back: "join again" to JOINING, "who are you?" to OUT. What was assigned to a member
that is `lost` may be another's by now.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from tidelog.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    TidelogError,
    UnknownMemberIdError,
    error_for,
)
from tidelog.frozen_dataclass import frozen
from tidelog.groups.assignment.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    encode_subscription,
)
from tidelog.groups.assignment.sticky_user_data import MemberData, encode_member_data
from tidelog.model import ConsumerGroupMetadata, TopicPartition
from tidelog.protocol.group_messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

#: The assignor that never takes a partition away before it was given up (KIP-429).
COOPERATIVE = "cooperative-sticky"


class MemberState(Enum):
    """See the module's first lines."""

    OUT = "out"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


@frozen
class MemberSettings:
    """What a member tells of itself; `assignors` in the order of preference."""

    group_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[str, ...]

    @property
    def cooperative(self) -> bool:
        """Whether it keeps what it has while it joins again: only where every assignor allows for that."""
        return set(self.assignors) == {COOPERATIVE}


class MembershipState:
    """See the module's first lines.

    generation   −1: none
    leads        it is the one that assigns
    rejoins      it is to join again
    lost         the coordinator knows it no more, and it has not been told to its reader yet
    fenced       another has taken its instance id: it must not come back by itself
    """

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.state = MemberState.OUT
        self.member_id = ""
        self.generation = -1
        self.protocol = ""
        self.leads = False
        self.rejoins = False
        self.lost = False
        self.fenced: FencedInstanceIdError | None = None

    @property
    def identity(self) -> ConsumerGroupMetadata:
        """By what the coordinator knows it."""
        settings = self.settings
        return ConsumerGroupMetadata(settings.group_id, self.generation, self.member_id, settings.instance_id)

    # --- joining -------------------------------------------------------------------------------------

    def join_request(self, topics: Iterable[str], had: MemberData) -> JoinGroupRequest:
        """`had`: what was assigned to it, and in which generation; a cooperative member still owns it."""
        self.state, self.rejoins = MemberState.JOINING, False
        settings, wanted = self.settings, tuple(sorted(topics))
        owned = had.partitions if settings.cooperative else ()

        def subscription(assignor: str) -> bytes:
            data = encode_member_data(had) if assignor == "sticky" else None
            return encode_subscription(Subscription(wanted, owned, had.generation, None, data))

        return JoinGroupRequest(
            settings.group_id,
            settings.session_timeout_ms,
            settings.rebalance_timeout_ms,
            self.member_id,
            settings.instance_id,
            PROTOCOL_TYPE,
            tuple(JoinGroupProtocol(each, subscription(each)) for each in settings.assignors),
        )

    def joined(self, answer: JoinGroupResponse) -> bool:
        """Whether it is in a generation now; else it may join again, unless it is `lost`. What is final is raised."""
        error = error_for(answer.error_code)
        if error is None:
            self.state = MemberState.SYNCING
            self.generation, self.protocol = answer.generation_id, answer.protocol_name
            self.member_id, self.leads = answer.member_id, answer.leader == answer.member_id
            return True
        if isinstance(error, MemberIdRequiredError):
            self.member_id = answer.member_id
            return False
        self._refused(error)
        return False

    def sync_request(self, assignments: tuple[SyncGroupAssignment, ...] = ()) -> SyncGroupRequest:
        """`assignments`: the leader's, for everybody."""
        return SyncGroupRequest(
            self.settings.group_id,
            self.generation,
            self.member_id,
            self.settings.instance_id,
            PROTOCOL_TYPE,
            self.protocol,
            assignments,
        )

    def synced(self, answer: SyncGroupResponse) -> tuple[TopicPartition, ...] | None:
        """What is assigned to it; None: as where `joined` is false."""
        if error := error_for(answer.error_code):
            self._refused(error)
            return None
        self.state = MemberState.STABLE
        return decode_assignment(answer.assignment)

    # --- living --------------------------------------------------------------------------------------

    def heartbeat_request(self) -> HeartbeatRequest:
        """Of this generation."""
        return HeartbeatRequest(self.settings.group_id, self.generation, self.member_id, self.settings.instance_id)

    def heard(self, request: HeartbeatRequest, answer: HeartbeatResponse) -> None:
        """What the answer says of the generation of the request; it may be over already."""
        current = (self.generation, self.member_id) == (request.generation_id, request.member_id)
        if current and self.state is MemberState.STABLE and (error := error_for(answer.error_code)):
            self._refused(error)

    def commit_refused(self, committer: ConsumerGroupMetadata, error: TidelogError) -> None:
        """A commit was answered like this; it says as much as a heartbeat does."""
        if committer == self.identity and self.state is MemberState.STABLE and isinstance(error, _OF_MEMBERSHIP):
            self._refused(error)

    def leave_request(self) -> LeaveGroupRequest | None:
        """None where there is nobody to leave, or a static member, whose place is kept while it is away."""
        if not self.member_id or self.settings.instance_id is not None:
            return None
        return LeaveGroupRequest(self.settings.group_id, (LeavingMember(self.member_id),))

    def left(self) -> None:
        """It is no member any more."""
        self._lose(forget=True)

    def _refused(self, error: TidelogError) -> None:
        if isinstance(error, RebalanceInProgressError):
            self.rejoins = True
            if self.state is not MemberState.STABLE:
                self.state = MemberState.JOINING
        elif isinstance(error, UnknownMemberIdError | IllegalGenerationError):
            self._lose(forget=isinstance(error, UnknownMemberIdError))
        elif isinstance(error, FencedInstanceIdError):
            self.fenced = FencedInstanceIdError(
                f"group {self.settings.group_id!r}: another consumer runs as {self.settings.instance_id!r}; "
                "each needs a group_instance_id of its own"
            )
            self._lose(forget=True)
            raise self.fenced
        else:
            self.state = MemberState.OUT
            raise type(error)(f"group {self.settings.group_id!r}: {error}{self._hint(error)}")

    def _hint(self, error: TidelogError) -> str:
        """What of this consumer's settings was refused."""
        if isinstance(error, InvalidSessionTimeoutError):
            bounds = "its group_min_session_timeout_ms and group_max_session_timeout_ms"
            return f" session_timeout_ms is {self.settings.session_timeout_ms} here; see {bounds}"
        if isinstance(error, InconsistentGroupProtocolError):
            return f" partition_assignment_strategy is {', '.join(self.settings.assignors)} here"
        return ""

    def _lose(self, *, forget: bool) -> None:
        self.state, self.generation, self.leads, self.lost = MemberState.OUT, -1, False, True
        if forget:
            self.member_id = ""


_OF_MEMBERSHIP = (RebalanceInProgressError, UnknownMemberIdError, IllegalGenerationError, FencedInstanceIdError)
