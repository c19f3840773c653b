"""The state of a consumer's membership in its group: the requests that it sends, and the effects of the answers. Pure.

    OUT        not a member: has not joined yet, or has lost its membership
      ↓ join_request
    JOINING    waits for a generation to begin
      ↓ joined
    SYNCING    belongs to the generation, and waits for its assignment
      ↓ synced
    STABLE     has its assignment, and sends heartbeats

An error leads back from every state: REBALANCE_IN_PROGRESS to JOINING, UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION to OUT.
The partitions of a member that is `lost` may belong to other members.
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

#: The assignor that assigns a partition to a new owner only after the old owner has revoked it (KIP-429).
COOPERATIVE = "cooperative-sticky"


class MemberState(Enum):
    """The states in the module's docstring."""

    OUT = "out"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


@frozen
class MemberSettings:
    """The settings that a member sends to the coordinator; `assignors` are in the order of preference.

    instance_id            None for a dynamic member
    rebalance_timeout_ms   how long the coordinator waits for this member in a rebalance: `max_poll_interval_ms`
    """

    group_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[str, ...]

    @property
    def cooperative(self) -> bool:
        """Whether the member keeps its partitions while it joins again: its only assignor is cooperative-sticky."""
        return set(self.assignors) == {COOPERATIVE}


class MembershipState:
    """The membership of one consumer; the module's docstring has its states.

    member_id    the id that the coordinator assigned; empty: none
    generation   the current generation; −1 outside of any
    protocol     the assignor that the coordinator has chosen; empty before the first generation
    leads        this member is the group's leader, and assigns the partitions
    rejoins      this member must join again
    lost         this membership has ended, and the consumer's partitions are not dropped yet
    fenced       another consumer has taken the instance id, so that this one must not join again by itself; None: not
                 so
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
        """The identity by which the coordinator knows this member."""
        settings = self.settings
        return ConsumerGroupMetadata(settings.group_id, self.generation, self.member_id, settings.instance_id)

    # --- joining -------------------------------------------------------------------------------------

    def join_request(self, topics: Iterable[str], had: MemberData) -> JoinGroupRequest:
        """Enter JOINING, and return the request to join with these topics.

        had   the last assignment, which a cooperative member still owns
        """
        self.state, self.rejoins = MemberState.JOINING, False
        settings, subscribed = self.settings, tuple(sorted(topics))
        owned = had.partitions if settings.cooperative else ()

        def subscription(assignor: str) -> bytes:
            data = encode_member_data(had) if assignor == "sticky" else None
            return encode_subscription(Subscription(subscribed, owned, had.generation, None, data))

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
        """Handle the answer to a join; return whether the member is in a generation now (SYNCING).

        Otherwise the member may join again, with a member id that the answer may bring, unless the member is `lost`.
        Raises errors that are final.
        """
        error = error_for(answer.error_code)
        if error is None:
            self.state = MemberState.SYNCING
            self.generation, self.protocol = answer.generation_id, answer.protocol_name
            self.member_id, self.leads = answer.member_id, answer.leader == answer.member_id
            return True
        if isinstance(error, MemberIdRequiredError):
            self.member_id = answer.member_id
            return False
        self._on_error(error)
        return False

    def sync_request(self, assignments: tuple[SyncGroupAssignment, ...] = ()) -> SyncGroupRequest:
        """Return the request for the assignment. The leader sends the `assignments` of all members with it."""
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
        """Handle the answer to a sync, and return the assigned partitions (STABLE).

        None if the member must join again, or is `lost`. Raises errors that are final.
        """
        if error := error_for(answer.error_code):
            self._on_error(error)
            return None
        self.state = MemberState.STABLE
        return decode_assignment(answer.assignment)

    # --- heartbeats ----------------------------------------------------------------------------------

    def heartbeat_request(self) -> HeartbeatRequest:
        """Return a heartbeat of the current generation."""
        return HeartbeatRequest(self.settings.group_id, self.generation, self.member_id, self.settings.instance_id)

    def on_heartbeat(self, request: HeartbeatRequest, answer: HeartbeatResponse) -> None:
        """Handle the answer to a heartbeat: an error may set `rejoins` or `lost`; errors that are final are raised.

        An answer to a heartbeat of an older generation is ignored.
        """
        current = (self.generation, self.member_id) == (request.generation_id, request.member_id)
        if current and self.state is MemberState.STABLE and (error := error_for(answer.error_code)):
            self._on_error(error)

    def commit_refused(self, committer: ConsumerGroupMetadata, error: TidelogError) -> None:
        """Handle the error of a commit, which says as much about the membership as a heartbeat's error.

        Errors of other kinds, and those of a commit under another identity, are ignored. Raises FencedInstanceIdError.
        """
        if committer == self.identity and self.state is MemberState.STABLE and isinstance(error, _OF_MEMBERSHIP):
            self._on_error(error)

    def leave_request(self) -> LeaveGroupRequest | None:
        """Return the request to leave; None without a member id, and for a static member, which stays a member."""
        if not self.member_id or self.settings.instance_id is not None:
            return None
        return LeaveGroupRequest(self.settings.group_id, (LeavingMember(self.member_id),))

    def left(self) -> None:
        """End the membership: the member is `lost`, and forgets its generation and its member id. Nothing is sent."""
        self._end(forget=True)

    def _on_error(self, error: TidelogError) -> None:
        if isinstance(error, RebalanceInProgressError):
            self.rejoins = True
            if self.state is not MemberState.STABLE:
                self.state = MemberState.JOINING
        elif isinstance(error, UnknownMemberIdError | IllegalGenerationError):
            self._end(forget=isinstance(error, UnknownMemberIdError))
        elif isinstance(error, FencedInstanceIdError):
            self.fenced = FencedInstanceIdError(
                f"group {self.settings.group_id!r}: another consumer runs as {self.settings.instance_id!r}; "
                "each needs a group_instance_id of its own"
            )
            self._end(forget=True)
            raise self.fenced
        else:
            self.state = MemberState.OUT
            raise type(error)(f"group {self.settings.group_id!r}: {error}{self._hint(error)}")

    def _hint(self, error: TidelogError) -> str:
        """Return a text with the setting of this consumer that the coordinator refused; empty for other errors."""
        if isinstance(error, InvalidSessionTimeoutError):
            bounds = "its group_min_session_timeout_ms and group_max_session_timeout_ms"
            return f" session_timeout_ms is {self.settings.session_timeout_ms} here; see {bounds}"
        if isinstance(error, InconsistentGroupProtocolError):
            return f" partition_assignment_strategy is {', '.join(self.settings.assignors)} here"
        return ""

    def _end(self, *, forget: bool) -> None:
        self.state, self.generation, self.leads, self.lost = MemberState.OUT, -1, False, True
        if forget:
            self.member_id = ""


_OF_MEMBERSHIP = (RebalanceInProgressError, UnknownMemberIdError, IllegalGenerationError, FencedInstanceIdError)
