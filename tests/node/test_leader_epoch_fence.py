"""A leader epoch has one leader only, even if ZooKeeper is restored from an older backup."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.state import PartitionState, VersionedState
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.directory.leadership_checkpoint import FILE_NAME, Leadership
from storage.log_manager import LogManager
from tests.node.client_requests import TP
from tests.node.memory_cluster import TOPIC_ID, MemoryCluster
from tests.storage.logs import UnsyncedFiles
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StorageError,
)
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.control_messages import StopReplicaPartition, StopReplicaRequest

FENCED = FencedLeaderEpochError.code


async def kill_all(cluster: MemoryCluster) -> None:
    for broker_id in cluster.replicas:
        await cluster.kill(broker_id)
    for broker_id in cluster.replicas:
        cluster.restart(broker_id)


def zookeeper_holds(cluster: MemoryCluster, leader: int, epoch: int, version: int = 9) -> None:
    cluster.states.states[TP] = VersionedState(PartitionState(leader, epoch, cluster.replicas, 1), version)


async def answers(cluster: MemoryCluster, *, topic_id: str = TOPIC_ID) -> dict[int, int]:
    """Send ZooKeeper's state to each broker. Return the brokers' error codes."""
    request = cluster.leader_and_isr(topic_id=topic_id)
    responses = {broker_id: await node.ask(request, sender_epoch=1) for broker_id, node in cluster.nodes.items()}
    return {broker_id: response.partitions[0].error_code for broker_id, response in responses.items()}


def all_answer(code: int) -> dict[int, int]:
    return {1: code, 2: code, 3: code}


@on_virtual_time
async def test_epoch_given_out_again_gets_no_other_leader(caplog: pytest.LogCaptureFixture) -> None:
    """Broker 3 has led epoch 1 and appended a record that no other has. A restored ZooKeeper elects 2 in epoch 1."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert await cluster.produce(b"a") == (0, 0)
        await cluster.elect(3)
        later = cluster.states.states[TP]
        cluster.cut(3, 1, 2)
        await cluster.produce(b"b", acks=1)
        assert [cluster.nodes[each].log().latest_epoch for each in (1, 2, 3)] == [0, 0, 1]

        await kill_all(cluster)
        cluster.heal()
        zookeeper_holds(cluster, 2, 1)
        with caplog.at_level(logging.ERROR):
            assert await answers(cluster) == all_answer(FENCED)
        acted_on, sent = "epoch 1 under broker 3 in version 1", "epoch 1 under broker 2 in version 9"
        assert f"{TP}: this broker has acted on {acted_on}, the controller says {sent}; refused" in caplog.text
        assert (await cluster.produce(b"c", to=2))[0] == NotLeaderOrFollowerError.code
        assert [cluster.nodes[each].log().values for each in (1, 2, 3)] == [[b"a"], [b"a"], [b"a", b"b"]]

        await kill_all(cluster)
        cluster.states.states[TP] = later
        await cluster.elect(3)
        assert await cluster.produce(b"d") == (0, 2)
        assert [cluster.nodes[each].log().values for each in (1, 2, 3)] == [[b"a", b"b", b"d"]] * 3


@on_virtual_time
async def test_broker_refuses_another_leader_of_a_known_epoch() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        zookeeper_holds(cluster, 2, 0)
        assert await answers(cluster) == all_answer(FENCED), "a later version does not change the leader of the epoch"
        assert cluster.nodes[1].replica().partition.is_leader
        assert cluster.nodes[3].replica().partition.leader == 1


@on_virtual_time
async def test_fence_covers_an_epoch_without_records() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(2)
        await cluster.elect(1)
        await kill_all(cluster)
        zookeeper_holds(cluster, 2, 1)
        assert await answers(cluster) == all_answer(FENCED)


@on_virtual_time
async def test_restarted_leader_does_not_lead_in_its_old_epoch_again() -> None:
    """The controller gets an error and begins a new epoch."""
    async with MemoryCluster() as cluster:
        await cluster.elect(2)
        await cluster.kill(2)
        cluster.restart(2)
        assert await answers(cluster) == {1: 0, 2: NotLeaderOrFollowerError.code, 3: 0}
        assert not cluster.nodes[2].replica().partition.is_leader
        await cluster.elect(2)
        assert await cluster.produce(b"a") == (0, 0)


@on_virtual_time
async def test_later_epoch_in_an_earlier_version_is_refused_after_a_restart() -> None:
    """In a restored ZooKeeper, elections have raised the epoch above its old value."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 3)
        await cluster.produce(b"a")
        assert cluster.states.states[TP].state.isr == (1, 2)
        cluster.heal()
        await cluster.produce(b"b")
        await cluster.elect(1)
        await asyncio.sleep(1)
        assert cluster.states.states[TP].partition_epoch == 3
        await kill_all(cluster)
        zookeeper_holds(cluster, 2, 5, version=2)
        assert await answers(cluster) == all_answer(FENCED)
        zookeeper_holds(cluster, 2, 5, version=3)
        assert (await answers(cluster))[1] == FENCED
        assert [cluster.nodes[each].log().values for each in (1, 2, 3)] == [[b"a", b"b"]] * 3


@on_virtual_time
async def test_fence_covers_isrs_that_the_leader_wrote_itself() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 3)
        await cluster.produce(b"a")
        await asyncio.sleep(1)
        assert cluster.states.states[TP] == VersionedState(PartitionState(1, 0, (1, 2), 1), 1)
        assert cluster.nodes[1].directory.leaderships() == {TP: Leadership(TOPIC_ID, 0, 1, 1, 1)}
        assert cluster.nodes[2].directory.leaderships() == {TP: Leadership(TOPIC_ID, 0, 1, 0, 1)}
        await kill_all(cluster)
        zookeeper_holds(cluster, 1, 1, version=1)
        assert await answers(cluster) == {1: FENCED, 2: 0, 3: 0}


@on_virtual_time
async def test_late_answer_to_an_isr_write_lowers_no_version() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node = cluster.nodes[1]
        known = node.directory.leaderships()[TP].partition_epoch
        state = cluster.states.states[TP].state
        for version in (known + 2, known + 1):
            await node.replicas.leader_epoch_fence.note_isr(node.replica(), state, version)
            assert node.directory.leaderships()[TP].partition_epoch == known + 2


@on_virtual_time
async def test_restarted_follower_still_follows_its_leader() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.kill(2)
        cluster.restart(2)
        await cluster.send_state([1, 2])
        assert await cluster.produce(b"a") == (0, 0)
        assert cluster.nodes[2].log().values == [b"a"]


@on_virtual_time
async def test_epoch_without_a_leader_gets_no_leader() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(NO_LEADER)
        assert await answers(cluster) == all_answer(0), "the state was sent twice"
        await kill_all(cluster)
        assert await answers(cluster) == all_answer(0), "the state was sent again after a restart"
        zookeeper_holds(cluster, 1, 1)
        assert await answers(cluster) == all_answer(FENCED)
        await cluster.elect(1)
        assert cluster.leader.replica().partition.is_leader


@on_virtual_time
async def test_recreated_topic_begins_with_its_own_epochs() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(2)
        await kill_all(cluster)
        zookeeper_holds(cluster, 1, 0, version=0)
        assert await answers(cluster) == all_answer(FENCED), "the fence holds for the old topic id"
        assert await answers(cluster, topic_id="topic-id-2") == all_answer(0)


@on_virtual_time
async def test_fence_drops_a_partition_with_its_replica() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(2)
        stop = StopReplicaRequest(1, 1, (StopReplicaPartition(TP.topic, 0, 1, delete=True),))
        assert (await cluster.nodes[3].ask(stop, sender_epoch=1)).partitions[0].error_code == 0
        assert cluster.nodes[3].directory.leaderships() == {}, "a restart must not read the dropped record again"
        other = TP._replace(partition=1)
        await cluster.elect(1, tp=other)
        assert cluster.nodes[3].directory.leaderships() == {other: Leadership(TOPIC_ID, 0, 1, 0, 1)}
        zookeeper_holds(cluster, 1, 0)
        assert await answers(cluster) == {1: FENCED, 2: FENCED, 3: 0}


@on_virtual_time
async def test_fence_is_written_once_before_any_role_changes() -> None:
    async with MemoryCluster() as cluster:
        others = [TP._replace(partition=partition) for partition in range(5)]
        for tp in others:
            await cluster.elect(1, send_to=(), tp=tp)
        request = cluster.leader_and_isr()
        request = replace(request, partitions=tuple(cluster.leader_and_isr(tp).partitions[0] for tp in others))
        node, written = cluster.nodes[1], list[int]()
        checkpoint = node.directory.checkpoint_leaderships

        def watched(leaderships: dict[TopicPartition, Leadership]) -> None:
            assert not node.replicas.led()
            written.append(len(leaderships))
            checkpoint(leaderships)

        node.directory.checkpoint_leaderships = watched
        for _ in range(2):
            assert {each.error_code for each in (await node.ask(request, sender_epoch=1)).partitions} == {0}
        assert written == [5], "unchanged states are not written"
        assert len(node.replicas.led()) == 5


@on_virtual_time
async def test_partition_is_not_served_if_the_fence_cannot_be_written(tmp_path: Path) -> None:
    def open_logs() -> LogManager:
        logs = LogManager.open([tmp_path / "disk"], UnsyncedFiles(), 1, "c", "boot")
        logs.open_logs()
        return logs

    async with MemoryCluster(size=1, directory=open_logs) as cluster:
        (tmp_path / "disk" / FILE_NAME).mkdir()
        await cluster.elect(1, send_to=())
        answer = await cluster.nodes[1].ask(cluster.leader_and_isr(), sender_epoch=1)
        assert answer.partitions[0].error_code == StorageError.code
        assert cluster.nodes[1].replicas.led() == []
        assert len(cluster.nodes[1].storage_errors) == 1


@on_virtual_time
async def test_roles_wait_until_a_file_descriptor_is_free_for_the_fence() -> None:
    async with MemoryCluster() as cluster:
        node = cluster.nodes[1]
        checkpoint, missing = node.directory.checkpoint_leaderships, True

        def checkpoint_if_possible(leaderships: dict[TopicPartition, Leadership]) -> None:
            if missing:
                raise OutOfDescriptorsError("no file descriptor is left")
            checkpoint(leaderships)

        node.directory.checkpoint_leaderships = checkpoint_if_possible
        await cluster.elect(1, send_to=())
        with pytest.raises(RequestTimedOutError):
            await node.ask(cluster.leader_and_isr(), sender_epoch=1)
        assert node.replicas.led() == []
        missing = False
        await cluster.elect(1)
        assert len(node.replicas.led()) == 1
        assert node.directory.leaderships()[TP].epoch == cluster.states.states[TP].state.leader_epoch


@on_virtual_time
async def test_isr_is_recorded_once_a_file_descriptor_is_free() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node = cluster.nodes[1]
        checkpoint, left = node.directory.checkpoint_leaderships, 2

        def checkpoint_the_third_time(leaderships: dict[TopicPartition, Leadership]) -> None:
            nonlocal left
            left -= 1
            if left >= 0:
                raise OutOfDescriptorsError("no file descriptor is left")
            checkpoint(leaderships)

        node.directory.checkpoint_leaderships = checkpoint_the_third_time
        cluster.cut(1, 3)
        await cluster.produce(b"a")
        await until(lambda: cluster.states.states[TP].state.isr == (1, 2))
        version = cluster.states.states[TP].partition_epoch
        await until(lambda: node.directory.leaderships()[TP].partition_epoch == version)
        assert left == -1
