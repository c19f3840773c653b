"""The requests of group members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

import random
from uuid import UUID

from cluster.groups.member import JoinRequest, Protocol
from node.groups.coordinator import MAX_STRING_BYTES, GroupCoordinator, Waiter, check_group_id
from node.groups.shard import HostedGroup, Shard
from tidelog.errors import (
    BrokerError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    UnknownMemberIdError,
)
from tidelog.protocol.group_messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeftMember,
    SyncGroupRequest,
)

_INT32_MAX = 2**31 - 1


class MemberRequests:
    """Handles the requests of members. Each method raises the BrokerError with which it refuses a request.

    rng   the source of new member ids
    """

    def __init__(self, coordinator: GroupCoordinator, rng: random.Random) -> None:
        self._coordinator = coordinator
        self._rng = rng

    def _new_id(self, prefix: str) -> str:
        """Return a new member id that begins with the client id or the group instance id."""
        return f"{prefix}-{UUID(int=self._rng.getrandbits(128), version=4)}"

    def join(self, request: JoinGroupRequest, client_id: str, client_host: str, waiter: Waiter) -> None:
        """Add the member to the next generation; create a missing group if the member has no id yet.

        Unless this method raises, `waiter` is called once, now or when that generation starts, with the generation's
        description or with an error. A new dynamic member whose client can join again (`can_join_again`) is refused
        with MemberIdRequiredError, whose text is the id with which the client must join.
        """
        check_group_id(request.group_id)
        coordinator, settings = self._coordinator, self._coordinator.settings
        least, most = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not least <= request.session_timeout_ms <= most:
            raise InvalidSessionTimeoutError(
                f"session timeout {request.session_timeout_ms} ms: must be between {least} and {most} ms"
                " (group_min_session_timeout_ms and group_max_session_timeout_ms of the broker)"
            )
        _check_fields(request, client_id)
        wanted = JoinRequest(
            request.member_id,
            request.group_instance_id,
            client_id,
            client_host,
            request.session_timeout_ms,
            # Old clients do not send a rebalance timeout. Kafka uses the session timeout for them, too.
            request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms,
            request.protocol_type,
            tuple(Protocol(protocol.name, protocol.metadata) for protocol in request.protocols),
            needs_id=request.can_join_again,
            candidate_id=self._new_id(request.group_instance_id or client_id),
            can_skip_assignment=request.can_skip_assignment,
        )
        shard, found = coordinator.find(request.group_id)
        if found is None:
            if request.member_id:
                raise UnknownMemberIdError(f"group {request.group_id!r} has no member {request.member_id!r}")
            shard, found = coordinator.find_or_create(request.group_id)
        try:
            effects = found.group.join(wanted, waiter, coordinator.clock.monotonic_ms())
        except BrokerError:
            # The refusal may have handed out a member id, which expires: `perform` sets the group's timer.
            coordinator.perform(shard, found, ())
            coordinator.drop_if_unused(shard, found)
            raise
        coordinator.perform(shard, found, effects)

    def sync(self, request: SyncGroupRequest, waiter: Waiter) -> None:
        """Pass the member's assignment to `waiter`, once the leader's assignment is written; or pass an error.

        The group leader's own request brings the assignments of all members.
        """
        coordinator = self._coordinator
        shard, hosted = self._find_for(request.group_id, request.member_id)
        effects = hosted.group.sync(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {each.member_id: each.assignment for each in request.assignments},
            waiter,
            coordinator.clock.monotonic_ms(),
        )
        coordinator.perform(shard, hosted, effects)

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Renew the member's session.

        Raise RebalanceInProgressError if the member must join again, or another BrokerError if the client is no member.
        """
        _, hosted = self._find_for(request.group_id, request.member_id)
        now_ms = self._coordinator.clock.monotonic_ms()
        hosted.group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, now_ms)

    def leave(self, request: LeaveGroupRequest) -> tuple[LeftMember, ...]:
        """Remove members, and return one result (code 0: removed) per member, in order. A BrokerError refuses all."""
        coordinator = self._coordinator
        shard, hosted = coordinator.find(request.group_id)
        left = []
        for leaving in request.members:
            code = 0
            try:
                if hosted is None:
                    raise UnknownMemberIdError
                now_ms = coordinator.clock.monotonic_ms()
                effects = hosted.group.leave(leaving.member_id, leaving.group_instance_id, now_ms)
                coordinator.perform(shard, hosted, effects)
            except BrokerError as error:
                code = error.code
            left.append(LeftMember(leaving.member_id, leaving.group_instance_id, code))
        if hosted is not None:
            coordinator.drop_if_unused(shard, hosted)
        return tuple(left)

    def _find_for(self, group_id: str, member_id: str) -> tuple[Shard, HostedGroup]:
        shard, hosted = self._coordinator.find(group_id)
        if hosted is None:
            raise UnknownMemberIdError(f"group {group_id!r} has no member {member_id!r}")
        return shard, hosted


def _check_fields(request: JoinGroupRequest, client_id: str) -> None:
    """Raise InvalidRequestError if a value does not fit into its field of the group's record."""
    if request.rebalance_timeout_ms > _INT32_MAX:
        raise InvalidRequestError(
            f"rebalance timeout {request.rebalance_timeout_ms} ms: must be at most {_INT32_MAX} ms"
        )
    names = (protocol.name for protocol in request.protocols)
    for text in (client_id, request.member_id, request.group_instance_id or "", request.protocol_type, *names):
        # The new member id consists of the client id or the instance id and up to 64 more bytes.
        if len(text.encode()) > MAX_STRING_BYTES - 64:
            raise InvalidRequestError(
                f"an id or a protocol name of {len(text.encode())} bytes: must be at most {MAX_STRING_BYTES - 64}"
            )
