"""The answers of a leader to produces: the error code of each partition, and the time of the answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from node.replication.delayed_produce import DelayedProduce, PendingAppend
from storage.configs.log_config import LogConfig
from storage.segments.timestamp_search import MAX_QUICK_BYTES
from tests.node.client_requests import TP, batch_of, fetch_request, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    InvalidRecordError,
    InvalidRequiredAcksError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from tidelog.protocol.messages import ProducePartitionResponse, ProduceResponse, RecordError
from tidelog.records import encode_batch

T0 = 1_700_000_000_000
TOO_FEW = f"{TP}: in-sync replicas: 1 of 3; acks=all needs 2 (min.insync.replicas=2)"


@on_virtual_time
async def test_produce_refuses_unknown_acks_and_unknown_partitions() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert (await cluster.produce(b"a", acks=2))[0] == InvalidRequiredAcksError.code
        assert (await cluster.produce(b"a", to=2))[0] == NotLeaderOrFollowerError.code
        request = produce_request(b"a", tp=TP._replace(topic="unheard"))
        assert (await cluster.leader.ask(request)).partitions[0].error_code == UnknownTopicOrPartitionError.code
        assert cluster.leader.log().log_end_offset == 0


@on_virtual_time
async def test_bad_partition_fails_alone_and_answers_keep_their_order() -> None:
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
async def test_repeated_batch_gets_the_first_offset_and_waits_like_it() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        batch = batch_of(b"a", b"b", producer_id=5, sequence=0)
        for _ in range(2):
            answer = (await cluster.leader.ask(produce_request(batch=batch))).partitions[0]
            assert (answer.error_code, answer.base_offset) == (0, 0)
        assert cluster.leader.log().log_end_offset == 2
        cluster.cut(1, 2, 3)
        await cluster.produce(b"unconfirmed", acks=1)
        again = await cluster.leader.ask(produce_request(batch=batch, timeout_ms=50))
        assert again.partitions[0].error_code == 0, "the batch is committed"
        late = batch_of(b"c", producer_id=5, sequence=2)
        assert (await cluster.leader.ask(produce_request(batch=late, acks=1))).partitions[0].base_offset == 3
        await cluster.produce(b"unconfirmed too", acks=1)
        repeated = await cluster.leader.ask(produce_request(batch=late, timeout_ms=50))
        assert repeated.partitions[0].error_code == RequestTimedOutError.code, (
            "the batch is in the log but not committed"
        )


@pytest.mark.parametrize("size_bytes", [1, MAX_QUICK_BYTES + 1], ids=["at once", "after a thread"])
@on_virtual_time
async def test_repeated_batch_is_not_refused_by_newer_settings(size_bytes: int) -> None:
    """The producer did not get the first answer. If it were refused now, it would send the records again."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.leader.log().config = LogConfig(max_message_bytes=2 * MAX_QUICK_BYTES)
        batch = batch_of(b"v" * size_bytes, producer_id=5, sequence=0)
        await cluster.leader.ask(produce_request(batch=batch, acks=1))
        cluster.leader.log().config = LogConfig(cleanup_policy="compact", max_message_bytes=len(batch))
        again = (await cluster.leader.ask(produce_request(batch=batch))).partitions[0]
        assert (again.error_code, again.base_offset) == (0, 0)
        another = batch_of(b"v" * size_bytes, producer_id=5, sequence=1)
        refused = (await cluster.leader.ask(produce_request(batch=another))).partitions[0]
        assert refused.error_code == InvalidRecordError.code
        assert cluster.leader.log().log_end_offset == 1


@on_virtual_time
async def test_answer_to_a_produce_names_the_bad_record_and_nothing_is_appended() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.leader.log().config = LogConfig(cleanup_policy="compact")
        batch = encode_batch([(T0, b"k", b"v", ()), (T0, None, b"v", ()), (T0, b"k", b"v", ())])
        refused = (await cluster.leader.ask(produce_request(batch=batch))).partitions[0]
        assert refused.error_code == InvalidRecordError.code
        assert refused.record_errors == (RecordError(1, "a record without a key; the topic is compacted by key"),)
        assert refused.error_message is not None and refused.error_message.startswith("record 1 of the batch")
        assert cluster.leader.log().log_end_offset == 0


@on_virtual_time
async def test_end_of_the_leader_epoch_completes_a_produce_at_once() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2, 3)
        waiting = asyncio.ensure_future(cluster.produce(b"a", timeout_ms=30_000))
        await asyncio.sleep(0.01)
        assert len(cluster.nodes[1].purgatories.produces) == 1
        started = asyncio.get_running_loop().time()
        await cluster.elect(2, isr=[1, 2, 3])
        assert (await waiting)[0] == NotLeaderOrFollowerError.code
        assert asyncio.get_running_loop().time() - started < 0.02
        assert len(cluster.nodes[1].purgatories.produces) == 0


@on_virtual_time
async def test_leader_in_a_new_epoch_acknowledges_no_append_of_the_old_one() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2)
        waiting = asyncio.ensure_future(cluster.produce(b"a", timeout_ms=30_000))
        await asyncio.sleep(0.01)
        await cluster.elect(1, isr=[1, 3])
        assert (await waiting)[0] == NotLeaderOrFollowerError.code


@on_virtual_time
async def test_record_on_too_few_replicas_is_not_acknowledged_or_committed() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.cut(1, 2, 3)
        assert (await cluster.produce(b"b", timeout_ms=10_000))[0] == RequestTimedOutError.code
        partition = cluster.leader.replica().partition
        assert (partition.isr, partition.high_watermark) == ((1,), 1)
        refused = (await cluster.leader.ask(produce_request(b"c"))).partitions[0]
        assert refused.error_code == NotEnoughReplicasError.code
        assert refused.error_message == TOO_FEW


@on_virtual_time
async def test_isr_too_small_at_the_answer_is_reported_to_the_producer() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        replica = cluster.leader.replica()
        replica.partition.isr = (1,)
        response = ProducePartitionResponse("t", 0, 0, 0)
        appended = PendingAppend(replica, replica.partition.leader_epoch, required_offset=1, response=response)
        produce = DelayedProduce(0, [response], {0: appended})
        assert produce.is_satisfied()
        produce.on_complete()
        answer = await produce.response
        assert isinstance(answer, ProduceResponse)
        assert answer.partitions[0].error_code == NotEnoughReplicasAfterAppendError.code
        assert answer.partitions[0].error_message == TOO_FEW


@on_virtual_time
async def test_leader_cut_off_from_zookeeper_gives_only_safe_answers() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        leader = cluster.leader
        leader.cut_off = True
        assert (await cluster.produce(b"b", acks=1))[0] == NotLeaderOrFollowerError.code
        assert await cluster.produce(b"b") == (0, 1)
        for timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP, T0 + 10_000_000):
            assert (await leader.look_up(timestamp))[0] == OffsetNotAvailableError.code
        assert await leader.look_up(EARLIEST_TIMESTAMP) == (0, 0, -1)
        assert await leader.look_up(T0) == (0, 0, T0)


@on_virtual_time
async def test_leader_without_zookeeper_answers_offset_not_available() -> None:
    """Found by the simulator: ZooKeeper ended a session early, and the old leader returned its own high watermark.

    Its successor had acknowledged more records by then.
    """
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        leader = cluster.leader
        leader.connected = False
        for timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP, T0 + 10_000_000):
            assert (await leader.look_up(timestamp))[0] == OffsetNotAvailableError.code
        assert await leader.look_up(EARLIEST_TIMESTAMP) == (0, 0, -1)
        assert await leader.look_up(T0) == (0, 0, T0)
        assert await cluster.produce(b"b", acks=1) == (0, 1), "most lost connections return in the same session"
        assert await cluster.produce(b"c") == (0, 2)
        leader.connected = True
        assert (await leader.look_up(LATEST_TIMESTAMP))[:2] == (0, 3)


@pytest.mark.parametrize("lost", ["cut_off", "connection"])
@on_virtual_time
async def test_cut_off_leader_does_not_call_an_offset_out_of_range(lost: str) -> None:
    """Found by chaos: a fetch without a leader epoch asked a deposed leader for an offset acknowledged since then."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        leader = cluster.leader
        leader.cut_off, leader.connected = lost == "cut_off", lost != "connection"
        assert (await leader.fetch(fetch_request(2)))[0] == OffsetNotAvailableError.code
        assert (await leader.fetch(fetch_request(-1)))[0] == OffsetOutOfRangeError.code
        assert (await leader.fetch(fetch_request(0)))[:2] == (0, [b"a"])
        leader.cut_off, leader.connected = False, True
        assert (await leader.fetch(fetch_request(2)))[0] == OffsetOutOfRangeError.code


@on_virtual_time
async def test_unconfirmed_produce_times_out_at_its_deadline() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2)
        started = asyncio.get_running_loop().time()
        assert (await cluster.produce(b"a", timeout_ms=400))[0] == RequestTimedOutError.code
        assert 0.4 <= asyncio.get_running_loop().time() - started < 0.43
