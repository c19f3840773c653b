"""Test that a task ends if it is cancelled in the very step in which the event arrives for which it waits.

A cancellation that is lost there (as in Python's own `asyncio.wait_for` before 3.12) leaves a loop that cannot be
ended, so that the wait for its end never returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.tidelog.clients import a_consumer, a_producer, put
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.model import TopicPartition
from tidelog.protocol.addresses import Resolver

#: Steps of the event loop between the event and the cancellation.
STEPS = range(8)
LONG_S = 600


async def ended_by_cancelling(begin: Callable[[], Awaitable[object]], come: Callable[[], object], steps: int) -> bool:
    """Return whether a loop over `begin()` ends when it is cancelled so many steps after `come`."""

    async def again_and_again() -> None:
        while True:
            await begin()

    task = asyncio.create_task(again_and_again())
    await asyncio.sleep(0.01)
    come()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=LONG_S)
    task.cancel()
    return bool(done)


@pytest.mark.parametrize("steps", STEPS)
def test_reader_that_receives_records(steps: int) -> None:
    @on_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        (partition,) = cluster.create("t")
        async with a_consumer(cluster) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            await consumer.poll(0)
            fetcher = consumer._fetcher
            assert fetcher is not None
            assert await ended_by_cancelling(lambda: consumer.poll(5000), fetcher.arrived.set, steps)
            put(partition, b"x")
            assert await consumer.poll(5000), "it may go on after that"

    story()


@pytest.mark.parametrize("steps", STEPS)
def test_sender_that_gets_space(steps: int) -> None:
    @on_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        (partition,) = cluster.create("t")
        async with a_producer(cluster, buffer_memory=2000, max_block_ms=3_600_000, batch_size=500) as producer:
            await producer.partitions_for("t")
            cluster.kill(1, elect=False)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    while True:
                        await producer.send("t", b"x" * 100)
            sender = producer.sender
            spaces: list[Callable[[], None]] = []
            call_when_space = sender.accumulator.call_when_space

            def noted(wake: Callable[[], None]) -> bool:
                spaces.append(wake)
                return call_when_space(wake)

            sender.accumulator.call_when_space = noted  # type: ignore[method-assign]
            assert await ended_by_cancelling(lambda: producer.send("t", b"y" * 100), lambda: spaces[-1](), steps)
            partition.elect(2)

    story()


@pytest.mark.parametrize("steps", STEPS)
def test_address_look_up_that_succeeds(steps: int) -> None:
    @on_virtual_time
    async def story() -> None:
        found = asyncio.Event()
        found.set()

        async def look_up(host: str) -> tuple[str, ...]:
            await found.wait()
            return ("10.0.0.1",)

        resolver = Resolver(look_up)
        await resolver.resolve("h")
        found.clear()

        async def ask() -> None:
            await resolver.resolve("h")
            found.clear()

        assert await ended_by_cancelling(ask, found.set, steps)
        found.set()

    story()


@pytest.mark.parametrize("led", [True, False])
@on_virtual_time
async def test_consumer_is_closed_if_close_is_cancelled_in_each_of_its_waits(led: bool) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    if not led:
        partition.leader = -1
    before = asyncio.all_tasks()
    consumer = await a_consumer(cluster, retry_backoff_ms=10_000, retry_backoff_max_ms=10_000).start()
    consumer.assign([TopicPartition("t", 0)])
    await consumer.poll(1000)
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    while not closing.done():
        closing.cancel()
        await asyncio.sleep(0)
    await asyncio.sleep(1)
    assert asyncio.all_tasks() == before
    assert all(connection.closed for connections in cluster.connections.values() for connection in connections)
