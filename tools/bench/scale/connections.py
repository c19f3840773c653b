"""Measures what thousands of connections cost the brokers, and a look-up on one of them beside the others."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from contextlib import AsyncExitStack

import uvloop

from tidelog.errors import error_for
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
)
from tools.bench import machine
from tools.bench.environment import BenchEnvironment, Benchmark, ClusterUnderTest
from tools.bench.groups.group_calls import TIMEOUT_MS, connection_to
from tools.bench.groups.look_ups import T0, FilledTopic, fill, warm
from tools.bench.kafka_clients.open_files import allow_connections
from tools.bench.results import Figure, NotMeasured
from tools.bench.scale.findings import Findings
from tools.bench.scale.idle import cpu_percent

CONNECTIONS = 2_000
_RECORDS = 10_000
_WARM_UP, _LOOK_UPS = 500, 2_000

_MEMORY = Figure(
    "scale-connections.memory", f"{CONNECTIONS:,} connections of clients: memory of the brokers for each", "KB", "≤ 12"
)
_CPU = Figure("scale-connections.cpu", "… CPU of all brokers beside them", "% of a core", "≤ 2")
_CPU_BEFORE = Figure("scale-connections.cpu-before", "… without them", "% of a core")
_P50 = Figure("scale-connections.p50", "… look-up by time on one of them, p50", "ms")
_RATIO = Figure("scale-connections.p50-ratio", "… of that without the others", "×", "≤ 1.1")


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster() as cluster:
        log = fill(cluster, 1, _RECORDS)
        findings = Findings(env.say)
        uvloop.run(measure_connections(cluster, log, CONNECTIONS, findings))
        return findings.values


async def measure_connections(cluster: ClusterUnderTest, log: FilledTopic, count: int, findings: Findings) -> None:
    """Measure the brokers before, beside and after `count` connections that have asked for metadata once."""
    allow_connections(count)
    pids = cluster.broker_pids
    servers = cluster.bootstrap_servers.split(",")
    leader = cluster.local.known_state().broker(cluster.leaders(log.tps[0].topic)[0]).address
    warm(cluster, log)
    async with connection_to(leader) as connection:
        alone = [await look_up_p50(connection, log)]
    findings.note(_CPU_BEFORE, await asyncio.to_thread(cpu_percent, pids))
    before = sum(map(machine.resident_mb, pids))
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(connection_to(servers[number % len(servers)])) for number in range(count)
        ]
        for connection in opened:
            await connection.call(MetadataRequest((log.tps[0].topic,)), timeout_ms=TIMEOUT_MS)
        findings.note(_CPU, await asyncio.to_thread(cpu_percent, pids))
        findings.note(_MEMORY, (sum(map(machine.resident_mb, pids)) - before) * 1e3 / count)
        beside = await look_up_p50(opened[servers.index(leader)], log)
    async with connection_to(leader) as connection:
        alone.append(await look_up_p50(connection, log))
    findings.note(_P50, beside)
    findings.note(_RATIO, beside / statistics.mean(alone))


async def look_up_p50(connection: Connection, log: FilledTopic) -> float:
    """Return the median time of look-ups at random times, in ms. NotMeasured if an answer is wrong."""
    [tp] = log.tps
    rng = random.Random(log.records)
    took: list[float] = []
    for number in range(_WARM_UP + _LOOK_UPS):
        wanted = rng.randrange(log.records)
        asked = ListOffsetsRequest((ListOffsetsPartition(tp.topic, tp.partition, T0 + wanted),))
        started = time.perf_counter()
        answer = await connection.call(asked, timeout_ms=TIMEOUT_MS)
        if number >= _WARM_UP:
            took.append((time.perf_counter() - started) * 1e3)
        assert isinstance(answer, ListOffsetsResponse)
        [found] = answer.partitions
        if found.error_code or found.offset != wanted:
            raise NotMeasured(f"looked up {wanted}, found {found.offset}: {error_for(found.error_code)}")
    return statistics.median(took)


BENCHMARK = Benchmark(
    "scale-connections",
    f"{CONNECTIONS:,} connections to three brokers in turn, each after a handshake and one request for metadata; "
    f"{_LOOK_UPS:,} look-ups by time among {_RECORDS:,} records, before, beside and after them",
    (_CPU_BEFORE, _CPU, _MEMORY, _P50, _RATIO),
    measure,
)
