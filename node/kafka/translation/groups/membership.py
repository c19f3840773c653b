"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the requests of the members of groups.

The subscriptions and assignments that members exchange pass through untouched.
"""

from __future__ import annotations

from node.kafka.calls import Call, NativeHandler, Outcome, converted
from tidelog.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
)
from tidelog.protocol import group_messages as native
from tidelog.protocol.kafka.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

#: The first version of JoinGroup whose clients join again with the member id that they are given (KIP-394).
_JOIN_AGAIN = 4
#: The first version of JoinGroup whose clients understand `skip_assignment` (KIP-814).
_SKIP_ASSIGNMENT = 9
#: The first version of JoinGroup in which the response to a refused request has no protocol name, instead of "".
_NULL_PROTOCOL = 7
#: The first version of SyncGroup that names the protocol, and must name it (KIP-559).
_SYNC_NAMES_PROTOCOL = 5
#: The first version of LeaveGroup that names several members (KIP-345).
_SEVERAL_LEAVE = 3


class GroupMembershipTranslation:
    """The translations of this module; `handle` is the broker's own handler."""

    def __init__(self, handle: NativeHandler) -> None:
        self._handle = handle

    # --- JoinGroup -----------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, call: Call) -> Outcome:
        """Join the next generation of a group. The session timeout of version 0 is also its rebalance timeout."""
        wanted = native.JoinGroupRequest(
            request.group_id,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            tuple(native.JoinGroupProtocol(each.name, each.metadata) for each in request.protocols),
            can_join_again=call.version >= _JOIN_AGAIN,
            can_skip_assignment=call.version >= _SKIP_ASSIGNMENT,
        )
        return converted(self._handle(wanted, call.context), lambda response: _joined(response, call.version))

    @staticmethod
    def join_error(request: JoinGroupRequest, error: BrokerError, version: int) -> JoinGroupResponse:
        """Return the response that carries this error."""
        return _joined(native.JoinGroupResponse(error.code, member_id=request.member_id), version)

    # --- SyncGroup -----------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, call: Call) -> Outcome:
        """Get the member's assignment. The leader's request brings the assignments of all members.

        COORDINATOR_LOAD_IN_PROGRESS becomes REBALANCE_IN_PROGRESS, after which the member joins again.
        """
        if call.version >= _SYNC_NAMES_PROTOCOL and None in (request.protocol_type, request.protocol_name):
            raise InconsistentGroupProtocolError("a SyncGroup request must name the protocol type and the protocol")
        wanted = native.SyncGroupRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            tuple(native.SyncGroupAssignment(each.member_id, each.assignment) for each in request.assignments),
        )
        return converted(self._handle(wanted, call.context), _synced)

    @staticmethod
    def sync_error(request: SyncGroupRequest, error: BrokerError, version: int) -> SyncGroupResponse:
        """Return the response that carries this error, or the one that `sync` puts in its place."""
        return _synced(native.SyncGroupResponse(error.code))

    # --- Heartbeat -----------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, call: Call) -> Outcome:
        """Renew the member's session. While the coordinator loads the group, the answer is success."""
        wanted = native.HeartbeatRequest(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )
        return converted(self._handle(wanted, call.context), lambda response: _renewed(response.error_code))

    @staticmethod
    def heartbeat_error(request: HeartbeatRequest, error: BrokerError, version: int) -> HeartbeatResponse:
        """Return the response that carries this error; success for COORDINATOR_LOAD_IN_PROGRESS."""
        return _renewed(error.code)

    # --- LeaveGroup ----------------------------------------------------------------------------------

    def leave(self, request: LeaveGroupRequest, call: Call) -> Outcome:
        """Remove members. Before version 3 the sender names only itself, and the response has only its error."""
        several = call.version >= _SEVERAL_LEAVE
        leaving = (
            tuple(native.LeavingMember(each.member_id, each.group_instance_id) for each in request.members)
            if several
            else (native.LeavingMember(request.member_id),)
        )

        def convert(response: native.LeaveGroupResponse) -> LeaveGroupResponse:
            if not several:
                codes = [each.error_code for each in response.members]
                return LeaveGroupResponse(error_code=response.error_code or codes[0])
            return LeaveGroupResponse(
                error_code=response.error_code,
                members=tuple(
                    MemberResponse(
                        member_id=each.member_id,
                        group_instance_id=each.group_instance_id,
                        error_code=each.error_code,
                    )
                    for each in response.members
                ),
            )

        return converted(self._handle(native.LeaveGroupRequest(request.group_id, leaving), call.context), convert)

    @staticmethod
    def leave_error(request: LeaveGroupRequest, error: BrokerError, version: int) -> LeaveGroupResponse:
        """Return the response that carries this error."""
        return LeaveGroupResponse(error_code=error.code)


def _joined(response: native.JoinGroupResponse, version: int) -> JoinGroupResponse:
    has_begun = not response.error_code
    return JoinGroupResponse(
        error_code=response.error_code,
        generation_id=response.generation_id,
        protocol_type=response.protocol_type if has_begun else None,
        protocol_name=response.protocol_name if has_begun or version < _NULL_PROTOCOL else None,
        leader=response.leader,
        skip_assignment=response.skip_assignment,
        member_id=response.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.group_instance_id, metadata=each.metadata
            )
            for each in response.members
        ),
    )


def _synced(response: native.SyncGroupResponse) -> SyncGroupResponse:
    code = response.error_code
    if code == CoordinatorLoadInProgressError.code:
        # Clients do not expect this error here, and Java's ends its consumer. The rebalance is lost with the former
        # coordinator anyway, so that the member has to join again.
        code = RebalanceInProgressError.code
    return SyncGroupResponse(
        error_code=code,
        protocol_type=None if code else response.protocol_type,
        protocol_name=None if code else response.protocol_name,
        assignment=response.assignment,
    )


def _renewed(error_code: int) -> HeartbeatResponse:
    # A new coordinator that still loads the group gives every member a new session. Clients do not expect the error
    # that says so, and Java's ends its consumer.
    return HeartbeatResponse(error_code=0 if error_code == CoordinatorLoadInProgressError.code else error_code)
