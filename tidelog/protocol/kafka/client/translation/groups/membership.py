"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the members of a group."""

from __future__ import annotations

from tidelog.protocol import group_messages as native
from tidelog.protocol.kafka.client.translation.translation import Translation, always
from tidelog.protocol.kafka.messages import group_membership as kafka
from tidelog.protocol.kafka.schema import Versions


def _write_join(request: native.JoinGroupRequest, version: int) -> kafka.JoinGroupRequest:
    return kafka.JoinGroupRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=tuple(
            kafka.JoinGroupRequestProtocol(name=each.name, metadata=each.metadata) for each in request.protocols
        ),
    )


def _read_join(
    response: kafka.JoinGroupResponse, request: native.JoinGroupRequest, version: int
) -> native.JoinGroupResponse:
    return native.JoinGroupResponse(
        response.error_code,
        response.generation_id,
        # Before version 7 the response does not repeat the type, which is that of the request.
        response.protocol_type or ("" if response.error_code else request.protocol_type),
        response.protocol_name or "",
        response.leader,
        response.member_id,
        tuple(
            native.JoinGroupMember(each.member_id, each.group_instance_id, each.metadata) for each in response.members
        ),
        response.skip_assignment,
    )


#: From version 5 on members may be static, and a new member gets MEMBER_ID_REQUIRED.
JOIN_GROUP = Translation(kafka.JoinGroupRequest, always(5, 9), _write_join, _read_join)


#: From version 3 on members may be static, and from version 5 on they must name the group's protocol.
_SYNC, _SYNC_WITHOUT_PROTOCOL = Versions(3, 5), Versions(3, 4)


def _sync_versions(request: native.SyncGroupRequest) -> Versions:
    return _SYNC_WITHOUT_PROTOCOL if None in (request.protocol_type, request.protocol_name) else _SYNC


def _write_sync(request: native.SyncGroupRequest, version: int) -> kafka.SyncGroupRequest:
    return kafka.SyncGroupRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple(
            kafka.SyncGroupRequestAssignment(member_id=each.member_id, assignment=each.assignment)
            for each in request.assignments
        ),
    )


def _read_sync(
    response: kafka.SyncGroupResponse, request: native.SyncGroupRequest, version: int
) -> native.SyncGroupResponse:
    return native.SyncGroupResponse(
        response.error_code, response.protocol_type or "", response.protocol_name or "", response.assignment
    )


SYNC_GROUP = Translation(kafka.SyncGroupRequest, _sync_versions, _write_sync, _read_sync)


def _write_heartbeat(request: native.HeartbeatRequest, version: int) -> kafka.HeartbeatRequest:
    return kafka.HeartbeatRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )


def _read_heartbeat(
    response: kafka.HeartbeatResponse, request: native.HeartbeatRequest, version: int
) -> native.HeartbeatResponse:
    return native.HeartbeatResponse(response.error_code)


HEARTBEAT = Translation(kafka.HeartbeatRequest, always(3, 4), _write_heartbeat, _read_heartbeat)


def _write_leave(request: native.LeaveGroupRequest, version: int) -> kafka.LeaveGroupRequest:
    return kafka.LeaveGroupRequest(
        group_id=request.group_id,
        members=tuple(
            kafka.MemberIdentity(member_id=each.member_id, group_instance_id=each.group_instance_id)
            for each in request.members
        ),
    )


def _read_leave(
    response: kafka.LeaveGroupResponse, request: native.LeaveGroupRequest, version: int
) -> native.LeaveGroupResponse:
    return native.LeaveGroupResponse(
        response.error_code,
        tuple(native.LeftMember(each.member_id, each.group_instance_id, each.error_code) for each in response.members),
    )


LEAVE_GROUP = Translation(kafka.LeaveGroupRequest, always(3, 5), _write_leave, _read_leave)
