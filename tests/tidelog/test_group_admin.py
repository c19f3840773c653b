"""The admin client and consumer groups: every broker lists its own groups, and each outcome is reported separately."""

from __future__ import annotations

import pytest

from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.tidelog.group_members import join
from tests.tidelog.test_admin import an_admin
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidGroupIdError,
    InvalidTopicError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    TimeoutError,
    UnknownMemberIdError,
)
from tidelog.groups.descriptions import ConsumerGroupState
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.group_messages import DeleteGroupsRequest, ListGroupsRequest, OffsetCommitRequest

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@on_virtual_time
async def test_a_group_that_only_commits_is_listed_and_described_as_a_simple_one() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        assert await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(7, "here", 3)}) == {TP: None}
        (listed,) = (await admin.list_consumer_groups()).all()
        assert (listed.group_id, listed.state, listed.coordinator) == ("g", ConsumerGroupState.EMPTY, 1)
        described = (await admin.describe_consumer_groups(["g"]))["g"]
        assert described.state is ConsumerGroupState.EMPTY and not described.members
        assert listed.is_simple_consumer_group and described.is_simple_consumer_group
        assert await admin.list_consumer_group_offsets("g") == {TP: OffsetAndMetadata(7, "here", 3)}


@on_virtual_time
async def test_delayed_copy_of_an_alteration_overwrites_no_later_one() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(1)})
        await admin.list_consumer_groups()
        faults = [Fault.LOSE_REQUEST]
        cluster.fault_of = lambda _, request: (
            faults.pop() if isinstance(request, OffsetCommitRequest) and faults else None
        )
        await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(7)})
        await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(9)})
        _, first, _, last = cluster.sent(OffsetCommitRequest)
        assert first.coordinator_epoch == last.coordinator_epoch == cluster.coordinator.epochs["g"]
        await cluster.coordinator.handle(1, 0, first)  # the network has delayed it on the first connection
        assert await admin.list_consumer_group_offsets("g") == {TP: OffsetAndMetadata(9)}


@on_virtual_time
async def test_members_are_described_with_topics_and_assignment() -> None:
    cluster = FakeCluster()
    member_id = await join(cluster, "g", OTHER, TP)
    async with an_admin(cluster) as admin:
        described = (await admin.describe_consumer_groups(["g"]))["g"]
        (member,) = described.members
        assert (described.state, described.partition_assignor, described.coordinator) == ("Stable", "range", 1)
        assert (member.member_id, member.group_instance_id, member.host) == (member_id, "one", "/fake")
        assert (member.topics, member.assignment) == (("t",), (TP, OTHER))


@on_virtual_time
async def test_moved_group_is_described_and_deleted_by_its_new_coordinator() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(7)})
        cluster.coordinator.move("g")
        described = (await admin.describe_consumer_groups(["g"]))["g"]
        assert (described.state, described.coordinator) == (ConsumerGroupState.EMPTY, 2)
        cluster.refusals[DeleteGroupsRequest].append(NotCoordinatorError.code)
        assert await admin.delete_consumer_groups(["g"]) == {"g": None}
        assert (await admin.describe_consumer_groups(["g"]))["g"].state is ConsumerGroupState.DEAD


@pytest.mark.parametrize(("protocol_type", "metadata"), [("connect", b""), ("consumer", b"\xff")])
@on_virtual_time
async def test_members_of_another_protocol_have_no_assignment(protocol_type: str, metadata: bytes) -> None:
    cluster = FakeCluster()
    await join(cluster, "g", TP, protocol_type=protocol_type, metadata=metadata)
    async with an_admin(cluster) as admin:
        (member,) = (await admin.describe_consumer_groups(["g"]))["g"].members
        assert member.client_id == "tidelog" and member.topics is None and member.assignment is None


@on_virtual_time
async def test_a_list_has_the_groups_of_all_brokers_by_name() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        for name, moves in (("c", 0), ("a", 1), ("b", 2)):
            await admin.alter_consumer_group_offsets(name, {TP: OffsetAndMetadata(1)})
            for _ in range(moves):
                cluster.coordinator.move(name)
        await join(cluster, "d", TP)
        listed = (await admin.list_consumer_groups()).all()
        assert [(each.group_id, each.coordinator) for each in listed] == [("a", 2), ("b", 3), ("c", 1), ("d", 1)]
        stable = await admin.list_consumer_groups([ConsumerGroupState.STABLE])
        assert [each.group_id for each in stable.valid] == ["d"]


@on_virtual_time
async def test_group_list_names_silent_brokers_and_has_the_other_groups() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        for name in ("a", "b"):
            await admin.alter_consumer_group_offsets(name, {TP: OffsetAndMetadata(1)})
        cluster.coordinator.move("b")
        cluster.fault_of = lambda broker, request: (
            Fault.SWALLOW if broker == 3 and isinstance(request, ListGroupsRequest) else None
        )
        cluster.coordinator.loading.add("b")
        listed = await admin.list_consumer_groups()
        assert [each.group_id for each in listed.valid] == ["a"]
        assert {broker: type(error) for broker, error in listed.errors.items()} == {
            2: CoordinatorLoadInProgressError,
            3: TimeoutError,
        }
        with pytest.raises(CoordinatorLoadInProgressError) as raised:
            listed.all()
        assert isinstance(raised.value.others[0], TimeoutError)


@on_virtual_time
async def test_group_list_names_leaderless_offsets_partitions() -> None:
    cluster = FakeCluster()
    cluster.create("__consumer_offsets", 3)
    cluster.kill(2, elect=False)
    async with an_admin(cluster) as admin:
        listed = await admin.list_consumer_groups()
        assert listed.leaderless == (TopicPartition("__consumer_offsets", 1),) and not listed.errors


@on_virtual_time
async def test_group_without_a_coordinator_does_not_hide_other_groups() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        await admin.alter_consumer_group_offsets("a", {TP: OffsetAndMetadata(1)})
        cluster.coordinator.missing.add("b")
        shown = await admin.describe_consumer_groups(["a", "b", "nope"], timeout_ms=3_000, partial=True)
        known, missing, unknown = shown["a"], shown["b"], shown["nope"]
        assert not isinstance(known, Exception) and known.state is ConsumerGroupState.EMPTY
        assert isinstance(missing, TimeoutError)
        assert not isinstance(unknown, Exception) and unknown.state is ConsumerGroupState.DEAD
        with pytest.raises(TimeoutError, match="'b'"):
            await admin.describe_consumer_groups(["a", "b"], timeout_ms=3_000)


@on_virtual_time
async def test_offsets_of_named_partitions_are_none_without_a_commit() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(0)})
        assert await admin.list_consumer_group_offsets("g", [OTHER, TP]) == {OTHER: None, TP: OffsetAndMetadata(0)}
        assert await admin.list_consumer_group_offsets("nope") == {}


@on_virtual_time
async def test_only_members_may_commit_in_a_group_with_members() -> None:
    cluster = FakeCluster()
    await join(cluster, "g", TP)
    async with an_admin(cluster) as admin:
        outcome = (await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(1)}))[TP]
        assert isinstance(outcome, UnknownMemberIdError)
        assert str(outcome) == "group 'g', t-0: the group has members, and only its members may commit"


@on_virtual_time
async def test_each_partition_of_a_commit_has_its_own_outcome() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        wanted = {TP: OffsetAndMetadata(1, "x" * 5_000), OTHER: OffsetAndMetadata(2)}
        outcomes = await admin.alter_consumer_group_offsets("g", wanted)
        assert isinstance(outcomes[TP], OffsetMetadataTooLargeError) and outcomes[OTHER] is None
        assert await admin.list_consumer_group_offsets("g") == {OTHER: OffsetAndMetadata(2)}


@on_virtual_time
async def test_invalid_requests_are_not_sent() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        with pytest.raises(InvalidGroupIdError, match="group_id must be a group's name, not ''"):
            await admin.list_consumer_group_offsets("")
        with pytest.raises(ValueError, match=r"offsets\[t-0\]\.offset must be from 0 to 9223372036854775807, not -1"):
            await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(-1)})
        with pytest.raises(TypeError, match=r"offsets\[t-0\] must be an OffsetAndMetadata, not 5"):
            await admin.alter_consumer_group_offsets("g", {TP: 5})  # type: ignore[dict-item]
        with pytest.raises(InvalidTopicError):
            await admin.delete_consumer_group_offsets("g", [TopicPartition("bad/name", 0)])
        assert await admin.alter_consumer_group_offsets("g", {}) == {}
        assert not cluster.sent(OffsetCommitRequest)


@on_virtual_time
async def test_groups_are_deleted_one_by_one() -> None:
    cluster = FakeCluster()
    await join(cluster, "busy", TP)
    async with an_admin(cluster) as admin:
        await admin.alter_consumer_group_offsets("idle", {TP: OffsetAndMetadata(1)})
        outcomes = await admin.delete_consumer_groups(["idle", "busy", "nope"])
        assert outcomes["idle"] is None
        assert isinstance(outcomes["busy"], NonEmptyGroupError)
        assert str(outcomes["nope"]) == "group 'nope' does not exist"
        assert isinstance(outcomes["nope"], GroupIdNotFoundError)
        assert [each.group_id for each in (await admin.list_consumer_groups()).all()] == ["busy"]


@on_virtual_time
async def test_deletion_with_a_lost_answer_succeeds() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(1)})
        lost = iter([Fault.LOSE_ANSWER])
        cluster.fault_of = lambda broker, request: (
            next(lost, None) if isinstance(request, DeleteGroupsRequest) else None
        )
        assert await admin.delete_consumer_groups("g") == {"g": None}
        assert len(cluster.sent(DeleteGroupsRequest)) == 2


@on_virtual_time
async def test_offsets_of_a_subscribed_topic_cannot_be_deleted() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        old = TopicPartition("old", 0)
        await admin.alter_consumer_group_offsets("g", {TP: OffsetAndMetadata(1), old: OffsetAndMetadata(2)})
        await join(cluster, "g", TP)
        outcomes = await admin.delete_consumer_group_offsets("g", [TP, old])
        assert isinstance(outcomes[TP], GroupSubscribedToTopicError) and outcomes[old] is None
        assert await admin.list_consumer_group_offsets("g") == {TP: OffsetAndMetadata(1)}
        with pytest.raises(GroupIdNotFoundError, match="group 'nope' does not exist"):
            await admin.delete_consumer_group_offsets("nope", [TP])
