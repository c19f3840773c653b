"""Whole clusters in one process on virtual time: replication, elections, faults.

Brokers are 1, 2 and 3; the test is the controller.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import NotEnoughReplicasError, NotLeaderOrFollowerError, RequestTimedOutError
from tidelog.protocol.messages import FetchRequest


@on_virtual_time
async def test_acknowledged_record_is_on_every_replica() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert await cluster.produce(b"a") == (0, 0)
        assert await cluster.produce(b"b") == (0, 1)
        assert all(node.log().values == [b"a", b"b"] for node in cluster.nodes.values())
        assert await cluster.consume(0) == (0, [b"a", b"b"])


@on_virtual_time
async def test_acknowledgement_takes_two_round_trips_and_no_timer() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"warm")
        started = asyncio.get_running_loop().time()
        await cluster.produce(b"a")
        assert asyncio.get_running_loop().time() - started < 0.005


@on_virtual_time
async def test_new_leader_keeps_acknowledged_records_and_the_old_truncates() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.kill(2)
        await cluster.kill(3)
        lost = asyncio.ensure_future(cluster.produce(b"only on 1", timeout_ms=100))
        assert (await lost)[0] == RequestTimedOutError.code
        await cluster.kill(1)
        for broker_id in (2, 3):
            cluster.restart(broker_id)
        await cluster.elect(2, isr=[2, 3])
        assert await cluster.produce(b"b") == (0, 1)
        cluster.restart(1)
        await cluster.elect(2, isr=[2, 3])
        await until(lambda: cluster.nodes[1].log().values == [b"a", b"b"])
        await until(lambda: set(cluster.states.states[TP].state.isr) == {1, 2, 3})
        await until(lambda: cluster.states.notified == [TP])


@on_virtual_time
async def test_new_follower_keeps_records_above_its_own_high_watermark() -> None:
    """KIP-101, scenario 1."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert await cluster.produce(b"a") == (0, 0)
        assert [cluster.nodes[follower].replica().partition.high_watermark for follower in (2, 3)] == [0, 0]
        await cluster.kill(1)
        await cluster.elect(1, send_to=[2, 3])
        await cluster.elect(2, isr=[2, 3], send_to=[2, 3])
        assert await cluster.produce(b"b") == (0, 1)
        assert await cluster.consume(0) == (0, [b"a", b"b"])


@on_virtual_time
async def test_leader_removes_an_unreachable_follower_from_the_isr() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.cut(1, 3)
        assert await cluster.produce(b"b") == (0, 1)
        state = cluster.states.states[TP]
        assert (set(state.state.isr), state.state.leader_epoch) == ({1, 2}, 0)
        assert state.partition_epoch == 1
        cluster.heal()
        await until(lambda: set(cluster.states.states[TP].state.isr) == {1, 2, 3})
        assert cluster.nodes[3].log().values == [b"a", b"b"]


@on_virtual_time
async def test_leader_that_finds_a_newer_state_stops_and_then_follows() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.cut(1, 2, 3)
        await cluster.elect(2, send_to=[2, 3])
        waiting = cluster.leader_and_isr()  # for broker 1, which is out of reach
        assert await cluster.produce(b"b", timeout_ms=10_000) == (0, 1)
        assert await cluster.produce(b"z", acks=1, to=1) == (0, 1)
        await until(lambda: not cluster.nodes[1].replica().partition.is_leader)
        cluster.heal()
        assert (await cluster.nodes[1].ask(waiting, sender_epoch=1)).partitions[0].error_code == 0
        await until(lambda: set(cluster.states.states[TP].state.isr) == {1, 2, 3})
        assert cluster.nodes[1].log().values == [b"a", b"b"]


@on_virtual_time
async def test_leader_without_followers_neither_acknowledges_nor_serves_records() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.cut(1, 2, 3)
        assert (await cluster.produce(b"b", timeout_ms=300))[0] == RequestTimedOutError.code
        assert await cluster.consume(0) == (0, [b"a"])
        await until(lambda: cluster.states.states[TP].state.isr == (1,))
        assert (await cluster.produce(b"c"))[0] == NotEnoughReplicasError.code
        assert cluster.nodes[1].log().values == [b"a", b"b"]


@pytest.mark.parametrize("cut_s", [0.01, 0.7, 3, 4.9, 5.1, 6, 8, 20, 60])
@on_virtual_time
async def test_network_cut_delays_little_more_than_its_own_time(cut_s: float) -> None:
    async with MemoryCluster(max_lag_ms=120_000) as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.cut(1, 2, 3)
        waiting = asyncio.ensure_future(cluster.produce(b"b", timeout_ms=120_000))
        await asyncio.sleep(cut_s)
        cluster.heal()
        healed = asyncio.get_running_loop().time()
        assert await waiting == (0, 1)
        assert asyncio.get_running_loop().time() - healed < 0.3


@on_virtual_time
async def test_zombie_leader_acknowledges_nothing_once_followers_moved_on() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.elect(2, isr=[2, 3], send_to=[2, 3])
        assert await cluster.produce(b"new", to=2) == (0, 1)
        zombie = await cluster.produce(b"old", to=1, timeout_ms=10_000)
        assert zombie[0] == NotLeaderOrFollowerError.code, "the write of a smaller ISR found another epoch"
        await cluster.send_state([1])
        await until(lambda: cluster.nodes[1].log().values == [b"a", b"new"])


@on_virtual_time
async def test_added_partition_does_not_wait_for_the_parked_fetch() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        other = TP._replace(partition=1)
        await asyncio.sleep(0.1)  # both followers' fetches are parked at 1
        started = asyncio.get_running_loop().time()
        await cluster.elect(1, tp=other)

        def asked(follower: int) -> bool:
            return any(
                source == follower
                and isinstance(request, FetchRequest)
                and [each.partition for each in request.partitions] == [other.partition]
                for source, _, request in cluster.network.requests
            )

        await until(lambda: asked(2) and asked(3))
        assert asyncio.get_running_loop().time() - started < 0.05


@on_virtual_time
async def test_idle_followers_fetch_every_two_seconds_and_learn_of_commits_soon() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await asyncio.sleep(4)
        before = len(cluster.network.requests)
        await asyncio.sleep(20)
        assert 18 <= len(cluster.network.requests) - before <= 22, "two followers send about ten fetches each"
        for number in range(1, 3):
            await cluster.produce(b"a")
            await asyncio.sleep(0.51)
            assert [node.replica().partition.high_watermark for node in cluster.nodes.values()] == [number] * 3


@on_virtual_time
async def test_followers_drop_records_that_their_leader_has_dropped() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        for value in (b"a", b"b", b"c"):
            assert (await cluster.produce(value))[0] == 0
        await until(lambda: all(node.log().log_end_offset == 3 for node in cluster.nodes.values()))
        await asyncio.sleep(2)  # the followers know all and are idle
        cluster.nodes[1].log().raise_log_start(2)
        cluster.nodes[1].purgatories.mark_changed(TP)
        await until(lambda: all(node.log().log_start_offset == 2 for node in cluster.nodes.values()))
        assert [node.log().values for node in cluster.nodes.values()] == [[b"c"]] * 3
        assert (await cluster.produce(b"d"))[0] == 0


@on_virtual_time
async def test_follower_below_the_leaders_log_start_restarts_its_log_there() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.kill(3)
        for value in (b"b", b"c", b"d"):
            assert (await cluster.produce(value, acks=1))[0] == 0
        await until(lambda: set(cluster.states.states[TP].state.isr) == {1, 2})
        cluster.nodes[1].log().trim(2)
        cluster.restart(3)
        await cluster.elect(1)
        await until(lambda: cluster.nodes[3].log().values == [b"c", b"d"])
        assert cluster.nodes[3].log().log_start_offset == 2


@on_virtual_time
async def test_full_disk_stops_the_broker_and_loses_no_acknowledged_record() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.nodes[3].log().broken = True
        assert await cluster.produce(b"b") == (0, 1)
        assert len(cluster.nodes[3].storage_errors) == 1
        assert set(cluster.states.states[TP].state.isr) == {1, 2}
        cluster.nodes[1].log().broken = True
        assert (await cluster.produce(b"c"))[0] == 56
        assert (await cluster.produce(b"c"))[0] == 56
        await cluster.elect(2, isr=[1, 2], send_to=[2])
        assert await cluster.consume(0) == (0, [b"a"]) or await cluster.consume(0) == (0, [b"a", b"b"])


@on_virtual_time
async def test_produces_waiting_for_a_dead_follower_are_acknowledged() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.kill(3)
        waiting = asyncio.ensure_future(cluster.produce(b"b", timeout_ms=5000))
        await until(lambda: cluster.nodes[2].log().log_end_offset == 2)
        assert not waiting.done(), "broker 3 is still in the ISR"
        epochs = [cluster.nodes[each].log().latest_epoch for each in (1, 2)]
        await cluster.shrink(1, 2)
        assert await waiting == (0, 1)
        assert cluster.leader.replica().partition.isr == (1, 2)
        assert [cluster.nodes[each].log().latest_epoch for each in (1, 2)] == epochs
        cluster.restart(3)
        await cluster.send_state()
        await until(lambda: set(cluster.leader.replica().partition.isr) == {1, 2, 3})


@on_virtual_time
async def test_follower_that_is_shutting_down_does_not_rejoin_the_isr() -> None:
    async with MemoryCluster() as cluster:
        cluster.nodes[3].shutting_down = True
        await cluster.elect(1, isr=[1, 2])
        await cluster.produce(b"a")
        await until(lambda: cluster.nodes[3].log().log_end_offset == 1)
        await cluster.produce(b"b")
        assert cluster.leader.replica().partition.isr == (1, 2)
        cluster.nodes[3].shutting_down = False
        await cluster.send_state()
        await until(lambda: cluster.leader.replica().partition.isr == (1, 2, 3))
