"""Test what a producer's user notices: failing partitions, a full buffer, dead addresses, growing topics."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable

import pytest

from tests.tidelog.clients import a_producer, in_memory, seconds
from tests.tidelog.fake_cluster import FakeCluster, FakePartition, Fault
from tests.virtual_time import on_virtual_time, until
from tidelog import Producer
from tidelog.errors import (
    BufferExhaustedError,
    ClosedError,
    InvalidRecordError,
    NotEnoughReplicasError,
    TimeoutError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from tidelog.protocol.messages import MetadataRequest, ProduceRequest
from tidelog.records import encode_batch

# --- partial failures -----------------------------------------------------------------------------


@on_virtual_time
async def test_refused_partition_does_not_fail_the_other_partitions() -> None:
    cluster = FakeCluster(brokers=1)
    refused, *good = cluster.create("t", 3)
    refused.max_batch_bytes, refused.too_large = 0, InvalidRecordError
    async with a_producer(cluster, linger_ms=10) as producer:
        futures = [await producer.send("t", b"v", partition=number) for number in range(3)]
        await producer.flush()
        with pytest.raises(InvalidRecordError):
            await futures[0]
        assert [(await future).offset for future in futures[1:]] == [0, 0]
    assert len(cluster.sent(ProduceRequest)) == 1
    assert [partition.values() for partition in good] == [[b"v"], [b"v"]]


@on_virtual_time
async def test_one_partition_that_moved_is_repeated_alone() -> None:
    cluster = FakeCluster(brokers=2)
    moved, stays = cluster.create("t", 2)
    stays.leader = moved.leader
    async with a_producer(cluster, linger_ms=10) as producer:
        await producer.partitions_for("t")
        cluster.move(moved)
        futures = [await producer.send("t", b"v", partition=number) for number in range(2)]
        assert [(await future).offset for future in futures] == [0, 0]
    asked = [[each.partition for each in request.partitions] for request in cluster.sent(ProduceRequest)]
    assert asked == [[0, 1], [0]]


@on_virtual_time
async def test_a_broker_that_hangs_delays_no_record_of_the_others() -> None:
    cluster = FakeCluster()
    cluster.create("t", 3)
    async with a_producer(cluster, delivery_timeout_ms=5000) as producer:
        for number in range(3):
            await producer.send_and_wait("t", b"warm", partition=number)
        cluster.hung.add(1)
        stuck = await producer.send("t", b"v", partition=0)
        started = seconds()
        for _ in range(10):
            for number in (1, 2):
                await producer.send_and_wait("t", b"v", partition=number)
        assert seconds() - started < 0.2
        with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
            await stuck
        assert 4.9 < seconds() - started < 5.2


@on_virtual_time
async def test_leader_that_does_not_answer_is_not_asked_for_its_successor() -> None:
    """The old leader is cut off from the other brokers, and goes on to report itself. No other broker is connected."""
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    old = partition.leader
    async with a_producer(cluster, bootstrap_servers=f"fake:{1000 + old}") as producer:
        await producer.send_and_wait("t", b"a")
        for broker in cluster.live.keys() - {old}:
            for connection in list(cluster.connections[broker]):
                connection.close()
        cluster.leave_behind(old)
        cluster.cut_off.add(old)
        cluster.move(partition)
        started = seconds()
        await producer.send_and_wait("t", b"b")
        assert seconds() - started < 1.5


@on_virtual_time
async def test_a_deadline_does_not_wait_for_the_next_attempt() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.refusals[ProduceRequest].append(NotEnoughReplicasError.code)
    async with a_producer(cluster, retry_backoff_ms=60_000, delivery_timeout_ms=3000) as producer:
        refused = await producer.send("t", b"v")
        started = seconds()
        with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
            await refused
        assert 2.9 < seconds() - started < 3.1


# --- bounds ---------------------------------------------------------------------------------------


@on_virtual_time
async def test_buffered_bytes_exceed_the_limit_by_at_most_a_record() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    limit, most = 20_000, 0
    async with a_producer(cluster, buffer_memory=limit, batch_size=2000) as producer:

        async def writer() -> None:
            nonlocal most
            for _ in range(200):
                await producer.send("t", b"x" * 500)
                most = max(most, producer.sender.accumulator.buffered_bytes)

        writers: list[Awaitable[None]] = [writer() for _ in range(5)]
        await asyncio.gather(*writers)
        await producer.flush()
        assert producer.sender.accumulator.buffered_bytes == 0
    assert limit - 1000 < most < limit + 1000


@on_virtual_time
async def test_full_buffer_does_not_linger_while_a_send_waits_for_space() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster, buffer_memory=1, linger_ms=60_000, max_block_ms=1000) as producer:
        first = await producer.send("t", b"fills it")
        assert not first.done()
        await producer.send("t", b"finds room")
        assert (await first).offset == 0


@on_virtual_time
async def test_sends_that_find_no_space_leave_no_callback() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster, buffer_memory=1, max_block_ms=100, delivery_timeout_ms=3000) as producer:
        await producer.send_and_wait("t", b"warm")
        cluster.hung.add(1)
        await producer.send("t", b"fills it")
        for _ in range(5):
            with pytest.raises(BufferExhaustedError):
                await producer.send("t", b"v")
        assert producer.sender.accumulator._waiting_for_space == []


@on_virtual_time
async def test_a_topic_that_gets_more_partitions_is_used_whole() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 1)
    async with a_producer(cluster, metadata_max_age_ms=10_000) as producer:
        await producer.send_and_wait("t", b"v")
        partitions.extend(cluster.create("grown", 3)[1:])
        for number, partition in enumerate(partitions):
            partition.topic, partition.number = "t", number
        cluster.partitions["t"] = partitions
        assert (await producer.send_and_wait("t", b"now", partition=2)).partition == 2  # refreshes metadata at once
        before = len(cluster.sent(MetadataRequest))
        await asyncio.sleep(95)
        assert 9 <= len(cluster.sent(MetadataRequest)) - before <= 10
        for _ in range(30):
            await producer.send_and_wait("t", b"v")
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3: its partitions are 0 to 2"):
            await producer.send("t", b"v", partition=3)
    assert all(partition.batches for partition in partitions)


@on_virtual_time
async def test_send_waits_for_a_new_partition_but_not_for_an_impossible_one() -> None:
    cluster = FakeCluster(brokers=1)
    partitions = cluster.create("t", 1)
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"v")
        sending = asyncio.create_task(producer.send_and_wait("t", b"v", partition=1))
        await asyncio.sleep(1)
        partitions.append(FakePartition("t", 1, 1))
        assert (await sending).partition == 1
        started = seconds()
        with pytest.raises(ValueError, match="partition must be from 0 to 2147483647, not -1"):
            await producer.send("t", b"v", partition=-1)
        assert seconds() == started


@on_virtual_time
async def test_recreated_topic_with_fewer_partitions_gets_all_records() -> None:
    cluster = FakeCluster()
    cluster.create("t", 4)
    keys = [b"%d" % number for number in range(20)]
    async with a_producer(cluster, metadata_max_age_ms=1000) as producer:
        for key in keys:
            await producer.send_and_wait("t", b"v", key=key)
            await producer.send_and_wait("t", b"v")
        new = cluster.create("t", 2)
        await asyncio.sleep(2)
        places = [await producer.send_and_wait("t", b"v", key=key) for key in keys]
        places += [await producer.send_and_wait("t", b"v") for _ in keys]
        assert {place.partition for place in places} == {0, 1}
        assert sum(len(partition.values()) for partition in new) == 40
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3"):
            await producer.send("t", b"v", partition=3)
        grown = cluster.partitions["t"]
        grown.append(FakePartition("t", 2, 1))
        assert (await producer.send_and_wait("t", b"v", partition=2)).offset == 0


@on_virtual_time
async def test_send_that_waits_for_space_reports_a_deleted_partition() -> None:
    cluster = FakeCluster()
    first, *_ = cluster.create("t", 4)
    async with a_producer(cluster, metadata_max_age_ms=1000, buffer_memory=1) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        first.leader = -1
        await producer.send("t", b"this fills the buffer", partition=0)
        waiting = [
            asyncio.create_task(producer.send("t", b"v", partition=3)),
            asyncio.create_task(producer.send_batch("t", encode_batch([(0, None, b"v", ())]), partition=3)),
        ]
        await asyncio.sleep(0.5)
        cluster.create("t", 2)
        for each in waiting:
            with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3: its partitions are 0 to 1"):
                await each
        assert (await producer.send_and_wait("t", b"v", partition=1)).offset == 0


# --- deadlines ------------------------------------------------------------------------------------


@on_virtual_time
async def test_record_expires_in_flight_in_time_and_shortens_no_other_deadline() -> None:
    cluster = FakeCluster(brokers=1)
    old, fresh = cluster.create("t", 2)
    async with a_producer(cluster, delivery_timeout_ms=10_000, linger_ms=1) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        old.leader = fresh.leader = -1
        started = seconds()
        late = await producer.send("t", b"late", partition=0)
        await asyncio.sleep(9.5)
        faults = iter([Fault.DELAY])
        cluster.fault_of = lambda broker, request: next(faults, None) if isinstance(request, ProduceRequest) else None
        cluster.requests.clear()
        sent = asyncio.create_task(producer.send_and_wait("t", b"fresh", partition=1))
        old.elect(1)
        fresh.elect(1)
        with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
            await late
        assert seconds() - started == pytest.approx(10, abs=0.01)
        following = await producer.send("t", b"following", partition=0)
        assert (await sent).offset == 0
        assert seconds() - started == pytest.approx(14.6, abs=0.3)
        await following
        asked = [[each.partition for each in request.partitions] for request in cluster.sent(ProduceRequest)]
        assert asked == [[0, 1], [0]], "nothing was sent twice"
        assert producer.sender.accumulator.buffered_bytes == 0
    assert old.values() == [b"0", b"late", b"following"] and fresh.values() == [b"fresh"]


@on_virtual_time
async def test_record_behind_one_in_flight_expires_in_time() -> None:
    cluster = FakeCluster(brokers=1)
    old, fresh = cluster.create("t", 2)
    async with a_producer(cluster, delivery_timeout_ms=10_000, linger_ms=1, batch_size=200) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        old.leader = fresh.leader = -1
        started = seconds()
        first = await producer.send("t", b"1" * 100, partition=0)
        await asyncio.sleep(1)
        behind = await producer.send("t", b"2" * 100, partition=0)
        await asyncio.sleep(8.5)
        faults = iter([Fault.DELAY])
        cluster.fault_of = lambda broker, request: next(faults, None) if isinstance(request, ProduceRequest) else None
        sent = asyncio.create_task(producer.send_and_wait("t", b"fresh", partition=1))
        old.elect(1)
        fresh.elect(1)
        for late, deadline_s in ((first, 10), (behind, 11)):
            with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
                await late
            assert seconds() - started == pytest.approx(deadline_s, abs=0.01)
        await sent
        await producer.send_and_wait("t", b"3", partition=0)
    assert old.values() == [b"0", b"1" * 100, b"3"] and fresh.values() == [b"fresh"]


@on_virtual_time
@pytest.mark.parametrize("fault", [Fault.SWALLOW, Fault.LOSE_ANSWER, Fault.NOT_ENOUGH_REPLICAS, Fault.FORGET_PRODUCERS])
async def test_expired_batch_is_not_sent_again_and_order_is_kept(fault: Fault) -> None:
    cluster = FakeCluster(brokers=1)
    old, fresh = cluster.create("t", 2)
    options = {"delivery_timeout_ms": 10_000, "linger_ms": 1, "request_timeout_ms": 2_000}
    async with a_producer(cluster, **options) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        old.leader = fresh.leader = -1
        late = await producer.send("t", b"late", partition=0)
        await asyncio.sleep(9.5)
        faults = iter([fault])
        cluster.fault_of = lambda broker, request: next(faults, None) if isinstance(request, ProduceRequest) else None
        following = [await producer.send("t", b"%d" % number, partition=number % 2) for number in (1, 2, 3, 4, 5)]
        old.elect(1)
        fresh.elect(1)
        await until(lambda: cluster.requests != [] and isinstance(cluster.requests[-1][1], ProduceRequest))
        cluster.hung.add(1)
        await asyncio.sleep(1)
        cluster.hung.clear()
        with pytest.raises(TimeoutError):
            await late
        for future in following:
            await future
    assert [value for value in old.values() if value != b"late"] == [b"0", b"2", b"4"]
    assert fresh.values() == [b"1", b"3", b"5"]
    assert old.values().count(b"late") <= 1


# --- how often ------------------------------------------------------------------------------------


@on_virtual_time
async def test_batch_is_repeated_at_most_retries_times_and_has_the_last_error() -> None:
    cluster = FakeCluster(brokers=1)
    (partition,) = cluster.create("t")
    for retries in (0, 2):
        async with a_producer(cluster, retries=retries) as producer:
            await producer.send_and_wait("t", b"v")
            partition.produces = 0
            cluster.refusals[ProduceRequest].extend([NotEnoughReplicasError.code] * (retries + 1))
            with pytest.raises(NotEnoughReplicasError):
                await producer.send_and_wait("t", b"v")
            assert partition.produces == retries + 1
            await producer.send_and_wait("t", b"the next one has all its attempts")


@on_virtual_time
async def test_forgotten_producer_costs_one_batch_without_retries() -> None:
    cluster = FakeCluster(brokers=1)
    (partition,) = cluster.create("t")
    async with a_producer(cluster, retries=0) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.refusals[ProduceRequest].append(UnknownProducerIdError.code)
        with pytest.raises(UnknownProducerIdError):
            await producer.send_and_wait("t", b"1")
        await producer.send_and_wait("t", b"2")
    assert partition.values() == [b"0", b"2"]


@on_virtual_time
async def test_attempt_that_reached_no_broker_does_not_count() -> None:
    cluster = FakeCluster(brokers=1)
    (partition,) = cluster.create("t")
    async with a_producer(cluster, retries=0) as producer:
        await producer.send_and_wait("t", b"v")
        cluster.live[1] = False
        for connection in list(cluster.connections[1]):
            connection.close()
        sending = asyncio.create_task(producer.send_and_wait("t", b"w"))
        await asyncio.sleep(3)
        assert not sending.done()
        cluster.live[1] = True
        await sending
    assert partition.values() == [b"v", b"w"]


# --- cancellation ---------------------------------------------------------------------------------


@on_virtual_time
async def test_cancelled_wait_for_a_future_does_not_affect_others() -> None:
    cluster = FakeCluster(brokers=1)
    (partition,) = cluster.create("t")
    async with a_producer(cluster, buffer_memory=1, max_block_ms=60_000) as producer:
        await producer.send_and_wait("t", b"0")
        partition.leader = -1
        waiting = [
            asyncio.create_task(each)
            for each in (
                producer.send_and_wait("t", b"1"),
                producer.send("t", b"never buffered: no room"),
                producer.flush(),
                producer.partitions_for("unknown"),
            )
        ]
        await asyncio.sleep(1)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        assert all(each.cancelled() for each in waiting)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if "wait_done" in repr(task)], "a flush leaves nothing behind"
        assert producer.sender.accumulator._waiting_for_space == []
        partition.elect(1)
        await producer.flush()
        await producer.send_and_wait("t", b"2")
    assert partition.values() == [b"0", b"1", b"2"]


@on_virtual_time
async def test_a_close_that_is_cancelled_has_closed() -> None:
    cluster = FakeCluster(brokers=1)
    (partition,) = cluster.create("t")
    before = asyncio.all_tasks()
    producer = await a_producer(cluster).start()
    await producer.send_and_wait("t", b"0")
    partition.leader = -1
    future = await producer.send("t", b"1")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(1)
    closing.cancel()
    await asyncio.wait({closing})
    with pytest.raises(ClosedError):
        await future
    with pytest.raises(ClosedError):
        await producer.send("t", b"2")
    assert asyncio.all_tasks() == before


@on_virtual_time
async def test_a_close_that_is_cancelled_in_each_of_its_waits_has_closed() -> None:
    cluster = FakeCluster(brokers=1)
    cluster.create("t")
    producer = await a_producer(cluster).start()
    await producer.send_and_wait("t", b"0")
    cluster.hung.add(1)
    future = await producer.send("t", b"1")
    await asyncio.sleep(0.1)
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    while not closing.done():
        closing.cancel()
        await asyncio.sleep(0)
    assert future.done() and future.failed()
    assert all(connection.closed for connections in cluster.connections.values() for connection in connections)


@on_virtual_time
async def test_bootstrap_addresses_that_are_dead_or_hang_cost_little() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.kill(3)
    cluster.hung.add(2)
    async with a_producer(cluster, bootstrap_servers="fake:1003,fake:1009,fake:1002,fake:1001") as producer:
        started = seconds()
        await producer.send_and_wait("t", b"v", partition=0)
        assert seconds() - started < 2


@pytest.mark.parametrize(("first", "most", "expected"), [(50, 200, 0.2), (10, 1000, 1.0), (300, 200, 0.3)])
def test_pauses_between_attempts_grow_up_to_their_bound(first: int, most: int, expected: float) -> None:
    @on_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        cluster.create("t")
        cluster.refusals[ProduceRequest].extend([19] * 40)
        async with a_producer(cluster, retry_backoff_ms=first, retry_backoff_max_ms=most) as producer:
            pauses, before = [], seconds()
            sent = await producer.send("t", b"v")
            for count in range(1, 41):
                await until(lambda count=count: cluster.partitions["t"][0].produces >= count)  # type: ignore[misc]
                pauses.append(seconds() - before)
                before = seconds()
            await sent
            assert pauses[2] < first / 1000 * 1.9
            assert 0.8 * expected <= min(pauses[-5:]) and max(pauses[-5:]) < 1.25 * expected

    story()


# --- threads --------------------------------------------------------------------------------------


def test_thread_that_waits_for_space_gets_closed_error_when_another_closes() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    producer = in_memory(Producer, cluster, buffer_memory=1)
    producer.send("t", b"warm").get(10)
    cluster.hung.add(1)
    producer.send("t", b"v")
    raised: list[type[BaseException]] = []
    begun = threading.Event()

    def write() -> None:
        begun.set()
        try:
            producer.send("t", b"w").get(60)
        except (ClosedError, BufferExhaustedError) as error:
            raised.append(type(error))

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait(10)
    producer.close(timeout=0.2)
    writer.join(10)
    assert raised == [ClosedError]
