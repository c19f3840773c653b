"""The evidence on which a controller counts as dead, and a partition as led."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cluster.state import BrokerRegistration, ControllerLease, PartitionState, TopicAssignment, VersionedState
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryZooKeeper
from node.controller.controller_elector import ControllerElector
from node.controller.controller_term import ControllerTerm
from node.controller.failure_detector import FenceLimiter
from node.controller.outbox import StateBatch
from node.net.identity import Identity
from node.settings.broker_settings import BrokerSettings
from tidelog.clock import SystemClock
from tidelog.errors import FencedLeaderEpochError, NotControllerError, NotLeaderOrFollowerError
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.control_messages import LeaderAndIsrResponse, PartitionOutcome, PartitionStateMessage
from tidelog.protocol.listeners import BROKERS, CLIENTS

TP = TopicPartition("t", 0)


def registration(broker_id: int, host: str, replication_port: int) -> BrokerRegistration:
    listeners = {CLIENTS: Endpoint(host, 1), BROKERS: Endpoint(host, replication_port)}
    return BrokerRegistration(broker_id, listeners)


async def test_controller_that_accepts_connections_is_not_replaced() -> None:
    connects = asyncio.Semaphore(0)

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connects.release()
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    zookeeper, clock = MemoryZooKeeper(session_timeout_ms=60_000), SystemClock()
    other, me = (ZkClient(zookeeper.connect(), clock, time_limit_ms=2000) for _ in range(2))
    await other.ensure_paths()
    await other.register_broker(registration(2, "127.0.0.1", port))
    lease = await other.try_become_controller(2, await other.read_controller())
    settings = BrokerSettings(broker_id=1, log_dirs=("unused",), zookeeper="127.0.0.1:1")
    elector = ControllerElector(settings, me, clock, Identity("", 1, broker_epoch=1))
    await elector.start()
    for _ in range(6):  # the handshake and the plain connect of three suspicions
        await connects.acquire()
    assert await me.read_controller() == lease
    assert (elector.controller_id, elector.is_controller) == (2, False)
    await elector.stop()
    listener.close()
    await listener.wait_closed()


def new_term() -> ControllerTerm:
    """Return a term of broker 1 that has not started."""

    async def refuse(*_: object) -> None:
        raise AssertionError("no connection is opened here")

    zk_client, clock = ZkClient(MemoryZooKeeper().connect(), SystemClock()), SystemClock()
    return ControllerTerm(ControllerLease(1, 1, 1), zk_client, clock, FenceLimiter(1000), refuse)  # type: ignore[arg-type]


def answered(code: int) -> LeaderAndIsrResponse:
    return LeaderAndIsrResponse(0, (PartitionOutcome("t", 0, code),))


async def test_partition_is_led_once_its_leader_has_answered_for_the_epoch() -> None:
    term = new_term()
    leader = replace(registration(2, "h", 2), epoch=7)
    list(term.controller.context.adopt(TopicAssignment("t", "id", {0: (2, 3)})))

    def elected(epoch: int) -> StateBatch:
        context = term.controller.context
        context.put(replace(context.partitions[TP], known=VersionedState(PartitionState(2, epoch, (2,), 1), epoch)))
        return StateBatch({TP: PartitionStateMessage("t", 0, 1, 2, epoch, (2,), epoch, (2, 3))})

    first = elected(0)
    assert not term.is_led(TP)
    term.on_answer(leader, first, answered(NotControllerError.code), 0)
    assert not term.is_led(TP), "the broker refused"
    term.on_answer(leader, first, answered(0), 0)
    assert term.is_led(TP)
    second = elected(1)
    assert not term.is_led(TP), "the broker has answered for the epoch before"
    term.on_answer(leader, second, answered(0), 0)
    assert term.is_led(TP)


async def test_restarted_leader_that_refuses_its_epoch_gets_a_new_one() -> None:
    term = new_term()
    leader = replace(registration(2, "h", 2), epoch=7)
    state = VersionedState(PartitionState(2, 5, (2, 3), 1), 8)
    topic = TopicAssignment("t", "id", {0: (2, 3)})
    others = {3: replace(registration(3, "h", 3), epoch=6)}
    list(term.controller.begin({2: leader} | others, {"t": topic}, {TP: state}))
    batch = StateBatch({TP: PartitionStateMessage("t", 0, 1, 2, 5, (2, 3), 8, (2, 3))})
    term.on_answer(leader, batch, answered(FencedLeaderEpochError.code), 0)
    assert not term.controller.election_in_progress(TP), "a leader of a later epoch keeps it"
    term.on_answer(leader, batch, answered(NotLeaderOrFollowerError.code), 0)
    assert term.controller.election_in_progress(TP)
    assert not term.is_led(TP)
    term.end("the test is over")


async def test_controller_epoch_exceeds_all_epochs_that_the_broker_knows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    zk_client, clock = ZkClient(MemoryZooKeeper().connect(), SystemClock(), time_limit_ms=2000), SystemClock()
    await zk_client.ensure_paths()
    settings = BrokerSettings(broker_id=1, log_dirs=("unused",), zookeeper="127.0.0.1:1")
    known = [7]
    elector = ControllerElector(settings, zk_client, clock, Identity("", 1), known_epoch=lambda: known[-1])
    for epoch in (8, 9):
        await elector.start()
        async with asyncio.timeout(20):
            while not elector.is_controller:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (elector.controller_epoch, (await zk_client.read_controller()).epoch) == (epoch, epoch)
        known.append(epoch)
        await elector.stop()
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert logged == ["ZooKeeper has controller epoch 0, but this broker knows epoch 7: ZooKeeper's data is older"]
