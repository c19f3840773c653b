"""Random faults on a cluster in one process: each record that was acknowledged or read stays in the log for ever."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.node.client_requests import TP, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import on_virtual_time, until
from tidelog.protocol.messages import FetchPartition, FetchRequest
from tidelog.records import Record, decode_records, encode_batch, iter_headers
from verify.checker.look_ups import LookUp, StoredRecord, judge

#: The broker of a step. 0 is the current leader, where faults have the most effect.
LEADER = 0
BROKERS = st.integers(0, 3)
INFORMED = st.sampled_from([7, 7, 7, 6, 5, 3])
STEPS = st.one_of(
    st.tuples(st.just("produce"), st.sampled_from([LEADER, LEADER, LEADER, 1, 2, 3]), st.integers(1, 4)),
    st.tuples(st.just("failover"), st.integers(0, 2), INFORMED),
    st.tuples(st.just("kill"), BROKERS, st.just(0)),
    st.tuples(st.just("restart"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("elect"), BROKERS, INFORMED),
    st.tuples(st.just("inform"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("cut"), BROKERS, st.integers(1, 3)),
    st.tuples(st.just("heal"), st.just(0), st.just(0)),
    st.tuples(st.just("read"), BROKERS, st.integers(0, 5)),
    st.tuples(st.just("look_up"), st.just(LEADER), st.integers(0, 13)),
    st.tuples(st.just("wait"), st.just(0), st.sampled_from([1, 5, 20, 100, 700, 2000])),
    st.tuples(st.just("checkpoint"), BROKERS, st.just(0)),
)


#: A record waits only for the slowest disk, that of broker 1. Then broker 1 loses power and leads.
PRODUCED = [("produce", 0, 1), ("wait", 0, 20), ("wait", 0, 20)]
BACK_WITH_LESS = [("kill", 1, 0), ("restart", 1, 0), ("elect", 1, 7)]
#: The next leader has the record but does not know yet that it is committed.
LOOKED_UP_AT_ONCE = [("produce", 0, 1), ("wait", 0, 5), ("failover", 0, 7), ("look_up", 0, 1)]


@dataclass
class History:
    """The observations of clients: (offset, value) of acknowledgements and reads, and results of look-ups by time.

    machines_die      a kill also loses unflushed data
    acknowledged_at   the count of steps at each acknowledgement, by offset; virtual time is too coarse to order them
    """

    machines_die: bool
    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)
    acknowledged_at: dict[int, int] = field(default_factory=dict)
    read: list[tuple[int, bytes]] = field(default_factory=list)
    looked_up: list[LookUp] = field(default_factory=list)
    in_flight: list[asyncio.Task[None]] = field(default_factory=list)
    produced: int = 0
    moments: itertools.count[int] = field(default_factory=itertools.count)


def time_of(number: int) -> int:
    """Return the timestamp of the record with this number: rising, falling, and sometimes equal."""
    return number * 5 % 13 + 1


async def produce(cluster: MemoryCluster, history: History, broker_id: int, count: int) -> None:
    """Produce to any broker, leader or not."""
    values = [b"%d" % (history.produced + index) for index in range(count)]
    history.produced += count
    batch = encode_batch([(time_of(int(value)), None, value, ()) for value in values])
    answer = (await cluster.nodes[broker_id].ask(produce_request(batch=batch, timeout_ms=3000))).partitions[0]
    if answer.error_code == 0:
        acknowledged = [(answer.base_offset + index, value) for index, value in enumerate(values)]
        history.acknowledged += acknowledged
        history.acknowledged_at |= dict.fromkeys([offset for offset, _ in acknowledged], next(history.moments))


async def read(cluster: MemoryCluster, history: History, broker_id: int, offset: int) -> None:
    request = FetchRequest(-1, 0, 1, 1 << 20, (FetchPartition(TP.topic, TP.partition, -1, offset, 1 << 20),))
    answer = (await cluster.nodes[broker_id].ask(request)).partitions[0]
    for position, _ in iter_headers(answer.records or b""):
        records = decode_records(answer.records, position)
        assert all(record.offset < answer.high_watermark for record in records)
        history.read += [(record.offset, record.value or b"") for record in records]


async def look_up(cluster: MemoryCluster, history: History, timestamp: int) -> None:
    """Look up offsets at the leader in ZooKeeper, which may not know of its election yet."""
    asked_at = next(history.moments)
    code, offset, found = await cluster.leader.look_up(timestamp)
    if code == 0:
        answer = None if offset < 0 else (offset, found, None)
        history.looked_up.append(LookUp(timestamp, asked_at, next(history.moments), answer))


async def elect(cluster: MemoryCluster, leader: int, informed: int) -> None:
    """Elect a leader cleanly. The bits of `informed` are the brokers that learn of it at once; the others may not."""
    state = cluster.states.states[TP].state
    alive = {node.broker_id for node in cluster.nodes.values() if node.alive}
    if leader not in state.isr or leader not in alive:
        return
    isr = [replica for replica in state.isr if replica in alive]
    await cluster.elect(leader, isr=isr, send_to=[replica for replica in alive if informed & (1 << (replica - 1))])


async def kill(cluster: MemoryCluster, history: History, broker_id: int) -> None:
    """Kill the broker's process. If its machine dies too, unflushed data is lost."""
    await cluster.kill(broker_id)
    if history.machines_die:
        node = cluster.nodes[broker_id]
        node.directory = node.directory.after_power_cut()


async def restart(cluster: MemoryCluster, broker_id: int) -> None:
    """Restart a broker. As with the real controller, a restarted leader leads only in a new epoch."""
    cluster.restart(broker_id)
    if broker_id == cluster.states.states[TP].state.leader:
        await cluster.elect(broker_id, send_to=())


async def failover(cluster: MemoryCluster, history: History, choice: int, informed: int) -> None:
    """Kill the leader and elect another ISR member."""
    if cluster.leader.alive:
        await kill(cluster, history, cluster.leader.broker_id)
    isr = cluster.states.states[TP].state.isr
    candidates = [replica for replica in isr if cluster.nodes[replica].alive]
    if candidates:
        await elect(cluster, candidates[choice % len(candidates)], informed)


async def perform(cluster: MemoryCluster, history: History, step: tuple[str, int, int]) -> None:
    action, broker_id, amount = step
    if action == "failover":
        await failover(cluster, history, choice=broker_id, informed=amount)
        return
    if broker_id == LEADER:
        broker_id = cluster.leader.broker_id
    node = cluster.nodes.get(broker_id)
    if action == "wait":
        await asyncio.sleep(amount / 1000)
    elif action == "heal":
        cluster.heal()
    elif action == "cut":
        if broker_id != amount:
            cluster.cut(broker_id, amount)
    elif action == "restart" and node is not None and not node.alive:
        await restart(cluster, broker_id)
    elif node is None or not node.alive:
        return
    elif action == "kill":
        await kill(cluster, history, broker_id)
    elif action == "elect":
        await elect(cluster, broker_id, amount)
    elif action == "inform":
        await cluster.send_state([broker_id])
    elif action == "produce":
        history.in_flight.append(asyncio.ensure_future(produce(cluster, history, broker_id, amount)))
    elif action == "read":
        await read(cluster, history, broker_id, amount)
    elif action == "look_up":
        await look_up(cluster, history, amount)
    elif action == "checkpoint":
        await node.replicas.checkpoint_high_watermarks()


@pytest.mark.timeout(400)  # it computes all the while, and others may have the processors
@settings(max_examples=80)
@example([("wait", 0, 1), ("cut", 0, 2), ("cut", 0, 3)])
@example([("kill", LEADER, 0), ("restart", 1, 0), ("inform", 1, 0)])
@example(LOOKED_UP_AT_ONCE)
@given(st.lists(STEPS, min_size=5, max_size=40))
@on_virtual_time
async def test_random_faults_lose_no_acknowledged_or_consumed_record(steps: list[tuple[str, int, int]]) -> None:
    await run_steps(steps, machines_die=False)


@pytest.mark.timeout(400)  # it computes all the while, and others may have the processors
@settings(max_examples=80)
@example([*PRODUCED, *BACK_WITH_LESS])
@example([("elect", 2, 7), *PRODUCED, *BACK_WITH_LESS])
@given(st.lists(STEPS, min_size=5, max_size=40))
@on_virtual_time
async def test_random_power_cuts_lose_no_flushed_record(steps: list[tuple[str, int, int]]) -> None:
    await run_steps(steps, machines_die=True)


def check_look_ups(history: History, log: Sequence[Record]) -> None:
    stored = [
        StoredRecord(each.offset, each.timestamp, 0, history.acknowledged_at.get(each.offset, inf)) for each in log
    ]
    verdict = judge(stored, [], history.looked_up)
    assert not verdict.wrong, verdict.wrong[0]


async def run_steps(steps: list[tuple[str, int, int]], *, machines_die: bool) -> None:
    async with MemoryCluster() as cluster:
        if machines_die:
            cluster.configs["flush.messages"] = "1"
        await cluster.elect(1)
        history = History(machines_die)
        for step in steps:
            await perform(cluster, history, step)
        await asyncio.sleep(3.1)
        cluster.heal()
        for node in list(cluster.nodes.values()):
            if not node.alive:
                await restart(cluster, node.broker_id)
        state = cluster.states.states[TP].state
        await cluster.elect(state.isr[0])
        await until(lambda: set(cluster.states.states[TP].state.isr) == {1, 2, 3})
        logs = [node.log() for node in cluster.nodes.values()]
        await until(lambda: logs[0].batches == logs[1].batches == logs[2].batches)
        values = logs[0].values
        for offset, value in history.acknowledged + history.read:
            assert values[offset] == value
        check_look_ups(history, logs[0].records)
        code, base_offset = await cluster.produce(b"after all")
        assert (code, base_offset) == (0, len(values))
        for task in history.in_flight:
            if task.done():
                task.result()
            else:
                task.cancel()  # this request waits at a killed process
        for node in cluster.nodes.values():
            assert len(node.purgatories.produces) == 0
