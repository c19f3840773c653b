"""The controller's requests to a broker, and the broker's replicas at a restart, a shutdown and a disk failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import ref

import pytest

from cluster.replication.partition import Partition
from cluster.state import PartitionState, VersionedState
from node.replication.replica import Replica
from storage.configs.log_config import LogConfig
from storage.directory.directory_checkpoints import Committed
from tests.node.client_requests import TP, fetch_request, produce_request
from tests.node.memory_cluster import TOPIC_ID, MemoryCluster
from tests.node.memory_log import MemoryLog, MemoryLogs
from tests.node.scripted_leader import stored
from tests.reference_cycles import until_freed, without_collections
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StaleControllerEpochError,
    StorageError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import (
    ANY_EPOCH,
    LogEndsRequest,
    PartitionStateMessage,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidelog.protocol.messages import DescribePartition


@on_virtual_time
async def test_broker_refuses_requests_of_an_older_controller_epoch() -> None:
    async with MemoryCluster() as cluster:
        cluster.controller_epoch = 5
        await cluster.elect(1)
        cluster.controller_epoch = 4
        node = cluster.leader
        stale = StaleControllerEpochError.code
        assert (await node.ask(cluster.leader_and_isr(), sender_epoch=1)).error_code == stale
        assert (await node.ask(StopReplicaRequest(1, 4, ()), sender_epoch=1)).error_code == stale
        update = UpdateMetadataRequest(1, 4, cluster.live(), (), ())
        assert (await node.ask(update, sender_epoch=1)).error_code == stale
        assert node.replica().partition.is_leader


@on_virtual_time
async def test_repeated_requests_do_not_queue_up_behind_a_hanging_disk() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node, other, hangs = cluster.leader, TP._replace(partition=1), asyncio.Event()
        await cluster.elect(1, send_to=(), tp=other)

        async def offload(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            await hangs.wait()
            return function(*args, **kwargs)

        node.replicas.offload = offload  # type: ignore[assignment]
        answers = []
        for _ in range(20):
            deadline_ms = node.replicas.clock.monotonic_ms() + 5000
            request = cluster.leader_and_isr(other)
            answers.append(asyncio.ensure_future(node.ask(request, sender_epoch=1, deadline_ms=deadline_ms)))
            await asyncio.sleep(5)
        await asyncio.sleep(0.1)
        assert [each.done() for each in answers] == [False] + [True] * 19, "the first request still runs"
        assert all(isinstance(each.exception(), RequestTimedOutError) for each in answers[1:])
        hangs.set()
        assert (await answers[0]).partitions[0].error_code == 0


@on_virtual_time
async def test_stale_state_is_refused_for_its_partition_only() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        old = cluster.leader_and_isr()
        await cluster.elect(2)
        response = await cluster.nodes[1].ask(old, sender_epoch=1)
        assert (response.error_code, response.partitions[0].error_code) == (0, FencedLeaderEpochError.code)
        assert not cluster.nodes[1].replica().partition.is_leader


@on_virtual_time
async def test_stale_state_of_the_same_epoch_succeeds_and_changes_nothing() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        repetition = cluster.leader_and_isr()
        cluster.cut(1, 3)
        await cluster.produce(b"b")
        response = await cluster.leader.ask(repetition, sender_epoch=1)
        assert response.partitions[0].error_code == 0
        assert cluster.leader.replica().partition.isr == (1, 2)
        assert await cluster.produce(b"c") == (0, 2)


@on_virtual_time
async def test_state_older_than_the_logs_epoch_is_refused_after_a_restart() -> None:
    """ZooKeeper was restored from an old copy. The broker truncates nothing because of that."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.kill(2)
        cluster.restart(2)
        cluster.states.states[TP] = VersionedState(PartitionState(1, 0, (1, 2, 3), 1), 0)
        response = await cluster.nodes[2].ask(cluster.leader_and_isr(), sender_epoch=1)
        assert response.partitions[0].error_code == FencedLeaderEpochError.code
        assert cluster.nodes[2].log().values == [b"a"]


@on_virtual_time
async def test_log_of_a_recreated_topic_is_set_aside() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.states.states[TP] = VersionedState(PartitionState(1, 0, (1, 2, 3), 1), 0)
        for node in cluster.nodes.values():
            request = cluster.leader_and_isr(topic_id="topic-id-2")
            response = await node.ask(request, sender_epoch=1)
            assert response.partitions[0].error_code == 0
            assert node.log().values == []
            assert isinstance(node.directory, MemoryLogs)
            assert [log.values for log in node.directory.stray] == [[b"a"]]
        assert await cluster.produce(b"b") == (0, 0)


@on_virtual_time
async def test_stop_replica_completes_waiting_requests_and_deletes_if_asked() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1)
        node = cluster.leader
        waiting = asyncio.ensure_future(node.fetch(fetch_request(0, max_wait_ms=30_000)))
        await asyncio.sleep(0.01)
        for epoch, delete, code in (
            (0, True, FencedLeaderEpochError.code),
            (1, False, 0),
            (1, True, 0),
            (1, True, 0),
        ):
            stop = StopReplicaRequest(1, 1, (StopReplicaPartition(TP.topic, 0, epoch, delete),))
            assert (await node.ask(stop, sender_epoch=1)).partitions[0].error_code == code
        assert (await waiting)[0] == NotLeaderOrFollowerError.code
        assert len(node.replicas) == len(node.directory.logs()) == 0


@on_virtual_time
async def test_logs_of_deleted_replicas_are_freed() -> None:
    """The followers close their connections with the last partition, so that no fetch tells the leader to forget it."""
    tps = [TP, TP._replace(partition=1)]
    async with MemoryCluster() as cluster:
        for tp in tps:
            await cluster.elect(1, tp=tp)
        await cluster.produce(b"a")
        with without_collections():
            logs = [ref(node.log(tp)) for node in cluster.nodes.values() for tp in tps]  # which the replicas keep
            stop = StopReplicaRequest(1, 1, tuple([StopReplicaPartition(*tp, -1, True) for tp in tps]))
            for broker_id in (2, 3, 1):
                await cluster.nodes[broker_id].ask(stop, sender_epoch=1)
            await until_freed(*logs)


@on_virtual_time
async def test_stopped_replica_still_reports_its_log_end_and_can_lead_again() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        node = cluster.leader
        stop = StopReplicaRequest(1, 1, (StopReplicaPartition(TP.topic, 0, 0, delete=False),))
        assert (await node.ask(stop, sender_epoch=1)).partitions[0].error_code == 0
        asked = LogEndsRequest(1, cluster.controller_epoch, (DescribePartition(*TP),))
        answer: Any = await node.ask(asked, sender_epoch=1)
        assert [(each.error_code, each.log_end_offset) for each in answer.partitions] == [(0, 1)]
        assert not node.replica().partition.is_leader
        await cluster.elect(1)
        assert await cluster.produce(b"b") == (0, 1)
        assert node.log().values == [b"a", b"b"]


@on_virtual_time
async def test_replica_of_a_later_epoch_is_deleted_with_its_topic() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1)
        node = cluster.leader
        stop = StopReplicaRequest(1, 1, (StopReplicaPartition(TP.topic, 0, ANY_EPOCH, True),))
        assert (await node.ask(stop, sender_epoch=1)).partitions[0].error_code == 0
        assert len(node.replicas) == 0


@on_virtual_time
async def test_deletion_waits_for_the_outcome_of_a_proposed_isr() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node = cluster.leader
        write, arrived = cluster.states.change_isr, asyncio.Event()

        async def slowly(tp: TopicPartition, new: PartitionState, partition_epoch: int) -> int:
            await arrived.wait()
            return await write(tp, new, partition_epoch)

        cluster.states.change_isr = slowly  # type: ignore[method-assign]
        cluster.cut(1, 2)
        await cluster.produce(b"a", timeout_ms=10_000)
        assert node.replica().partition.pending is not None
        stop = StopReplicaRequest(1, 1, (StopReplicaPartition(TP.topic, 0, ANY_EPOCH, True),))
        deleting = asyncio.ensure_future(node.ask(stop, sender_epoch=1))
        await asyncio.sleep(1)
        assert not deleting.done(), "a late ISR write would succeed on the next topic of the name"
        arrived.set()
        assert (await deleting).partitions[0].error_code == 0
        assert len(node.replicas) == 0


@on_virtual_time
async def test_broker_sets_aside_a_replica_that_moved_while_it_was_down() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1)
        await cluster.produce(b"a")
        node = cluster.nodes[3]
        await until(lambda: node.log().values == [b"a"])
        (known,) = cluster.leader_and_isr().partitions

        async def receive_metadata(epoch: int, *replicas: int) -> None:
            state = replace(known, leader_epoch=epoch, partition_epoch=epoch, isr=replicas, replicas=replicas)
            update = UpdateMetadataRequest(1, cluster.controller_epoch, cluster.live(), (state,), ())
            assert (await node.ask(update, sender_epoch=1)).error_code == 0

        await receive_metadata(known.leader_epoch - 1, 1, 2)
        await receive_metadata(known.leader_epoch + 1, 1, 2, 3)
        assert len(node.replicas) == len(node.directory.logs()) == 1, (
            "the state is stale, or still contains this broker"
        )
        await receive_metadata(known.leader_epoch + 2, 1, 2)
        assert len(node.replicas) == len(node.directory.logs()) == 0
        assert isinstance(node.directory, MemoryLogs)
        assert [log.values for log in node.directory.stray] == [[b"a"]]


@on_virtual_time
async def test_broker_of_a_later_epoch_sets_its_moved_replica_aside() -> None:
    """Broker 1 reaches only ZooKeeper, where it reads of later epochs, while its partition moves to other brokers."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.cut(1, 2, 3)
        await cluster.produce(b"b", acks=1)
        await cluster.elect(2, send_to=[2, 3])
        shed = StopReplicaPartition(TP.topic, 0, cluster.states.states[TP].state.leader_epoch, delete=True)
        await cluster.elect(3, send_to=[2, 3])
        (state,) = cluster.leader_and_isr().partitions
        node = cluster.nodes[1]
        await until(lambda: node.replica().partition.leader_epoch == state.leader_epoch)
        refused = await node.ask(StopReplicaRequest(1, 1, (shed,)), sender_epoch=1)
        assert refused.partitions[0].error_code == FencedLeaderEpochError.code
        elsewhere = replace(state, isr=(2, 3), replicas=(2, 3))
        update = UpdateMetadataRequest(1, cluster.controller_epoch, cluster.live(), (elsewhere,), ())
        assert (await node.ask(update, sender_epoch=1)).error_code == 0
        assert len(node.replicas) == len(node.directory.logs()) == 0


@pytest.mark.parametrize("now", [{}, {TP.topic: "recreated"}], ids=["deleted", "recreated"])
@on_virtual_time
async def test_broker_sets_aside_logs_of_topics_deleted_while_it_was_down(
    now: dict[str, str],
) -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        node = cluster.nodes[3]
        await until(lambda: node.log().values == [b"a"])

        async def receive_metadata(every_topic: dict[str, str] | None, epoch: int) -> None:
            live = tuple(replace(each, epoch=epoch) if each.broker_id == 3 else each for each in cluster.live())
            update = UpdateMetadataRequest(1, cluster.controller_epoch, live, (), (), (), every_topic)
            assert (await node.ask(update, sender_epoch=1)).error_code == 0

        registered = node.info.epoch
        await receive_metadata(now, registered)
        assert node.replicas.get(TP), "the broker would get StopReplica, and the partition is newer than this metadata"
        await receive_metadata(None, registered + 1)
        await receive_metadata({TP.topic: node.replica().topic_id}, registered + 1)
        await receive_metadata({TP.topic: ""}, registered + 1)
        assert node.replicas.get(TP), "the topic exists, or may exist"
        await receive_metadata(now, registered + 1)
        assert len(node.replicas) == len(node.directory.logs()) == 0
        assert isinstance(node.directory, MemoryLogs)
        assert [log.values for log in node.directory.stray] == [[b"a"]]


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "moved-elsewhere"])
@on_virtual_time
async def test_log_opened_while_its_partition_moved_is_set_aside(deleted: bool) -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        (known,) = cluster.leader_and_isr().partitions
        elsewhere = replace(known, isr=(1, 2), replicas=(1, 2))
        await cluster.kill(3)
        cluster.restart(3)
        node = cluster.nodes[3]
        assert len(node.replicas) == 0
        assert isinstance(node.directory, MemoryLogs)

        async def receive_metadata(
            controller_epoch: int, *states: PartitionStateMessage, topics: dict[str, str] | None
        ) -> int:
            update = UpdateMetadataRequest(1, controller_epoch, cluster.live(), states, (), (), topics)
            assert (await node.ask(update, sender_epoch=1)).error_code == 0
            return len(node.directory.logs())

        states, topics = ((), {}) if deleted else ((elsewhere,), None)
        assert await receive_metadata(cluster.controller_epoch - 1, *states, topics=topics) == 1, (
            "a deposed controller does not know all topics"
        )
        assert await receive_metadata(cluster.controller_epoch, known, topics=None) == 1, (
            "the partition still belongs to this broker"
        )
        assert await receive_metadata(cluster.controller_epoch, *states, topics=topics) == 0
        assert [log.values for log in node.directory.stray] == [[b"a"]]


@on_virtual_time
async def test_topic_ids_can_be_read_while_a_thread_opens_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        logs, opened = cluster.nodes[1].directory.logs(), MemoryLog("other", LogConfig())

        def topic_id_beside_the_thread(log: MemoryLog) -> Any:
            logs[TopicPartition("other", 0)] = opened
            return vars(log)["topic_id"]

        monkeypatch.setattr(MemoryLog, "topic_id", property(topic_id_beside_the_thread), raising=False)
        assert cluster.nodes[1].replicas.topic_ids()[TP] == TOPIC_ID


@on_virtual_time
async def test_high_watermarks_survive_a_restart_without_hosting_the_partition() -> None:
    async with MemoryCluster() as cluster:
        other = TP._replace(partition=1)
        for tp in (TP, other):
            await cluster.elect(1, tp=tp)
            await cluster.leader.ask(produce_request(b"a", tp=tp))
        node = cluster.nodes[1]
        await node.replicas.checkpoint_high_watermarks()
        assert node.directory.high_watermarks() == {TP: 1, other: 1}
        await cluster.kill(1)
        cluster.restart(1)
        await cluster.elect(1)
        await cluster.nodes[1].replicas.checkpoint_high_watermarks()
        assert cluster.nodes[1].directory.high_watermarks()[other] == 1
        assert cluster.nodes[1].replica().partition.high_watermark == 1


@on_virtual_time
async def test_checkpoint_writes_the_high_watermarks_that_have_changed() -> None:
    async with MemoryCluster() as cluster:
        other = TP._replace(partition=1)
        for tp in (TP, other):
            await cluster.elect(1, tp=tp)
        for node in cluster.nodes.values():
            await node.replicas.checkpoint_high_watermarks()
            assert node.directory.high_watermarks() == {TP: 0, other: 0}
        await cluster.produce(b"a")
        await asyncio.sleep(1)
        for node in cluster.nodes.values():
            await node.replicas.checkpoint_high_watermarks()
            assert node.directory.high_watermarks() == {TP: 1, other: 0}


def test_replica_notes_each_change_of_its_high_watermark() -> None:
    log, noted = MemoryLog("id", LogConfig()), list[Replica]()
    partition = Partition(2, TP, max_lag_ms=1000)
    replica = Replica("id", log, partition, note_high_watermark=noted.append)
    log.append_as_follower(stored(b"a", offset=0))
    for change, count in (
        (lambda: replica.leader_reported(1), 1),
        (lambda: replica.leader_reported(1), 1),
        (lambda: replica.truncate_to(0), 2),
        (lambda: replica.restart_log(5), 3),
        (lambda: replica.replace_log(log), 4),
    ):
        change()
        assert noted == [replica] * count


async def lose_the_end(cluster: MemoryCluster) -> None:
    """Restart broker 2 with a log that ends at 1, although its high watermark was 7."""
    await cluster.elect(1)
    await cluster.produce(b"a")
    await cluster.kill(2)
    cluster.nodes[2].directory.checkpoint_high_watermarks({TP: Committed.of(cluster.nodes[2].replica().log, 7)})
    cluster.restart(2)


@on_virtual_time
async def test_log_that_ends_below_its_high_watermark_follows_only_out_of_sync() -> None:
    async with MemoryCluster() as cluster:
        await lose_the_end(cluster)
        refused = await cluster.nodes[2].ask(cluster.leader_and_isr(), sender_epoch=1)
        assert [each.error_code for each in refused.partitions] == [IneligibleReplicaError.code]
        await cluster.elect(1, isr=[1, 3])
        assert cluster.nodes[2].replica().partition.high_watermark == 1


@on_virtual_time
async def test_log_truncated_by_an_unclean_leader_counts_as_complete() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.kill(3)
        await cluster.elect(1, isr=[1, 2])
        await cluster.produce(b"b")
        await cluster.produce(b"c")
        await asyncio.sleep(1)
        await cluster.nodes[2].replicas.checkpoint_high_watermarks()
        await cluster.kill(2)
        cluster.restart(2)
        await cluster.elect(1)
        await cluster.kill(1)
        cluster.restart(3)
        await cluster.elect(3, isr=[3])
        await until(lambda: cluster.nodes[2].log().values == [b"a"])
        asked = LogEndsRequest(1, cluster.controller_epoch, (DescribePartition(*TP),))
        answer: Any = await cluster.nodes[2].ask(asked, sender_epoch=1)
        assert [(each.error_code, each.log_end_offset) for each in answer.partitions] == [(0, 1)]


@on_virtual_time
async def test_log_that_ends_below_its_high_watermark_leads_if_unclean() -> None:
    async with MemoryCluster() as cluster:
        await lose_the_end(cluster)
        cluster.states.states[TP] = VersionedState(PartitionState(2, 1, (2,), 1), 1)
        wanted = cluster.leader_and_isr()
        refused = await cluster.nodes[2].ask(wanted, sender_epoch=1)
        assert [each.error_code for each in refused.partitions] == [IneligibleReplicaError.code]
        states = tuple(replace(state, unclean=True) for state in wanted.partitions)
        taken = await cluster.nodes[2].ask(replace(wanted, partitions=states), sender_epoch=1)
        assert [each.error_code for each in taken.partitions] == [0]
        assert cluster.nodes[2].replica().partition.is_leader


@pytest.mark.parametrize("leads", [True, False], ids=["leads", "follows"])
@on_virtual_time
async def test_high_watermark_is_lowered_on_disk_before_a_short_log_grows(
    leads: bool,
) -> None:
    """Otherwise new records would count as committed if the broker were killed before its next checkpoint."""
    async with MemoryCluster() as cluster:
        await lose_the_end(cluster)
        node = cluster.nodes[2]
        if leads:
            cluster.states.states[TP] = VersionedState(PartitionState(2, 1, (2,), 1), 1)
            request = cluster.leader_and_isr()
            states = tuple(replace(state, unclean=True) for state in request.partitions)
            await node.ask(replace(request, partitions=states), sender_epoch=1)
        else:
            await cluster.elect(1, isr=[1, 3])
        assert node.replica().partition.is_leader == leads
        assert node.directory.high_watermarks() == {TP: 1}
        answer: Any = await node.ask(
            LogEndsRequest(1, cluster.controller_epoch, (DescribePartition(*TP),)), sender_epoch=1
        )
        assert [(each.error_code, each.log_end_offset) for each in answer.partitions] == [(0, 1)]


@on_virtual_time
async def test_checkpoint_does_not_restore_a_lowered_high_watermark() -> None:
    """The high watermark is lowered on a thread, during which a checkpoint runs."""
    async with MemoryCluster() as cluster:
        await lose_the_end(cluster)
        node, offload = cluster.nodes[2], cluster.nodes[2].replicas.offload

        async def offload_beside_a_checkpoint(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
            done = await offload(function, *args, **options)
            if function.__name__ == "lower_checkpoints_to_end":
                await node.replicas.checkpoint_high_watermarks()
            return done

        node.replicas.offload = offload_beside_a_checkpoint
        await cluster.elect(1, isr=[1, 3])
        assert node.directory.high_watermarks() == {TP: 1}


@on_virtual_time
async def test_short_log_is_not_followed_if_its_loss_cannot_be_recorded() -> None:
    async with MemoryCluster() as cluster:
        await lose_the_end(cluster)
        cluster.states.states[TP] = VersionedState(PartitionState(1, 1, (1, 3), 1), 1)
        cluster.nodes[2].directory.logs()[TP].broken = True
        refused = await cluster.nodes[2].ask(cluster.leader_and_isr(), sender_epoch=1)
        assert [each.error_code for each in refused.partitions] == [StorageError.code]
        assert cluster.nodes[2].directory.high_watermarks() == {TP: 7}


@on_virtual_time
async def test_aligned_follower_keeps_its_files_if_its_leader_trims_all() -> None:
    """The follower fetches no records in this epoch, because the leader has written none."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await asyncio.sleep(1)
        await cluster.elect(1)
        await asyncio.sleep(1)
        followers = [cluster.nodes[each].log() for each in (2, 3)]
        before = [log.truncation_count for log in followers]
        cluster.leader.log().raise_log_start(1)
        cluster.leader.replicas.log_start_rose(TP)
        await until(lambda: all(log.log_start_offset == 1 for log in followers))
        assert [log.truncation_count for log in followers] == before


@on_virtual_time
async def test_failed_disk_takes_all_its_partitions_offline() -> None:
    async with MemoryCluster() as cluster:
        other = TP._replace(partition=1)
        await cluster.elect(1, tp=other)
        await cluster.elect(1)
        leader = cluster.leader
        cluster.cut(1, 2)
        waiting = asyncio.ensure_future(leader.ask(produce_request(b"a", tp=other, timeout_ms=30_000)))
        await asyncio.sleep(0.01)
        started = asyncio.get_running_loop().time()
        leader.log().broken = True
        assert (await cluster.produce(b"b"))[0] == StorageError.code
        assert (await waiting).partitions[0].error_code == NotLeaderOrFollowerError.code
        assert asyncio.get_running_loop().time() - started < 0.02
        refused = await leader.ask(produce_request(b"c", tp=other))
        assert refused.partitions[0].error_code == StorageError.code
        assert leader.replicas.led() == []
        assert len(leader.storage_errors) == 1
        assert (await cluster.consume(0))[0] == StorageError.code


@on_virtual_time
async def test_shutdown_completes_all_waiting_requests() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2)
        produced = asyncio.ensure_future(cluster.produce(b"a", timeout_ms=30_000))
        fetched = asyncio.ensure_future(cluster.leader.fetch(fetch_request(0, max_wait_ms=30_000)))
        await asyncio.sleep(0.01)
        await cluster.nodes[1].replicas.close()
        assert (await produced)[0] == NotLeaderOrFollowerError.code
        assert (await fetched)[0] == NotLeaderOrFollowerError.code
        assert len(cluster.nodes[1].purgatories) == 0
