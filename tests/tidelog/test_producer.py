"""Test the producer with failing brokers: no loss, no duplicates, order kept."""

from __future__ import annotations

import asyncio
import itertools
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.clients import a_producer, seconds
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import (
    BufferExhaustedError,
    ClosedError,
    ConfigError,
    InvalidTopicError,
    MessageTooLargeError,
    NoBrokersError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    TidelogError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import RecordMetadata
from tidelog.protocol.messages import InitProducerIdRequest, MetadataRequest, ProduceRequest, Request


@on_virtual_time
async def test_future_returns_the_records_partition_and_offset() -> None:
    cluster = FakeCluster()
    cluster.create("t", 3)
    async with a_producer(cluster) as producer:
        first = await producer.send_and_wait("t", b"a", partition=2, timestamp_ms=17)
        second = await producer.send_and_wait("t", b"b", partition=2, timestamp_ms=datetime(1970, 1, 1, tzinfo=UTC))
    assert first == RecordMetadata("t", 2, 0, 17)
    assert second == RecordMetadata("t", 2, 1, 0)


@on_virtual_time
async def test_key_value_headers_and_timestamp_arrive_as_they_were_sent() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send("t", b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=5)
        await producer.send("t", None)
    full, empty = partition.records()
    assert full == (0, 5, b"k", b"v", (("h", b"1"), ("n", None)))
    assert (empty.key, empty.value, empty.headers) == (None, None, ())
    assert empty.timestamp >= VirtualClock.EPOCH_MS


@on_virtual_time
async def test_keys_decide_the_partition_and_keyless_records_spread() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 4)
    async with a_producer(cluster) as producer:
        places = {(await producer.send_and_wait("t", b"v", key=b"same")).partition for _ in range(5)}
        assert len(places) == 1
        for _ in range(40):
            await producer.send_and_wait("t", b"v")
    assert all(partition.batches for partition in partitions)


@on_virtual_time
async def test_records_sent_while_a_request_is_in_flight_share_the_next_batch() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"warm")
        for number in range(1000):
            await producer.send("t", b"%d" % number)
    assert partition.values() == [b"warm", *(b"%d" % number for number in range(1000))]
    assert len(partition.batches) <= 3


@on_virtual_time
async def test_linger_collects_a_batch_and_flush_does_not_wait_for_it() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, linger_ms=500) as producer:
        await producer.partitions_for("t")
        started = seconds()
        futures = []
        for _ in range(3):
            futures.append(await producer.send("t", b"v"))
            await asyncio.sleep(0.1)
        assert not partition.batches
        await futures[0]
        assert 0.5 <= seconds() - started < 0.55 and len(partition.batches) == 1
        started = seconds()
        await producer.send("t", b"v")
        await producer.flush()
        assert seconds() - started < 0.1 and len(partition.batches) == 2


@on_virtual_time
async def test_batches_of_all_partitions_of_a_leader_travel_in_one_request() -> None:
    cluster = FakeCluster(brokers=1)
    cluster.create("t", 5)
    async with a_producer(cluster, linger_ms=10) as producer:
        for partition in range(5):
            await producer.send("t", b"v", partition=partition)
    (request,) = cluster.sent(ProduceRequest)
    assert isinstance(request, ProduceRequest) and len(request.partitions) == 5


@on_virtual_time
async def test_a_leader_move_costs_less_than_200_ms() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"before")
        cluster.move(partition)
        started = seconds()
        await producer.send_and_wait("t", b"after")
        assert seconds() - started < 0.2
    assert partition.values() == [b"before", b"after"]


@on_virtual_time
async def test_producer_leaves_a_dead_leader_as_soon_as_another_is_elected() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"before")
        cluster.kill(1, elect=False)
        waiting = await producer.send("t", b"during")
        await asyncio.sleep(5)
        assert not waiting.done()
        partition.elect(2)
        started = seconds()
        await waiting
        assert seconds() - started < 0.3


@on_virtual_time
async def test_a_hung_leader_is_abandoned_once_metadata_names_another() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"before")
        cluster.hung.add(1)
        started = seconds()
        waiting = await producer.send("t", b"during")
        await asyncio.sleep(3)
        partition.elect(2)
        await waiting
        assert seconds() - started < 6
        cluster.hung.clear()  # the old leader wakes up and handles the waiting requests
        await asyncio.sleep(1)
        assert partition.values() == [b"before", b"during"]


@on_virtual_time
async def test_producer_goes_on_when_the_only_bootstrap_address_dies() -> None:
    cluster = FakeCluster()
    cluster.create("t", 3)
    async with a_producer(cluster, bootstrap_servers="fake:1001") as producer:
        for partition in range(3):
            await producer.send_and_wait("t", b"v", partition=partition)
        cluster.kill(1)
        for partition in range(3):
            await producer.send_and_wait("t", b"v", partition=partition)


@on_virtual_time
async def test_a_lost_answer_does_not_double_the_batch() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    faults = iter([Fault.LOSE_ANSWER, Fault.SWALLOW_ANSWER, None])
    cluster.fault_of = lambda broker, request: next(faults, None) if isinstance(request, ProduceRequest) else None
    async with a_producer(cluster, request_timeout_ms=800) as producer:
        place = await producer.send_and_wait("t", b"once")
    assert place.offset == 0 and partition.values() == [b"once"] and partition.produces == 3


@on_virtual_time
async def test_repetition_with_an_unknown_offset_counts_as_acknowledged() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster) as producer:
        cluster.refusals[ProduceRequest].append(46)
        place = await producer.send_and_wait("t", b"v")
    assert place.offset == -1


@pytest.mark.parametrize("code", [OutOfOrderSequenceError.code, 59])
@on_virtual_time
async def test_a_broker_that_forgot_the_producer_gets_the_batch_under_a_new_id(code: int) -> None:
    cluster = FakeCluster()
    partition, other = cluster.create("t", 2)
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        await producer.send_and_wait("t", b"x", partition=1)
        cluster.refusals[ProduceRequest].append(code)
        for value in (b"1", b"2", b"3"):
            await producer.send("t", value, partition=0)
        await producer.flush()
        await producer.send_and_wait("t", b"y", partition=1)
    assert partition.values() == [b"0", b"1", b"2", b"3"] and other.values() == [b"x", b"y"]
    assert len(cluster.sent(InitProducerIdRequest)) == 2


@on_virtual_time
async def test_records_after_an_unknown_outcome_use_a_new_producer_id() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, request_timeout_ms=500, delivery_timeout_ms=2000) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.fault_of = lambda broker, request: Fault.SWALLOW if isinstance(request, ProduceRequest) else None
        with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
            await producer.send_and_wait("t", b"1")
        cluster.fault_of = lambda broker, request: None
        await producer.send_and_wait("t", b"2")
    assert partition.values() == [b"0", b"2"]


@on_virtual_time
async def test_record_after_an_unknown_append_is_not_taken_for_a_repetition() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, request_timeout_ms=500, delivery_timeout_ms=2000) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.fault_of = lambda _, request: Fault.SWALLOW_ANSWER if isinstance(request, ProduceRequest) else None
        with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
            await producer.send_and_wait("t", b"1")
        cluster.fault_of = lambda broker, request: None
        await producer.send_and_wait("t", b"2")
    assert partition.values() == [b"0", b"1", b"2"]


@on_virtual_time
async def test_a_hung_broker_keeps_no_record_beyond_its_delivery_timeout() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster, delivery_timeout_ms=2000) as producer:
        await producer.send_and_wait("t", b"before")
        cluster.hung |= {1, 2, 3}
        started = seconds()
        with pytest.raises(TimeoutError, match="delivery_timeout_ms"):
            await producer.send_and_wait("t", b"during")
        assert 1.9 < seconds() - started < 2.2
        asked = cluster.sent(ProduceRequest)[-1]
        assert isinstance(asked, ProduceRequest) and asked.timeout_ms < 2000
        cluster.hung.clear()


@on_virtual_time
async def test_batch_of_a_hung_leader_is_not_repeated_without_idempotence() -> None:
    cluster = FakeCluster(brokers=2)
    moving, staying = cluster.create("t", 3)[::2]  # both led by broker 1
    async with a_producer(cluster, enable_idempotence=False, linger_ms=10) as producer:
        await producer.send_and_wait("t", b"before", partition=moving.number)
        cluster.hung.add(1)
        waiting = [await producer.send("t", b"v", partition=each.number) for each in (moving, staying)]
        await asyncio.sleep(0.1)
        moving.elect(2)
        await asyncio.sleep(5)
        cluster.hung.clear()
        await asyncio.gather(*waiting)
    assert (moving.values(), staying.values()) == ([b"before", b"v"], [b"v"])


@on_virtual_time
async def test_certain_rejection_frees_its_sequence() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.refusals[ProduceRequest].append(32)
        with pytest.raises(TidelogError, match="timestamp"):
            await producer.send_and_wait("t", b"1")
        await producer.send_and_wait("t", b"2")
    assert partition.values() == [b"0", b"2"] and len(cluster.sent(InitProducerIdRequest)) == 1


@on_virtual_time
async def test_expired_record_has_the_brokers_last_error() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.refusals[ProduceRequest].extend([NotEnoughReplicasError.code] * 1000)
    async with a_producer(cluster, delivery_timeout_ms=1000) as producer:
        started = seconds()
        future = await producer.send("t", b"v")
        with pytest.raises(TimeoutError, match="in-sync replicas") as caught:
            await future
        assert isinstance(caught.value.__cause__, NotEnoughReplicasError)
        assert seconds() - started < 1.3
        assert future.failed() and future.exception() is caught.value


@on_virtual_time
async def test_without_acks_nothing_is_waited_for() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, acks=0) as producer:
        place = await producer.send_and_wait("t", b"v", timestamp_ms=3)
        await asyncio.sleep(0.1)
    assert place == RecordMetadata("t", 0, -1, 3) and partition.values() == [b"v"]
    assert not cluster.sent(InitProducerIdRequest)


@on_virtual_time
async def test_full_buffer_blocks_and_then_raises() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, buffer_memory=2000, max_block_ms=300, batch_size=500) as producer:
        await producer.partitions_for("t")
        cluster.kill(1, elect=False)
        started = seconds()
        with pytest.raises(BufferExhaustedError, match="buffer_memory"):
            for _ in range(100):
                await producer.send("t", b"x" * 100)
        assert 0.29 < seconds() - started < 0.5
        blocked = asyncio.create_task(producer.send("t", b"late"))
        partition.elect(2)
        await blocked
    assert partition.values()[-1] == b"late"


@on_virtual_time
async def test_invalid_records_are_rejected_at_once() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_producer(cluster) as producer:
        with pytest.raises(MessageTooLargeError, match="max_request_size"):
            await producer.send("t", b"x" * (2 << 20))
        with pytest.raises(ValueError, match="time zone"):
            await producer.send("t", b"v", timestamp_ms=datetime(2024, 1, 1))
        with pytest.raises(ValueError, match="timestamp_ms must be from 0 to 9223372036854775806 ms"):
            await producer.send("t", b"v", timestamp_ms=-1)
        with pytest.raises(TypeError, match="value must be bytes or None, not 'text'"):
            await producer.send("t", "text")  # type: ignore[arg-type]
        with pytest.raises(InvalidTopicError):
            await producer.send("no/name", b"v")
        with pytest.raises(UnknownTopicOrPartitionError, match="only partition is 0"):
            await producer.send("t", b"v", partition=7)
        await producer.send_and_wait("t", b"x" * (1000 << 10))
    with pytest.raises(ClosedError):
        await producer.send("t", b"v")


@on_virtual_time
async def test_a_topic_that_every_broker_denies_is_unknown_after_a_few_seconds() -> None:
    cluster = FakeCluster()
    async with a_producer(cluster) as producer:
        started = seconds()
        with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere'"):
            await producer.send("nowhere", b"v")
        assert 3 <= seconds() - started < 4
        assert len(cluster.sent(MetadataRequest)) < 60


@on_virtual_time
async def test_a_topic_that_is_created_meanwhile_is_found() -> None:
    cluster = FakeCluster()
    async with a_producer(cluster) as producer:
        sending = asyncio.create_task(producer.send_and_wait("soon", b"v"))
        await asyncio.sleep(1)
        cluster.create("soon")
        await sending


@on_virtual_time
async def test_a_cluster_that_is_down_is_reported_in_seconds() -> None:
    cluster = FakeCluster()
    for broker in cluster.live:
        cluster.live[broker] = False
    async with a_producer(cluster) as producer:
        started = seconds()
        with pytest.raises(NoBrokersError, match="fake:1001, fake:1002, fake:1003"):
            await producer.send("t", b"v")
        assert seconds() - started < 6


@on_virtual_time
async def test_close_sends_buffered_records_and_fails_the_rest_at_its_deadline() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    producer = a_producer(cluster, linger_ms=60_000)
    await producer.send("t", b"v")
    await producer.close()
    assert partition.values() == [b"v"]
    producer = a_producer(cluster)
    await producer.send_and_wait("t", b"w")
    cluster.kill(1, elect=False)
    future = await producer.send("t", b"x")
    started = seconds()
    await producer.close(timeout=2)
    assert 2 <= seconds() - started < 2.2
    with pytest.raises(ClosedError):
        await future


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"acks": 2}, "acks"),
        ({"acks": 1, "enable_idempotence": True}, "enable_idempotence"),
        ({"linger_ms": -1}, "linger_ms"),
        ({"linger_ms": 500, "delivery_timeout_ms": 500}, "linger_ms .* less than delivery_timeout_ms"),
        ({"batch_size": "big"}, "batch_size"),
        ({"compression_type": "brotli"}, "compression_type"),
        ({"lingerms": 1}, "did you mean linger_ms"),
        ({"bootstrap_servers": "nowhere"}, "bootstrap_servers"),
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
    ],
)
def test_a_wrong_setting_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        a_producer(FakeCluster(), **options)


@on_virtual_time
async def test_callbacks_get_the_place_or_the_error() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    called: list[Any] = []
    async with a_producer(cluster) as producer:
        good = await producer.send("t", b"v", timestamp_ms=1)
        good.add_callback(called.append).add_errback(called.append)
        await good
        cluster.refusals[ProduceRequest].append(87)
        bad = await producer.send("t", b"v", timestamp_ms=1)
        bad.add_callback(called.append).add_errback(lambda error: called.append(type(error).__name__))
        await producer.flush()
    assert called == [RecordMetadata("t", 0, 0, 1), "InvalidRecordError"]


# --- any schedule of faults -----------------------------------------------------------------------

_sends = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 30, 700])), min_size=1, max_size=40)
_faults = st.lists(st.one_of(st.none(), st.sampled_from(list(Fault))), max_size=25)


@settings(max_examples=150)
@given(sends=_sends, faults=_faults, kills=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3000)), max_size=2))
@on_virtual_time
async def test_log_has_exactly_the_acknowledged_records_under_any_faults(
    sends: list[tuple[int, int]], faults: list[Fault | None], kills: list[tuple[int, int]]
) -> None:
    """FORGET_PRODUCERS is excluded, because a broker that forgets cannot know a repetition: see the next test."""
    cluster = FakeCluster()
    partitions = cluster.create("t", 3)
    schedule = iter([fault for fault in faults if fault is not Fault.FORGET_PRODUCERS])

    def fault_of(broker: int, request: Request) -> Fault | None:
        return next(schedule, None) if isinstance(request, ProduceRequest) else None

    cluster.fault_of = fault_of

    async def outage(broker: int, at_ms: int) -> None:
        await asyncio.sleep(at_ms / 1000)
        cluster.kill(broker)
        await asyncio.sleep(2)
        cluster.revive(broker)

    outages = [asyncio.create_task(outage(*kill)) for kill in kills]
    async with a_producer(cluster, batch_size=200, request_timeout_ms=1500) as producer:
        futures = []
        for number, (partition, pause_ms) in enumerate(sends):
            future = await producer.send("t", b"%d" % number, partition=partition)
            futures.append((partition, b"%d" % number, future))
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)
        await producer.flush()
        for partition, value, future in futures:
            place = await future
            assert place.offset == -1 or partitions[partition].records()[place.offset].value == value
    await asyncio.sleep(10)  # delayed requests have arrived by now
    await asyncio.gather(*outages)
    for partition in partitions:
        assert partition.values() == [value for number, value, _ in futures if number == partition.number]


@settings(max_examples=80)
@given(sends=_sends, faults=_faults)
@on_virtual_time
async def test_order_is_kept_without_duplicates_under_faults_and_short_deadlines(
    sends: list[tuple[int, int]], faults: list[Fault | None]
) -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 3)
    schedule = iter([fault for fault in faults if fault not in (Fault.FORGET_PRODUCERS, Fault.DELAY)])
    cluster.fault_of = lambda broker, request: next(schedule, None) if isinstance(request, ProduceRequest) else None
    acknowledged: list[tuple[int, bytes]] = []
    options = {"batch_size": 200, "request_timeout_ms": 400, "delivery_timeout_ms": 600}
    async with a_producer(cluster, **options) as producer:
        futures = []
        for number, (partition, pause_ms) in enumerate(sends):
            futures.append((partition, b"%d" % number, await producer.send("t", b"%d" % number, partition=partition)))
            await asyncio.sleep(pause_ms / 1000)
        await producer.flush()
        acknowledged = [(partition, value) for partition, value, future in futures if future.succeeded()]
    for partition in partitions:
        log = [int(value or b"") for value in partition.values()]
        assert log == sorted(set(log))
        assert {int(value) for number, value in acknowledged if number == partition.number} <= set(log)


@on_virtual_time
async def test_a_record_is_stored_though_its_producer_s_id_was_another_s_before() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for seed in (1, 2):
        cluster._ids = itertools.count(1000)  # ZooKeeper is restored to a state before this id was given out
        async with a_producer(cluster, rng=random.Random(seed)) as producer:
            await producer.send_and_wait("t", b"%d" % seed)
    assert partition.values() == [b"1", b"2"]


@on_virtual_time
async def test_values_that_are_sent_together_arrive_once_each_and_in_order() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    values = [b"%d" % number for number in range(1000)]
    runs, start = [], 0
    async with a_producer(cluster, batch_size=2000, buffer_memory=4000) as producer:
        while start < len(values):
            runs.append(await producer.send_values("t", values, start, partition=0, timestamp_ms=7))
            start += runs[-1].record_count
        await producer.flush()
    assert partition.values() == values
    assert {record.timestamp for record in partition.records()} == {7}
    assert [part.base_offset for run in runs for part in run.parts()][:2] == [0, runs[0].record_count]
