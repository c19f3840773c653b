"""Measures how much a slow consumer or a slow follower delays the other clients of the same leader.

A producer that waits for each acknowledgement is measured before and while one of these two is slow:

    a consumer   is stopped (SIGSTOP) in the middle of reading, with fetch responses in flight
    a follower   runs for a few milliseconds at a time, so that it leaves the ISR and has ever more to fetch from the
                 same leader. The follower has no replica of the measured partition. The load that it cannot keep up
                 with goes on in both measurements
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog import NewTopic, Producer, TopicPartition
from tools.bench.environment import BenchEnvironment, Benchmark, ClusterUnderTest, wait_for
from tools.bench.results import Figure, NotMeasured
from tools.supervised_process import KILL, supervised

_WARM_UP = 300
_RECORDS = 1_500
_STORED_MB = 200
_LOAD_BYTES = 10_000
_LOAD_PER_S = 500
_AWAKE_S, _ASLEEP_S = 0.005, 1.5
_OUT_OF_ISR_S = 90.0
#: The default of 30 s would only make the benchmark longer.
_LAG_MS = 5_000

_CLIENT = Figure("cluster-slow.client", "p99 of a producer beside a stopped consumer", "× of without", "≤ 1.5")
_CLIENT_P99 = Figure("cluster-slow.client-p99", "… in milliseconds", "ms")
_FOLLOWER = Figure("cluster-slow.follower", "… beside a throttled follower outside the ISR", "× of without", "≤ 1.5")
_FOLLOWER_P99 = Figure("cluster-slow.follower-p99", "… in milliseconds", "ms")

_READER = """
import sys
from tidelog import Consumer, TopicPartition
consumer = Consumer(bootstrap_servers=sys.argv[1], auto_offset_reset="earliest")
consumer.assign([TopicPartition(sys.argv[2], 0)])
while True:
    if consumer.poll(timeout_ms=1000):
        print("read", flush=True)
"""


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster() as cluster:
        client = _beside_a_stopped_consumer(cluster)
    with env.fresh_cluster(replica_lag_time_max_ms=_LAG_MS) as cluster:
        follower = _beside_a_throttled_follower(cluster)
    return {
        _CLIENT.key: client[1] / client[0],
        _CLIENT_P99.key: client[1],
        _FOLLOWER.key: follower[1] / follower[0],
        _FOLLOWER_P99.key: follower[1],
    }


def _beside_a_stopped_consumer(cluster: ClusterUnderTest) -> tuple[float, float]:
    [probed], [large] = _topic(cluster, "probed", (1, 2, 3)), _topic(cluster, "large", (1, 2, 3))
    value = os.urandom(_LOAD_BYTES)
    with Producer(cluster.bootstrap_servers, client_id="bench") as producer:
        for _ in range(_STORED_MB * 1_000_000 // _LOAD_BYTES):
            producer.send(large.topic, value, partition=0)
    command = [sys.executable, "-P", "-c", _READER, cluster.bootstrap_servers, large.topic]
    with _Probe(cluster, probed) as probe:
        before = probe.p99()
        with supervised(command, KILL, stdout=subprocess.PIPE, stderr=None) as reader:
            assert reader.stdout is not None
            if not reader.stdout.readline():
                raise NotMeasured("the consumer ended before it was stopped")
            reader.send_signal(signal.SIGSTOP)
            beside = probe.p99()
        return statistics.mean((before, probe.p99())), beside


def _beside_a_throttled_follower(cluster: ClusterUnderTest) -> tuple[float, float]:
    [probed], [large] = _topic(cluster, "probed", (1, 2)), _topic(cluster, "large", (1, 2, 3))
    with _Probe(cluster, probed) as probe, _load(cluster, large):
        before = probe.p99()
        with _throttled(cluster.pid(3)):
            wait_for(
                "broker 3 to leave the ISR",
                lambda: 3 not in cluster.admin.describe_topics([large.topic])[0].partitions[0].isr,
                _OUT_OF_ISR_S,
            )
            beside = probe.p99()
        return before, beside


def _topic(cluster: ClusterUnderTest, name: str, replicas: tuple[int, ...]) -> list[TopicPartition]:
    cluster.admin.create_topics([NewTopic(name, assignment={0: replicas}, configs={"min.insync.replicas": "2"})])
    return [TopicPartition(name, 0)]


class _Probe:
    """A producer to one partition that sends one record at a time and waits for its acknowledgement.

    Entering the context sends _WARM_UP records.
    """

    def __init__(self, cluster: ClusterUnderTest, tp: TopicPartition) -> None:
        self._tp = tp
        self._producer = Producer(cluster.bootstrap_servers, client_id="bench-probe")

    def __enter__(self) -> _Probe:
        self._take(_WARM_UP)
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def p99(self) -> float:
        """Send _RECORDS records, and return the 99th percentile of their times to acknowledgement, in milliseconds."""
        return sorted(self._take(_RECORDS))[_RECORDS * 99 // 100]

    def _take(self, count: int) -> list[float]:
        took = []
        value = os.urandom(100)
        for _ in range(count):
            started = time.perf_counter()
            self._producer.send(self._tp.topic, value, partition=self._tp.partition).get(60)
            took.append((time.perf_counter() - started) * 1e3)
        return took


@contextmanager
def _load(cluster: ClusterUnderTest, tp: TopicPartition) -> Iterator[None]:
    """Send _LOAD_PER_S records a second to the partition while the block runs, acknowledged by the leader alone.

    Raises NotMeasured at the end of the block if the sending has failed.
    """
    value = os.urandom(_LOAD_BYTES)
    with (
        Producer(cluster.bootstrap_servers, client_id="bench-load", acks=1) as producer,
        _repeat_in_background(lambda: _send_some(producer, tp, value)),
    ):
        yield


def _send_some(producer: Producer, tp: TopicPartition, value: bytes) -> None:
    for _ in range(_LOAD_PER_S // 50):
        producer.send(tp.topic, value, partition=tp.partition)
    time.sleep(0.02)


@contextmanager
def _throttled(pid: int) -> Iterator[None]:
    """Suspend the process most of the time while the block runs, but let it run often enough to keep its session.

    At the end of the block the process runs. Raises NotMeasured if it has ended meanwhile.
    """

    def sleep_and_wake() -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(_ASLEEP_S)
        os.kill(pid, signal.SIGCONT)
        time.sleep(_AWAKE_S)

    with _repeat_in_background(sleep_and_wake):
        yield


@contextmanager
def _repeat_in_background(work: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
    if failures:
        raise NotMeasured(f"the background work has ended: {failures[0]!r}")


BENCHMARK = Benchmark(
    "cluster-slow",
    f"{_RECORDS} synchronous produces of 100 B each; {_STORED_MB} MB unread before a stopped consumer; "
    f"{_LOAD_BYTES * _LOAD_PER_S / 1e6:.0f} MB/s past a follower that runs {_AWAKE_S:g} of {_AWAKE_S + _ASLEEP_S:g} s",
    (_CLIENT, _CLIENT_P99, _FOLLOWER, _FOLLOWER_P99),
    measure,
)
