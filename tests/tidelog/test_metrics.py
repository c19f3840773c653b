"""Test that the clients' metrics agree with what the brokers in memory have seen."""

from __future__ import annotations

import asyncio
import re
import threading
from math import isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.tidelog.clients import a_consumer, a_producer, an_admin, in_memory, put, read
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.virtual_time import on_virtual_time, until
from tidelog import Metrics, TopicPartition
from tidelog.client.metrics.client_metrics import ClientMetrics, Measure
from tidelog.errors import InvalidRecordError, RecordDeserializationError, TidelogError
from tidelog.protocol.group_messages import HeartbeatRequest
from tidelog.protocol.messages import ApiKey, ProduceRequest

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def of_producer(producer: tidelog.Producer | tidelog.aio.Producer) -> dict[str, float]:
    return producer.metrics()["producer-metrics"]


# --- a producer --------------------------------------------------------------------------------------


@on_virtual_time
async def test_records_batches_and_bytes_are_those_of_the_leader() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, linger_ms=10) as producer:
        for _ in range(3):
            await producer.send("t", b"v" * 100)
        await producer.flush()
        await producer.send("t", b"more")
        await producer.flush()
        shown = of_producer(producer)
    sizes = [len(batch) for batch in partition.batches]
    assert len(sizes) == 2
    assert (shown["record-send-total"], shown["record-retry-total"], shown["record-error-total"]) == (4, 0, 0)
    assert (shown["byte-total"], shown["batch-size-max"]) == (sum(sizes), max(sizes))
    assert shown["batch-size-avg"] == sum(sizes) / 2
    assert shown["compression-rate-avg"] == 1


@on_virtual_time
async def test_compression_rate_is_below_one_for_compressed_batches() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    async with a_producer(cluster, compression_type="gzip") as producer:
        await producer.send_and_wait("t", b"v" * 10_000)
        shown = of_producer(producer)
    assert shown["byte-total"] == len(partition.batches[0]) < 1_000
    assert 0 < shown["compression-rate-avg"] < 0.1


@on_virtual_time
async def test_repeated_batch_counts_as_sent_twice_and_retried_once() -> None:
    cluster = FakeCluster(brokers=2)
    cluster.create("t")
    faults = [Fault.NOT_ENOUGH_REPLICAS]
    cluster.fault_of = lambda _, request: faults.pop() if isinstance(request, ProduceRequest) and faults else None
    async with a_producer(cluster, linger_ms=10) as producer:
        for _ in range(5):
            await producer.send("t", b"v")
        await producer.flush()
        shown = of_producer(producer)
    assert (shown["record-send-total"], shown["record-retry-total"], shown["record-error-total"]) == (10, 5, 0)


@on_virtual_time
async def test_refused_single_record_is_the_only_error() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.fault_of = lambda record: "bad" if record.value == b"bad" else None
    async with a_producer(cluster, linger_ms=10) as producer:
        futures = [await producer.send("t", value) for value in (b"a", b"bad", b"c")]
        await producer.flush()
        with pytest.raises(InvalidRecordError):
            await futures[1]
        shown = of_producer(producer)
    assert partition.values() == [b"a", b"c"]
    assert (shown["record-send-total"], shown["record-retry-total"], shown["record-error-total"]) == (5, 2, 1)


@on_virtual_time
async def test_split_batch_counts_its_records_as_retried() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    partition.max_batch_bytes = 1_000
    async with a_producer(cluster, linger_ms=10) as producer:
        for _ in range(4):
            await producer.send("t", b"v" * 400)
        await producer.flush()
        shown = of_producer(producer)
    assert len(partition.values()) == 4
    assert (shown["batch-split-total"], shown["record-retry-total"], shown["record-error-total"]) == (1, 4, 0)


@on_virtual_time
async def test_expired_records_count_as_errors_once() -> None:
    cluster = FakeCluster(brokers=1)
    cluster.create("t")
    cluster.fault_of = lambda _, request: Fault.SWALLOW if isinstance(request, ProduceRequest) else None
    options = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 2_000, "linger_ms": 10}
    async with a_producer(cluster, **options) as producer:
        futures = [await producer.send("t", b"v") for _ in range(3)]
        await producer.flush()
        for future in futures:
            with pytest.raises(TidelogError):
                await future
        assert of_producer(producer)["record-error-total"] == 3
    assert of_producer(producer)["record-error-total"] == 3, "the end counts none twice"


@on_virtual_time
async def test_full_buffer_and_its_waiting_call_are_shown() -> None:
    cluster = FakeCluster(brokers=1)
    cluster.create("t")
    cluster.fault_of = lambda _, request: Fault.SWALLOW if isinstance(request, ProduceRequest) else None
    async with a_producer(cluster, buffer_memory=2_000, max_block_ms=50) as producer:
        before = of_producer(producer)
        assert before["buffer-available-bytes"] == before["buffer-total-bytes"] == 2_000
        await producer.send("t", b"v" * 1_500)
        used = 2_000 - of_producer(producer)["buffer-available-bytes"]
        assert 1_500 < used < 2_000
        await producer.send("t", b"v" * 1_500)
        assert of_producer(producer)["buffer-available-bytes"] == 0
        await producer.close(timeout=0)


@on_virtual_time
async def test_requests_are_counted_until_they_are_answered() -> None:
    cluster = FakeCluster(brokers=1)
    cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"v")
        shown = of_producer(producer)
        assert shown["request-total"] == shown["response-total"] == len(cluster.requests)
        assert shown["requests-in-flight"] == 0
        cluster.fault_of = lambda _, request: Fault.SWALLOW if isinstance(request, ProduceRequest) else None
        await producer.send("t", b"v")
        await until(lambda: of_producer(producer)["requests-in-flight"] == 1)
        assert of_producer(producer)["response-total"] == shown["response-total"]
        await producer.close(timeout=0)


# --- connections -------------------------------------------------------------------------------------


@on_virtual_time
async def test_open_connections_are_counted_and_lost_ones_are_not() -> None:
    cluster = FakeCluster(brokers=2)
    cluster.create("t", 2)
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        await producer.send_and_wait("t", b"v", partition=1)
        shown = of_producer(producer)
        opened = sum(map(len, cluster.connections.values()))
        assert shown["connection-count"] == shown["connection-creation-total"] == opened >= 3
        cluster.kill(2)
        left = len(cluster.connections[1])
        assert of_producer(producer)["connection-count"] == left < opened
        assert of_producer(producer)["connection-creation-total"] >= opened


@on_virtual_time
async def test_latency_is_the_time_of_the_slow_answer() -> None:
    cluster = FakeCluster(brokers=1)
    cluster.create("t")
    async with a_producer(cluster) as producer:
        await producer.send_and_wait("t", b"v")
        assert of_producer(producer)["request-latency-max"] < 100
        cluster.fault_of = lambda _, request: Fault.DELAY if isinstance(request, ProduceRequest) else None
        await producer.send_and_wait("t", b"v")
        slow_ms = of_producer(producer)["request-latency-max"]
        assert cluster.delay_s * 1000 <= slow_ms < cluster.delay_s * 1000 + 100


@on_virtual_time
async def test_failed_requests_have_no_latency() -> None:
    cluster = FakeCluster(brokers=1)
    cluster.create("t")
    async with a_producer(cluster, request_timeout_ms=4_000) as producer:
        await producer.partitions_for("t")
        faults = [Fault.SWALLOW]
        cluster.fault_of = lambda _, request: faults.pop() if isinstance(request, ProduceRequest) and faults else None
        await producer.send_and_wait("t", b"v")
        shown = of_producer(producer)
        assert shown["request-latency-max"] < 1_000
        assert shown["request-total"] == shown["response-total"] + 1
        assert shown["requests-in-flight"] == 0


@on_virtual_time
async def test_longest_throttle_of_all_connections_is_shown() -> None:
    cluster = FakeCluster(brokers=2)
    async with an_admin(cluster) as admin:
        await admin.list_topics()
        assert admin.metrics()["admin-client-metrics"]["throttle-time-max"] == 0
        for connection in cluster.connections[1] | cluster.connections[2]:
            connection.longest_throttle_ms = 250
        await admin.list_topics()
        assert admin.metrics()["admin-client-metrics"]["throttle-time-max"] == 250


@on_virtual_time
async def test_age_of_the_metadata_grows_until_the_next_answer() -> None:
    cluster = FakeCluster(brokers=1)
    async with an_admin(cluster) as admin:
        assert isnan(admin.metrics()["admin-client-metrics"]["metadata-age"])
        await admin.list_topics()
        await asyncio.sleep(20)
        assert 19.9 < admin.metrics()["admin-client-metrics"]["metadata-age"] < 20.1
        await admin.list_topics()
        assert admin.metrics()["admin-client-metrics"]["metadata-age"] < 0.1


# --- a consumer --------------------------------------------------------------------------------------


@on_virtual_time
async def test_consumed_records_and_bytes_are_those_of_the_log() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    for number in range(4):
        put(partition, b"%d" % number, b"x")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 8)
        shown = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert shown["records-consumed-total"] == 8
        assert shown["bytes-consumed-total"] == sum(map(len, partition.batches))
        assert shown["fetch-total"] >= 1 and shown["fetch-size-max"] <= shown["bytes-consumed-total"]


@on_virtual_time
async def test_batches_that_are_not_decoded_count_their_offsets() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", b"b", b"c")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        assert await consumer.poll_batches(5_000)
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 3


@on_virtual_time
async def test_record_that_an_iteration_gives_back_counts_once() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", b"b", b"c")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        async for _ in consumer:
            break
        assert await consumer.position(P0) == 1
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 1
        assert consumer.metrics()["records-lag"] == {"t-0": 2}
        polled = await consumer.poll()
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 3
        consumer.reader.give_back(polled)
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 1


@on_virtual_time
@pytest.mark.parametrize("way", ["poll", "consume", "iteration"])
async def test_records_that_cannot_be_deserialized_do_not_count(way: str) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0", b"1", b"bad", b"3")
    async with a_consumer(cluster, value_deserializer=int) as consumer:
        consumer.assign([P0])
        if way == "iteration":
            with pytest.raises(RecordDeserializationError):
                async for _ in consumer:
                    pass
        else:
            assert await (consumer.poll(5_000) if way == "poll" else consumer.consume(4, 5_000))
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 2


@on_virtual_time
async def test_rows_of_columns_count_as_records() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"a", b"b", b"c")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        assert (await consumer.poll_arrow(5_000)).num_rows == 3
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 3


@on_virtual_time
async def test_lag_is_the_distance_to_the_high_watermark_by_partition() -> None:
    cluster = FakeCluster()
    for partition, count in zip(cluster.create("t", 3), (2, 5, 0), strict=True):
        for _ in range(count):
            put(partition, b"v")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1])
        assert consumer.metrics()["records-lag"] == {}
        assert isnan(consumer.metrics()["consumer-fetch-manager-metrics"]["records-lag-max"])
        await until(lambda: len(consumer.metrics()["records-lag"]) == 2)
        assert consumer.metrics()["records-lag"] == {"t-0": 2, "t-1": 5}
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-lag-max"] == 5
        await read(consumer, 7)
        assert consumer.metrics()["records-lag"] == {"t-0": 0, "t-1": 0}
        assert consumer.metrics()["consumer-coordinator-metrics"]["assigned-partitions"] == 2
        consumer.assign([P0])
        assert consumer.metrics()["records-lag"] == {"t-0": 0}


@on_virtual_time
async def test_group_member_counts_its_rebalances_commits_and_heartbeats() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        await until_assigned(consumer, 2)
        first = consumer.metrics()["consumer-coordinator-metrics"]
        assert (first["rebalance-total"], first["sync-total"], first["commit-total"]) == (1, 1, 0)
        await consumer.commit({P0: tidelog.OffsetAndMetadata(0)})
        async with a_consumer(cluster, group_id="g") as second:
            second.subscribe(["t"])
            while len(consumer.assignment()) == 2:
                await asyncio.gather(consumer.poll(100), second.poll(100))
            await asyncio.gather(consumer.poll(7_000), second.poll(7_000))
        shown = consumer.metrics()["consumer-coordinator-metrics"]
        assert (shown["rebalance-total"], shown["commit-total"]) == (2, 1)
        assert shown["heartbeat-total"] == len(
            [each for each in cluster.sent(HeartbeatRequest) if is_of(each, consumer)]
        )
        assert 0 <= shown["last-heartbeat-seconds-ago"] <= 3.1


def is_of(request: Any, consumer: tidelog.aio.Consumer) -> bool:
    return bool(request.member_id == consumer.group_metadata().member_id)


async def until_assigned(consumer: tidelog.aio.Consumer, count: int) -> None:
    while len(consumer.assignment()) != count:
        await consumer.poll(100)


# --- all clients -------------------------------------------------------------------------------------


def names_in(docstring: str, group: str) -> set[str]:
    """Return the names that a docstring of `metrics` lists for a group; `a-avg, -max` names a-avg and a-max."""
    _, heading, behind = docstring.partition(f" {group}:\n")
    text = behind.split("\n\n")[0] if heading else docstring
    found: list[str] = []
    for line in text.splitlines():
        entry = re.match(r" {8}((?:[a-z-]+-[a-z-]+|-max)(?:, (?:[a-z-]+-[a-z-]+|-max))*)(?: |$)", line)
        for name in entry[1].split(", ") if entry else ():
            found.append(found[-1].removesuffix("-avg") + name if name == "-max" else name)
    return set(found)


@pytest.mark.parametrize("kind", ["Producer", "Consumer", "Admin"])
def test_docstring_names_every_metric_of_the_client(kind: str) -> None:
    client_class = getattr(tidelog, kind)
    client = in_memory(client_class, FakeCluster())
    shown = client.metrics()
    client.close()
    for group, metrics in shown.items():
        if group != "records-lag":
            assert names_in(client_class.metrics.__doc__, group) == metrics.keys()


def test_any_thread_may_look_while_records_are_sent_and_read() -> None:
    cluster = FakeCluster()
    cluster.create("t", 20)
    failures: list[BaseException] = []
    ended = threading.Event()

    def look(client: tidelog.Producer | tidelog.Consumer) -> None:
        try:
            while not ended.wait(0.001):  # without a pause each step of the clients waits for these threads
                client.metrics()
        except BaseException as error:
            failures.append(error)

    with in_memory(tidelog.Producer, cluster) as producer, in_memory(tidelog.Consumer, cluster) as consumer:
        threads = [threading.Thread(target=look, args=(client,)) for client in (producer, consumer)]
        for thread in threads:
            thread.start()
        for number in range(300):
            producer.send("t", b"v", partition=number % 20)
            consumer.assign([TopicPartition("t", each) for each in range(number % 20)])
        producer.flush()
        ended.set()
        for thread in threads:
            thread.join(30)
    assert failures == []
    assert producer.metrics()["producer-metrics"]["record-send-total"] == 300, "a closed producer has metrics too"


def test_metrics_print_one_line_each_with_unknown_values_as_a_dash() -> None:
    shown = Metrics(
        {"producer-metrics": {"record-send-total": 1234567.0, "batch-size-avg": nan, "metadata-age": 0.0125}}
    )
    assert str(shown).splitlines() == [
        "producer-metrics  record-send-total  1,234,567",
        "producer-metrics  batch-size-avg             –",
        "producer-metrics  metadata-age           0.013",
    ]


@given(st.lists(st.floats(0, 1e9) | st.integers(0, 1 << 40)))
def test_measure_agrees_with_a_list_of_all_values(values: list[float]) -> None:
    measure = Measure()
    for value in values:
        measure.add(value)
    assert measure.count == len(values)
    if values:
        assert measure.largest == max(values)
        assert measure.average == pytest.approx(sum(values) / len(values))
    else:
        assert isnan(measure.largest) and isnan(measure.average)


def test_requests_of_other_apis_do_not_count() -> None:
    metrics = ClientMetrics()
    metrics.on_answer(ApiKey.FETCH, 5, 100, 0)
    assert metrics.of(ApiKey.FETCH).latency_ms.count == 1
    assert metrics.of(ApiKey.HEARTBEAT).latency_ms.count == 0
