"""Measures how much bad or many peers of a listener for clients delay a client that waits for each acknowledgement.

It also measures what connections that send garbage cost the broker.

The client is one plain socket that speaks Kafka's protocol, so that the figure has little of a client's own time. It is
measured in turn without and beside the peers of `bad_peers`, at the same broker; the figure is made of the medians of
all turns, because a pause of the machine falls into one of them.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from struct import unpack

from tidelog import NewTopic
from tidelog.errors import TidelogError
from tidelog.model import Endpoint
from tidelog.protocol.kafka.codec import decode
from tidelog.protocol.kafka.headers import decode_response_header, encode_request
from tidelog.protocol.kafka.messages.records import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.records.encode import encode_batch
from tools.bench import machine
from tools.bench.clusters.bad_peers import REPORTED_EACH
from tools.bench.environment import ADMIN, BenchEnvironment, Benchmark, ClusterUnderTest, wait_for
from tools.bench.results import Figure, NotMeasured
from tools.supervised_process import KILL, supervised

_TURNS = 7
_WARM_UP = 100
_RECORDS = 600
_VERSION = 9
_TIMEOUT_S = 60.0
_LEADER = 1

_TOPIC = "probed"
_REJECTED = 3_000

#: The brokers accept 10,000 connections by default.
_CONNECTIONS = {"idle": 9_900, "slow-writers": 1_000, "slow-readers": 100, "fetches": 5_000}
_KINDS = {
    "garbage": "a peer that sends garbage",
    "pipeline": "a peer that pipelines without reading",
    "idle": f"{_CONNECTIONS['idle']:,} idle connections",
    "slow-writers": f"{_CONNECTIONS['slow-writers']:,} slow writers",
    "slow-readers": f"{_CONNECTIONS['slow-readers']:,} slow readers",
    "fetches": f"{_CONNECTIONS['fetches']:,} waiting fetches of the same partition",
}
_RATIOS = {
    kind: Figure(f"kafka-peers.{kind}", f"p99 of a Kafka client beside {words}", "× of without", "≤ 1.5")
    for kind, words in _KINDS.items()
}
_REJECT_MS = Figure("kafka-peers.reject", "CPU of the broker for each rejected connection", "ms", "≤ 1")
_REJECT_MB = Figure("kafka-peers.reject-memory", f"memory that {_REJECTED:,} rejected connections added", "MB", "≤ 67")
_P99S = {kind: Figure(f"kafka-peers.{kind}-p99", "… in milliseconds", "ms") for kind in _KINDS}


class _Client:
    """A connection that produces one record at a time to partition 0 of the topic, with acks=all."""

    def __init__(self, broker: Endpoint, topic: str) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._topic = topic
        self._numbers = count(1)

    def close(self) -> None:
        self._socket.close()

    def produce(self, value: bytes) -> None:
        """Return when the record is acknowledged. Raises NotMeasured if it is refused, or the connection ends."""
        batch = encode_batch([(int(time.time() * 1000), None, value, ())])
        topic = TopicProduceData(name=self._topic, partition_data=(PartitionProduceData(index=0, records=batch),))
        request = ProduceRequest(acks=-1, timeout_ms=int(_TIMEOUT_S * 1000), topic_data=(topic,))
        self._socket.sendall(b"".join(encode_request(request, _VERSION, next(self._numbers), "bench")))
        (size,) = unpack(">i", self._read(4))
        frame = self._read(size)
        _, position = decode_response_header(frame, ProduceRequest, _VERSION)
        response = decode(ProduceResponse, _VERSION, frame[position:])
        code = response.responses[0].partition_responses[0].error_code
        if code:
            raise NotMeasured(f"a record was refused with error {code}")

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise NotMeasured("the broker has closed the connection of the client that does nothing wrong")
            data += more
        return data

    def p99(self) -> float:
        """Return the 99th percentile of the times of _RECORDS acknowledgements, in milliseconds."""
        took = []
        value = os.urandom(100)
        for number in range(_WARM_UP + _RECORDS):
            started = time.perf_counter()
            self.produce(value)
            if number >= _WARM_UP:
                took.append((time.perf_counter() - started) * 1e3)
        return sorted(took)[_RECORDS * 99 // 100]


def measure(env: BenchEnvironment) -> dict[str, float]:
    found: dict[str, float] = {}
    with env.fresh_cluster() as cluster:
        broker = _client_endpoint(cluster)
        configs = {"min.insync.replicas": "2"}
        cluster.admin.create_topics([NewTopic(_TOPIC, assignment={0: (_LEADER, 2, 3)}, configs=configs)])
        cluster.wait_in_sync(_TOPIC)
        found |= _cost_of_rejecting(broker, cluster.local.known_state().broker(_LEADER).pid)
        client = _Client(broker, _TOPIC)
        try:
            client.p99()
            for kind in _KINDS:
                without, beside = [], []
                for _ in range(_TURNS):
                    without.append(client.p99())
                    beside.append(_beside(kind, broker, client))
                    wait_for("the peers' connections to be closed", lambda: _connections(cluster) <= 1)
                found[_RATIOS[kind].key] = statistics.median(beside) / statistics.median(without)
                found[_P99S[kind].key] = statistics.median(beside)
                env.say(f"    {_KINDS[kind]}: p99 {_shown(beside)} ms, without {_shown(without)} ms")
        finally:
            client.close()
    return found


def _beside(kind: str, broker: Endpoint, client: _Client) -> float:
    """Return the client's p99 beside the peers. Raises NotMeasured if the peers end by themselves."""
    with _peers(kind, broker) as peers:
        p99 = client.p99()
        if peers.poll() is not None:
            raise NotMeasured(f"{_KINDS[kind]}: the process ended during the measurement")
    return p99


def _connections(cluster: ClusterUnderTest) -> int:
    """Return the number of connections of clients to the broker, without those of the cluster's own admin."""
    found = cluster.admin.describe_clients([_LEADER])[_LEADER]
    if isinstance(found, TidelogError):
        raise NotMeasured(f"broker {_LEADER} does not list its clients: {found}")
    return sum(each.client_id != ADMIN for each in found)


def _cost_of_rejecting(broker: Endpoint, pid: int) -> dict[str, float]:
    """Return the CPU of the broker with this pid for each connection that sends garbage, and the memory that they add.

    The CPU is all that the broker uses meanwhile.
    """
    with _peers("garbage", broker) as peers:
        assert peers.stdout is not None
        cpu_s, memory_mb = machine.cpu_time([pid]).total, machine.resident_mb(pid)
        for _ in range(_REJECTED // REPORTED_EACH):
            if not peers.stdout.readline():
                raise NotMeasured(f"{_KINDS['garbage']}: the process ended during the measurement")
        cpu_s, memory_mb = machine.cpu_time([pid]).total - cpu_s, machine.resident_mb(pid) - memory_mb
    return {_REJECT_MS.key: cpu_s * 1e3 / _REJECTED, _REJECT_MB.key: memory_mb}


@contextmanager
def _peers(kind: str, broker: Endpoint) -> Iterator[subprocess.Popen[bytes]]:
    """Start the peers and wait until their connections are open. Raise NotMeasured if the process ends first."""
    command = [sys.executable, "-P", "-m", "tools.bench.clusters.bad_peers"]
    command += [kind, broker.host, str(broker.port), str(_CONNECTIONS.get(kind, 1)), _TOPIC]
    with supervised(command, KILL, stdout=subprocess.PIPE, stderr=None) as peers:
        assert peers.stdout is not None
        if not peers.stdout.readline():
            raise NotMeasured(f"{_KINDS[kind]}: the process ended before its connections were open")
        yield peers


def _shown(values: Sequence[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in values)


def _client_endpoint(cluster: ClusterUnderTest) -> Endpoint:
    return Endpoint.parse(cluster.local.known_state().broker(_LEADER).address)


BENCHMARK = Benchmark(
    "kafka-peers",
    f"{_TURNS} times {_RECORDS} synchronous produces of 100 B over Kafka's protocol, without and beside each kind",
    (*(figure for kind in _KINDS for figure in (_RATIOS[kind], _P99S[kind])), _REJECT_MS, _REJECT_MB),
    measure,
)
