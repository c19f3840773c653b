"""DescribeGroups, ListGroups and DeleteGroups of Kafka clients, in every version, over the real coordinator."""

from __future__ import annotations

import pytest

from tests.node.group_cluster import GROUP, GroupCluster
from tests.node.kafka.kafka_member import KafkaMember
from tests.node.kafka.kafka_requests import ask
from tests.virtual_time import on_virtual_time
from tidelog.errors import GroupIdNotFoundError, InvalidGroupIdError, NonEmptyGroupError, NotCoordinatorError
from tidelog.protocol.kafka.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tidelog.protocol.kafka.messages.group_membership import (
    HeartbeatRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tidelog.protocol.kafka.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tidelog.protocol.kafka.messages.metadata import FindCoordinatorRequest

#: What a response says of authorized operations that were not asked for.
NOT_ASKED = -(2**31)


@pytest.mark.parametrize("version", range(6))
def test_group_is_described_with_its_members_bytes(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            member = KafkaMember(cluster, instance="i")
            await member.settle()
            asks = {"include_authorized_operations": True} if version >= 3 else {}
            request = DescribeGroupsRequest(groups=(GROUP, "unheard"), **asks)
            found, unheard = (await ask(cluster.coordinator, request, version)).groups
            assert (found.error_code, found.group_id, found.group_state) == (0, GROUP, "Stable")
            assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
            assert found.authorized_operations == (0b101001000 if version >= 3 else NOT_ASKED)
            [seen] = found.members
            assert (seen.member_id, seen.client_id, seen.client_host) == (member.member_id, "a client", "10.0.0.1")
            assert seen.group_instance_id == ("i" if version >= 4 else None)
            assert (seen.member_metadata, seen.member_assignment) == (member.metadata, b"all of it")
            assert (unheard.error_code, unheard.group_id, unheard.group_state) == (0, "unheard", "Dead")
            assert (unheard.protocol_type, unheard.protocol_data, unheard.members) == ("", "", ())
            plain = DescribeGroupsRequest(groups=(GROUP,))
            [again] = (await ask(cluster.coordinator, plain, version)).groups
            assert again.authorized_operations == NOT_ASKED
            [refused] = (await ask(cluster.nodes[2], request, version)).groups[:1]
            assert (refused.error_code, refused.group_id) == (NotCoordinatorError.code, GROUP)

    scenario()


@pytest.mark.parametrize("version", range(6))
def test_listed_groups_have_states_from_4_and_types_from_5(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            await KafkaMember(cluster).settle()
            assert await cluster.commit(6, group="simple") == 0

            async def listed(**filters: tuple[str, ...]) -> set[tuple[str, str, str, str]]:
                response = await ask(cluster.coordinator, ListGroupsRequest(**filters), version)
                assert response.error_code == 0
                return {
                    (each.group_id, each.protocol_type, each.group_state, each.group_type) for each in response.groups
                }

            kind = "classic" if version >= 5 else ""
            lives = (GROUP, "consumer", "Stable" if version >= 4 else "", kind)
            simple = ("simple", "", "Empty" if version >= 4 else "", kind)
            assert await listed() == {lives, simple}
            if version >= 4:
                assert await listed(states_filter=("stable", "Dead")) == {lives}
            if version >= 5:
                assert await listed(types_filter=("Classic",)) == {lives, simple}
                assert await listed(types_filter=("consumer",)) == set()
                assert await listed(types_filter=("consumer", "classic"), states_filter=("Empty",)) == {simple}

    scenario()


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_are_deleted(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            await KafkaMember(cluster).settle()
            assert await cluster.commit(6, group="simple") == 0
            request = DeleteGroupsRequest(groups_names=(GROUP, "simple", "unheard"))
            response = await ask(cluster.coordinator, request, version)
            assert [(each.group_id, each.error_code) for each in response.results] == [
                (GROUP, NonEmptyGroupError.code),
                ("simple", 0),
                ("unheard", GroupIdNotFoundError.code),
            ]
            assert await cluster.committed(group="simple") == (0, -1)
            refused = await ask(cluster.nodes[2], request, version)
            assert {each.error_code for each in refused.results} == {NotCoordinatorError.code}

    scenario()


@on_virtual_time
async def test_empty_group_id_is_refused_by_every_broker_and_api() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for node in (cluster.coordinator, cluster.nodes[2]):
            member = KafkaMember(cluster, session_timeout_ms=1)
            joined = await ask(node, member.join_request(group_id=""), 9)
            named = {"group_id": "", "member_id": "m"}
            part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
            commit = OffsetCommitRequest(group_id="", topics=(OffsetCommitRequestTopic(name="t", partitions=(part,)),))
            committed = await ask(node, commit, 8)
            [fetched] = (
                await ask(node, OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="", topics=None),)), 8)
            ).groups
            [described] = (await ask(node, DescribeGroupsRequest(groups=("",)), 5)).groups
            [deleted] = (await ask(node, DeleteGroupsRequest(groups_names=("",)), 2)).results
            [found] = (await ask(node, FindCoordinatorRequest(key_type=0, coordinator_keys=("",)), 4)).coordinators
            codes = {
                "join": joined.error_code,
                "sync": (await ask(node, SyncGroupRequest(**named, generation_id=1, assignments=()), 4)).error_code,
                "heartbeat": (await ask(node, HeartbeatRequest(**named, generation_id=1), 4)).error_code,
                "leave": (await ask(node, LeaveGroupRequest(group_id="", members=()), 5)).error_code,
                "commit": committed.topics[0].partitions[0].error_code,
                "fetch": fetched.error_code,
                "forget": (await ask(node, OffsetDeleteRequest(group_id="", topics=()), 0)).error_code,
                "describe": described.error_code,
                "delete": deleted.error_code,
                "find": found.error_code,
            }
            assert codes == dict.fromkeys(codes, InvalidGroupIdError.code)
