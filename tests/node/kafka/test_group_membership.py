"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of Kafka clients, in every version, over the real coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from node.kafka.calls import NativeOutcome
from node.net.server import RequestContext
from tests.node.group_cluster import GROUP, GroupCluster
from tests.node.kafka.kafka_member import KafkaMember
from tests.node.kafka.kafka_requests import ask, ask_handler
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from tidelog.groups.assignment.consumer_protocol import decode_subscription
from tidelog.protocol import group_messages as native
from tidelog.protocol.kafka.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)

JOIN, SYNC, HEARTBEAT, LEAVE = range(10), range(6), range(5), range(6)


# --- JoinGroup ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", JOIN)
async def test_refused_join_has_no_protocol_name_from_version_7_on(version: int) -> None:
    def refuse(request: Any, context: RequestContext) -> NativeOutcome:
        raise CoordinatorNotAvailableError

    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=6000, member_id="m", protocol_type="consumer", protocols=()
    )
    response = await ask_handler(refuse, request, version)
    assert (response.error_code, response.member_id) == (CoordinatorNotAvailableError.code, "m")
    assert response.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", JOIN)
def test_new_member_joins_at_once_before_4_and_with_the_given_id_since(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            member = KafkaMember(cluster, version)
            response = await member.ask_to_join()
            if version >= 4:
                assert (response.error_code, response.members) == (MemberIdRequiredError.code, ())
                member.member_id = response.member_id
                response = await member.ask_to_join()
                assert response.member_id == member.member_id
            assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "range")
            assert response.leader == response.member_id
            assert response.member_id.startswith("a client-")
            assert response.protocol_type == ("consumer" if version >= 7 else None)
            [seen] = response.members
            assert (seen.member_id, seen.metadata) == (response.member_id, b"\0\xffsubscription")
            assert not response.skip_assignment

    scenario()


@pytest.mark.parametrize("version", JOIN)
def test_rebalance_timeout_of_version_0_is_the_session_timeout(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            member = KafkaMember(cluster, version)
            await member.join()
            _, hosted = cluster.coordinator.groups.coordinator.find(GROUP)
            assert hosted is not None
            kept = hosted.group.members[member.member_id]
            assert (kept.session_timeout_ms, kept.rebalance_timeout_ms) == (10_000, 20_000 if version else 10_000)
            assert (kept.client_id, kept.client_host) == ("a client", "10.0.0.1")

    scenario()


@pytest.mark.parametrize("version", JOIN)
def test_refused_join_names_no_protocol(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            response = await KafkaMember(cluster, version, session_timeout_ms=1).ask_to_join(member_id="mine")
            assert response.error_code == InvalidSessionTimeoutError.code
            assert (response.generation_id, response.leader, response.member_id) == (-1, "", "mine")
            assert (response.protocol_type, response.protocol_name) == (None, None if version >= 7 else "")

    scenario()


@pytest.mark.parametrize("version", range(5, 10))
def test_restarted_static_leader_assigns_nothing(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            first = KafkaMember(cluster, version, instance="i")
            joined = await first.ask_to_join()
            assert (joined.error_code, joined.members[0].group_instance_id) == (0, "i"), "it needs no id before"
            await first.settle()
            second = KafkaMember(cluster, version, instance="i")
            joined = await second.join()
            assert (joined.error_code, joined.generation_id) == (0, first.generation)
            assert joined.member_id != first.member_id
            if version >= 9:
                assert (joined.leader, joined.skip_assignment) == (joined.member_id, True)
                assert [each.member_id for each in joined.members] == [joined.member_id]
            else:
                assert (joined.leader, joined.members) == (first.member_id, ()), "it does not lead as far as it knows"
            assert (await second.sync()).assignment == b"all of it"
            assert await first.heartbeat() == FencedInstanceIdError.code
            assert await second.heartbeat() == 0

    scenario()


@on_virtual_time
async def test_bytes_of_other_protocol_types_pass_through_untouched() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        everything = bytes(range(256))
        worker = KafkaMember(cluster, protocol_type="connect", metadata=everything)
        joined = await worker.join()
        assert (joined.protocol_type, joined.members[0].metadata) == ("connect", everything)
        synced = await worker.sync({worker.member_id: everything})
        assert (synced.error_code, synced.assignment, synced.protocol_type) == (0, everything, "connect")
        other = await KafkaMember(cluster, 0).join()
        assert other.error_code == InconsistentGroupProtocolError.code


@on_virtual_time
async def test_our_own_members_and_those_of_kafka_clients_share_a_group() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        ours, theirs = cluster.client(), KafkaMember(cluster)
        await ours.settle()
        joining = asyncio.ensure_future(theirs.join())
        await until(lambda: bool(theirs.member_id))
        while await ours.heartbeat() != RebalanceInProgressError.code:  # noqa: ASYNC110 — each iteration asks again
            await asyncio.sleep(0.1)
        led = await ours.join()
        joined = await joining
        assert (joined.error_code, joined.generation_id, joined.leader) == (0, 2, ours.member_id)
        seen = {each.member_id: each.metadata for each in led.members}
        assert seen[theirs.member_id] == theirs.metadata
        assert decode_subscription(seen[ours.member_id]).topics == ("t",)
        syncing = asyncio.ensure_future(theirs.sync())
        given = native.SyncGroupRequest(
            GROUP,
            2,
            ours.member_id,
            assignments=(
                native.SyncGroupAssignment(ours.member_id, b"ours"),
                native.SyncGroupAssignment(theirs.member_id, b"theirs"),
            ),
        )
        assert (await cluster.coordinator.ask(given)).assignment == b"ours"
        assert (await syncing).assignment == b"theirs"


# --- SyncGroup ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", SYNC)
def test_assignment_comes_with_its_protocol_from_version_5(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            member = KafkaMember(cluster)
            await member.join()
            synced = await member.sync({member.member_id: b"\xff\0", "nobody": b"x"}, version)
            assert (synced.error_code, synced.assignment) == (0, b"\xff\0")
            expected = ("consumer", "range") if version >= 5 else (None, None)
            assert (synced.protocol_type, synced.protocol_name) == expected
            member.generation += 1
            assert (await member.sync(version=version)).error_code == 22

    scenario()


@pytest.mark.parametrize(
    "named",
    [
        {"protocol_type": None},
        {"protocol_name": None},
        {"protocol_type": "connect"},
        {"protocol_name": "roundrobin"},
    ],
)
def test_sync_of_version_5_must_name_the_chosen_protocol(named: dict[str, Any]) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            member = KafkaMember(cluster)
            await member.settle()
            refused = await member.sync(**named)
            assert (refused.error_code, refused.assignment) == (InconsistentGroupProtocolError.code, b"")
            assert (await member.sync()).assignment == b"all of it"

    scenario()


@pytest.mark.parametrize("version", SYNC)
@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (CoordinatorLoadInProgressError.code, RebalanceInProgressError.code),
        (CoordinatorNotAvailableError.code, CoordinatorNotAvailableError.code),
        (NotCoordinatorError.code, NotCoordinatorError.code),
    ],
)
async def test_sync_at_a_loading_coordinator_means_join_again(version: int, code: int, shown: int) -> None:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=(), **_named(version))
    response = await ask_handler(lambda request, context: native.SyncGroupResponse(code), request, version)
    assert (response.error_code, response.protocol_type) == (shown, None)


def _named(version: int) -> dict[str, str]:
    return {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}


# --- Heartbeat ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", HEARTBEAT)
def test_heartbeat_renews_the_session_and_tells_of_a_rebalance(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            member = KafkaMember(cluster)
            await member.settle()
            for _ in range(5):
                await asyncio.sleep(8)
                assert await member.heartbeat(version) == 0
            newcomer = asyncio.ensure_future(KafkaMember(cluster, 3).join())
            await asyncio.sleep(0.1)
            assert await member.heartbeat(version) == RebalanceInProgressError.code
            await asyncio.sleep(11)
            assert await member.heartbeat(version) == UnknownMemberIdError.code
            assert (await newcomer).error_code == 0

    scenario()


@pytest.mark.parametrize("version", HEARTBEAT)
@pytest.mark.parametrize("code", [CoordinatorLoadInProgressError.code, NotCoordinatorError.code])
async def test_heartbeat_at_a_loading_coordinator_succeeds(version: int, code: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    response = await ask_handler(lambda request, context: native.HeartbeatResponse(code), request, version)
    assert response.error_code == (0 if code == CoordinatorLoadInProgressError.code else code)


# --- LeaveGroup --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LEAVE)
def test_member_that_leaves_is_removed_at_once(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            member = KafkaMember(cluster)
            await member.settle()

            async def leave(member_id: str) -> tuple[int, list[tuple[str, str | None, int]]]:
                named: dict[str, Any] = {"member_id": member_id}
                if version >= 3:
                    named = {"members": (MemberIdentity(member_id=member_id, reason="done"),)}
                response = await ask(cluster.coordinator, LeaveGroupRequest(group_id=GROUP, **named), version)
                left = [(each.member_id, each.group_instance_id, each.error_code) for each in response.members]
                return response.error_code, left

            unknown = UnknownMemberIdError.code
            assert await leave("x") == ((0, [("x", None, unknown)]) if version >= 3 else (unknown, []))
            mine = member.member_id
            assert await leave(mine) == ((0, [(mine, None, 0)]) if version >= 3 else (0, []))
            assert (await cluster.describe()).state == "Empty"

    scenario()


@pytest.mark.parametrize("version", range(3, 6))
def test_several_static_members_are_removed_by_instance_ids(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            first, second = KafkaMember(cluster, instance="a"), KafkaMember(cluster, instance="b")
            await first.settle()
            joining = asyncio.ensure_future(second.join())
            await asyncio.sleep(0.1)
            await first.join()
            await joining
            identities = (
                MemberIdentity(member_id="", group_instance_id="a"),
                MemberIdentity(member_id="another", group_instance_id="b"),
                MemberIdentity(member_id="", group_instance_id="c"),
                MemberIdentity(member_id=second.member_id, group_instance_id="b"),
            )
            response = await ask(cluster.coordinator, LeaveGroupRequest(group_id=GROUP, members=identities), version)
            assert response.error_code == 0
            assert [(each.member_id, each.group_instance_id, each.error_code) for each in response.members] == [
                ("", "a", 0),
                ("another", "b", FencedInstanceIdError.code),
                ("", "c", UnknownMemberIdError.code),
                (second.member_id, "b", 0),
            ]

    scenario()


@pytest.mark.parametrize("version", LEAVE)
def test_leave_at_another_broker_is_refused_as_a_whole(version: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            request = LeaveGroupRequest(group_id=GROUP, **({"member_id": "m"} if version < 3 else {"members": ()}))
            response = await ask(cluster.nodes[2], request, version)
            assert (response.error_code, response.members) == (NotCoordinatorError.code, ())

    scenario()
