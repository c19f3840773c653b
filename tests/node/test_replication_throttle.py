"""Throttled replicas (KIP-73): what a leader leaves out, when a follower fetches, and a throttled reassignment."""

from __future__ import annotations

import asyncio

import pytest

from cluster.state import PartitionState, VersionedState
from node.replication.replica import Replica
from node.runtime.rate_limit import THROTTLE_MEMORY_MS, RateLimit
from storage.configs.log_config import LogConfig
from tests.node.client_requests import TP, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.node.scripted_leader import (
    OTHER,
    ScriptedFollower,
    ScriptedLeader,
    answer_to,
    named,
    replica_of,
    stored,
    values,
)
from tests.node.test_follower_sessions import TPS, FollowerClient, alone, ask
from tests.virtual_time import on_virtual_time, until
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchPartitionResponse, FetchResponse

KB = 1000


def now_s() -> float:
    return asyncio.get_running_loop().time()


# --- the leader ----------------------------------------------------------------------------------------------


async def throttled(
    cluster: MemoryCluster, rate: int, replicas: str = "*", *, isr: tuple[int, ...] = (1,), records: int = 1
) -> FollowerClient:
    """Write 200 KB records to each of TPS, which broker 1 leads. Return a client of broker 3."""
    cluster.configs |= {"leader.replication.throttled.replicas": replicas, "min.insync.replicas": "1"}
    cluster.nodes[1].settings.apply({}, {"leader.replication.throttled.rate": str(rate)})
    await alone(cluster)
    for tp in TPS:
        await cluster.elect(1, isr=isr, tp=tp)
        for _ in range(records):
            await cluster.nodes[1].ask(produce_request(bytes(200 * KB), acks=1, tp=tp))
    return FollowerClient(cluster, 3, max_wait_ms=500)


def records_of(answer: FetchResponse) -> list[int]:
    """Return the partitions of which the answer has records."""
    return [each.partition for each in answer.partitions if each.records]


@on_virtual_time
async def test_leader_leaves_out_records_until_the_rate_allows_them() -> None:
    async with MemoryCluster() as cluster:
        client = await throttled(cluster, 1000 * KB)
        first = await client.fetch(*map(ask, TPS))
        assert records_of(first) == [0], "at 1 MB/s, 100 KB are allowed at once"
        assert [each.partition for each in first.partitions] == [0, 1, 2], "offsets are never left out"
        begun = now_s()
        assert records_of(await client.fetch()) == [1]
        assert 0.18 < now_s() - begun < 0.25, "the 200 KB of the first answer"
        assert records_of(await client.fetch()) == [2]
        assert 0.38 < now_s() - begun < 0.5


@on_virtual_time
async def test_throttled_fetch_waits_no_longer_than_it_asks() -> None:
    async with MemoryCluster() as cluster:
        client = await throttled(cluster, 0)
        assert records_of(await client.fetch(*map(ask, TPS))) == []
        for _ in range(3):
            begun = now_s()
            assert (await client.fetch()).partitions == ()
            assert 0.49 < now_s() - begun < 0.55, "neither at once nor later"


@on_virtual_time
async def test_new_records_of_a_throttled_partition_do_not_end_the_wait() -> None:
    async with MemoryCluster() as cluster:
        client = await throttled(cluster, 0)
        assert len((await client.fetch(*map(ask, TPS))).partitions) == 3
        begun = now_s()
        waiting = asyncio.ensure_future(client.fetch())
        await asyncio.sleep(0.1)
        await cluster.nodes[1].ask(produce_request(b"x", acks=1))
        assert records_of(await waiting) == [] and now_s() - begun > 0.45


@on_virtual_time
async def test_pause_that_begins_during_a_wait_bounds_the_wait() -> None:
    async with MemoryCluster() as cluster:
        removed, member = await throttled(cluster, 1000 * KB, isr=(1, 2, 3), records=0), FollowerClient(cluster, 2)
        removed.max_wait_ms = 2000
        await removed.fetch(ask(TPS[0]))
        waiting = asyncio.ensure_future(removed.fetch())
        await asyncio.sleep(0.1)
        await cluster.shrink(1, 2)
        await cluster.nodes[1].ask(produce_request(bytes(200 * KB), acks=1, tp=TPS[1]))
        assert records_of(await member.fetch(ask(TPS[1]))) == [1]
        begun = now_s()
        await cluster.nodes[1].ask(produce_request(b"x", acks=1, tp=TPS[0]))
        assert records_of(await waiting) == [0]
        assert 0.18 < now_s() - begun < 0.25, "the 200 KB of the member"


@on_virtual_time
async def test_follower_learns_at_once_whether_a_named_partition_lags() -> None:
    async with MemoryCluster() as cluster:
        client = await throttled(cluster, 0)
        await client.fetch(ask(TPS[0]))
        begun = now_s()
        answer = await client.fetch(ask(TPS[1]))
        assert [(each.partition, bool(each.records)) for each in answer.partitions] == [(1, False)]
        assert now_s() - begun < 0.1


@on_virtual_time
async def test_in_sync_follower_is_not_throttled_but_counts() -> None:
    async with MemoryCluster() as cluster:
        lagging = await throttled(cluster, 1000 * KB, isr=(1, 2))
        member = FollowerClient(cluster, 2)
        assert records_of(await member.fetch(*map(ask, TPS))) == [0, 1, 2]
        await member.fetch(*(ask(tp, 1) for tp in TPS))
        begun = now_s()
        assert records_of(await lagging.fetch(*map(ask, TPS))) == []
        assert records_of(await lagging.fetch()) == [], "the fetch waits at most 500 ms"
        assert records_of(await lagging.fetch()) == [0]
        assert 0.55 < now_s() - begun < 0.7, "the 600 KB of the member"


@on_virtual_time
async def test_follower_that_is_about_to_join_is_not_throttled() -> None:
    async with MemoryCluster() as cluster:
        joining = await throttled(cluster, 0, records=0)
        tp = TPS[0]
        await joining.fetch(ask(tp))
        await until(lambda: 3 in cluster.nodes[1].replica(tp).partition.maximal_isr)
        await cluster.nodes[1].ask(produce_request(bytes(200 * KB), acks=1, tp=tp))
        assert records_of(await joining.fetch()) == [0]


@on_virtual_time
async def test_replicas_that_the_topic_does_not_name_are_not_throttled() -> None:
    async with MemoryCluster() as cluster:
        client = await throttled(cluster, 0, "0:1,1:2")
        assert records_of(await client.fetch(*map(ask, TPS))) == [1, 2]
        assert cluster.nodes[1].replicas.leader_throttle.pause_ms(0) == THROTTLE_MEMORY_MS


@on_virtual_time
async def test_records_are_not_left_out_without_a_rate() -> None:
    async with MemoryCluster() as cluster:
        client = await throttled(cluster, 2**63 - 1)
        assert records_of(await client.fetch(*map(ask, TPS))) == [0, 1, 2]


# --- the follower --------------------------------------------------------------------------------------------


class Rate:
    """The rate of a follower, which the test changes."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.limit = RateLimit(lambda: self.rate, THROTTLE_MEMORY_MS)


def new_replica(tp: TopicPartition = TP, *, isr: tuple[int, ...] = (1,)) -> Replica:
    """Return a throttled replica of broker 2, as a reassignment adds it."""
    replica = replica_of(tp)
    state = PartitionState(1, 6, isr, 1)
    replica.partition.make_follower(VersionedState(state, 6), (1, 2))
    replica.configure(LogConfig.from_topic_configs({"follower.replication.throttled.replicas": "*"}))
    return replica


@on_virtual_time
async def test_lagging_partition_is_fetched_when_the_rate_allows_it() -> None:
    rate = Rate(1000)
    async with ScriptedFollower(rate.limit) as following:
        replica = new_replica()
        leader = await following.begin(replica)
        records = stored(bytes(2000), offset=0)
        await leader.answer_fetch(records=records, high_watermark=9)
        begun = now_s()
        request, _ = await leader.next_fetch()
        assert named(request) == [(0, 1)] and len(leader.asked) == 2
        assert -0.001 <= now_s() - begun - len(records) / 1000 < 0.05


@pytest.mark.parametrize(("high_watermark", "isr"), [(1, (1,)), (0, (1, 2))])
@on_virtual_time
async def test_replica_in_sync_is_fetched_at_once_but_counts(high_watermark: int, isr: tuple[int, ...]) -> None:
    rate = Rate(1000)
    async with ScriptedFollower(rate.limit) as following:
        leader = await following.begin(new_replica(isr=isr))
        begun = now_s()
        await leader.answer_fetch(records=stored(bytes(2000), offset=0), high_watermark=high_watermark)
        assert named((await leader.next_fetch())[0]) == [(0, 1)]
        assert now_s() - begun < 0.05
        assert rate.limit.pause_ms(round(now_s() * 1000)) > 1900


@on_virtual_time
async def test_member_of_the_isr_is_fetched_at_once_after_a_start() -> None:
    rate = Rate(0)
    async with ScriptedFollower(rate.limit) as following:
        leader = await following.begin(new_replica(isr=(1, 2)))
        assert named((await leader.next_fetch())[0]) == [(0, 0)]


@on_virtual_time
async def test_other_partitions_are_fetched_while_throttled_ones_wait() -> None:
    rate = Rate(0)
    async with ScriptedFollower(rate.limit) as following:
        free = replica_of(OTHER)
        leader = await following.begin(new_replica(), free)
        for offset in range(3):
            request, answer = await leader.next_fetch()
            assert named(request) == [(1, offset)]
            answer.set_result(answer_to(request, records=stored(b"a", offset=offset), high_watermark=9))
        await until(lambda: len(values(free)) == 3)


@on_virtual_time
async def test_few_throttled_partitions_are_fetched_at_a_time_in_turns() -> None:
    rate = Rate(10**9)
    async with ScriptedFollower(rate.limit) as following:
        leader = await following.begin(*(new_replica(TP._replace(partition=number)) for number in range(20)))
        request, answer = await leader.next_fetch()
        assert [number for number, _ in named(request)] == list(range(16))
        answer.set_result(answer_to(request, records=stored(b"a", offset=0), high_watermark=9))
        request, answer = await leader.next_fetch()
        assert named(request) == [(16, 0), (17, 0), (18, 0), (19, 0), (0, 1)], "partition 0 is the last of its turn"


async def answer_all(leader: ScriptedLeader, wait_ms: int) -> list[int]:
    """Answer the next fetch: news without records for the partitions that it names, else nothing after its wait.

    Return the named partitions.
    """
    request, answer = await leader.next_fetch()
    if not request.partitions:
        await asyncio.sleep(wait_ms / 1000)
    answer.set_result(
        FetchResponse(
            tuple(FetchPartitionResponse(each.topic, each.partition, 0, 9, 0, 0) for each in request.partitions), 7
        )
    )
    return [number for number, _ in named(request)]


@on_virtual_time
async def test_partitions_that_the_leader_leaves_out_give_turns_to_others() -> None:
    rate = Rate(10**9)
    async with ScriptedFollower(rate.limit) as following:
        leader = await following.begin(*(new_replica(TP._replace(partition=number)) for number in range(20)))
        begun = now_s()
        fetches = [await answer_all(leader, 500) for _ in range(40)]
        turns = [numbers for numbers in fetches if numbers]
        assert turns[:4] == [list(range(16)), [16, 17, 18, 19], [0, 1, 2, 3], [4, 5, 6, 7]]
        assert len(turns) <= len(fetches) // 3 + 1, "a turn takes a second, so that the fetches make no loop"
        assert now_s() - begun > 10


@on_virtual_time
async def test_partitions_keep_their_places_if_no_others_wait() -> None:
    rate = Rate(10**9)
    async with ScriptedFollower(rate.limit) as following:
        leader = await following.begin(*(new_replica(TP._replace(partition=number)) for number in range(16)))
        assert [await answer_all(leader, 500) for _ in range(8)] == [list(range(16)), *([] for _ in range(7))]


@on_virtual_time
async def test_turns_end_a_second_after_the_last_partition_was_admitted() -> None:
    rate = Rate(10**9)
    async with ScriptedFollower(rate.limit) as following:
        leader = await following.begin(*(new_replica(TP._replace(partition=number)) for number in range(18)))
        await answer_all(leader, 0)
        _, answer = await leader.next_fetch()
        await asyncio.sleep(0.9)
        answer.set_result(FetchResponse((FetchPartitionResponse(*TP, 0, 9, 0, 0, stored(b"a", offset=0)),), 7))
        assert await answer_all(leader, 0) == [16]
        assert await answer_all(leader, 900) == await answer_all(leader, 200) == []
        assert await answer_all(leader, 0) == [17, 0], "partitions 1 and 2 go to the end of the queue"


@pytest.mark.parametrize("before", [2**63 - 1, 0])
@on_virtual_time
async def test_partitions_do_not_queue_without_a_throttle(before: int) -> None:
    rate = Rate(before)
    async with ScriptedFollower(rate.limit) as following:
        for number in range(40):
            following.fetchers.follow(new_replica(TP._replace(partition=number)))
        leader = await following.connection()
        await asyncio.sleep(3)
        assert bool(leader.asked) == bool(before)
        rate.rate = 2**63 - 1
        await until(lambda: bool(leader.asked), 1.5)
        assert [number for number, _ in named((await leader.next_fetch())[0])] == list(range(40))


@on_virtual_time
async def test_raised_rate_and_removed_throttle_end_the_wait() -> None:
    rate = Rate(0)
    async with ScriptedFollower(rate.limit) as following:
        replica, other = new_replica(), new_replica(OTHER)
        following.fetchers.follow(replica)
        following.fetchers.follow(other)
        await until(lambda: bool(following.connections))
        leader = following.connections[0]
        await asyncio.sleep(5)
        assert leader.asked == []
        assert replica.configure(LogConfig()), "the change must be reported"
        following.fetchers.flushed(TP)
        assert named((await leader.next_fetch())[0]) == [(0, 0)]
        await leader.answer_fetch()
        rate.rate = 10**6
        await until(lambda: named(leader.fetch(len(leader.asked) - 1)) == [(1, 0)], 1.5)


@on_virtual_time
async def test_throttled_partition_that_is_dropped_leaves_the_queue() -> None:
    rate = Rate(0)
    async with ScriptedFollower(rate.limit) as following:
        await following.begin(new_replica(), replica_of(OTHER))
        leader = following.connections[0]
        await leader.next_fetch()
        following.fetchers.drop(TP)
        rate.rate = 10**6
        await asyncio.sleep(3)
        assert all(named(leader.fetch(number)) in ([(1, 0)], []) for number in range(len(leader.asked)))


# --- both ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limited", ["leader", "follower", "both"])
@on_virtual_time
async def test_new_replica_copies_at_the_rate_while_produces_go_on(limited: str) -> None:
    async with MemoryCluster(max_lag_ms=10_000) as cluster:
        for side in ("leader", "follower"):
            cluster.configs[f"{side}.replication.throttled.replicas"] = "*"
            rate = "1000000" if limited in (side, "both") else str(2**63 - 1)
            for node in cluster.nodes.values():
                node.settings.apply(node.settings.of_all | {f"{side}.replication.throttled.rate": rate}, {})
        cluster.cut(3, 1)
        await cluster.elect(1, isr=(1, 2))
        for _ in range(60):
            assert (await cluster.produce(bytes(100 * KB)))[0] == 0
        await asyncio.sleep(THROTTLE_MEMORY_MS / 1000)  # these records have gone to broker 2, and count
        begun, slowest = now_s(), 0.0
        cluster.heal()
        partition = cluster.leader.replica().partition
        while 3 not in partition.isr:
            assert now_s() - begun < 60
            sent = now_s()
            assert (await cluster.produce(b"x"))[0] == 0
            slowest = max(slowest, now_s() - sent)
            await asyncio.sleep(0.05)
        assert 4.5 < now_s() - begun < 8, "6 MB at 1 MB/s; the first one needs no wait"
        assert slowest < 0.1
        (session,) = (each for each in cluster.leader.purgatories.follower_sessions if each.replica_id == 3)
        assert session.epoch < 60, "neither side asks in a loop"
