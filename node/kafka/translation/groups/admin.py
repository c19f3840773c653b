"""DescribeGroups, ListGroups and DeleteGroups: groups as administrators see them."""

from __future__ import annotations

from node.kafka.calls import Call, NativeHandler, Outcome, converted
from tidelog.errors import BrokerError
from tidelog.protocol import group_messages as native
from tidelog.protocol.kafka.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

#: What a client may do with a group, as bits of Kafka's AclOperation: READ (3), DELETE (6) and DESCRIBE (8). Without
#: authorization, these are all operations that groups have.
_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
#: The type of the groups of the protocol with JoinGroup and SyncGroup, in contrast to those of KIP-848.
_CLASSIC = "classic"


class GroupAdminTranslation:
    """The translations of this module; `handle` is the broker's own handler."""

    def __init__(self, handle: NativeHandler) -> None:
        self._handle = handle

    # --- DescribeGroups ------------------------------------------------------------------------------

    def describe(self, request: DescribeGroupsRequest, call: Call) -> Outcome:
        """Describe groups with their members."""
        # A client without this option gets the default of the response's field, which means "not asked for".
        allowed = {"authorized_operations": _GROUP_OPERATIONS} if request.include_authorized_operations else {}

        def described(group: native.DescribedGroup) -> DescribedGroup:
            return DescribedGroup(
                error_code=group.error_code,
                group_id=group.group_id,
                group_state=group.state,
                protocol_type=group.protocol_type,
                protocol_data=group.protocol,
                members=tuple(
                    DescribedGroupMember(
                        member_id=each.member_id,
                        group_instance_id=each.group_instance_id,
                        client_id=each.client_id,
                        client_host=each.client_host,
                        member_metadata=each.metadata,
                        member_assignment=each.assignment,
                    )
                    for each in group.members
                ),
                **({} if group.error_code else allowed),
            )

        def convert(response: native.DescribeGroupsResponse) -> DescribeGroupsResponse:
            return DescribeGroupsResponse(groups=tuple(map(described, response.groups)))

        return converted(self._handle(native.DescribeGroupsRequest(request.groups), call.context), convert)

    @staticmethod
    def describe_error(request: DescribeGroupsRequest, error: BrokerError, version: int) -> DescribeGroupsResponse:
        """Return the response in which every group has this error."""
        return DescribeGroupsResponse(
            groups=tuple(
                DescribedGroup(
                    error_code=error.code, group_id=each, group_state="", protocol_type="", protocol_data="", members=()
                )
                for each in request.groups
            )
        )

    # --- ListGroups ----------------------------------------------------------------------------------

    def list(self, request: ListGroupsRequest, call: Call) -> Outcome:
        """List the groups that this broker coordinates, all of which are of the classic type."""
        if request.types_filter and _CLASSIC not in map(str.lower, request.types_filter):
            return ListGroupsResponse(error_code=0, groups=())

        def convert(response: native.ListGroupsResponse) -> ListGroupsResponse:
            return ListGroupsResponse(
                error_code=response.error_code,
                groups=tuple(
                    ListedGroup(
                        group_id=each.group_id,
                        protocol_type=each.protocol_type,
                        group_state=each.state,
                        group_type=_CLASSIC,
                    )
                    for each in response.groups
                ),
            )

        return converted(self._handle(native.ListGroupsRequest(request.states_filter), call.context), convert)

    @staticmethod
    def list_error(request: ListGroupsRequest, error: BrokerError, version: int) -> ListGroupsResponse:
        """Return the response that carries this error."""
        return ListGroupsResponse(error_code=error.code, groups=())

    # --- DeleteGroups --------------------------------------------------------------------------------

    def delete(self, request: DeleteGroupsRequest, call: Call) -> Outcome:
        """Delete groups without members, and their committed offsets."""

        def convert(response: native.DeleteGroupsResponse) -> DeleteGroupsResponse:
            return DeleteGroupsResponse(
                results=tuple(
                    DeletableGroupResult(group_id=each.group_id, error_code=each.error_code) for each in response.groups
                )
            )

        return converted(self._handle(native.DeleteGroupsRequest(request.groups_names), call.context), convert)

    @staticmethod
    def delete_error(request: DeleteGroupsRequest, error: BrokerError, version: int) -> DeleteGroupsResponse:
        """Return the response in which every group has this error."""
        return DeleteGroupsResponse(
            results=tuple(DeletableGroupResult(group_id=each, error_code=error.code) for each in request.groups_names)
        )
