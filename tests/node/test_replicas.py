"""What one broker answers: validation, typed codes for each partition, waiting, look-ups, epochs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cluster.state import PartitionState, VersionedState
from node.delayed import DelayedProduce, PendingAppend
from node.later import LaterResponse
from node.server import RequestContext
from tests.node.memory_cluster import TP, MemoryCluster, MemoryLogs, Node, batch_of, produce_request, until, values_of
from tests.virtual_time import on_virtual_time
from tidelog.control_messages import StopReplicaPartition, StopReplicaRequest, TopicInfo, UpdateMetadataRequest
from tidelog.errors import (
    ClusterAuthorizationFailedError,
    FencedLeaderEpochError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    NotControllerError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    StaleControllerEpochError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from tidelog.messages import (
    CreateTopicsRequest,
    DescribePartition,
    DescribeReplicasRequest,
    EpochPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    MetadataRequest,
    NewTopic,
    OffsetForLeaderEpochRequest,
    ProducePartitionResponse,
    ProduceResponse,
)
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP

T0 = 1_700_000_000_000


def fetch_request(
    offset: int, *, replica_id: int = -1, epoch: int = -1, max_wait_ms: int = 0, min_bytes: int = 1
) -> FetchRequest:
    partition = FetchPartition(TP.topic, TP.partition, epoch, offset, 1 << 20)
    return FetchRequest(replica_id, max_wait_ms, min_bytes, 1 << 20, (partition,))


async def fetch_one(node: Node, request: FetchRequest, **how: object) -> tuple[int, list[bytes], int]:
    response = await node.ask(request, **how)  # type: ignore[arg-type]
    assert isinstance(response, FetchResponse)
    answer = response.partitions[0]
    return (
        answer.error_code,
        values_of(answer.records or b"", request.partitions[0].fetch_offset),
        answer.high_watermark,
    )


async def look_up(node: Node, timestamp: int, *, replica_id: int = -1, epoch: int = -1) -> tuple[int, int, int]:
    """(error code, offset, timestamp)"""
    request = ListOffsetsRequest((ListOffsetsPartition(TP.topic, TP.partition, timestamp, epoch),), replica_id)
    answer = (await node.ask(request, sender_epoch=1 if replica_id >= 0 else -1)).partitions[0]
    return answer.error_code, answer.offset, answer.timestamp


# --- produce -------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_produce_refuses_acks_that_do_not_exist_and_partitions_that_are_not_here() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert (await cluster.produce(b"a", acks=2))[0] == InvalidRequiredAcksError.code
        assert (await cluster.produce(b"a", to=2))[0] == NotLeaderOrFollowerError.code
        request = produce_request(b"a", tp=TP._replace(topic="unheard"))
        assert (await cluster.leader.ask(request)).partitions[0].error_code == UnknownTopicOrPartitionError.code
        assert cluster.leader.log().log_end_offset == 0


@on_virtual_time
async def test_one_bad_partition_fails_alone_and_the_answers_keep_their_order() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        good = produce_request(b"a").partitions[0]
        bad = replace(good, topic="unheard")
        response = await cluster.leader.ask(replace(produce_request(b"a"), partitions=(bad, good)))
        assert [(p.topic, p.error_code) for p in response.partitions] == [("unheard", 3), ("t", 0)]


@on_virtual_time
async def test_acks_0_has_no_answer_and_acks_1_does_not_wait() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.kill(2)
        await cluster.kill(3)
        assert await cluster.leader.ask(produce_request(b"a", acks=0)) is None
        assert await cluster.produce(b"b", acks=1) == (0, 1)


@on_virtual_time
async def test_a_repeated_batch_has_the_first_ones_offset_and_waits_like_it() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        batch = batch_of(b"a", b"b", producer_id=5, sequence=0)
        for _ in range(2):
            answer = (await cluster.leader.ask(produce_request(batch=batch))).partitions[0]
            assert (answer.error_code, answer.base_offset) == (0, 0)
        assert cluster.leader.log().log_end_offset == 2
        cluster.cut(1, 2)
        cluster.cut(1, 3)
        await cluster.produce(b"unconfirmed", acks=1)
        again = await cluster.leader.ask(produce_request(batch=batch, timeout_ms=50))
        assert again.partitions[0].error_code == 0, "it is committed"
        late = batch_of(b"c", producer_id=5, sequence=2)
        assert (await cluster.leader.ask(produce_request(batch=late, acks=1))).partitions[0].base_offset == 3
        await cluster.produce(b"unconfirmed too", acks=1)
        repeated = await cluster.leader.ask(produce_request(batch=late, timeout_ms=50))
        assert repeated.partitions[0].error_code == RequestTimedOutError.code, "it is there, but not committed"


@on_virtual_time
async def test_the_end_of_the_epoch_answers_at_once() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2)
        cluster.cut(1, 3)
        waiting = asyncio.ensure_future(cluster.produce(b"a", timeout_ms=30_000))
        await asyncio.sleep(0.01)
        assert len(cluster.nodes[1].waiting.produces) == 1
        started = asyncio.get_running_loop().time()
        await cluster.elect(2, isr=[1, 2, 3])
        assert (await waiting)[0] == NotLeaderOrFollowerError.code
        assert asyncio.get_running_loop().time() - started < 0.02
        assert len(cluster.nodes[1].waiting.produces) == 0


@on_virtual_time
async def test_the_same_leader_in_a_new_epoch_does_not_acknowledge_what_the_old_epoch_appended() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2)
        waiting = asyncio.ensure_future(cluster.produce(b"a", timeout_ms=30_000))
        await asyncio.sleep(0.01)
        await cluster.elect(1, isr=[1, 3])
        assert (await waiting)[0] == NotLeaderOrFollowerError.code


@on_virtual_time
async def test_what_too_few_replicas_have_is_neither_acknowledged_nor_committed() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.cut(1, 2)
        cluster.cut(1, 3)
        assert (await cluster.produce(b"b", timeout_ms=10_000))[0] == RequestTimedOutError.code
        partition = cluster.leader.replica().partition
        assert (partition.isr, partition.high_watermark) == ((1,), 1)
        assert (await cluster.produce(b"c"))[0] == NotEnoughReplicasError.code


@on_virtual_time
async def test_an_isr_that_becomes_too_small_between_commit_and_answer_is_told() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        replica = cluster.leader.replica()
        replica.partition.isr = (1,)
        appended = PendingAppend(0, replica, replica.partition.leader_epoch, required_offset=1)
        produce = DelayedProduce(0, [ProducePartitionResponse("t", 0, 0, 0)], [appended])
        assert produce.is_satisfied()
        produce.on_complete()
        answer = await produce.response
        assert isinstance(answer, ProduceResponse)
        assert answer.partitions[0].error_code == NotEnoughReplicasAfterAppendError.code


@on_virtual_time
async def test_a_leader_cut_off_from_zookeeper_serves_only_what_cannot_be_wrong() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        leader = cluster.leader
        leader.cut_off = True
        assert (await cluster.produce(b"b", acks=1))[0] == NotLeaderOrFollowerError.code
        assert await cluster.produce(b"b") == (0, 1)
        for timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP, T0 + 10_000_000):
            assert (await look_up(leader, timestamp))[0] == OffsetNotAvailableError.code
        assert await look_up(leader, EARLIEST_TIMESTAMP) == (0, 0, -1)
        assert await look_up(leader, T0) == (0, 0, T0)


# --- fetch ---------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_consumers_fetch_waits_for_what_is_committed_and_wakes_at_once() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        waiting = asyncio.ensure_future(fetch_one(cluster.leader, fetch_request(0, max_wait_ms=30_000)))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        started = asyncio.get_running_loop().time()
        await cluster.produce(b"a")
        assert (await waiting)[:2] == (0, [b"a"])
        assert asyncio.get_running_loop().time() - started < 0.01


@on_virtual_time
async def test_a_fetch_with_nothing_to_read_answers_when_its_wait_is_over() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        started = asyncio.get_running_loop().time()
        assert (await fetch_one(cluster.leader, fetch_request(0, max_wait_ms=500)))[:2] == (0, [])
        assert 0.5 <= asyncio.get_running_loop().time() - started < 0.53


@on_virtual_time
async def test_nothing_waits_longer_than_whoever_asked() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2)
        cluster.cut(1, 3)
        loop = asyncio.get_running_loop()
        for request in (produce_request(b"a", timeout_ms=30_000), fetch_request(1, max_wait_ms=30_000)):
            started = loop.time()
            context = RequestContext(b"client", "test", -1, round(started * 1000) + 300, False)
            answer = cluster.leader.handlers.handle(request, context)
            assert isinstance(answer, LaterResponse)
            await answer
            assert 0.25 < loop.time() - started < 0.4


@on_virtual_time
async def test_only_the_first_partition_of_an_answer_may_exceed_what_was_asked_for() -> None:
    async with MemoryCluster() as cluster:
        tps = [TP, TP._replace(partition=1), TP._replace(partition=2)]
        for tp in tps:
            await cluster.elect(1, tp=tp)
            await cluster.leader.ask(produce_request(b"a" * 100, tp=tp))
        wanted = tuple(FetchPartition(*tp, -1, 0, 1 << 20) for tp in tps)
        for limit, got in (
            (0, [1, 0, 0]),
            (10, [1, 0, 0]),
            (200, [1, 0, 0]),
            (400, [1, 1, 0]),
            (10_000, [1, 1, 1]),
        ):
            answer = await cluster.leader.ask(FetchRequest(-1, 0, 1, limit, wanted))
            assert [len(values_of(each.records or b"", 0)) for each in answer.partitions] == got, limit


@on_virtual_time
async def test_min_bytes_are_awaited() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        request = fetch_request(0, max_wait_ms=30_000, min_bytes=150)
        waiting = asyncio.ensure_future(fetch_one(cluster.leader, request))
        await cluster.produce(b"a")
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await cluster.produce(b"b" * 100)
        assert (await waiting)[1] == [b"a", b"b" * 100]


@on_virtual_time
async def test_a_fetch_is_fenced_by_its_leader_epoch_and_bounded_by_the_log() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1)
        leader = cluster.leader
        assert (await fetch_one(leader, fetch_request(0, epoch=0)))[0] == FencedLeaderEpochError.code
        assert (await fetch_one(leader, fetch_request(0, epoch=2)))[0] == UnknownLeaderEpochError.code
        assert (await fetch_one(leader, fetch_request(7, epoch=1)))[0] == OffsetOutOfRangeError.code
        assert (await fetch_one(cluster.nodes[2], fetch_request(0)))[0] == NotLeaderOrFollowerError.code
        unfenced = fetch_request(0, replica_id=2)
        assert (await fetch_one(leader, unfenced, sender_epoch=102))[0] == UnknownLeaderEpochError.code
        with pytest.raises(InvalidRequestError):
            await leader.ask(fetch_request(0, max_wait_ms=-1))


@on_virtual_time
async def test_an_epoch_change_ends_a_waiting_fetch_at_once() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        old = cluster.leader
        consumer = asyncio.ensure_future(fetch_one(old, fetch_request(0, epoch=0, max_wait_ms=30_000)))
        follower = fetch_request(0, replica_id=3, epoch=0, max_wait_ms=30_000)
        follower_fetch = asyncio.ensure_future(fetch_one(old, follower, peer=b"x", sender_epoch=103))
        await asyncio.sleep(0.01)
        started = asyncio.get_running_loop().time()
        await cluster.elect(2)
        for waiting in (consumer, follower_fetch):
            assert (await waiting)[0] in (FencedLeaderEpochError.code, NotLeaderOrFollowerError.code)
        assert asyncio.get_running_loop().time() - started < 0.1


@on_virtual_time
async def test_a_followers_new_fetch_replaces_its_parked_one_on_the_same_connection_only() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        for follower in (2, 3):
            await cluster.kill(follower)
        leader = cluster.leader
        request = fetch_request(0, replica_id=2, epoch=0, max_wait_ms=30_000)
        first = asyncio.ensure_future(fetch_one(leader, request, peer=b"x", sender_epoch=102))
        other = asyncio.ensure_future(fetch_one(leader, request, peer=b"y", sender_epoch=102))
        await asyncio.sleep(0.01)
        second = asyncio.ensure_future(fetch_one(leader, request, peer=b"x", sender_epoch=102))
        await asyncio.sleep(0.01)
        assert (first.done(), other.done(), second.done()) == (True, False, False)
        assert (await first)[:2] == (0, [])
        second.cancel()
        other.cancel()


@on_virtual_time
async def test_a_fetch_from_beyond_the_log_acknowledges_nothing() -> None:
    async with MemoryCluster(2) as cluster:
        await cluster.elect(1)
        await cluster.kill(2)
        await cluster.produce(b"a", acks=1)
        request = fetch_request(5, replica_id=2, epoch=0)
        code, _, high_watermark = await fetch_one(cluster.leader, request, sender_epoch=102)
        assert (code, high_watermark) == (OffsetOutOfRangeError.code, 0)
        await fetch_one(cluster.leader, fetch_request(1, replica_id=2, epoch=0), sender_epoch=102)
        assert cluster.leader.replica().partition.high_watermark == 1


@on_virtual_time
async def test_the_clients_door_is_closed_to_brokers_requests() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        for request in (fetch_request(0, replica_id=2, epoch=0), cluster.leader_and_isr()):
            with pytest.raises(ClusterAuthorizationFailedError):
                await cluster.leader.ask(request)


# --- looking up ----------------------------------------------------------------------------------------------


@on_virtual_time
async def test_look_ups_by_time_see_only_what_is_committed() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        await leader.ask(produce_request(batch=batch_of(b"a", b"b", timestamp=T0)))
        cluster.cut(1, 2)
        cluster.cut(1, 3)
        await leader.ask(produce_request(batch=batch_of(b"c", timestamp=T0 + 5000), acks=1))
        assert await look_up(leader, T0 + 1) == (0, 1, T0 + 1)
        assert await look_up(leader, T0 + 2) == (0, -1, -1)
        assert await look_up(leader, LATEST_TIMESTAMP) == (0, 2, -1)
        assert await look_up(leader, MAX_TIMESTAMP) == (0, 1, T0 + 1)
        assert await look_up(leader, EARLIEST_TIMESTAMP) == (0, 0, -1)
        assert await look_up(leader, LATEST_TIMESTAMP, replica_id=2) == (0, 3, -1)
        assert await look_up(leader, T0 + 2, replica_id=2) == (0, 2, T0 + 5000)
        assert (await look_up(leader, -7))[0] == InvalidRequestError.code


@on_virtual_time
async def test_only_the_leader_answers_look_ups_unless_somebody_debugs() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        follower = cluster.nodes[2]
        assert (await look_up(follower, LATEST_TIMESTAMP))[0] == NotLeaderOrFollowerError.code
        assert await look_up(follower, LATEST_TIMESTAMP, replica_id=-2) == (0, 1, -1)
        assert (await look_up(cluster.leader, LATEST_TIMESTAMP, epoch=9))[0] == UnknownLeaderEpochError.code


@on_virtual_time
async def test_a_partition_that_is_asked_for_twice_is_refused_and_the_others_answered() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        other = TP._replace(partition=1)
        await cluster.elect(1, tp=other)
        twice = ListOffsetsPartition(TP.topic, 0, LATEST_TIMESTAMP)
        once = ListOffsetsPartition(TP.topic, 1, LATEST_TIMESTAMP)
        response = await cluster.leader.ask(ListOffsetsRequest((twice, once, twice)))
        assert [p.error_code for p in response.partitions] == [42, 0, 42]


@on_virtual_time
async def test_a_new_leader_does_not_say_where_the_end_is_before_it_knows() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        for other in (1, 3):
            cluster.cut(2, other)  # so that nobody acknowledges anything to 2
        await cluster.elect(2)
        leader = cluster.leader
        assert leader.replica().partition.high_watermark == 0, "the follower had not been told"
        for timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP, T0):
            assert (await look_up(leader, timestamp))[0] == OffsetNotAvailableError.code
        assert await look_up(leader, EARLIEST_TIMESTAMP) == (0, 0, -1)
        assert (await look_up(leader, LATEST_TIMESTAMP, replica_id=3))[1] == 1
        cluster.heal()
        await until(lambda: leader.replica().partition.knows_committed_end)
        assert await look_up(leader, LATEST_TIMESTAMP) == (0, 1, -1)


@on_virtual_time
async def test_epochs_end_where_the_next_one_begins() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.elect(1)
        await cluster.produce(b"b")
        answers = []
        for current, asked in ((1, 0), (1, 1), (1, 2), (0, 0)):
            request = OffsetForLeaderEpochRequest((EpochPartition(TP.topic, 0, current, asked),))
            end = (await cluster.leader.ask(request)).partitions[0]
            answers.append((end.error_code, end.leader_epoch, end.end_offset))
        assert answers == [(0, 0, 1), (0, 1, 2), (0, -1, -1), (FencedLeaderEpochError.code, -1, -1)]


@on_virtual_time
async def test_the_leader_describes_its_replicas() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        request = DescribeReplicasRequest((DescribePartition(TP.topic, 0),))
        described = (await cluster.leader.ask(request)).partitions[0]
        assert (described.high_watermark, described.log_end_offset, described.isr) == (1, 1, (1, 2, 3))
        assert described.log_end_offsets == {1: 1, 2: 1, 3: 1}


# --- the controller ------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_dead_controllers_requests_are_refused() -> None:
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
async def test_an_old_state_is_refused_for_its_partition_alone() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        old = cluster.leader_and_isr()
        await cluster.elect(2)
        response = await cluster.nodes[1].ask(old, sender_epoch=1)
        assert (response.error_code, response.partitions[0].error_code) == (0, FencedLeaderEpochError.code)
        assert not cluster.nodes[1].replica().partition.is_leader


@on_virtual_time
async def test_a_repetition_that_crossed_with_the_leaders_own_isr_change_is_answered_and_changes_nothing() -> None:
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
async def test_a_state_from_before_the_logs_own_epoch_is_refused_after_a_restart_too() -> None:
    """ZooKeeper was put back to an old copy: nothing is truncated for that."""
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
async def test_the_log_of_a_topic_that_was_created_anew_is_set_aside() -> None:
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
async def test_stopping_a_replica_answers_who_waits_and_deletes_where_asked() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1)
        node = cluster.leader
        waiting = asyncio.ensure_future(fetch_one(node, fetch_request(0, max_wait_ms=30_000)))
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
async def test_a_broker_whose_registration_is_gone_leads_nothing() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert cluster.leader.replicas.led() == [TP]
        cluster.leader.replicas.resign_all()
        assert cluster.leader.replicas.led() == []
        assert (await cluster.produce(b"a"))[0] == NotLeaderOrFollowerError.code


@on_virtual_time
async def test_high_watermarks_survive_a_restart_even_of_partitions_not_heard_of_since() -> None:
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
async def test_a_checkpointed_high_watermark_beyond_the_log_is_cut_to_its_end() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.kill(2)
        cluster.nodes[2].directory.checkpoint_high_watermarks({TP: 7})
        cluster.restart(2)
        await cluster.tell([2])
        assert cluster.nodes[2].replica().partition.high_watermark == 1


@on_virtual_time
async def test_a_disk_that_fails_under_one_partition_takes_all_of_them_offline() -> None:
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
async def test_shutting_down_answers_everybody() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2)
        produced = asyncio.ensure_future(cluster.produce(b"a", timeout_ms=30_000))
        fetched = asyncio.ensure_future(fetch_one(cluster.leader, fetch_request(0, max_wait_ms=30_000)))
        await asyncio.sleep(0.01)
        await cluster.nodes[1].replicas.close()
        assert (await produced)[0] == NotLeaderOrFollowerError.code
        assert (await fetched)[0] == NotLeaderOrFollowerError.code
        assert len(cluster.nodes[1].waiting) == 0


# --- what clients are told -----------------------------------------------------------------------------------


@on_virtual_time
async def test_metadata_names_no_leader_that_is_not_live_and_forgets_deleted_topics() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node = cluster.nodes[2]
        state = cluster.leader_and_isr().partitions
        topics = (TopicInfo("t", "id", {}),)
        await node.ask(UpdateMetadataRequest(3, 1, cluster.live(), state, topics), sender_epoch=1)
        described = await node.ask(MetadataRequest())
        assert described.controller_id == 3
        assert [broker.broker_id for broker in described.brokers] == [1, 2, 3]
        assert [(p.leader, p.error_code) for p in described.topics[0].partitions] == [(1, 0)]
        alive = tuple(broker for broker in cluster.live() if broker.broker_id != 1)
        await node.ask(UpdateMetadataRequest(3, 1, alive, (), ()), sender_epoch=1)
        partition = (await node.ask(MetadataRequest(("t",)))).topics[0].partitions[0]
        assert (partition.leader, partition.error_code, partition.offline_replicas) == (-1, 5, (1,))
        await node.ask(UpdateMetadataRequest(3, 1, alive, (), (), ("t",)), sender_epoch=1)
        gone = (await node.ask(MetadataRequest(("t",)))).topics[0]
        assert (gone.error_code, gone.partitions) == (UnknownTopicOrPartitionError.code, ())


@on_virtual_time
async def test_producer_ids_come_from_blocks_and_topics_from_the_controller() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        answers = [await cluster.leader.ask(InitProducerIdRequest()) for _ in range(4)]
        assert [answer.producer_id for answer in answers] == [1000, 1001, 1002, 1000]
        created = await cluster.leader.ask(CreateTopicsRequest((NewTopic("n"),), 1000))
        assert created.topics[0].error_code == NotControllerError.code


@on_virtual_time
async def test_a_produce_that_nobody_confirms_times_out_when_it_said() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2)
        started = asyncio.get_running_loop().time()
        assert (await cluster.produce(b"a", timeout_ms=400))[0] == RequestTimedOutError.code
        assert 0.4 <= asyncio.get_running_loop().time() - started < 0.43
