"""Slow clients and brokers do not delay others: a consumer that stopped reading, and a follower that hardly runs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import pack

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.ordeal import Ordeal, ordeal
from tests.processes.harness.waiting import require_bite, wait_bitten
from tidelog import NewTopic, Producer, TopicPartition
from tidelog.model import Endpoint

pytestmark = pytest.mark.slow

#: The limit for other clients' acknowledgements; a client that waited for the slow one would take longer.
LONGEST_PAUSE_S = 1.5
#: Sooner than a broker gives up a client of which it hears nothing at all.
SLOW_S = 3.0
BULK_BYTES = 10_000
#: More than the kernel keeps for a reader that does not read.
MUCH_BYTES = 32 << 20


def create(cluster: RunningCluster, name: str, replicas: tuple[int, ...]) -> TopicPartition:
    """One partition that the first of these leads."""
    cluster.admin.create_topics([NewTopic(name, assignment={0: replicas}, configs={"min.insync.replicas": "2"})])
    tp = TopicPartition(name, 0)
    cluster.wait_in_sync(tp)
    return tp


def unsent_bytes(address: str) -> int:
    """Return the bytes that the kernel holds of unread answers from this address."""
    port = Endpoint.parse(address).port
    tables = [Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for lines in tables for line in lines]
    return sum(int(row[4].partition(":")[0], 16) for row in rows if int(row[1].rpartition(":")[2], 16) == port)


def check_pauses(under: Ordeal, tp: TopicPartition, since: float) -> None:
    under.workload.wait_acknowledged(200)
    pause_s = under.workload.longest_gap_s([tp], since)
    print(f"longest pause of others: {pause_s:.3f} s in {time.monotonic() - since:.1f} s")
    assert pause_s < LONGEST_PAUSE_S


@contextmanager
def stalled_consumer(address: str, tp: TopicPartition) -> Iterator[None]:
    """A connection that fetches a partition from its beginning, and never reads the answer."""
    endpoint, topic = Endpoint.parse(address), tp.topic.encode()
    partitions = pack(">iiqi", 1, tp.partition, 0, MUCH_BYTES)
    topics = pack(f">ih{len(topic)}s", 1, len(topic), topic) + partitions
    fetch = pack(">hhih", 1, 4, 1, -1) + pack(">iiiib", -1, 1000, 1, MUCH_BYTES, 0) + topics  # Fetch of version 4
    with socket.create_connection((endpoint.host, endpoint.port), timeout=10) as connection:
        connection.sendall(pack(">i", len(fetch)) + fetch)
        yield


def test_stalled_consumer_does_not_delay_other_clients(cluster: RunningCluster) -> None:
    tp, bulk = create(cluster, "t", (1, 2, 3)), create(cluster, "bulk", (1, 2, 3))
    address = cluster.address(1)
    with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(6_000):
            producer.send(bulk.topic, bytes(BULK_BYTES), partition=0)
    with ordeal(cluster, [tp]) as under, stalled_consumer(address, bulk):
        wait_bitten("an answer to be stuck on its way", lambda: unsent_bytes(address))
        stuck_since = time.monotonic()
        under.workload.wait_acknowledged(600)
        check_pauses(under, tp, stuck_since)
        require_bite("the answer has gone its way", unsent_bytes(address))


@contextmanager
def hardly_running(cluster: RunningCluster, broker_id: int) -> Iterator[None]:
    """The broker runs now and then, often enough to keep its session."""
    over = threading.Event()

    def sleep_and_wake() -> None:
        while not over.is_set():
            with cluster.paused(broker_id):
                over.wait(1.5)
            over.wait(0.02)

    thread = threading.Thread(target=sleep_and_wake, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


@contextmanager
def written_to(cluster: RunningCluster, tp: TopicPartition) -> Iterator[None]:
    """5 MB/s that the leader alone acknowledges."""
    over = threading.Event()

    def write() -> None:
        with suppress(Exception), Producer(cluster.bootstrap_servers, acks=1) as producer:
            while not over.wait(0.02):
                for _ in range(10):
                    producer.send(tp.topic, bytes(BULK_BYTES), partition=tp.partition)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [{"brokers": 4, "replica_lag_time_max_ms": 2000}], indirect=True)
def test_slow_follower_outside_the_isr_does_not_delay_clients(cluster: RunningCluster) -> None:
    tp, bulk = create(cluster, "t", (1, 2, 3)), create(cluster, "bulk", (1, 2, 4))
    registered = cluster.broker_epoch(4)
    with ordeal(cluster, [tp]) as under, written_to(cluster, bulk), hardly_running(cluster, 4):
        wait_bitten("it to leave the ISR", lambda: 4 not in cluster.znode(bulk).state.isr)
        slow_since = time.monotonic()
        time.sleep(SLOW_S)
        behind = (cluster.admin.describe_topics([bulk.topic])[0].partitions[0].lag or {})[4]
        require_bite("it keeps up", behind and f"{behind} records behind")
        check_pauses(under, tp, slow_since)
        assert cluster.broker_epoch(4) == registered
