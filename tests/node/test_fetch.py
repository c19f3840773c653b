"""The answers of a leader to fetches of consumers and followers, and how long the fetches wait."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node.net.server import RequestContext
from node.runtime.deferred_response import DeferredResponse
from storage.files import RealFiles
from storage.log_manager import LogManager
from tests.node.client_requests import TP, fetch_request, produce_request, values_of
from tests.node.memory_cluster import TOPIC_ID, MemoryCluster
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    ClusterAuthorizationFailedError,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    InvalidRequestError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from tidelog.model import Buffer
from tidelog.protocol.messages import FetchPartition, FetchRequest, FetchResponse

OTHER = TP._replace(partition=1)


@on_virtual_time
async def test_consumers_fetch_completes_as_soon_as_records_are_committed() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        waiting = asyncio.ensure_future(cluster.leader.fetch(fetch_request(0, max_wait_ms=30_000)))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        started = asyncio.get_running_loop().time()
        await cluster.produce(b"a")
        assert (await waiting)[:2] == (0, [b"a"])
        assert asyncio.get_running_loop().time() - started < 0.01


@on_virtual_time
async def test_fetch_without_records_is_answered_after_its_wait() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        started = asyncio.get_running_loop().time()
        assert (await cluster.leader.fetch(fetch_request(0, max_wait_ms=500)))[:2] == (0, [])
        assert 0.5 <= asyncio.get_running_loop().time() - started < 0.53


@on_virtual_time
async def test_fetch_waits_no_longer_than_its_request_deadline() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2, 3)
        loop = asyncio.get_running_loop()
        for request in (produce_request(b"a", timeout_ms=30_000), fetch_request(1, max_wait_ms=30_000)):
            started = loop.time()
            context = RequestContext(b"client", "test", -1, round(started * 1000) + 300, False)
            answer = cluster.leader.handlers.handle(request, context)
            assert isinstance(answer, DeferredResponse)
            await answer
            assert 0.25 < loop.time() - started < 0.4


@on_virtual_time
async def test_only_the_first_partition_of_an_answer_may_exceed_its_limit() -> None:
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
async def test_fetch_with_another_topic_id_gets_no_records() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        named = FetchPartition(*TP, 0, 0, 1 << 20, topic_id=TOPIC_ID)
        for replica_id in (-1, 2):
            fetch = FetchRequest(replica_id, 0, 1, 1 << 20, (replace(named, topic_id="recreated"),))
            assert await cluster.leader.fetch(fetch, sender_epoch=2) == (InconsistentTopicIdError.code, [], -1)
        assert (await cluster.leader.fetch(FetchRequest(-1, 0, 1, 1 << 20, (named,))))[1] == [b"a"]


@on_virtual_time
async def test_follower_copies_nothing_from_a_leader_of_the_deleted_topic() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"old")
        for awake in (2, 3):
            await cluster.nodes[awake].ask(cluster.leader_and_isr(topic_id="recreated"), sender_epoch=1)
        await asyncio.sleep(5)
        assert [cluster.nodes[awake].replica().log.log_end_offset for awake in (2, 3)] == [0, 0]
        await cluster.nodes[1].ask(cluster.leader_and_isr(topic_id="recreated"), sender_epoch=1)
        await asyncio.sleep(5)  # refused followers retry
        await cluster.produce(b"new")
        assert [cluster.nodes[awake].replica().log.log_end_offset for awake in (2, 3)] == [1, 1]


@on_virtual_time
async def test_fetch_waits_for_min_bytes() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        request = fetch_request(0, max_wait_ms=30_000, min_bytes=150)
        waiting = asyncio.ensure_future(cluster.leader.fetch(request))
        await cluster.produce(b"a")
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await cluster.produce(b"b" * 100)
        assert (await waiting)[1] == [b"a", b"b" * 100]


@on_virtual_time
async def test_waiting_fetch_reads_the_log_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryCluster(1) as cluster:
        await cluster.elect(1)
        log, reads = cluster.leader.replica().log, 0

        def read(*asked: Any, **options: Any) -> Buffer:
            nonlocal reads
            reads += 1
            return type(log).read(log, *asked, **options)

        monkeypatch.setattr(log, "read", read)
        waiting = asyncio.ensure_future(cluster.leader.fetch(fetch_request(0, max_wait_ms=30_000, min_bytes=5_000)))
        for _ in range(20):
            await cluster.produce(b"a")
        await asyncio.sleep(0.1)
        assert (waiting.done(), reads) == (False, 0)
        await cluster.produce(b"b" * 5_000)
        assert (await waiting)[1] == [b"a"] * 20 + [b"b" * 5_000]
        assert reads == 1


@on_virtual_time
async def test_fetch_at_the_end_of_a_segment_stops_waiting(tmp_path: Path) -> None:
    manager = LogManager.open([tmp_path], RealFiles(), 1, "c", "boot")
    async with MemoryCluster(1, directory=lambda: manager) as cluster:
        await cluster.elect(1)
        waiting = asyncio.ensure_future(cluster.leader.fetch(fetch_request(0, max_wait_ms=30_000, min_bytes=5_000)))
        await cluster.produce(b"a")
        await asyncio.sleep(0.1)
        assert not waiting.done()
        manager.logs()[TP].roll(0)
        await cluster.produce(b"b")
        await asyncio.sleep(0.1)
        assert waiting.done()
        assert (await waiting)[1] == [b"a"]
    manager.close()


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"max_bytes": 100, "partition_max_bytes": 1 << 20}, id="limit of the answer"),
        pytest.param({"max_bytes": 1 << 20, "partition_max_bytes": 100}, id="limit of the partition"),
        pytest.param({"max_bytes": 0, "partition_max_bytes": 0}, id="both limits are 0"),
    ],
)
@on_virtual_time
async def test_fetch_waits_for_no_more_bytes_than_its_answer_may_have(limits: dict[str, int]) -> None:
    async with MemoryCluster(1) as cluster:
        await cluster.elect(1)
        partition = FetchPartition(TP.topic, 0, -1, 0, limits["partition_max_bytes"])
        request = FetchRequest(-1, 30_000, 5_000, limits["max_bytes"], (partition,))
        waiting = asyncio.ensure_future(cluster.leader.fetch(request))
        await asyncio.sleep(0.1)
        assert not waiting.done(), "no record is committed yet"
        await cluster.produce(b"a" * 100)
        await asyncio.sleep(0.1)
        assert waiting.done()
        assert (await waiting)[1] == [b"a" * 100]


@on_virtual_time
async def test_waiting_fetch_reports_an_unreadable_partition_at_once() -> None:
    async with MemoryCluster(1) as cluster:
        await cluster.elect(1)
        for value in (b"a", b"b"):
            await cluster.produce(value)
        log = cluster.leader.replica().log
        started = asyncio.get_running_loop().time()
        log.raise_log_start(1)
        for offset in (0, 3):
            fetch = fetch_request(offset, max_wait_ms=30_000, min_bytes=5_000)
            assert (await cluster.leader.fetch(fetch))[0] == OffsetOutOfRangeError.code
        assert asyncio.get_running_loop().time() - started < 0.1


@on_virtual_time
async def test_fetch_is_fenced_by_its_leader_epoch_and_bounded_by_the_log() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1)
        leader = cluster.leader
        assert (await leader.fetch(fetch_request(0, epoch=0)))[0] == FencedLeaderEpochError.code
        assert (await leader.fetch(fetch_request(0, epoch=2)))[0] == UnknownLeaderEpochError.code
        assert (await leader.fetch(fetch_request(7, epoch=1)))[0] == OffsetOutOfRangeError.code
        assert (await cluster.nodes[2].fetch(fetch_request(0)))[0] == NotLeaderOrFollowerError.code
        unfenced = fetch_request(0, replica_id=2)
        assert (await leader.fetch(unfenced, sender_epoch=102))[0] == UnknownLeaderEpochError.code
        with pytest.raises(InvalidRequestError):
            await leader.ask(fetch_request(0, max_wait_ms=-1))


@on_virtual_time
async def test_leader_epoch_change_completes_a_waiting_fetch() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        old = cluster.leader
        await cluster.kill(3)  # the test plays this follower
        consumer = asyncio.ensure_future(old.fetch(fetch_request(0, epoch=0, max_wait_ms=30_000)))
        follower = fetch_request(0, replica_id=3, epoch=0, max_wait_ms=30_000)
        follower_fetch = asyncio.ensure_future(old.fetch(follower, peer=b"x", sender_epoch=103))
        await asyncio.sleep(0.01)
        started = asyncio.get_running_loop().time()
        await cluster.elect(2)
        for waiting in (consumer, follower_fetch):
            assert (await waiting)[0] in (FencedLeaderEpochError.code, NotLeaderOrFollowerError.code)
        assert asyncio.get_running_loop().time() - started < 0.1


@on_virtual_time
async def test_new_session_answers_the_parked_fetches_of_its_follower() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        for follower in (2, 3):
            await cluster.kill(follower)
        leader = cluster.leader
        request = fetch_request(0, replica_id=2, epoch=0, max_wait_ms=30_000)
        first = asyncio.ensure_future(leader.fetch(request, peer=b"x", sender_epoch=102))
        await asyncio.sleep(0.01)
        other = asyncio.ensure_future(leader.fetch(replace(request, replica_id=3), peer=b"z", sender_epoch=103))
        same_connection = asyncio.ensure_future(leader.fetch(request, peer=b"x", sender_epoch=102))
        await asyncio.sleep(0.01)
        assert (first.done(), other.done(), same_connection.done()) == (True, False, False)
        next_connection = asyncio.ensure_future(leader.fetch(request, peer=b"y", sender_epoch=102))
        await asyncio.sleep(0.01)
        assert (same_connection.done(), other.done(), next_connection.done()) == (True, False, False)
        assert (await first)[:2] == (await same_connection)[:2] == (0, [])
        other.cancel()
        next_connection.cancel()


@on_virtual_time
async def test_fetch_from_beyond_the_log_end_acknowledges_nothing() -> None:
    async with MemoryCluster(2) as cluster:
        await cluster.elect(1)
        await cluster.kill(2)
        await cluster.produce(b"a", acks=1)
        request = fetch_request(5, replica_id=2, epoch=0)
        code, _, high_watermark = await cluster.leader.fetch(request, sender_epoch=102)
        assert (code, high_watermark) == (OffsetOutOfRangeError.code, 0)
        await cluster.leader.fetch(fetch_request(1, replica_id=2, epoch=0), sender_epoch=102)
        assert cluster.leader.replica().partition.high_watermark == 1


@on_virtual_time
async def test_client_listener_refuses_requests_of_brokers() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        for request in (fetch_request(0, replica_id=2, epoch=0), cluster.leader_and_isr()):
            with pytest.raises(ClusterAuthorizationFailedError):
                await cluster.leader.ask(request)


@on_virtual_time
async def test_answers_to_followers_are_freed_without_the_cycle_collector() -> None:
    def held() -> int:
        return sum(isinstance(each, FetchResponse) for each in gc.get_objects())

    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        gc.collect()
        gc.disable()  # a fetch in a reference cycle would keep the bytes of its answer until the next, rare, collection
        try:
            for _ in range(50):
                await cluster.produce(b"both followers' fetches are parked, and answered with this")
            assert held() <= 4
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("sends_files", "min_bytes", "fetched"),
    [(False, 1, [5, 5]), (True, 1, [4, 0]), (True, 4 << 20, [4, 0]), (True, 7 << 20, [5, 2])],
    ids=["read into memory", "sent from files", "waits for as much", "waits for more"],
)
def test_answer_from_files_has_no_more_than_a_socket_accepts(
    sends_files: bool, min_bytes: int, fetched: list[int]
) -> None:
    @on_virtual_time
    async def story() -> None:
        async with MemoryCluster() as cluster:
            for tp in (TP, OTHER):
                await cluster.elect(1, tp=tp)
                for _ in range(5):
                    await cluster.leader.ask(produce_request(bytes(1_000_000), tp=tp))
            context = RequestContext(b"client", "test", -1, -1, False, sends_files=sends_files)
            wanted = tuple(FetchPartition(tp.topic, tp.partition, -1, 0, 8 << 20) for tp in (TP, OTHER))
            outcome = cluster.leader.handlers.handle(FetchRequest(-1, 500, min_bytes, 50 << 20, wanted), context)
            answer = await outcome if isinstance(outcome, DeferredResponse) else outcome
            assert isinstance(answer, FetchResponse)
            assert [len(each.records or b"") // 1_000_000 for each in answer.partitions] == fetched

    story()
