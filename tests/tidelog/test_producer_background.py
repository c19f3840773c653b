"""Test that every record gets an outcome even if background tasks of the producer fail or are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import pairwise
from typing import Any

import pytest

from tests.tidelog.clients import a_producer, an_admin, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.aio import Producer
from tidelog.client.producer import sender
from tidelog.client.producer.accumulator import Accumulator, PartitionQueue
from tidelog.client.producer.record_future import RecordFuture
from tidelog.errors import InternalError, TimeoutError
from tidelog.model import Endpoint
from tidelog.protocol.messages import InitProducerIdRequest, MetadataRequest, ProduceRequest, Request

#: Long enough that the steps below cover the time from the first call to the second attempt of each request.
STEPS = range(1, 60)


async def cancel_all_but(spared: set[asyncio.Task[Any]]) -> None:
    """Cancel the tasks of the client and of the brokers, as test frameworks do, but not the test itself."""
    for task in asyncio.all_tasks() - spared:
        task.cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize("led", [True, False], ids=["led", "leaderless"])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@on_virtual_time
async def test_records_end_by_their_deadline_even_if_any_task_is_cancelled(idempotent: bool, led: bool) -> None:
    story = asyncio.all_tasks()
    for steps in STEPS:
        cluster = FakeCluster()
        partitions = cluster.create("t", 3)
        producer = a_producer(cluster, delivery_timeout_ms=3000, request_timeout_ms=1000, enable_idempotence=idempotent)
        async with producer:
            await producer.partitions_for("t")
            if not led:
                partitions[0].leader = -1
            started = seconds()
            futures = [await producer.send("t", b"%d" % number, partition=number % 3) for number in range(6)]
            for _ in range(steps):
                await asyncio.sleep(0)
            await cancel_all_but(story)
            futures.append(await producer.send("t", b"later", partition=2))
            await asyncio.sleep(3.1)
            assert all(future.done() for future in futures), f"cancelled after {steps} steps"
            assert seconds() - started < 3.3
            if led:
                assert (await producer.send_and_wait("t", b"last", partition=0)).offset >= 0
        for partition in partitions:
            values = partition.values()
            assert [value for value in dict.fromkeys(values)] == values or not idempotent


@on_virtual_time
async def test_a_cancelled_request_for_a_producer_id_is_made_again() -> None:
    story = asyncio.all_tasks()
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.partitions_for("t")
        waiting = await producer.send("t", b"v")
        await cancel_all_but(story)
        started = seconds()
        assert (await waiting).offset == 0
        assert seconds() - started < 1.5


@on_virtual_time
async def test_failed_connection_to_one_leader_fails_only_the_records_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster()
    _, second, third = cluster.create("t", 3)
    opened = 0
    open_connection = cluster.open

    async def fail_for_the_first(endpoint: Endpoint, **rest: Any) -> Any:
        nonlocal opened
        if endpoint.port == 1001:
            opened += 1
            raise KeyError("a defect")
        return await open_connection(endpoint, **rest)

    cluster.open = fail_for_the_first  # type: ignore[method-assign]
    async with a_producer(cluster, bootstrap_servers="fake:1002,fake:1003") as producer:
        with caplog.at_level(logging.ERROR):
            futures = [await producer.send("t", b"v", partition=number) for number in range(3)]
            await asyncio.gather(*(future.wait_done() for future in futures))
        error = futures[0].exception(0)
        assert isinstance(error, InternalError) and "KeyError" in str(error)
        assert futures[1].succeeded() and futures[2].succeeded()
        assert second.values() == third.values() == [b"v"]
        assert opened == 1
        assert [record for record in caplog.records if "never retrieved" in record.getMessage()] == []


@on_virtual_time
async def test_failed_producer_id_request_is_raised_and_repeated_after_pauses() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    handle = cluster.handle
    asked_s: list[float] = []

    async def no_answer_of_that_kind(broker: int, request: Any) -> Any:
        if isinstance(request, InitProducerIdRequest) and len(asked_s) < 8:
            asked_s.append(seconds())
            return None
        return await handle(broker, request)

    cluster.handle = no_answer_of_that_kind  # type: ignore[method-assign]
    async with a_producer(cluster, retry_backoff_ms=100) as producer:
        waiting = await producer.send("t", b"v")
        await asyncio.sleep(0.05)
        with pytest.raises(InternalError, match="the request for a producer id failed unexpectedly"):
            await producer.send("t", b"w")
        assert (await waiting).offset == 0
        pauses = [after - before for before, after in pairwise(asked_s)]
        assert min(pauses) > 0.07 and pauses[-1] > pauses[0]


def fail_to_produce_at_broker_1(broker: int, request: Request) -> None:
    if broker == 1 and isinstance(request, ProduceRequest):
        raise RuntimeError("a defect of the client")


@on_virtual_time
async def test_sender_that_fails_for_one_leader_serves_the_others_and_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster()
    cluster.create("t", 3)
    async with a_producer(cluster, delivery_timeout_ms=2000, request_timeout_ms=1000) as producer:
        for number in range(3):
            await producer.send_and_wait("t", b"before", partition=number)
        cluster.on_send = fail_to_produce_at_broker_1
        for _ in range(5):
            futures = [await producer.send("t", b"v", partition=number) for number in range(3)]
            await asyncio.gather(*(future.wait_done() for future in futures))
            assert isinstance(futures[0].exception(0), InternalError)
            assert futures[1].succeeded() and futures[2].succeeded()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        "the producer failed unexpectedly; it is tried again"
    ]


@on_virtual_time
async def test_defect_after_connecting_fails_the_records_and_frees_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster()
    cluster.create("t", 3)
    async with a_producer(
        cluster, bootstrap_servers="fake:1001", delivery_timeout_ms=2000, request_timeout_ms=1000
    ) as producer:
        with monkeypatch.context() as defect:
            defect.setattr(sender, "ProduceRequest", None)
            lost = await producer.send("t", b"lost", partition=2)
            await asyncio.wait_for(lost.wait_done(), 3)
        assert isinstance(lost.exception(0), InternalError)
        assert (await producer.send_and_wait("t", b"later", partition=2)).offset == 0


@on_virtual_time
async def test_a_defect_about_one_partition_delays_no_others_and_its_records_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster()
    cluster.create("t", 3)
    async with a_producer(cluster, delivery_timeout_ms=2000, request_timeout_ms=1000) as producer:
        await producer.partitions_for("t")
        ready_at_ms = Accumulator.ready_at_ms

        def fail_for_the_first(accumulator: Accumulator, queue: PartitionQueue) -> int:
            if queue.topic_partition.partition == 0:
                raise KeyError("a defect")
            return ready_at_ms(accumulator, queue)

        monkeypatch.setattr(Accumulator, "ready_at_ms", fail_for_the_first)
        waiting = await producer.send("t", b"waits", partition=0)
        await asyncio.sleep(0.01)
        with pytest.raises(InternalError, match="sending to t-0 failed unexpectedly: KeyError"):
            await producer.send("t", b"v", partition=1)
        started = seconds()
        others = [await send_despite_failures(producer, number) for number in (1, 2, 1, 2)]
        await asyncio.wait_for(asyncio.gather(*others), 1)
        assert seconds() - started < 0.5
        await asyncio.wait_for(waiting.wait_done(), 3)
        assert isinstance(waiting.exception(0), TimeoutError)


async def send_despite_failures(producer: Producer, partition: int) -> RecordFuture:
    """Send again after each failure of background work that the call raises."""
    while True:
        with contextlib.suppress(InternalError):
            return await producer.send("t", b"v", partition=partition)


@on_virtual_time
async def test_a_turn_that_fails_at_its_start_is_raised_and_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.partitions_for("t")
        arm, failures = Accumulator.arm, [KeyError("a defect"), KeyError("the same")]

        def fail_twice(accumulator: Accumulator) -> None:
            if failures:
                raise failures.pop()
            arm(accumulator)

        monkeypatch.setattr(Accumulator, "arm", fail_twice)
        waiting = await producer.send("t", b"v")
        assert (await waiting).offset == 0
        with pytest.raises(InternalError, match="the producer's sender failed unexpectedly"):
            await producer.send("t", b"w")


@on_virtual_time
async def test_a_failed_refresh_of_an_admin_is_raised_by_its_next_call() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with an_admin(cluster) as admin:
        await admin.list_topics()
        metadata = cluster.metadata
        cluster.metadata = lambda broker, request: None  # type: ignore[method-assign,assignment,return-value]
        await asyncio.gather(admin.client.refresh_soon(), return_exceptions=True)
        cluster.metadata = metadata  # type: ignore[method-assign]
        with pytest.raises(InternalError, match="a metadata refresh failed unexpectedly"):
            await admin.describe_cluster()
        assert (await admin.describe_cluster()).cluster_id
    assert cluster.sent(MetadataRequest)
