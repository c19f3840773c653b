"""The leader's side of fetch sessions. Broker 1 leads; the test is the follower, broker 2 or 3."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.replication.sessions.follower_sessions import MAX_FETCH_INTERVAL_MS, MAX_SESSIONS, FollowerSessions
from tests.node.client_requests import TP, produce_request, values_of
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import FencedLeaderEpochError, FetchSessionIdNotFoundError, InvalidFetchSessionEpochError
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import BrokerInfo, UpdateMetadataRequest
from tidelog.protocol.messages import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ForgottenPartition,
)

TPS = [TP._replace(partition=number) for number in range(3)]


def ask(tp: TopicPartition, offset: int = 0, epoch: int = 0) -> FetchPartition:
    return FetchPartition(*tp, epoch, offset, 1 << 20)


@dataclass
class FollowerClient:
    """One connection of a follower, and the fetch session over it."""

    cluster: MemoryCluster
    replica_id: int = 2
    peer: bytes = b"follower"
    session_id: int = 0
    epoch: int = 0
    max_wait_ms: int = 0

    async def fetch(self, *asks: FetchPartition, forgotten: tuple[ForgottenPartition, ...] = ()) -> FetchResponse:
        request = FetchRequest(
            self.replica_id, self.max_wait_ms, 1, 1 << 20, asks,
            session_id=self.session_id, session_epoch=self.epoch, forgotten=forgotten,
        )  # fmt: skip
        self.epoch += 1
        answer = await self.cluster.nodes[1].ask(request, peer=self.peer, sender_epoch=100 + self.replica_id)
        assert isinstance(answer, FetchResponse)
        self.session_id = answer.session_id
        return answer


async def alone(cluster: MemoryCluster, *tps: TopicPartition) -> None:
    """A cluster in which broker 1 leads the partitions of `TPS`, and the test plays the followers."""
    for other in (2, 3):
        cluster.nodes[other].fetchers._opener = refuse_connection
    for tp in tps:
        await cluster.elect(1, tp=tp)


async def refuse_connection(endpoint: object) -> None:  # type: ignore[misc]
    await asyncio.Event().wait()


def answered(answer: FetchResponse) -> list[tuple[int, list[bytes], int]]:
    """Return (partition, values, high watermark) of each answer."""
    return [(each.partition, values_of(each.records or b"", 0), each.high_watermark) for each in answer.partitions]


@on_virtual_time
async def test_session_answers_each_partition_once_and_then_only_news() -> None:
    async with MemoryCluster() as cluster:
        await alone(cluster, *TPS)
        client = FollowerClient(cluster)
        assert answered(await client.fetch(*map(ask, TPS))) == [(0, [], 0), (1, [], 0), (2, [], 0)]
        assert answered(await client.fetch()) == []
        await cluster.leader.ask(produce_request(b"a", acks=1, tp=TPS[1]))
        assert answered(await client.fetch()) == [(1, [b"a"], 0)]
        assert answered(await client.fetch()) == [], (
            "the partition left the session with its records, until it is named again"
        )
        assert answered(await client.fetch(ask(TPS[1], 1))) == [(1, [], 0)]
        assert answered(await client.fetch()) == []


@on_virtual_time
async def test_raised_high_watermark_is_news() -> None:
    async with MemoryCluster() as cluster:
        await alone(cluster, TP)
        client, other = FollowerClient(cluster), FollowerClient(cluster, 3, b"other")
        await client.fetch(ask(TP))
        await other.fetch(ask(TP))
        await cluster.leader.ask(produce_request(b"a", acks=1))
        assert answered(await client.fetch()) == [(0, [b"a"], 0)]
        assert answered(await client.fetch(ask(TP, 1))) == [(0, [], 0)]
        await other.fetch(ask(TP, 1))
        assert answered(await client.fetch()) == [(0, [], 1)]
        assert answered(await client.fetch()) == []


@on_virtual_time
async def test_parked_fetch_is_answered_at_once_with_records_of_any_member() -> None:
    async with MemoryCluster() as cluster:
        await alone(cluster, *TPS)
        client = FollowerClient(cluster, max_wait_ms=30_000)
        await client.fetch(*map(ask, TPS))
        waiting = asyncio.ensure_future(client.fetch())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        started = asyncio.get_running_loop().time()
        await cluster.leader.ask(produce_request(b"a", acks=1, tp=TPS[2]))
        assert answered(await waiting) == [(2, [b"a"], 0)]
        assert asyncio.get_running_loop().time() - started < 0.01


@on_virtual_time
async def test_epoch_end_removes_the_member_and_completes_a_parked_fetch() -> None:
    async with MemoryCluster() as cluster:
        await alone(cluster, *TPS)
        client = FollowerClient(cluster, max_wait_ms=30_000)
        await client.fetch(*map(ask, TPS))
        waiting = asyncio.ensure_future(client.fetch())
        await asyncio.sleep(0.1)
        await cluster.elect(1, tp=TPS[0])
        answer = await waiting
        assert [(each.partition, each.error_code) for each in answer.partitions] == [(0, FencedLeaderEpochError.code)]
        client.max_wait_ms = 0
        await cluster.leader.ask(produce_request(b"a", acks=1))
        assert answered(await client.fetch()) == []
        assert answered(await client.fetch(ask(TPS[0], epoch=1))) == [(0, [b"a"], 0)]


@on_virtual_time
async def test_forgotten_partition_is_neither_answered_nor_acknowledged() -> None:
    async with MemoryCluster() as cluster:
        await alone(cluster, *TPS)
        client = FollowerClient(cluster)
        await client.fetch(*map(ask, TPS))
        await client.fetch(forgotten=(ForgottenPartition(*TPS[1]),))
        await cluster.leader.ask(produce_request(b"a", acks=1, tp=TPS[1]))
        assert answered(await client.fetch()) == []


@on_virtual_time
async def test_session_needs_its_id_its_connection_and_the_next_epoch() -> None:
    async with MemoryCluster() as cluster:
        await alone(cluster, TP)
        client = FollowerClient(cluster)
        await client.fetch(ask(TP))
        for stranger in (
            FollowerClient(cluster, peer=b"another", session_id=client.session_id, epoch=1),
            FollowerClient(cluster, replica_id=3, session_id=client.session_id, epoch=1),
            FollowerClient(cluster, session_id=client.session_id + 1, epoch=1),
        ):
            with pytest.raises(FetchSessionIdNotFoundError):
                await stranger.fetch()
        for epoch in (2, 3):
            with pytest.raises(InvalidFetchSessionEpochError):
                await FollowerClient(cluster, session_id=client.session_id, epoch=epoch).fetch()
        await client.fetch()
        with pytest.raises(InvalidFetchSessionEpochError):
            await FollowerClient(cluster, session_id=client.session_id, epoch=1).fetch()


@on_virtual_time
async def test_delayed_fetch_of_an_earlier_connection_acknowledges_nothing() -> None:
    async with MemoryCluster() as cluster:
        await alone(cluster, TP)
        earlier = FollowerClient(cluster, peer=b"earlier")
        await earlier.fetch(ask(TP))
        for value in (b"a", b"b"):
            await cluster.produce(value, acks=1)
        later = FollowerClient(cluster, peer=b"later")
        await later.fetch(ask(TP, offset=2))
        with pytest.raises(FetchSessionIdNotFoundError):
            await earlier.fetch(ask(TP, offset=1))  # the network has delayed it
        assert cluster.leader.replicas.get_or_raise(TP).partition.followers[2].log_end_offset == 2
        await later.fetch()


@on_virtual_time
async def test_fetch_without_a_session_answers_everything_each_time() -> None:
    async with MemoryCluster() as cluster:
        await alone(cluster, *TPS)
        for _ in range(3):
            client = FollowerClient(cluster, epoch=-1)
            assert answered(await client.fetch(*map(ask, TPS))) == [(0, [], 0), (1, [], 0), (2, [], 0)]
            assert client.session_id == 0
        assert len(cluster.leader.purgatories.follower_sessions) == 1


def test_sessions_are_bounded_and_the_oldest_fetch_goes_first() -> None:
    sessions = FollowerSessions()
    first, _ = sessions.begin(0, b"first", 1, now_ms=0)
    for number in range(1, MAX_SESSIONS):
        assert sessions.begin(number, b"%d" % number, 1, now_ms=number)[1] == []
    assert sessions.begin(MAX_SESSIONS, b"one more", 1, now_ms=MAX_SESSIONS)[1] == [first]
    assert len(sessions) == MAX_SESSIONS
    sessions.begin(MAX_SESSIONS + 1, b"late", 1, now_ms=MAX_FETCH_INTERVAL_MS + MAX_SESSIONS)
    assert len(sessions) == 2


def test_new_session_ends_no_session_of_a_later_registration() -> None:
    sessions = FollowerSessions()
    earlier, _ = sessions.begin(2, b"a", 1, now_ms=0)
    sessions.begin(3, b"b", 1, now_ms=0)
    later, ended = sessions.begin(2, b"c", 2, now_ms=0)
    assert ended == [earlier]
    assert sessions.begin(2, b"a", 1, now_ms=0)[1] == [], "a delayed request of the earlier registration"
    assert later in list(sessions)


# --- in-sync replicas --------------------------------------------------------------------------------------------


@on_virtual_time
async def test_idle_follower_stays_in_sync_until_its_last_fetch() -> None:
    async with MemoryCluster(max_lag_ms=1000) as cluster:
        await alone(cluster, TP)
        client, other = FollowerClient(cluster), FollowerClient(cluster, 3, b"other")
        await client.fetch(ask(TP))
        await other.fetch(ask(TP))
        for _ in range(20):
            await asyncio.sleep(0.5)
            await client.fetch()
            await other.fetch()
        await cluster.leader.ask(produce_request(b"a", acks=1))
        await asyncio.sleep(0.9)
        assert cluster.leader.replica().partition.isr == (1, 2, 3)
        await client.fetch()
        await client.fetch(ask(TP, 1))
        await asyncio.sleep(1)
        assert cluster.leader.replica().partition.isr == (1, 2), "broker 3 has stopped fetching"


@on_virtual_time
async def test_fetch_of_an_idle_follower_checks_no_partition() -> None:
    async with MemoryCluster() as cluster:
        await alone(cluster, *TPS)
        client = FollowerClient(cluster)
        await client.fetch(*map(ask, TPS))
        await client.fetch()
        [session] = cluster.leader.purgatories.follower_sessions
        assert (len(session), session.active()) == (3, [])
        await cluster.leader.ask(produce_request(b"a", acks=1))
        assert [tp for tp, _ in session.active()] == [TP]


@on_virtual_time
async def test_change_of_brokers_activates_members_of_new_registrations_only() -> None:
    """With thousands of partitions, the next fetch of every other follower would check all of them."""
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader, everyone = cluster.nodes[1], cluster.live()
        sessions = leader.purgatories.follower_sessions
        await until(lambda: len(sessions) == 2 and not any(each.active() for each in sessions))

        async def active_after(*live: BrokerInfo) -> list[int]:
            request = UpdateMetadataRequest(3, 1, live, (), ())
            await leader.ask(request, sender_epoch=1)
            return [each.replica_id for each in sessions if each.active()]

        assert await active_after(*everyone[:2]) == [], "broker 3 has failed"
        assert await active_after(*everyone) == [3], "broker 3 is registered again"


@on_virtual_time
async def test_idle_follower_that_left_the_isr_rejoins_it() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await asyncio.sleep(3)
        state = cluster.states.states[TP].state
        await cluster.elect(1, isr=(1, 2))
        await until(lambda: set(cluster.states.states[TP].state.isr) == set(state.isr))


@on_virtual_time
async def test_followers_begin_a_new_session_if_the_leader_lost_theirs() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.leader.purgatories.follower_sessions._sessions.clear()
        started = asyncio.get_running_loop().time()
        assert (await cluster.produce(b"b"))[0] == 0
        assert asyncio.get_running_loop().time() - started < 0.6


# --- the simple twin ---------------------------------------------------------------------------------------------


@dataclass
class View:
    """The state that a follower has of each of the leader's partitions."""

    offsets: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(3), 0))
    epochs: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(3), 0))
    watermarks: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)

    def take(self, each: FetchPartitionResponse) -> bool:
        """Take over an answer. Return whether the partition must be named again."""
        if each.error_code:
            self.fenced.add(each.partition)
            return True
        self.fenced.discard(each.partition)
        self.watermarks[each.partition] = each.high_watermark
        self.starts[each.partition] = each.log_start_offset
        got = len(values_of(each.records or b"", self.offsets[each.partition]))
        self.offsets[each.partition] += got
        return each.records is not None


class Incremental:
    """A follower with a session, which names only changed and answered partitions."""

    def __init__(self, cluster: MemoryCluster, replica_id: int) -> None:
        self.view = View()
        self.replica_id = replica_id
        self.cluster = cluster
        self.connections = 0
        self.reconnect()

    def reconnect(self) -> None:
        """Reconnect, so that a new session begins."""
        self.connections += 1
        self.client = FollowerClient(self.cluster, self.replica_id, b"%d by %d" % (self.connections, self.replica_id))
        self.to_name = set(range(3))

    def set_epoch(self, partition: int, epoch: int) -> None:
        self.view.epochs[partition] = epoch
        self.to_name.add(partition)

    async def fetch(self) -> None:
        asks = [ask(TPS[each], self.view.offsets[each], self.view.epochs[each]) for each in sorted(self.to_name)]
        self.to_name.clear()
        for answer in (await self.client.fetch(*asks)).partitions:
            if self.view.take(answer):
                self.to_name.add(answer.partition)


class Full:
    """The twin without a session, which names every partition in every fetch."""

    def __init__(self, cluster: MemoryCluster, replica_id: int) -> None:
        self.view = View()
        self.replica_id = replica_id
        self.cluster = cluster

    def reconnect(self) -> None:
        """Do nothing, because there is no session to lose."""

    def set_epoch(self, partition: int, epoch: int) -> None:
        self.view.epochs[partition] = epoch

    async def fetch(self) -> None:
        asks = [ask(TPS[each], self.view.offsets[each], self.view.epochs[each]) for each in range(3)]
        client = FollowerClient(self.cluster, self.replica_id, b"%d" % self.replica_id, epoch=-1)
        for answer in (await client.fetch(*asks)).partitions:
            self.view.take(answer)


PARTITIONS = st.integers(0, 2)
FOLLOWERS = st.sampled_from([2, 2, 3])
STEPS = st.one_of(
    st.tuples(st.just("produce"), PARTITIONS),
    st.tuples(st.just("fetch"), FOLLOWERS),
    st.tuples(st.just("fetch"), FOLLOWERS),
    st.tuples(st.just("fetch all"), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([1, 100, 600, 1200])),
    st.tuples(st.just("elect"), PARTITIONS),
    st.tuples(st.just("hear"), FOLLOWERS),
    st.tuples(st.just("evict"), PARTITIONS),
    st.tuples(st.just("trim"), PARTITIONS),
    st.tuples(st.just("reconnect"), FOLLOWERS),
)


async def run_steps(steps: list[tuple[str, int]], kind: type[Incremental] | type[Full]) -> list[object]:
    """Return the followers' state, and the leader's view of them, after each step."""
    seen: list[object] = []
    async with MemoryCluster(max_lag_ms=1000) as cluster:
        await alone(cluster, *TPS)
        followers: Mapping[int, Incremental | Full] = {each: kind(cluster, each) for each in (2, 3)}
        for action, argument in steps:
            await perform(cluster, followers, action, argument)
            await asyncio.sleep(0.02)
            partitions = [cluster.nodes[1].replica(tp).partition for tp in TPS]
            seen.append([(each.isr, each.high_watermark, each.pending) for each in partitions])
            if action.startswith("fetch"):
                seen.append([repr(follower.view) for follower in followers.values()])
    return seen


async def perform(
    cluster: MemoryCluster, followers: Mapping[int, Incremental | Full], action: str, argument: int
) -> None:
    leader = cluster.nodes[1]
    match action:
        case "produce":
            await leader.ask(produce_request(b"v", acks=1, tp=TPS[argument]))
        case "fetch":
            await followers[argument].fetch()
        case "fetch all":
            # As a real follower, name answered partitions again at once, until there is no more news.
            for _ in range(3):
                for follower in followers.values():
                    await follower.fetch()
        case "wait":
            await asyncio.sleep(argument / 1000)
        case "elect":
            await cluster.elect(1, tp=TPS[argument])
        case "evict":
            state = cluster.states.states[TPS[argument]].state
            await cluster.elect(1, tp=TPS[argument], isr=[each for each in state.isr if each != 3])
        case "hear":
            for number, tp in enumerate(TPS):
                followers[argument].set_epoch(number, cluster.states.states[tp].state.leader_epoch)
        case "trim":
            replica = leader.replica(TPS[argument])
            if replica.partition.high_watermark > replica.log.log_start_offset:
                replica.log.raise_log_start(replica.partition.high_watermark)
                leader.purgatories.mark_changed(TPS[argument])
        case "reconnect":
            followers[argument].reconnect()


@pytest.mark.timeout(400)  # pure computation, which takes long if other tests use the processors
@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=30))
def test_session_and_full_fetches_have_the_same_effect(steps: list[tuple[str, int]]) -> None:
    seen: list[list[object]] = []

    @on_virtual_time
    async def run(kind: type[Incremental] | type[Full]) -> None:
        seen.append(await run_steps(steps, kind))

    run(Incremental)
    run(Full)
    assert seen[0] == seen[1]
