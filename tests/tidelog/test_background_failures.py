"""Test that the next poll raises an unexpected exception of a background task, and that all other work goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog.aio import Consumer
from tidelog.errors import InternalError
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tidelog.protocol.messages import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    Request,
)

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class Defect(Exception):
    """An exception that no code expects."""


class Defects:
    """Makes a client fail whenever it sends such a request, and notes the times.

    After a thousand attempts the client no longer fails, so that a test of a client without pauses ends.
    """

    def __init__(self, cluster: FakeCluster, kind: type[Request], about: TopicPartition | None = None) -> None:
        self.kind: type[Request] | None = kind
        self.raised: list[Defect] = []
        self.raised_s: list[float] = []
        self.sizes: list[int] = []  # how many partitions the requests named
        self._about = about
        cluster.on_send = self._on_send

    def _on_send(self, broker: int, request: Request) -> None:
        if self.kind is None or not isinstance(request, self.kind) or len(self.raised) == 1000:
            return
        named = {TopicPartition(each.topic, each.partition) for each in getattr(request, "partitions", None) or ()}
        if self._about is None or self._about in named:
            self.raised.append(Defect(f"{self.kind.__name__} number {len(self.raised)}"))
            self.raised_s.append(seconds())
            self.sizes.append(len(named))
            raise self.raised[-1]

    def cease(self) -> None:
        self.kind = None


@contextlib.asynccontextmanager
async def nothing_left_to_asyncio() -> AsyncIterator[None]:
    """Fails if asyncio had to report an exception, such as one that no code has retrieved."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    yield
    assert reported == []


async def polled_errors(consumer: Consumer, for_s: float) -> list[Exception]:
    """Poll for so long, and return the raised error."""
    errors: list[Exception] = []
    end_s = seconds() + for_s
    while seconds() < end_s:
        try:
            await consumer.poll(1000)
        except Exception as error:
            errors.append(error)
    return errors


async def first_offset_after_failures(consumer: Consumer) -> int:
    """Poll on after failures, at most for some seconds, until a record arrives."""
    end_s = seconds() + 5
    while seconds() < end_s:
        with contextlib.suppress(InternalError):
            for records in (await consumer.poll(1000)).values():
                return records[0].offset
    raise AssertionError("no record came")


READING = [FetchRequest, ListOffsetsRequest, MetadataRequest]


@pytest.mark.parametrize("kind", READING)
@on_virtual_time
async def test_poll_raises_the_unexpected_error_of_a_task_with_its_cause(kind: type[Request]) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"x")
    defects = Defects(cluster, kind)
    async with nothing_left_to_asyncio(), a_consumer(cluster) as consumer:
        consumer.assign([P0])
        with pytest.raises(InternalError, match="failed unexpectedly: Defect") as raised:
            await consumer.poll(60_000)
        assert raised.value.__cause__ in defects.raised
        assert seconds() - defects.raised_s[0] < 1
        defects.cease()
        assert await first_offset_after_failures(consumer) == 0


@pytest.mark.parametrize("kind", READING)
@on_virtual_time
async def test_work_that_fails_unexpectedly_backs_off_to_a_second(kind: type[Request]) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"x")
    defects = Defects(cluster, kind)
    async with nothing_left_to_asyncio(), a_consumer(cluster) as consumer:
        consumer.assign([P0])
        errors = await polled_errors(consumer, 30)
        brokers = len(cluster.live) if kind is MetadataRequest else 1  # each is asked in turn
        assert 15 < len(defects.raised) < 80 * brokers
        assert 15 < len(errors) < 100


@on_virtual_time
async def test_failing_partition_does_not_starve_others_of_its_leader() -> None:
    cluster = FakeCluster(brokers=1)
    partitions = cluster.create("t", 3)
    Defects(cluster, FetchRequest, about=P1)
    async with nothing_left_to_asyncio(), a_consumer(cluster) as consumer:
        consumer.assign([P0, P1, P2])
        for number in range(20):
            put(partitions[0], b"%d" % number)
            put(partitions[1], b"unreachable")
            put(partitions[2], b"%d" % number)
        seen: list[tuple[int, int]] = []
        errors = 0
        started = seconds()
        while len(seen) < 40:
            assert seconds() - started < 5
            try:
                polled = await consumer.poll(1000)
            except InternalError:
                errors += 1
                continue
            seen += [(record.partition, record.offset) for each in polled.values() for record in each]
        assert sorted(seen) == [(number, offset) for number in (0, 2) for offset in range(20)]
        assert errors


@on_virtual_time
async def test_partition_that_fails_a_shared_fetch_is_fetched_alone() -> None:
    cluster = FakeCluster(brokers=1)
    partitions = cluster.create("t", 40)
    defects = Defects(cluster, FetchRequest, about=P1)
    async with a_consumer(cluster) as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(40)])
        await polled_errors(consumer, 5)
        for partition in partitions:
            put(partition, b"x")
        seen: set[int] = set()
        for _ in range(10):
            with contextlib.suppress(InternalError):
                seen |= {tp.partition for tp in await consumer.poll(1000)}
        assert seen == {*range(40)} - {1}
        assert [size for size in defects.sizes if size > 1] == [40]
        assert len(defects.sizes) > 5


@on_virtual_time
async def test_failing_check_of_a_position_is_raised_and_other_partitions_go_on() -> None:
    cluster = FakeCluster(brokers=2)
    partitions = cluster.create("t", 3)
    for partition in partitions:
        put(partition, b"before")
    async with nothing_left_to_asyncio(), a_consumer(cluster) as consumer:
        consumer.assign([P0, P1, P2])
        await read(consumer, 3)
        Defects(cluster, OffsetForLeaderEpochRequest, about=P0)
        for partition in partitions:
            cluster.move(partition)
            put(partition, b"after")
        seen: set[tuple[int, int]] = set()
        errors: list[Exception] = []
        for _ in range(10):
            try:
                polled = await consumer.poll(1000)
                seen |= {(record.partition, record.offset) for each in polled.values() for record in each}
            except InternalError as error:
                errors.append(error)
        assert seen == {(1, 1), (2, 1)}
        assert errors


GROUP = [
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    OffsetFetchRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
]


@pytest.mark.parametrize("kind", GROUP)
@on_virtual_time
async def test_member_of_a_group_raises_the_error_and_recovers(kind: type[Request]) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"x")
    defects = Defects(cluster, kind)
    options: dict[str, Any] = {"group_id": "g", "auto_commit_interval_ms": 1000}
    async with nothing_left_to_asyncio(), a_consumer(cluster, **options) as consumer:
        consumer.subscribe(["t"])
        errors = await polled_errors(consumer, 30)
        assert errors and all(isinstance(error, InternalError) for error in errors)
        assert {error.__cause__ for error in errors} <= set(defects.raised)
        assert 5 < len(defects.raised) < 80
        defects.cease()
        await polled_errors(consumer, 12)
        put(partition, b"y")
        assert (await read(consumer, 1))[-1][2] in (b"x", b"y")
        beats = len(cluster.sent(HeartbeatRequest))
        assert await polled_errors(consumer, 10) == []
        assert len(cluster.sent(HeartbeatRequest)) >= beats + 2
        assert cluster.coordinator.committed["g"][P0].committed_offset == 2


@on_virtual_time
async def test_data_of_others_comes_before_a_failure_and_the_failure_next() -> None:
    cluster = FakeCluster(brokers=2)
    first, second = cluster.create("t", 2)
    put(first, b"x")
    put(second, b"y")
    Defects(cluster, FetchRequest, about=P1)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1])
        await asyncio.sleep(1)
        assert list(await consumer.poll(1000)) == [P0]
        with pytest.raises(InternalError):
            await consumer.poll(1000)


@on_virtual_time
async def test_commit_raises_a_heartbeat_failure_and_the_next_one_succeeds() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"x")
    defects = Defects(cluster, HeartbeatRequest)
    async with nothing_left_to_asyncio(), a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"])
        await read(consumer, 1)
        for call in (consumer.commit, lambda: consumer.committed(P0)):
            await asyncio.sleep(10)  # longer than heartbeats are apart
            with pytest.raises(InternalError) as raised:
                await call()
            assert raised.value.__cause__ in defects.raised
            defects.raised.clear()
        defects.cease()
        await consumer.commit()
        assert cluster.coordinator.committed["g"][P0].committed_offset == 1


@on_virtual_time
async def test_position_raises_the_unexpected_error_of_its_look_up() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    defects = Defects(cluster, ListOffsetsRequest)
    async with nothing_left_to_asyncio(), a_consumer(cluster) as consumer:
        consumer.assign([P0])
        with pytest.raises(InternalError) as raised:
            await consumer.position(P0)
        assert raised.value.__cause__ in defects.raised
        defects.cease()
        assert await consumer.position(P0) == 0
