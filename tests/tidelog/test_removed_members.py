"""Test that an admin removes members from a group, and says for each member whether it is gone (KIP-345)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tidelog.clients import a_consumer, an_admin
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.tidelog.group_members import join
from tests.virtual_time import on_virtual_time
from tidelog import MemberToRemove, TopicPartition
from tidelog.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FencedInstanceIdError,
    InvalidGroupIdError,
    NotCoordinatorError,
    UnknownMemberIdError,
)
from tidelog.protocol.group_messages import LeaveGroupRequest

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("by", ["instance id", "member id", "both"])
@on_virtual_time
async def test_member_is_removed_by_each_of_its_names(by: str) -> None:
    cluster = FakeCluster()
    member_id = await join(cluster, "g", TP)
    named = {
        "instance id": MemberToRemove(group_instance_id="one"),
        "member id": MemberToRemove(member_id),
        "both": MemberToRemove(member_id, "one"),
    }[by]
    async with an_admin(cluster) as admin:
        assert await admin.remove_group_members("g", [named]) == {named: None}
        assert (await admin.describe_consumer_groups(["g"]))["g"].members == ()


@on_virtual_time
async def test_described_members_can_be_removed_as_they_are() -> None:
    cluster = FakeCluster()
    member_id = await join(cluster, "g", TP)
    async with an_admin(cluster) as admin:
        members = (await admin.describe_consumer_groups(["g"]))["g"].members
        assert await admin.remove_group_members("g", members) == {MemberToRemove(member_id, "one"): None}


@on_virtual_time
async def test_each_member_has_its_own_outcome() -> None:
    cluster = FakeCluster()
    await join(cluster, "g", TP)
    fenced, gone, removed = MemberToRemove("old", "one"), MemberToRemove("x"), MemberToRemove(group_instance_id="one")
    async with an_admin(cluster) as admin:
        outcomes = await admin.remove_group_members("g", [fenced, gone, removed])
        assert list(outcomes) == [fenced, gone, removed]
        assert isinstance(outcomes[fenced], FencedInstanceIdError) and "instance id" in str(outcomes[fenced])
        assert isinstance(outcomes[gone], UnknownMemberIdError)
        assert str(outcomes[gone]) == "group 'g' has no member with member_id 'x'"
        assert outcomes[removed] is None


@on_virtual_time
async def test_group_that_does_not_exist_has_no_such_member() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        (error,) = (await admin.remove_group_members("nowhere", [MemberToRemove("x")])).values()
        assert isinstance(error, UnknownMemberIdError)


@on_virtual_time
async def test_member_counts_as_removed_after_a_lost_answer() -> None:
    cluster = FakeCluster()
    await join(cluster, "g", TP)
    faults = [Fault.LOSE_ANSWER]
    cluster.fault_of = lambda _, request: faults.pop() if isinstance(request, LeaveGroupRequest) and faults else None
    named = MemberToRemove(group_instance_id="one")
    async with an_admin(cluster) as admin:
        assert await admin.remove_group_members("g", [named]) == {named: None}
    assert len(cluster.sent(LeaveGroupRequest)) == 2


@on_virtual_time
async def test_moved_coordinator_is_found_again() -> None:
    cluster = FakeCluster()
    await join(cluster, "g", TP)
    cluster.refusals[LeaveGroupRequest].append(NotCoordinatorError.code)
    named = MemberToRemove(group_instance_id="one")
    async with an_admin(cluster) as admin:
        assert await admin.remove_group_members("g", [named]) == {named: None}


@on_virtual_time
async def test_partitions_of_a_removed_member_go_to_the_others_at_once() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    options = {"group_id": "g", "session_timeout_ms": 600_000, "max_poll_interval_ms": 600_000}
    async with a_consumer(cluster, group_instance_id="stopped", **options) as stopped:
        stopped.subscribe(["t"])
        while len(stopped.assignment()) != 2:
            await stopped.poll(100)
    async with a_consumer(cluster, **options) as other, an_admin(cluster) as admin:
        other.subscribe(["t"])
        await other.poll(10_000)
        assert other.assignment() == set(), "the group waits for the stopped member"
        await admin.remove_group_members("g", [MemberToRemove(group_instance_id="stopped")])

        async def poll() -> bool:
            await other.poll(100)
            return len(other.assignment()) == 2

        for _ in range(100):
            if await poll():
                break
        assert len(other.assignment()) == 2


@on_virtual_time
async def test_nothing_is_sent_for_no_members() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        assert await admin.remove_group_members("g", []) == {}
    assert cluster.requests == []


@pytest.mark.parametrize(
    ("group", "members", "error", "text"),
    [
        ("", [MemberToRemove("m")], InvalidGroupIdError, "group_id"),
        ("g", MemberToRemove("m"), ArgumentTypeError, "members must be a list of MemberToRemove"),
        ("g", "one", ArgumentTypeError, "members must be a list of MemberToRemove, not 'one'"),
        ("g", ["one"], ArgumentTypeError, r"members\[0\] must be a MemberToRemove, not 'one'"),
        ("g", [MemberToRemove()], ArgumentValueError, r"members\[0\] must have a member_id or a group_instance_id"),
        ("g", [MemberToRemove("", "")], ArgumentValueError, r"members\[0\] must have a member_id"),
        ("g", [MemberToRemove(7)], ArgumentTypeError, r"members\[0\].member_id must be a str, not 7"),  # type: ignore[arg-type]
        ("g", [MemberToRemove("m", 7)], ArgumentTypeError, r"members\[0\].group_instance_id"),  # type: ignore[arg-type]
    ],
)
@on_virtual_time
async def test_wrong_argument_is_named(group: str, members: Any, error: type[Exception], text: str) -> None:
    async with an_admin(FakeCluster()) as admin:
        with pytest.raises(error, match=text):
            await admin.remove_group_members(group, members)
