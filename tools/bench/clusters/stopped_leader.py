"""Measures whether a leader that is stopped (SIGSTOP) for less than its session causes an election, which it must not.

The leader of some partitions is stopped first, then the controller.
"""

from __future__ import annotations

import signal
import time

from tools.bench.clusters.probe_producer import ProbeProducer
from tools.bench.environment import BenchEnvironment, Benchmark, ClusterUnderTest, wait_for
from tools.bench.results import Figure

_PARTITIONS = 3
_PACE_S = 0.005
_STOPPED_S = 4.0
_AFTER_S = 1.0
_TIMEOUT_S = 60.0

_ELECTIONS = Figure(
    "stopped-leader.elections", f"{_STOPPED_S:.0f} s SIGSTOP of a leader, then of the controller", "elections", "0"
)
_SILENCE = Figure("stopped-leader.silence", "… the longest silence of its partitions", "s")


def measure(env: BenchEnvironment) -> dict[str, float]:
    cluster = env.cluster
    tps = cluster.create_topic(_PARTITIONS)
    topic = tps[0].topic
    epochs = _leader_epochs(cluster, topic)
    controller = cluster.controller()
    leader = next(each for each in cluster.leaders(topic).values() if each != controller)
    with ProbeProducer(cluster.bootstrap_servers, tps, _PACE_S) as probe:
        silence = max(_stop(cluster, topic, broker_id, probe) for broker_id in (leader, controller))
    cluster.wait_in_sync(topic)
    elections = sum(_leader_epochs(cluster, topic)) - sum(epochs) + (cluster.controller() != controller)
    return {_ELECTIONS.key: elections, _SILENCE.key: silence}


def _stop(cluster: ClusterUnderTest, topic: str, broker_id: int, probe: ProbeProducer) -> float:
    """Suspend a broker for _STOPPED_S, and return the longest time (s) without an acknowledgement of its partitions.

    Return 0 if the broker led none of the partitions.
    """
    led = [tp for tp in probe.records if cluster.leaders(topic)[tp.partition] == broker_id]
    process = cluster.local.broker_process(broker_id)
    assert process is not None
    started = time.monotonic()
    process.signal(signal.SIGSTOP)
    try:
        time.sleep(_STOPPED_S)
    finally:
        process.signal(signal.SIGCONT)
    resumed = time.monotonic()
    wait_for(
        "an acknowledgement on every partition of the stopped leader",
        lambda: all(probe.first_acknowledgement(tp, resumed) for tp in led),
        _TIMEOUT_S,
    )
    time.sleep(_AFTER_S)
    return max((probe.longest_silence(tp, started, time.monotonic()) for tp in led), default=0.0)


def _leader_epochs(cluster: ClusterUnderTest, topic: str) -> list[int]:
    """Return the leader epoch of each partition, because every election of a leader raises one."""
    return [each.leader_epoch for each in cluster.admin.describe_topics([topic])[0].partitions]


BENCHMARK = Benchmark(
    "stopped-leader",
    f"{_PARTITIONS} partitions, a record to each every {_PACE_S * 1e3:.0f} ms; leader epochs before and after, the "
    "shipped settings",
    (_ELECTIONS, _SILENCE),
    measure,
)
