"""Being a member of a group: joining, assigning, living, leaving."""

from __future__ import annotations

import random
from uuid import UUID

from cluster.groups.member import JoinRequest, Protocol
from node.groups.coordinator import MOST_STRING_BYTES, GroupCoordinator, Waiter
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
    """The requests of members.

    rng   new ids are drawn from it
    """

    def __init__(self, coordinator: GroupCoordinator, rng: random.Random) -> None:
        self._coordinator = coordinator
        self._rng = rng

    def _new_id(self, prefix: str) -> str:
        """Nobody has had it; it begins with the client's name or the instance's."""
        return f"{prefix}-{UUID(int=self._rng.getrandbits(128), version=4)}"

    def join(self, request: JoinGroupRequest, client_id: str, client_host: str, waiter: Waiter) -> None:
        """To be in the next generation. `waiter` is told when it begins; a BrokerError refuses the request."""
        coordinator, settings = self._coordinator, self._coordinator.settings
        least, most = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not least <= request.session_timeout_ms <= most:
            raise InvalidSessionTimeoutError(
                f"a session timeout of {request.session_timeout_ms} ms; this broker allows {least} to {most}"
            )
        _check_fields(request, client_id)
        wanted = JoinRequest(
            request.member_id,
            request.group_instance_id,
            client_id,
            client_host,
            request.session_timeout_ms,
            # Old clients do not say; so does Kafka.
            request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms,
            request.protocol_type,
            tuple(Protocol(protocol.name, protocol.metadata) for protocol in request.protocols),
            needs_id=True,
            candidate_id=self._new_id(request.group_instance_id or client_id),
        )
        shard, found = coordinator.find(request.group_id)
        if found is None:
            if request.member_id:
                raise UnknownMemberIdError(f"group {request.group_id!r} has no member {request.member_id!r}")
            shard, found = coordinator.find_or_create(request.group_id)
        try:
            outcomes = found.group.join(wanted, waiter, coordinator.clock.monotonic_ms())
        except BrokerError:
            coordinator.perform(shard, found, ())  # an id that was given out has its time
            coordinator.drop_if_nothing(shard, found)
            raise
        coordinator.perform(shard, found, outcomes)

    def sync(self, request: SyncGroupRequest, waiter: Waiter) -> None:
        """To learn one's assignment. `waiter` is told when it is known; a BrokerError refuses the request."""
        coordinator = self._coordinator
        shard, hosted = self._find_for(request.group_id, request.member_id)
        outcomes = hosted.group.sync(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {each.member_id: each.assignment for each in request.assignments},
            waiter,
            coordinator.clock.monotonic_ms(),
        )
        coordinator.perform(shard, hosted, outcomes)

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """A member lives. RebalanceInProgressError: it is to join again; other BrokerErrors: it is none."""
        _, hosted = self._find_for(request.group_id, request.member_id)
        now_ms = self._coordinator.clock.monotonic_ms()
        hosted.group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, now_ms)

    def leave(self, request: LeaveGroupRequest) -> tuple[LeftMember, ...]:
        """Members go; one outcome for each. A BrokerError refuses the request as a whole."""
        coordinator = self._coordinator
        shard, hosted = coordinator.find(request.group_id)
        left = []
        for leaving in request.members:
            code = 0
            try:
                if hosted is None:
                    raise UnknownMemberIdError
                now_ms = coordinator.clock.monotonic_ms()
                outcomes = hosted.group.leave(leaving.member_id, leaving.group_instance_id, now_ms)
                coordinator.perform(shard, hosted, outcomes)
            except BrokerError as error:
                code = error.code
            left.append(LeftMember(leaving.member_id, leaving.group_instance_id, code))
        if hosted is not None:
            coordinator.drop_if_nothing(shard, hosted)
        return tuple(left)

    def _find_for(self, group_id: str, member_id: str) -> tuple[Shard, HostedGroup]:
        shard, hosted = self._coordinator.find(group_id)
        if hosted is None:
            raise UnknownMemberIdError(f"group {group_id!r} has no member {member_id!r}")
        return shard, hosted


def _check_fields(request: JoinGroupRequest, client_id: str) -> None:
    """Each of these becomes a field of a record."""
    if request.rebalance_timeout_ms > _INT32_MAX:
        raise InvalidRequestError(f"a rebalance timeout of {request.rebalance_timeout_ms} ms")
    names = (protocol.name for protocol in request.protocols)
    for text in (client_id, request.member_id, request.group_instance_id or "", request.protocol_type, *names):
        # The candidate's id is made from one of them.
        if len(text.encode()) > MOST_STRING_BYTES - 64:
            raise InvalidRequestError(f"a name of {len(text.encode())} bytes")
