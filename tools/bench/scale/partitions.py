"""Measures what a topic of many partitions costs three brokers, from its creation to its deletion.

All steps use one cluster, because creating so many partitions takes long.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial

from tidelog import ElectionType, NewTopic, TopicPartition
from tools.bench import machine
from tools.bench.clusters.cluster_failover import gap
from tools.bench.environment import MIN_IN_SYNC, REPLICAS, BenchEnvironment, Benchmark, ClusterUnderTest, wait_for
from tools.bench.results import Figure
from tools.bench.scale.idle import cpu_percent

_TOPIC = "wide"
_PATIENCE_S = 600
#: The aim of each figure by the number of partitions and the part of its key after the dot.
_AIMS = {
    1_000: {
        "create": "≤ 2", "idle-cpu": "≤ 2", "memory": "≤ 60", "stop": "≤ 2", "start-clean": "≤ 2",
        "leader-killed": "≤ 0.6", "controller-killed": "≤ 1.2", "start-killed": "≤ 3", "delete": "≤ 3",
    },
    10_000: {
        "create": "≤ 20", "idle-cpu": "≤ 6", "memory": "≤ 180", "stop": "≤ 6", "start-clean": "≤ 8",
        "leader-killed": "≤ 4", "controller-killed": "≤ 6", "start-killed": "≤ 15", "delete": "≤ 20",
    },
}  # fmt: skip
_WHAT = {
    "create": ("create the topic: every partition has a leader and a full ISR", "s"),
    "idle-cpu": ("CPU of all brokers while nothing happens", "% of a core"),
    "memory": ("resident memory of the largest broker", "MB"),
    "stop": ("controlled stop of a broker", "s"),
    "start-clean": ("start of this broker", "s"),
    "leader-killed": ("SIGKILL of a leader to the last acknowledgement", "s"),
    "controller-killed": ("… of a leader that is the controller", "s"),
    "start-killed": ("start of a killed broker", "s"),
    "delete": ("delete the topic, and create one of its name", "s"),
}


def _figures(partitions: int) -> tuple[Figure, ...]:
    return tuple(
        Figure(f"scale-{partitions}.{key}", f"{partitions:,} partitions: {what}", unit, _AIMS[partitions][key])
        for key, (what, unit) in _WHAT.items()
    )


def _measure(partitions: int, env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster() as cluster:
        found = _life_of_a_topic(cluster, partitions, env.say)
    return {f"scale-{partitions}.{key}": value for key, value in found.items()}


def _life_of_a_topic(cluster: ClusterUnderTest, partitions: int, say: Callable[[str], None]) -> dict[str, float]:
    found: dict[str, float] = {}

    def note(key: str, value: float) -> None:
        found[key] = value
        say(f"      {_WHAT[key][0]}: {value:.2f} {_WHAT[key][1]}")

    new = NewTopic(_TOPIC, partitions, REPLICAS, configs={"min.insync.replicas": str(MIN_IN_SYNC)})
    started = time.monotonic()
    cluster.admin.create_topics([new], timeout_ms=_PATIENCE_S * 1000)
    cluster.wait_in_sync(_TOPIC, _PATIENCE_S)
    note("create", time.monotonic() - started)
    note("idle-cpu", cpu_percent(cluster.broker_pids))
    note("memory", max(map(machine.resident_mb, cluster.broker_pids)))
    tps = [TopicPartition(_TOPIC, number) for number in range(partitions)]
    victim = cluster.leader_of_some(tps, controller=False)[0]
    note("stop", _seconds(lambda: _stop(cluster, victim)))
    note("start-clean", _seconds(lambda: cluster.restart(victim)))
    cluster.wait_in_sync(_TOPIC, _PATIENCE_S)
    cluster.admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_PATIENCE_S * 1000)
    of_leader = gap(cluster, tps, of_controller=False)
    note("leader-killed", of_leader.last_s)
    note("start-killed", of_leader.start_s)
    cluster.admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_PATIENCE_S * 1000)
    note("controller-killed", gap(cluster, tps, of_controller=True).last_s)
    started = time.monotonic()
    cluster.admin.delete_topics([_TOPIC], timeout_ms=_PATIENCE_S * 1000)
    cluster.admin.create_topics([NewTopic(_TOPIC, 1, REPLICAS)])
    note("delete", time.monotonic() - started)
    return found


def _stop(cluster: ClusterUnderTest, broker_id: int) -> None:
    process = cluster.local.broker_process(broker_id)
    assert process is not None
    process.signal(signal.SIGTERM)
    wait_for(f"broker {broker_id} to end", lambda: process.wait(100), _PATIENCE_S)


def _seconds(step: Callable[[], object]) -> float:
    started = time.monotonic()
    step()
    return time.monotonic() - started


BENCHMARKS = [
    Benchmark(
        f"scale-{partitions}",
        f"three brokers and a topic of {partitions:,} partitions, RF {REPLICAS}; the shipped settings",
        _figures(partitions),
        partial(_measure, partitions),
    )
    for partitions in _AIMS
]
