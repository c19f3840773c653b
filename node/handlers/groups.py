"""The handlers of consumer groups: pass the requests of `tidelog.protocol.group_messages` to the coordinator.

Errors are placed as in Kafka: in the answer's own error code if it has one, else in each entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cluster.groups.effects import Joined, Synced
from cluster.groups.group import GroupState
from node.groups.coordinator import GroupCoordinator, check_group_id
from node.groups.deletion import Deletion
from node.groups.member_requests import MemberRequests
from node.groups.offset_commits import OffsetCommits
from node.groups.service import CoordinatorService
from node.handlers.dispatch import HandlerResult, HandlerTable
from node.metadata.metadata_cache import MetadataCache
from node.net.server import RequestContext
from node.runtime.deferred_response import DeferredResponse
from tidelog.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    MemberIdRequiredError,
    text_for_response,
)
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.protocol.group_messages import (
    CommittedPartition,
    Coordinator,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tidelog.protocol.messages import ApiKey, Response

#: Kafka's `key_type` of a group. There is no `key_type` for transactions here.
GROUP_KEY = 0
#: The state in the description of a group that does not exist.
DEAD = "Dead"


class ZooKeeperHandlers(Protocol):
    """The interface of `node.handlers.zookeeper_offsets.ZooKeeperOffsetHandlers`."""

    async def commit(self, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse: ...
    async def fetch(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse: ...
    async def list_groups(self, context: RequestContext) -> ListGroupsResponse: ...


def group_handlers(service: CoordinatorService, zookeeper: ZooKeeperHandlers) -> HandlerTable:
    """Return the part of the dispatch table for consumer groups."""
    coordinator = service.coordinator
    offsets = OffsetHandlers(service.offsets, zookeeper)
    members = MemberHandlers(service.members)
    groups = GroupHandlers(coordinator, service.deletion, zookeeper)
    return {
        ApiKey.FIND_COORDINATOR: lambda request, context: find_coordinators(coordinator, request, context.listener),
        ApiKey.OFFSET_COMMIT: offsets.commit,
        ApiKey.OFFSET_FETCH: offsets.fetch,
        ApiKey.OFFSET_DELETE: lambda request, _: offsets.delete(request),
        ApiKey.JOIN_GROUP: members.join,
        ApiKey.SYNC_GROUP: lambda request, _: members.sync(request),
        ApiKey.HEARTBEAT: lambda request, _: members.heartbeat(request),
        ApiKey.LEAVE_GROUP: lambda request, _: members.leave(request),
        ApiKey.DESCRIBE_GROUPS: lambda request, _: groups.describe(request),
        ApiKey.LIST_GROUPS: groups.list,
        ApiKey.DELETE_GROUPS: lambda request, _: groups.delete(request),
    }


# --- finding the coordinator -------------------------------------------------------------------------


def find_coordinators(
    coordinator: GroupCoordinator, request: FindCoordinatorRequest, listener: str
) -> FindCoordinatorResponse:
    """Return the coordinator of each group: the leader of its offsets partition, with its address of `listener`.

    The leaders are those in the metadata cache. An error is in the group's own entry. If this broker does not know the
    offsets topic yet, a look-up is started, which creates the topic if it does not exist. Until then each group gets
    COORDINATOR_NOT_AVAILABLE.
    """

    def find(group_id: str) -> Coordinator:
        try:
            if request.key_type != GROUP_KEY:
                raise InvalidRequestError(f"key type {request.key_type}: only groups (key type 0) have coordinators")
            check_group_id(group_id)
            partition = coordinator.topic.partition_of(group_id, create=True)
            if partition is None:
                raise CoordinatorNotAvailableError(f"topic {OFFSETS_TOPIC} does not exist yet; retry")
            return _leader_of(coordinator.metadata, group_id, partition, listener)
        except BrokerError as error:
            return Coordinator(group_id, error.code, error_message=str(error))

    return FindCoordinatorResponse(tuple(map(find, request.keys)))


def _leader_of(metadata: MetadataCache, group_id: str, partition: int, listener: str) -> Coordinator:
    state = metadata.partition_state(OFFSETS_TOPIC, partition)
    broker = None if state is None else metadata.brokers.get(state.leader)
    endpoint = None if broker is None else broker.endpoint_of(listener)
    if state is None or broker is None or endpoint is None:
        raise CoordinatorNotAvailableError(f"{OFFSETS_TOPIC}-{partition} has no reachable leader; retry")
    return Coordinator(group_id, 0, broker.broker_id, endpoint.host, endpoint.port, epoch=state.leader_epoch)


# --- offsets -----------------------------------------------------------------------------------------


class OffsetHandlers:
    """Handles OffsetCommit, OffsetFetch and OffsetDelete; version 0 of the first two (`in_zookeeper`) in ZooKeeper."""

    def __init__(self, offsets: OffsetCommits, zookeeper: ZooKeeperHandlers) -> None:
        self._offsets = offsets
        self._zookeeper = zookeeper

    def commit(self, request: OffsetCommitRequest, context: RequestContext) -> HandlerResult:
        """Write the offsets. Return a response that completes when the commit is replicated to the ISR, or has failed.

        If the request is refused as a whole, each partition's entry has the error.
        """
        if request.in_zookeeper:
            return self._zookeeper.commit(request, context)
        deferred = DeferredResponse()
        try:
            self._offsets.commit(request, lambda partitions: deferred.complete(OffsetCommitResponse(partitions)))
        except BrokerError as error:
            return OffsetCommitResponse(_all_refused(request, error))
        return deferred

    def fetch(self, request: OffsetFetchRequest, context: RequestContext) -> HandlerResult:
        """Return the committed offsets of the named partitions, or of all if the request names none (None).

        A partition without one has offset −1. If the request is refused, the response has only an error code.
        """
        if request.in_zookeeper:
            return self._zookeeper.fetch(request, context)
        try:
            return OffsetFetchResponse(0, self._offsets.fetch(request))
        except BrokerError as error:
            return OffsetFetchResponse(error.code)

    def delete(self, request: OffsetDeleteRequest) -> HandlerResult:
        """Write tombstones. Return a response that completes when they are committed, or have failed.

        If the request is refused as a whole, the response has only an error code.
        """
        deferred = DeferredResponse()
        try:
            self._offsets.delete(request, lambda partitions: deferred.complete(OffsetDeleteResponse(0, partitions)))
        except BrokerError as error:
            return OffsetDeleteResponse(error.code)
        return deferred


def _all_refused(request: OffsetCommitRequest, error: BrokerError) -> tuple[CommittedPartition, ...]:
    return tuple(
        CommittedPartition(part.topic, part.partition, error.code, text_for_response(error))
        for part in request.partitions
    )


# --- membership --------------------------------------------------------------------------------------


class MemberHandlers:
    """Handles the requests of group members. An error is the response's error code."""

    def __init__(self, members: MemberRequests) -> None:
        self._members = members

    def join(self, request: JoinGroupRequest, context: RequestContext) -> HandlerResult:
        """Return a response that completes when the next generation begins, or at once if `Group.join` answers at once.

        With MEMBER_ID_REQUIRED the response has the member id with which the client must join again.
        """
        deferred = DeferredResponse()

        def joined(outcome: Joined | Synced | BrokerError) -> None:
            assert not isinstance(outcome, Synced)
            deferred.complete(_joined(outcome, request.member_id))

        try:
            self._members.join(request, context.client_id, context.client_host, joined)
        except BrokerError as error:
            return _joined(error, request.member_id)
        return deferred

    def sync(self, request: SyncGroupRequest) -> HandlerResult:
        """Return a response that completes when the group leader's assignment is written.

        The response is complete at once with an error, or in a stable group with the member's assignment.
        """
        deferred = DeferredResponse()

        def synced(outcome: Joined | Synced | BrokerError) -> None:
            assert not isinstance(outcome, Joined)
            deferred.complete(_synced(outcome))

        try:
            self._members.sync(request, synced)
        except BrokerError as error:
            return _synced(error)
        return deferred

    def heartbeat(self, request: HeartbeatRequest) -> HandlerResult:
        """Renew the member's session and return success, or the error that the member must act on."""
        try:
            self._members.heartbeat(request)
        except BrokerError as error:
            return HeartbeatResponse(error.code)
        return HeartbeatResponse(0)

    def leave(self, request: LeaveGroupRequest) -> HandlerResult:
        """Remove members and return one outcome for each. A refusal of the whole request has no outcomes."""
        try:
            return LeaveGroupResponse(0, self._members.leave(request))
        except BrokerError as error:
            return LeaveGroupResponse(error.code)


def _joined(outcome: Joined | BrokerError, member_id: str) -> JoinGroupResponse:
    if isinstance(outcome, BrokerError):
        given = str(outcome) if isinstance(outcome, MemberIdRequiredError) else member_id
        return JoinGroupResponse(outcome.code, member_id=given)
    return JoinGroupResponse(
        0,
        outcome.generation,
        outcome.protocol_type,
        outcome.protocol,
        outcome.leader,
        outcome.member_id,
        tuple(JoinGroupMember(*member) for member in outcome.members),
        outcome.skip_assignment,
    )


def _synced(outcome: Synced | BrokerError) -> SyncGroupResponse:
    if isinstance(outcome, BrokerError):
        return SyncGroupResponse(outcome.code)
    return SyncGroupResponse(0, outcome.protocol_type, outcome.protocol, outcome.assignment)


# --- administration ----------------------------------------------------------------------------------


class GroupHandlers:
    """Handles DescribeGroups, ListGroups and DeleteGroups."""

    def __init__(self, coordinator: GroupCoordinator, deletion: Deletion, zookeeper: ZooKeeperHandlers) -> None:
        self._coordinator = coordinator
        self._deletion = deletion
        self._zookeeper = zookeeper

    def describe(self, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """Return the current description of each group, or its error, in the order of the request.

        A group that does not exist is described with the state DEAD. Protocol, metadata and assignments are empty
        unless the group is stable.
        """
        return DescribeGroupsResponse(tuple(map(self._describe, request.groups)))

    def _describe(self, group_id: str) -> DescribedGroup:
        try:
            _, hosted = self._coordinator.find(group_id)
        except BrokerError as error:
            return DescribedGroup(group_id, error.code)
        if hosted is None:
            return DescribedGroup(group_id, 0, DEAD)
        group = hosted.group
        settled = group.state is GroupState.STABLE
        members = tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol) if settled else b"",
                member.assignment if settled else b"",
                group.stage_of(member),
            )
            for member in group.members.values()
        )
        protocol = group.protocol if settled else ""
        state, pending = group.state.value, group.pending_member_ids
        return DescribedGroup(group_id, 0, state, group.protocol_type, protocol, members, pending)

    def list(self, request: ListGroupsRequest, context: RequestContext) -> HandlerResult:
        """Return the groups of this coordinator that are in one of the named states; no states: all groups.

        If partitions are still being loaded, the answer has an error code and the other groups. With `in_zookeeper`,
        return the groups that have offsets in ZooKeeper.
        """
        if request.in_zookeeper:
            return self._zookeeper.list_groups(context)
        wanted = {state.lower() for state in request.states}
        listed = tuple(
            ListedGroup(hosted.group_id, hosted.group.protocol_type, hosted.group.state.value)
            for _, hosted in self._coordinator.groups()
            if not wanted or hosted.group.state.value.lower() in wanted
        )
        return ListGroupsResponse(self._coordinator.listing_error, listed)

    async def delete(self, request: DeleteGroupsRequest) -> Response:
        """Delete groups without members, and return an error code (0: deleted) for each.

        The answer waits until all tombstones are committed or have failed.
        """
        deferred = DeferredResponse()

        def deleted(codes: Mapping[str, int]) -> None:
            deferred.complete(
                DeleteGroupsResponse(tuple(DeletedGroup(group, codes[group]) for group in request.groups))
            )

        await self._deletion.delete(request.groups, deleted)
        return await deferred
