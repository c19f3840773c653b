"""Committed offsets: commits, refusals, failed writes and expiry."""

from __future__ import annotations

import asyncio

import pytest

from cluster.zookeeper.store import OutcomeUnknownError
from node.groups.expiry import Expiry
from node.groups.offset_commits import OffsetCommits
from tests.node.client_requests import TP
from tests.node.group_cluster import GROUP, TP1, GroupCluster
from tests.node.offsets_topic import OFFSETS, MemoryOffsetsTopic
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.offsets_topic import CommitKey, GroupKey, decode_key
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    DeleteGroupsRequest,
    LeaveGroupRequest,
    LeavingMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tidelog.protocol.messages import DescribePartition
from tidelog.records import decode_records


def tombstones(cluster: GroupCluster) -> list[object]:
    """Return the keys of the tombstones that the coordinator has written."""
    records = [record for batch in cluster.coordinator.log(OFFSETS).batches for record in decode_records(batch)]
    return [decode_key(record.key or b"") for record in records if record.value is None]


# --- committing --------------------------------------------------------------------------------------


@on_virtual_time
async def test_refused_partition_does_not_fail_the_other_partitions() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        parts = (
            OffsetCommitPartition("unheard", 0, 1),
            OffsetCommitPartition("t", 0, 2, 4, "a note"),
            OffsetCommitPartition("t", 1, 3, -1, "é" * 2049),
            OffsetCommitPartition("t", 7, 4),
        )
        response = await cluster.coordinator.ask(OffsetCommitRequest(GROUP, parts))
        assert [(each.topic, each.partition, each.error_code) for each in response.partitions] == [
            ("unheard", 0, UnknownTopicOrPartitionError.code),
            ("t", 0, 0),
            ("t", 1, OffsetMetadataTooLargeError.code),
            ("t", 7, UnknownTopicOrPartitionError.code),
        ]
        asked = tuple(DescribePartition("t", number) for number in (1, 0))
        some = await cluster.coordinator.ask(OffsetFetchRequest(GROUP, asked))
        fetched = [
            (p.partition, p.error_code, p.committed_offset, p.committed_leader_epoch, p.metadata)
            for p in some.partitions
        ]
        assert fetched == [(1, 0, -1, -1, ""), (0, 0, 2, 4, "a note")]
        everything = await cluster.coordinator.ask(OffsetFetchRequest(GROUP))
        assert [(p.topic, p.partition, p.committed_offset) for p in everything.partitions] == [("t", 0, 2)]


@on_virtual_time
async def test_coordinator_without_full_metadata_calls_no_topic_unknown() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        await cluster.kill(2)
        cluster.restart(2)
        await cluster.coordinate(2)
        assert await cluster.commit(6) == CoordinatorLoadInProgressError.code
        await cluster.inform(TP)
        assert await cluster.commit(6) == 0
        assert await cluster.commit(6, tp=TP1) == CoordinatorLoadInProgressError.code


@on_virtual_time
async def test_commit_metadata_is_bounded_in_bytes() -> None:
    async with GroupCluster(offset_metadata_max_bytes=4) as cluster:
        await cluster.coordinate(1)
        for note, code in (("éé", 0), ("ééé", OffsetMetadataTooLargeError.code), ("four", 0), ("fives", 12)):
            part = OffsetCommitPartition("t", 0, 1, -1, note)
            [outcome] = (await cluster.coordinator.ask(OffsetCommitRequest(GROUP, (part,)))).partitions
            assert outcome.error_code == code, note


@on_virtual_time
async def test_last_entry_counts_if_a_commit_names_a_partition_twice() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        parts = tuple(OffsetCommitPartition("t", 0, offset) for offset in (5, 6))
        response = await cluster.coordinator.ask(OffsetCommitRequest(GROUP, parts))
        assert [each.error_code for each in response.partitions] == [0, 0]
        assert await cluster.committed() == (0, 6)
        await cluster.coordinate(2)
        assert await cluster.committed() == (0, 6)


@on_virtual_time
async def test_only_members_of_this_generation_commit_while_there_are_any() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(1, generation_id=1, member_id="m") == IllegalGenerationError.code
        assert await cluster.commit(1) == 0, "the group has no members, so any client may commit"
        member = cluster.client()
        await member.settle()
        assert await cluster.commit(2) == UnknownMemberIdError.code
        assert await member.commit(2, member_id="foreign") == UnknownMemberIdError.code
        assert await member.commit(2, generation_id=0) == IllegalGenerationError.code
        assert await member.commit(2, group_instance_id="i") == UnknownMemberIdError.code
        assert await cluster.committed() == (0, 1)
        assert await member.commit(2) == 0
        assert await cluster.committed() == (0, 2)


@on_virtual_time
async def test_replaced_static_member_stays_fenced_under_a_new_coordinator() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        before, now = cluster.client(instance="i"), cluster.client(instance="i")
        await before.settle()
        assert (await now.join()).error_code == 0
        assert before.member_id != now.member_id
        for coordinator in (1, 2):
            await cluster.coordinate(coordinator)
            assert await before.commit(1) == FencedInstanceIdError.code
            assert await now.commit(2) == 0
            assert (await now.sync()).assignment == b"all of it"


@on_virtual_time
async def test_member_without_its_assignment_cannot_commit() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.join()
        assert await member.commit(1) == RebalanceInProgressError.code


@on_virtual_time
async def test_negative_offsets_are_kept_and_groups_need_a_name_as_in_kafka() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(-5) == 0
        assert await cluster.committed() == (0, -5)
        for name in ("", "g" * 40_000):
            assert await cluster.commit(1, group=name) == InvalidGroupIdError.code
            assert (await cluster.committed(group=name))[0] == InvalidGroupIdError.code
            assert (await cluster.describe(name)).error_code == InvalidGroupIdError.code
            assert (await cluster.client(group=name).ask_to_join()).error_code == InvalidGroupIdError.code


@on_virtual_time
async def test_session_timeout_is_bounded_by_the_broker() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        client = cluster.client()
        for timeout_ms in (5999, 1_800_001, 0, -1):
            client.session_timeout_ms = timeout_ms
            assert (await client.ask_to_join()).error_code == InvalidSessionTimeoutError.code
        client.session_timeout_ms, client.rebalance_timeout_ms, client.member_id = 6000, -1, ""
        await client.settle()
        _, hosted = cluster.coordinator.groups.coordinator.find(GROUP)
        assert hosted is not None
        assert hosted.group.members[client.member_id].rebalance_timeout_ms == 6000, "the default is the session timeout"


@on_virtual_time
async def test_refused_member_keeps_its_id() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        client = cluster.client()
        client.member_id = "unknown-member"
        response = await client.ask_to_join()
        assert (response.error_code, response.member_id) == (UnknownMemberIdError.code, "unknown-member")


@on_virtual_time
async def test_values_that_do_not_fit_into_a_record_are_refused() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for offset, epoch in ((2**63, 0), (-(2**63) - 1, 0), (0, 2**31), (0, -(2**31) - 1)):
            parts = (OffsetCommitPartition("t", 0, offset, epoch), OffsetCommitPartition("t", 1, 1))
            response = await cluster.coordinator.ask(OffsetCommitRequest(GROUP, parts))
            assert [each.error_code for each in response.partitions] == [InvalidRequestError.code, 0]
        client = cluster.client()
        client.rebalance_timeout_ms = 2**31
        assert (await client.ask_to_join()).error_code == InvalidRequestError.code
        client.rebalance_timeout_ms, client.instance = 20_000, "i" * 2**15
        assert (await client.ask_to_join()).error_code == InvalidRequestError.code


# --- writes that fail --------------------------------------------------------------------------------


@on_virtual_time
async def test_commit_on_too_few_replicas_fails_with_a_retriable_error() -> None:
    async with GroupCluster(offsets_commit_timeout_ms=300) as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(1) == 0
        cluster.cut(1, 2, 3)
        assert await cluster.commit(2) == CoordinatorNotAvailableError.code, "it took too long"
        assert await cluster.committed() == (0, 1)
        await asyncio.sleep(3)
        assert cluster.coordinator.replica(OFFSETS).partition.in_sync_count == 1
        end = cluster.coordinator.log(OFFSETS).log_end_offset
        [refused] = (
            await cluster.coordinator.ask(OffsetCommitRequest(GROUP, (OffsetCommitPartition("t", 0, 3),)))
        ).partitions
        assert refused.error_code == CoordinatorNotAvailableError.code
        assert refused.error_message == (
            "__consumer_offsets-0: in-sync replicas: 1 of 3; acks=all needs 2 (min.insync.replicas=2)"
        )
        assert cluster.coordinator.log(OFFSETS).log_end_offset == end, "the commit was not written"
        cluster.heal()
        await asyncio.sleep(2)
        assert await cluster.commit(4) == 0
        assert await cluster.committed() == (0, 4)


@on_virtual_time
async def test_generation_that_cannot_be_written_starts_a_new_rebalance() -> None:
    async with GroupCluster(offsets_commit_timeout_ms=300) as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.join()
        cluster.cut(1, 2, 3)
        assert (await member.sync(**{member.member_id: b"x"})).error_code == CoordinatorNotAvailableError.code
        cluster.heal()
        await asyncio.sleep(2)
        assert await member.heartbeat() == RebalanceInProgressError.code
        await member.settle()
        assert member.generation == 2
        assert await member.commit(1) == 0


@on_virtual_time
async def test_commit_larger_than_a_batch_is_refused() -> None:
    async with GroupCluster() as cluster:
        cluster.configs = {"min.insync.replicas": "2", "max.message.bytes": "1000"}
        await cluster.coordinate(1)
        parts = tuple(OffsetCommitPartition("t", number, 1, -1, "n" * 400) for number in (0, 1))
        response = await cluster.coordinator.ask(OffsetCommitRequest(GROUP, (*parts, *parts)))
        assert {each.error_code for each in response.partitions} == {0}
        parts = tuple(OffsetCommitPartition("t", number, 1, -1, "n" * 500) for number in (0, 1))
        response = await cluster.coordinator.ask(OffsetCommitRequest(GROUP, parts))
        assert {each.error_code for each in response.partitions} == {InvalidCommitOffsetSizeError.code}
        member = cluster.client()
        member.metadata = b"m" * 1000
        await member.join()
        assert (await member.sync(**{member.member_id: b""})).error_code == -1


# --- expiry ------------------------------------------------------------------------------------------


@on_virtual_time
async def test_offsets_and_group_expire_after_the_last_member_by_retention() -> None:
    async with GroupCluster(offsets_retention_minutes=2, offsets_retention_check_interval_ms=2000) as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.settle()
        assert await member.commit(1) == 0
        for _ in range(20):
            await asyncio.sleep(8)
            assert await member.heartbeat() == 0
        assert await cluster.committed() == (0, 1), "the offset is still there"
        leave = LeaveGroupRequest(GROUP, (LeavingMember(member.member_id),))
        assert (await cluster.coordinator.ask(leave)).members[0].error_code == 0
        await asyncio.sleep(115)
        assert await cluster.committed() == (0, 1)
        await asyncio.sleep(10)
        assert await cluster.committed() == (0, -1)
        assert (await cluster.describe()).state == "Dead"
        assert tombstones(cluster) == [CommitKey(GROUP, "t", 0), GroupKey(GROUP)]
        await cluster.coordinate(2)
        assert await cluster.committed() == (0, -1)
        assert (await cluster.describe()).state == "Dead"


@on_virtual_time
async def test_offsets_without_a_group_expire_each_after_its_own_commit() -> None:
    async with GroupCluster(offsets_retention_minutes=2, offsets_retention_check_interval_ms=2000) as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(1) == 0
        await asyncio.sleep(60)
        assert await cluster.commit(2, tp=TP1) == 0
        await cluster.coordinate(2)
        await asyncio.sleep(63)
        assert await cluster.committed() == (0, -1)
        assert await cluster.committed(tp=TP1) == (0, 2)
        await asyncio.sleep(60)
        assert await cluster.committed(tp=TP1) == (0, -1)
        assert tombstones(cluster) == [CommitKey(GROUP, "t", 0), CommitKey(GROUP, "t", 1)]
        assert (await cluster.coordinator.ask(ListGroupsRequest())).groups == ()


@on_virtual_time
async def test_new_coordinator_continues_the_offset_retention() -> None:
    async with GroupCluster(offsets_retention_minutes=2, offsets_retention_check_interval_ms=2000) as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.settle()
        assert await member.commit(1) == 0
        await asyncio.sleep(50)
        assert (await cluster.describe()).state == "Empty", "the member's session has expired"
        await cluster.coordinate(2)
        assert (await cluster.describe()).state == "Empty"
        await asyncio.sleep(75)
        assert await cluster.committed() == (0, 1)
        await asyncio.sleep(10)
        assert await cluster.committed() == (0, -1)


@on_virtual_time
async def test_expiry_during_an_unconfirmed_write_is_written_once() -> None:
    async with GroupCluster(
        offsets_retention_minutes=2, offsets_retention_check_interval_ms=100, offsets_commit_timeout_ms=60_000
    ) as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(1) == 0
        await asyncio.sleep(119)
        cluster.cut(1, 2, 3)
        await asyncio.sleep(5)
        service = cluster.coordinator.groups
        assert tombstones(cluster) == [CommitKey(GROUP, "t", 0)]
        assert await cluster.committed() == (0, 1) and service.expired == 0
        cluster.heal()
        await asyncio.sleep(5)
        assert await cluster.committed() == (0, -1) and service.expired == 1


@on_virtual_time
async def test_offsets_of_another_topic_of_the_name_are_kept() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        coordinator = cluster.coordinator.groups.coordinator
        offsets = OffsetCommits(coordinator)
        expiry = Expiry(coordinator, offsets, MemoryOffsetsTopic())
        expiry.topics_deleted({"t"})
        assert await cluster.commit(6, tp=TP1) == 0
        await expiry.forget_all_deleted()
        await asyncio.sleep(0.1)
        assert (await cluster.committed(), await cluster.committed(tp=TP1)) == ((0, -1), (0, 6))


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_nothing_expires_while_members_subscriptions_are_unknown(protocol_type: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        settings = {"offsets_retention_minutes": 2, "offsets_retention_check_interval_ms": 1000}
        async with GroupCluster(**settings, group_initial_rebalance_delay_ms=10_000) as cluster:
            await cluster.coordinate(1)
            assert await cluster.commit(5) == 0
            await asyncio.sleep(115)
            client = cluster.client(topics=("t",) if protocol_type == "consumer" else ("what it calls so",))
            client.protocol_type = protocol_type
            joining = asyncio.ensure_future(client.join())
            await asyncio.sleep(8)
            described = await cluster.describe()
            assert (described.state, described.protocol) == ("PreparingRebalance", "")
            assert [member.metadata for member in described.members] == [b""]
            forget = OffsetDeleteRequest(GROUP, (DescribePartition(*TP),))
            response = await cluster.coordinator.ask(forget)
            if protocol_type == "consumer":
                assert [each.error_code for each in response.partitions] == [GroupSubscribedToTopicError.code]
            else:
                assert response.error_code == NonEmptyGroupError.code
            assert await cluster.committed() == (0, 5)
            await joining
            assert (await client.sync(**{client.member_id: b"x"})).error_code == 0
            await asyncio.sleep(3)
            assert await cluster.committed() == (0, 5)

    scenario()


# --- concurrent changes -----------------------------------------------------------------


@on_virtual_time
async def test_commit_after_a_tombstone_is_kept() -> None:
    async with GroupCluster(offsets_commit_timeout_ms=60_000) as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        cluster.cut(1, 2, 3)
        forget = OffsetDeleteRequest(GROUP, (DescribePartition(*TP),))
        forgetting = asyncio.ensure_future(cluster.coordinator.ask(forget))
        await asyncio.sleep(0.1)
        committing = asyncio.ensure_future(cluster.commit(6))
        await asyncio.sleep(0.1)
        assert await cluster.committed() == (0, 5)
        cluster.heal()
        assert [each.error_code for each in (await forgetting).partitions] == [0] and await committing == 0
        assert await cluster.committed() == (0, 6)
        await cluster.coordinate(2)
        assert await cluster.committed() == (0, 6)


@on_virtual_time
async def test_group_joined_during_its_deletion_survives_a_coordinator_change() -> None:
    async with GroupCluster(offsets_commit_timeout_ms=60_000) as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.settle()
        assert await member.commit(5) == 0
        await cluster.coordinator.ask(LeaveGroupRequest(GROUP, (LeavingMember(member.member_id),)))
        await asyncio.sleep(1)
        cluster.cut(1, 2, 3)
        deleting = asyncio.ensure_future(cluster.coordinator.ask(DeleteGroupsRequest((GROUP,))))
        await asyncio.sleep(0.1)
        comes = cluster.client()
        settling = asyncio.ensure_future(comes.settle())
        await asyncio.sleep(0.1)
        cluster.heal()
        await asyncio.gather(deleting, settling)
        assert await cluster.committed() == (0, -1)
        assert await comes.heartbeat() == 0
        await asyncio.sleep(1)
        await cluster.coordinate(2)
        assert (await cluster.describe()).state == "Stable"
        assert await comes.heartbeat() == 0


@on_virtual_time
async def test_offsets_of_a_topic_are_deleted_with_it() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for tp in (TP, TP1):
            assert await cluster.commit(5, tp=tp) == 0
        await cluster.inform(TP, deleted=("t",))
        await asyncio.sleep(0.1)
        for tp in (TP, TP1):
            await cluster.inform(tp)
            assert await cluster.committed(tp=tp) == (0, -1)
        assert tombstones(cluster) == [CommitKey(GROUP, "t", 0), CommitKey(GROUP, "t", 1)]
        await cluster.coordinate(2)
        assert await cluster.committed() == (0, -1)


@on_virtual_time
async def test_deletion_of_a_topics_offsets_ignores_the_wall_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        monkeypatch.setattr(VirtualClock, "EPOCH_MS", VirtualClock.EPOCH_MS - 3_600_000)
        await cluster.inform(TP, deleted=("t",))
        await asyncio.sleep(0.1)
        await cluster.inform(TP)
        assert await cluster.committed() == (0, -1)


@on_virtual_time
async def test_commit_in_flight_is_deleted_with_its_topic() -> None:
    async with GroupCluster(offsets_commit_timeout_ms=60_000) as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(1, tp=TP1) == 0
        cluster.cut(1, 2, 3)
        commit = asyncio.ensure_future(cluster.commit(5))
        await asyncio.sleep(0.1)
        await cluster.inform(TP, deleted=("t",))
        cluster.heal()
        assert await commit == 0
        await asyncio.sleep(5)
        for tp in (TP, TP1):
            await cluster.inform(tp)
            assert await cluster.committed(tp=tp) == (0, -1)
        await cluster.coordinate(2)
        assert await cluster.committed() == (0, -1)


@on_virtual_time
async def test_offsets_of_a_topic_deleted_during_loading_are_deleted() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        cluster.cut(1, 2, 3)  # the next coordinator cannot confirm what it reads
        await cluster.elect(2, tp=OFFSETS)
        await cluster.inform(OFFSETS)
        assert await cluster.committed() == (CoordinatorLoadInProgressError.code, -1)
        await cluster.inform(TP, deleted=("t",))
        await cluster.inform(TP)
        cluster.heal()
        while (fetched := await cluster.committed())[0]:
            assert fetched == (CoordinatorLoadInProgressError.code, -1)
            await asyncio.sleep(0.001)
        assert fetched == (0, -1), "the tombstone cannot be committed yet"
        await asyncio.sleep(5)
        assert tombstones(cluster) == [CommitKey(GROUP, "t", 0)]
        assert await cluster.committed() == (0, -1)


@on_virtual_time
async def test_offsets_of_a_deleted_topic_go_after_a_failed_tombstone() -> None:
    async with GroupCluster(offsets_commit_timeout_ms=1000, offsets_retention_check_interval_ms=10_000) as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        cluster.cut(1, 2, 3)
        await cluster.inform(TP, deleted=("t",))
        await cluster.inform(TP)
        await asyncio.sleep(2)
        cluster.heal()
        assert await cluster.committed() == (0, -1), "the offset of a deleted topic is not returned"
        assert (await cluster.coordinator.ask(OffsetFetchRequest(GROUP))).partitions == ()
        await cluster.inform(TP1)
        await asyncio.sleep(5)
        assert await cluster.commit(7, tp=TP1) == 0
        await asyncio.sleep(10)
        assert (await cluster.committed(), await cluster.committed(tp=TP1)) == ((0, -1), (0, 7))
        [shard] = cluster.coordinator.groups.coordinator.shards
        await asyncio.sleep(10)
        assert not shard.deleted


@on_virtual_time
async def test_offsets_of_a_topic_deleted_without_a_coordinator_go_on_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standing = {"t"}

    async def existing_topics(_: MemoryOffsetsTopic) -> set[str]:
        return set(standing)

    monkeypatch.setattr(MemoryOffsetsTopic, "existing_topics", existing_topics)
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        await cluster.kill(1)
        await cluster.inform(TP, deleted=("t",))
        standing.clear()
        await cluster.coordinate(2, isr=(2, 3))
        await asyncio.sleep(0.1)
        assert await cluster.committed() == (0, -1)
        assert tombstones(cluster) == [CommitKey(GROUP, "t", 0)]


@on_virtual_time
async def test_offsets_of_a_topic_unknown_to_the_new_coordinator_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standing, silent = {"t"}, True

    async def existing_topics(_: MemoryOffsetsTopic) -> set[str]:
        if silent:
            raise OutcomeUnknownError("ZooKeeper is silent")
        return set(standing)

    monkeypatch.setattr(MemoryOffsetsTopic, "existing_topics", existing_topics)
    async with GroupCluster(offsets_retention_check_interval_ms=10_000) as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        await cluster.kill(1)
        await cluster.inform(TP, deleted=("t",))  # the next coordinator does not know of the deletion yet
        await cluster.coordinate(2, isr=(2, 3))
        await asyncio.sleep(11)
        assert await cluster.committed() == (0, 5), "the topic is not known to be deleted"
        silent = False
        await asyncio.sleep(10)
        assert await cluster.committed() == (0, 5), "the topic exists"
        standing.clear()
        await asyncio.sleep(10)
        assert await cluster.committed() == (0, -1)


@on_virtual_time
async def test_offsets_of_a_topic_created_during_the_listing_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def existing_topics(_: MemoryOffsetsTopic) -> set[str]:
        asked.set()
        await answer.wait()
        return set()

    monkeypatch.setattr(MemoryOffsetsTopic, "existing_topics", existing_topics)
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        assert await cluster.commit(6, tp=TP1) == 0
        await cluster.kill(1)
        await cluster.inform(TP, deleted=("t",))
        await cluster.coordinate(2, isr=(2, 3))
        await asyncio.wait_for(asked.wait(), 60)
        await cluster.inform(TP)
        assert await cluster.commit(7) == 0
        answer.set()
        await asyncio.sleep(0.1)
        assert (await cluster.committed(), await cluster.committed(tp=TP1)) == ((0, 7), (0, -1))


# --- deleting ----------------------------------------------------------------------------------------


@on_virtual_time
async def test_group_without_members_is_deleted_with_its_offsets() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.settle()
        assert await member.commit(5) == 0
        assert await cluster.commit(6, group="simple") == 0

        async def delete(*groups: str) -> list[tuple[str, int]]:
            response = await cluster.coordinator.ask(DeleteGroupsRequest(groups))
            return [(each.group_id, each.error_code) for each in response.groups]

        assert await delete() == []
        assert await delete(GROUP, "unheard") == [
            (GROUP, NonEmptyGroupError.code),
            ("unheard", GroupIdNotFoundError.code),
        ]
        assert await cluster.committed() == (0, 5)
        await cluster.coordinator.ask(LeaveGroupRequest(GROUP, (LeavingMember(member.member_id),)))
        assert await delete("simple", GROUP, GROUP) == [("simple", 0), (GROUP, 0), (GROUP, 0)]
        for coordinator in (1, 2):
            await cluster.coordinate(coordinator)
            assert await cluster.committed() == (0, -1)
            assert await cluster.committed(group="simple") == (0, -1)
            assert (await cluster.coordinator.ask(ListGroupsRequest())).groups == ()


async def coordinate_beside_another_topic(cluster: GroupCluster) -> TopicPartition:
    """Let broker 1 coordinate the groups, and lead a partition of another topic. Return that partition."""
    other = TopicPartition("other", 0)
    await cluster.elect(1, tp=other)
    await cluster.inform(other)
    await cluster.coordinate(1)
    return other


@on_virtual_time
async def test_offset_delete_drops_offsets_of_unsubscribed_topics() -> None:
    async with GroupCluster() as cluster:
        other = await coordinate_beside_another_topic(cluster)
        assert await cluster.commit(1, tp=other) == 0
        member = cluster.client()
        await member.settle()
        assert await member.commit(5) == 0
        parts = (DescribePartition("t", 0), DescribePartition("other", 0), DescribePartition("unheard", 0))
        response = await cluster.coordinator.ask(OffsetDeleteRequest(GROUP, parts))
        assert (response.error_code, [each.error_code for each in response.partitions]) == (
            0,
            [GroupSubscribedToTopicError.code, 0, UnknownTopicOrPartitionError.code],
        )
        unheard = await cluster.coordinator.ask(OffsetDeleteRequest("unheard", parts))
        assert unheard.error_code == GroupIdNotFoundError.code
        for coordinator in (1, 2):
            await cluster.coordinate(coordinator)
            assert await cluster.committed() == (0, 5)
            assert await cluster.committed(tp=other) == (0, -1)


@pytest.mark.parametrize("how", ["OffsetDelete", "deletion of the topic"])
def test_group_without_members_goes_with_its_last_offset(how: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            other = await coordinate_beside_another_topic(cluster)
            member = cluster.client()
            await member.settle()
            assert await member.commit(5) == 0
            await cluster.coordinator.ask(LeaveGroupRequest(GROUP, (LeavingMember(member.member_id),)))
            assert await cluster.commit(6, tp=other) == 0

            async def delete(tp: TopicPartition) -> int:
                if how == "OffsetDelete":
                    request = OffsetDeleteRequest(GROUP, (DescribePartition(*tp),))
                    code: int = (await cluster.coordinator.ask(request)).error_code
                    return code
                await cluster.inform(tp, deleted=(tp.topic,))
                await asyncio.sleep(1)
                return 0

            assert await delete(TP) == 0
            assert [each.group_id for each in await listed(cluster)] == [GROUP], "it has an offset of the other topic"
            assert await delete(other) == 0
            for coordinator in (1, 2):
                await cluster.coordinate(coordinator)
                assert await listed(cluster) == ()
                response = await cluster.coordinator.ask(DeleteGroupsRequest((GROUP,)))
                assert [each.error_code for each in response.groups] == [GroupIdNotFoundError.code]

    scenario()


@on_virtual_time
async def test_group_with_members_stays_without_its_last_offset() -> None:
    async with GroupCluster() as cluster:
        other = await coordinate_beside_another_topic(cluster)
        assert await cluster.commit(1, tp=other) == 0
        await cluster.client().settle()
        response = await cluster.coordinator.ask(OffsetDeleteRequest(GROUP, (DescribePartition(*other),)))
        assert [each.error_code for each in response.partitions] == [0]
        for coordinator in (1, 2):
            await cluster.coordinate(coordinator)
            assert [each.state for each in await listed(cluster)] == ["Stable"]


async def listed(cluster: GroupCluster) -> tuple[ListedGroup, ...]:
    response: ListGroupsResponse = await cluster.coordinator.ask(ListGroupsRequest())
    return response.groups


@pytest.mark.parametrize("states", [(), ("Stable",), ("stable", "Empty"), ("Dead",)])
def test_groups_are_listed_by_their_states(states: tuple[str, ...]) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            await cluster.client(group="lives").settle()
            assert await cluster.commit(6, group="simple") == 0
            response = await cluster.coordinator.ask(ListGroupsRequest(states))
            listed = {(each.group_id, each.protocol_type, each.state) for each in response.groups}
            everything = {("lives", "consumer", "Stable"), ("simple", "", "Empty")}
            wanted = {state.lower() for state in states}
            assert listed == {each for each in everything if not wanted or each[2].lower() in wanted}

    scenario()
