"""An ended controller leaves no memory behind: it knows every partition, and brokers rarely collect garbage."""

from __future__ import annotations

import asyncio
from weakref import ref

from cluster.state import ControllerLease, TopicAssignment
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryZooKeeper
from node.controller.controller_term import ControllerTerm
from node.controller.failure_detector import FenceLimiter
from tests.node.test_controller_failure import registration
from tests.reference_cycles import until_freed, without_collections
from tidelog.clock import SystemClock
from tidelog.errors import DisconnectedError
from tidelog.model import Endpoint


async def ended_term(zookeeper: MemoryZooKeeper) -> ref[object]:
    """Run a term until it has read a topic and two brokers, end it, and return its `Controller`."""

    async def refuse(endpoint: Endpoint) -> None:
        raise DisconnectedError(f"nothing listens at {endpoint}")

    clock = SystemClock()
    me = ZkClient(zookeeper.connect(), clock, time_limit_ms=2000)
    await me.ensure_paths()
    for broker_id in (2, 3):
        other = ZkClient(zookeeper.connect(), clock, time_limit_ms=2000)
        await other.register_broker(registration(broker_id, "127.0.0.1", 1))
    lease = await me.try_become_controller(1, await me.read_controller())
    assert isinstance(lease, ControllerLease)
    await me.create_topic(TopicAssignment("t", "id", {0: (2, 3), 1: (3, 2)}), lease.epoch_version)
    term = ControllerTerm(lease, me, clock, FenceLimiter(60_000), refuse)  # type: ignore[arg-type]
    running = asyncio.create_task(term.run())
    await term.wait_until(
        lambda: len(term.controller.context.in_flight) == 0 < len(term.controller.context.topics), 2**40
    )
    controller = ref(term.controller)
    term.end("the test ends it")
    await running
    return controller


async def test_ended_controller_is_freed() -> None:
    with without_collections():
        controller = await ended_term(MemoryZooKeeper(session_timeout_ms=60_000))
        await until_freed(controller)
