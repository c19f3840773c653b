"""Measures failover with a thousand partitions: SIGKILL of a broker that leads a third, to the last acknowledgement.

Every partition that the dead broker led gets one record, sent after the broker's death.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from tidelog import Producer, TopicPartition
from tools.bench.environment import BenchEnvironment, Benchmark, leader_of_some
from tools.bench.kafka_clients.target import Target, TidelogTarget
from tools.bench.results import Figure

PARTITIONS = 1_000
#: Longer than `delivery_timeout_ms`, so that a record that is not acknowledged has an error of its own.
_TIMEOUT_S = 180.0
_IN_SYNC_S = 600.0

_LAST = Figure(
    "cluster-failover.last", f"SIGKILL of a leader, {PARTITIONS:,} partitions: to the last acknowledgement", "s", "≤ 2",
    kafka="failover-1000:last_gap_s",
)  # fmt: skip
_FIRST = Figure("cluster-failover.first", "… to the first", "s")
_LAST_CONTROLLER = Figure(
    "cluster-failover.controller", "… to the last, of a leader that is the controller", "s", "≤ 2"
)


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster() as cluster:
        tps = cluster.create_topic(PARTITIONS)
        target = TidelogTarget(cluster)
        of_leader = gap(target, tps, of_controller=False)
        of_controller = gap(target, tps, of_controller=True)
    return {
        _LAST.key: of_leader.last_s,
        _FIRST.key: of_leader.first_s,
        _LAST_CONTROLLER.key: of_controller.last_s,
    }


class Gap(NamedTuple):
    """Seconds from a kill to the first and to the last acknowledgement, and the duration of the restart."""

    first_s: float
    last_s: float
    start_s: float


def gap(target: Target, tps: list[TopicPartition], *, of_controller: bool) -> Gap:
    """Kill a broker that leads some of the partitions, start it again, and return when all replicas are in sync."""
    topic = tps[0].topic
    victim, led = leader_of_some(tps, target.leaders(topic), target.controller(), is_controller=of_controller)
    value = os.urandom(100)
    acknowledged: list[float] = []
    with Producer(target.bootstrap_servers, client_id="bench") as producer:
        # Like a producer that has worked for a while, this one knows every leader.
        for future in [producer.send(topic, value, partition=tp.partition) for tp in tps]:
            future.get(_TIMEOUT_S)
        killed = time.monotonic()
        target.kill(victim)
        futures = [producer.send(topic, value, partition=tp.partition) for tp in led]
        for future in futures:
            future.add_callback(lambda _: acknowledged.append(time.monotonic()))
        for future in futures:
            future.get(_TIMEOUT_S)
    restarted = time.monotonic()
    target.restart(victim)
    started = time.monotonic()
    target.wait_in_sync(topic, len(tps), _IN_SYNC_S)
    return Gap(acknowledged[0] - killed, acknowledged[-1] - killed, started - restarted)


BENCHMARK = Benchmark(
    "cluster-failover",
    f"a topic of {PARTITIONS:,} partitions, one record to each that the dead broker led; the shipped settings",
    (_LAST, _FIRST, _LAST_CONTROLLER),
    measure,
)
