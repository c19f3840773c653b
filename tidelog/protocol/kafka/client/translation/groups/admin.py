"""DescribeGroups, ListGroups and DeleteGroups: groups as administrators see them."""

from __future__ import annotations

from tidelog.protocol import group_messages as native
from tidelog.protocol.kafka.client.translation.translation import Translation, always, needs_tidelog
from tidelog.protocol.kafka.messages import group_admin as kafka


def _write_describe(request: native.DescribeGroupsRequest, version: int) -> kafka.DescribeGroupsRequest:
    return kafka.DescribeGroupsRequest(groups=request.groups)


def _read_describe(
    response: kafka.DescribeGroupsResponse, request: native.DescribeGroupsRequest, version: int
) -> native.DescribeGroupsResponse:
    return native.DescribeGroupsResponse(
        tuple(
            native.DescribedGroup(
                group.group_id,
                group.error_code,
                group.group_state,
                group.protocol_type,
                group.protocol_data,
                tuple(
                    native.DescribedMember(
                        each.member_id,
                        each.group_instance_id,
                        each.client_id,
                        each.client_host,
                        each.member_metadata,
                        each.member_assignment,
                    )
                    for each in group.members
                ),
            )
            for group in response.groups
        )
    )


#: From version 4 on the response names static members.
DESCRIBE_GROUPS = Translation(kafka.DescribeGroupsRequest, always(4, 5), _write_describe, _read_describe)


def _write_list(request: native.ListGroupsRequest, version: int) -> kafka.ListGroupsRequest:
    if request.in_zookeeper:
        raise needs_tidelog(request)
    return kafka.ListGroupsRequest(states_filter=request.states)


def _read_list(
    response: kafka.ListGroupsResponse, request: native.ListGroupsRequest, version: int
) -> native.ListGroupsResponse:
    return native.ListGroupsResponse(
        response.error_code,
        tuple(native.ListedGroup(each.group_id, each.protocol_type, each.group_state) for each in response.groups),
    )


#: From version 4 on the response has the groups' states.
LIST_GROUPS = Translation(kafka.ListGroupsRequest, always(4, 5), _write_list, _read_list)


def _write_delete(request: native.DeleteGroupsRequest, version: int) -> kafka.DeleteGroupsRequest:
    return kafka.DeleteGroupsRequest(groups_names=request.groups)


def _read_delete(
    response: kafka.DeleteGroupsResponse, request: native.DeleteGroupsRequest, version: int
) -> native.DeleteGroupsResponse:
    return native.DeleteGroupsResponse(
        tuple(native.DeletedGroup(each.group_id, each.error_code) for each in response.results)
    )


DELETE_GROUPS = Translation(kafka.DeleteGroupsRequest, always(0, 2), _write_delete, _read_delete)
