"""The broker that answers for a group, from the load of its shard until the next election."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cluster.groups.effects import GroupEffect
from cluster.groups.group import Group
from tests.node.client_requests import TP
from tests.node.group_cluster import GROUP, NOT_YET, TP1, GroupCluster
from tests.node.memory_log import MemoryLog
from tests.node.offsets_topic import OFFSETS
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    IneligibleReplicaError,
    InvalidGroupIdError,
    InvalidRequestError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from tidelog.groups.offsets_topic import CommitKey, GroupKey, encode_key
from tidelog.model import NO_LEADER
from tidelog.protocol.group_messages import FindCoordinatorRequest, ListGroupsRequest, SyncGroupRequest
from tidelog.records.header import seal


@on_virtual_time
async def test_committed_offset_is_fetched_and_a_new_group_has_none() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(7) == 0
        assert await cluster.committed() == (0, 7)
        assert await cluster.committed(group="another") == (0, -1)


@on_virtual_time
async def test_only_the_leader_of_the_groups_partition_answers() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for broker_id in (2, 3):
            assert await cluster.commit(7, to=broker_id) == NotCoordinatorError.code
            assert await cluster.committed(to=broker_id) == (NotCoordinatorError.code, -1)


@on_virtual_time
async def test_any_broker_finds_the_coordinator_once_there_is_one() -> None:
    async with GroupCluster() as cluster:
        find = FindCoordinatorRequest((GROUP, "", "another"))
        unknown = (await cluster.nodes[3].ask(find)).coordinators
        assert [each.error_code for each in unknown] == [15, InvalidGroupIdError.code, 15]
        await cluster.coordinate(2)
        found = (await cluster.nodes[3].ask(find)).coordinators
        assert [(each.key, each.error_code, each.broker_id, each.host, each.port) for each in found] == [
            (GROUP, 0, 2, "host-2", 9092),
            ("", InvalidGroupIdError.code, -1, "", -1),
            ("another", 0, 2, "host-2", 9092),
        ]
        await cluster.kill(2)
        await cluster.inform(OFFSETS)
        gone = (await cluster.nodes[3].ask(find)).coordinators[0]
        assert (gone.error_code, gone.broker_id) == (CoordinatorNotAvailableError.code, -1)
        transactions = (await cluster.nodes[3].ask(replace(find, key_type=1))).coordinators
        assert {each.error_code for each in transactions} == {InvalidRequestError.code}


@on_virtual_time
async def test_new_coordinator_has_the_acknowledged_commits_of_the_old_one() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        for offset in range(5):
            assert await cluster.commit(offset) == 0
        assert await cluster.commit(9, group="another", tp=TP1) == 0
        await cluster.kill(1)
        await cluster.coordinate(2, isr=(2, 3))
        assert await cluster.committed() == (0, 4)
        assert await cluster.committed(group="another", tp=TP1) == (0, 9)
        assert await cluster.commit(5) == 0
        assert await cluster.committed() == (0, 5)


@on_virtual_time
async def test_offsets_are_answered_only_once_all_are_loaded_and_committed() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        before = cluster.nodes[2].replica(OFFSETS).partition.high_watermark
        assert before < cluster.nodes[2].log(OFFSETS).log_end_offset, (
            "the broker does not know yet that the record is committed"
        )
        cluster.cut(2, 3)
        await cluster.kill(1)
        await cluster.elect(2, tp=OFFSETS, isr=(2, 3))
        for _ in range(20):
            assert await cluster.committed() == (CoordinatorLoadInProgressError.code, -1)
            assert await cluster.commit(6) == CoordinatorLoadInProgressError.code
            assert (await cluster.describe()).error_code == CoordinatorLoadInProgressError.code
            listed = await cluster.coordinator.ask(ListGroupsRequest())
            assert (listed.error_code, listed.groups) == (CoordinatorLoadInProgressError.code, ())
            await asyncio.sleep(0.05)
        cluster.heal()
        while (answer := await cluster.committed())[0]:
            assert answer == (CoordinatorLoadInProgressError.code, -1)
            await asyncio.sleep(0.01)
        assert answer == (0, 5)


@on_virtual_time
async def test_load_for_an_old_epoch_is_dropped() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        await cluster.coordinate(2)
        assert await cluster.commit(6) == 0
        await asyncio.sleep(2)
        await cluster.elect(1, tp=OFFSETS)  # the broker starts to load
        await cluster.elect(2, tp=OFFSETS)
        await cluster.coordinate(2)
        assert await cluster.commit(7) == 0
        assert await cluster.committed(to=1) == (NotCoordinatorError.code, -1)
        await cluster.coordinate(1)
        assert await cluster.committed() == (0, 7)


@on_virtual_time
async def test_new_leader_epoch_loads_the_shard_again() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        shard = cluster.nodes[1].groups.coordinator.shard_of(GROUP)
        await cluster.coordinate(1)
        coordinator = cluster.nodes[1].groups.coordinator
        assert coordinator.shard_of(GROUP) is not shard and not shard.open
        assert await cluster.committed() == (0, 5)
        errors: list[BrokerError | None] = []
        end = cluster.coordinator.log(OFFSETS).log_end_offset
        coordinator.writes.write(shard, [(encode_key(GroupKey(GROUP)), None)], lambda _, error: errors.append(error))
        assert [type(error) for error in errors] == [NotCoordinatorError], "a closed shard is not written to"
        assert cluster.coordinator.log(OFFSETS).log_end_offset == end


@pytest.mark.parametrize("end", ["another leads", "its registration is gone", "its disk fails", "it stops"])
def test_commit_waiting_at_a_deposed_coordinator_is_refused(end: str) -> None:
    @on_virtual_time
    async def story() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            first, second = cluster.client(), cluster.client()
            await first.settle()
            joining = asyncio.ensure_future(second.join())
            cluster.cut(1, 2, 3)
            committing = asyncio.ensure_future(cluster.commit(3, group="another"))
            await asyncio.sleep(0.1)
            assert not joining.done() and not committing.done()
            node = cluster.nodes[1]
            if end == "another leads":
                await cluster.elect(2, tp=OFFSETS)
            elif end == "its registration is gone":
                node.replicas.registration_lost()
            elif end == "its disk fails":
                node.log(OFFSETS).broken = True
                assert await cluster.commit(4, group="a third", to=1) == NotCoordinatorError.code
            else:
                await node.replicas.close()
            await asyncio.sleep(0.01)
            assert (await joining).error_code == NotCoordinatorError.code
            assert await committing == NotCoordinatorError.code
            assert await cluster.committed(to=1) == (NotCoordinatorError.code, -1)
            assert node.groups.tick(0) is None, "no timer of its groups is left"
            cluster.heal()

    story()


@on_virtual_time
async def test_member_waiting_at_a_deposed_coordinator_is_refused() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        first, second = cluster.client(), cluster.client()
        await first.settle()
        joining = asyncio.ensure_future(second.join())
        await asyncio.sleep(0.1)
        assert await first.heartbeat() == RebalanceInProgressError.code
        await asyncio.gather(first.join(), joining)
        follower = second if (await joining).leader == first.member_id else first
        syncing = asyncio.ensure_future(follower.sync())
        await asyncio.sleep(0.1)
        await cluster.elect(2, tp=OFFSETS)
        assert (await syncing).error_code == NotCoordinatorError.code


@on_virtual_time
async def test_possibly_deposed_coordinator_fetches_nothing_but_commits() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.settle()
        assert await member.commit(5) == 0
        cluster.nodes[1].cut_off = True
        assert await cluster.committed() == (CoordinatorNotAvailableError.code, -1)
        assert await member.heartbeat() == 0
        assert await member.commit(6) == 0
        # Another broker leads by now, and this broker does not know it yet.
        await cluster.elect(2, tp=OFFSETS, send_to=(2, 3))
        assert await member.commit(99, to=1) != 0
        cluster.nodes[1].cut_off = False
        await cluster.send_state((1,), OFFSETS)
        await cluster.coordinate(2)
        assert await cluster.committed() == (0, 6)


@on_virtual_time
async def test_group_goes_on_under_a_new_coordinator() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.settle()
        await cluster.kill(1)
        await cluster.coordinate(2, isr=(2, 3))
        assert await member.heartbeat() == 0
        assert await member.commit(5) == 0
        assert (await member.sync()).assignment == b"all of it"
        described = await cluster.describe()
        assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
        [described_member] = described.members
        assert (described_member.member_id, described_member.client_id, described_member.assignment) == (
            member.member_id,
            "test",
            b"all of it",
        )
        # The next generation counts on from the generation of the old coordinator.
        another = cluster.client()
        joining = asyncio.ensure_future(another.join())
        await asyncio.sleep(0.05)
        await asyncio.gather(member.join(), joining)
        assert member.generation == another.generation == 2


@on_virtual_time
async def test_description_shows_the_members_for_which_a_rebalance_waits() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        member, another = cluster.client(), cluster.client()
        await member.settle()
        joining = asyncio.ensure_future(another.join())
        await asyncio.sleep(0.05)
        described = await cluster.describe()
        assert described.state == "PreparingRebalance"
        stages = {each.member_id: each.stage for each in described.members}
        assert stages.pop(member.member_id) == "Awaited"
        assert list(stages.values()) == ["Waiting"]
        await asyncio.gather(member.join(), joining)
        assert [each.stage for each in (await cluster.describe()).members] == ["Awaited", "Awaited"]


@on_virtual_time
async def test_member_sessions_restart_under_a_new_coordinator() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        member = cluster.client()
        await member.settle()
        await asyncio.sleep(8)
        await cluster.coordinate(2)
        await asyncio.sleep(8)
        assert (await cluster.describe()).state == "Stable"
        await asyncio.sleep(3)
        assert (await cluster.describe()).state == "Empty"
        assert await member.heartbeat() == UnknownMemberIdError.code
        # The record of the empty group is written too.
        await cluster.coordinate(3)
        described = await cluster.describe()
        assert (described.state, described.protocol_type, described.members) == ("Empty", "consumer", ())


@on_virtual_time
async def test_undecodable_records_are_skipped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        await asyncio.sleep(2)
        await cluster.elect(2, tp=OFFSETS)
        await asyncio.sleep(1)
        await cluster.write(
            (None, b"no key"),
            (b"", b"no version"),
            (b"\x00\x09", b"of another version"),
            (encode_key(CommitKey(GROUP, "t", 0)), b"\x00\x63"),
            (encode_key(GroupKey("another")), b"\x00\x03\x7f"),
        )
        log = cluster.nodes[1].log(OFFSETS)
        unreadable = bytearray(log.batches[-1][:-1] + b"!")
        seal(unreadable, 0, len(unreadable))
        log.batches[-1] = bytes(unreadable)  # a faulty producer wrote it with a correct CRC
        caplog.clear()
        await cluster.coordinate(3)
        assert await cluster.committed() == (0, 5)
        [warning] = [record.message for record in caplog.records if record.name == "node.groups.shards"]
        assert "skipped" in warning and "1 × no key" in warning and "1 × key of version 9" in warning
        caplog.clear()
        await cluster.coordinate(1)
        assert await cluster.committed() == (0, 5)
        [warning] = [record.message for record in caplog.records if record.name == "node.groups.shards"]
        assert "5 × unreadable batch" in warning


def damage(cluster: GroupCluster, broker_id: int) -> None:
    """Change a byte of the first batch of the offsets topic on this broker's disk."""
    batches = cluster.nodes[broker_id].log(OFFSETS).batches
    batches[0] = batches[0][:-1] + bytes([batches[0][-1] ^ 1])


async def send_state_again(cluster: GroupCluster, broker_id: int, *, unclean: bool = False) -> int:
    """Send the current state to the broker again, and return the error code of its answer."""
    request = cluster.leader_and_isr(OFFSETS)
    request = replace(request, partitions=(replace(request.partitions[0], unclean=unclean),))
    answer = await cluster.nodes[broker_id].ask(request, sender_epoch=1)
    return int(answer.partitions[0].error_code)


async def damaged_leader(cluster: GroupCluster) -> MemoryLog:
    """Return the log of broker 1, which leads and has found its log damaged before a commit of offset 5."""
    await cluster.coordinate(2)
    assert await cluster.commit(5) == 0
    damage(cluster, 1)
    damaged = cluster.nodes[1].log(OFFSETS)
    await cluster.elect(1, tp=OFFSETS)
    await until(lambda: cluster.states.log_dir_failures == [1])
    return damaged


@on_virtual_time
async def test_coordinator_with_a_damaged_log_hands_over_and_refetches() -> None:
    async with GroupCluster() as cluster:
        damaged = await damaged_leader(cluster)
        assert (await cluster.committed(to=1))[0] in NOT_YET
        await asyncio.sleep(5)
        assert cluster.states.log_dir_failures == [1], "reported once"
        assert await send_state_again(cluster, 1) == IneligibleReplicaError.code
        await cluster.coordinate(2, isr=[2, 3])
        assert await cluster.committed() == (0, 5)
        await until(lambda: 1 in cluster.states.states[OFFSETS].state.isr)
        assert cluster.nodes[1].log(OFFSETS).batches == cluster.nodes[2].log(OFFSETS).batches
        assert damaged in cluster.nodes[1].directory.stray, "the damaged log is kept aside"
        await cluster.coordinate(1)
        assert await cluster.committed() == (0, 5)


@on_virtual_time
async def test_coordinator_with_a_damaged_log_waits_for_another_isr_member(caplog: pytest.LogCaptureFixture) -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(2)
        assert await cluster.commit(5) == 0
        damage(cluster, 1)
        await cluster.kill(2)
        await cluster.kill(3)
        await cluster.elect(1, tp=OFFSETS, isr=[1])
        caplog.clear()
        await asyncio.sleep(20)
        assert (await cluster.committed(to=1))[0] in NOT_YET
        assert not cluster.states.log_dir_failures, "no other could lead"
        [error] = [record.message for record in caplog.records if record.name == "node.groups.shards"]
        assert "CRC" in error
        cluster.restart(2)
        await cluster.send_state(tp=OFFSETS)
        await until(lambda: cluster.states.log_dir_failures == [1])
        assert await send_state_again(cluster, 1) == IneligibleReplicaError.code
        # The other replica has died again, so that this one leads again, and waits on.
        await cluster.kill(2)
        await cluster.elect(1, tp=OFFSETS, isr=[1])
        assert cluster.nodes[1].replica(OFFSETS).partition.is_leader
        assert (await cluster.committed(to=1))[0] in NOT_YET
        cluster.restart(2)
        await cluster.send_state(tp=OFFSETS)
        await until(lambda: cluster.states.log_dir_failures == [1, 1])
        await cluster.coordinate(2, isr=[2])
        assert await cluster.committed() == (0, 5)


@on_virtual_time
async def test_damaged_log_that_leads_uncleanly_stays_until_another_leads() -> None:
    async with GroupCluster() as cluster:
        damaged = await damaged_leader(cluster)
        assert await send_state_again(cluster, 1, unclean=True) == IneligibleReplicaError.code
        assert cluster.nodes[1].log(OFFSETS) is damaged
        await cluster.coordinate(2, isr=[2, 3])
        assert await cluster.committed() == (0, 5)


@on_virtual_time
async def test_damaged_log_leads_if_no_other_isr_member_can() -> None:
    async with GroupCluster() as cluster:
        damaged = await damaged_leader(cluster)
        assert await send_state_again(cluster, 1) == IneligibleReplicaError.code
        # The other replicas have died before they could be elected.
        await cluster.elect(NO_LEADER, tp=OFFSETS, isr=[1, 2], send_to=[1])
        await cluster.elect(1, tp=OFFSETS, isr=[1], send_to=[1])
        assert cluster.nodes[1].log(OFFSETS) is damaged


@on_virtual_time
async def test_damaged_log_stays_until_there_is_a_leader_to_fetch_from() -> None:
    async with GroupCluster() as cluster:
        damaged = await damaged_leader(cluster)
        await cluster.elect(NO_LEADER, tp=OFFSETS, isr=[2], send_to=[1])
        assert cluster.nodes[1].log(OFFSETS) is damaged
        await cluster.coordinate(2, isr=[2])
        await until(lambda: 1 in cluster.states.states[OFFSETS].state.isr)
        assert damaged in cluster.nodes[1].directory.stray


@on_virtual_time
async def test_only_replica_skips_a_damaged_batch(caplog: pytest.LogCaptureFixture) -> None:
    async with GroupCluster() as cluster:
        cluster.replicas = (1,)
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        assert await cluster.commit(6, group="another") == 0
        damage(cluster, 1)
        await cluster.coordinate(1)
        assert await cluster.committed() == (0, -1)
        assert await cluster.committed(group="another") == (0, 6)
        assert "1 × unreadable batch" in caplog.text


def test_failed_timer_of_a_group_delays_no_other_group(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    time_passed = Group.time_passed

    def stumble(group: Group, now_ms: int) -> list[GroupEffect]:
        if group.group_id == "odd":
            raise KeyError("unexpected")
        return time_passed(group, now_ms)

    async def state_of(cluster: GroupCluster, group: str) -> str:
        return (await cluster.describe(group)).state

    @on_virtual_time
    async def story() -> None:
        async with GroupCluster() as cluster:
            await cluster.coordinate(1)
            for group in ("odd", "other"):
                await cluster.client(group=group).settle()
            monkeypatch.setattr(Group, "time_passed", stumble)
            await asyncio.sleep(30)
            assert [await state_of(cluster, group) for group in ("odd", "other")] == ["Stable", "Empty"]
            errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
            assert 1 <= len(errors) <= 5 and all("'odd'" in error for error in errors)
            monkeypatch.undo()
            await asyncio.sleep(10)
            assert await state_of(cluster, "odd") == "Empty", "its timer is run again"

    story()


@on_virtual_time
async def test_sync_of_an_unknown_group_or_member_is_refused() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        unknown = await cluster.coordinator.ask(SyncGroupRequest("unknown-group", 1, "m"))
        assert unknown.error_code == UnknownMemberIdError.code
        assert (await cluster.describe("unknown-group")).state == "Dead"


@on_virtual_time
async def test_unused_group_is_dropped_from_memory() -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5, group="gone", generation_id=3, member_id="m") != 0
        client = cluster.client(group="asked once")
        assert (await client.ask_to_join()).member_id
        await until(lambda: not cluster.coordinator.groups.coordinator.shard_of(GROUP).groups)
        assert (await cluster.coordinator.ask(ListGroupsRequest())).groups == ()
        assert cluster.coordinator.log(OFFSETS).log_end_offset == 0
        assert TP in {replica.topic_partition for replica in cluster.coordinator.replicas}


@on_virtual_time
async def test_unreadable_log_is_retried_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        await asyncio.sleep(2)
        log = cluster.nodes[2].log(OFFSETS)
        [good] = log.batches
        log.batches[0] = good[:16] + b"\x09" + good[17:]  # an unknown format
        await cluster.elect(2, tp=OFFSETS)
        await asyncio.sleep(10)
        assert await cluster.committed() == (CoordinatorLoadInProgressError.code, -1)
        log.batches[0] = good
        await asyncio.sleep(2)
        assert await cluster.committed() == (0, 5)
        logged = [record for record in caplog.records if record.name == "node.groups.shards"]
        assert [record.levelname for record in logged] == ["ERROR"]
