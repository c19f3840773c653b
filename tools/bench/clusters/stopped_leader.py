"""A leader is stopped (SIGSTOP) for less than its session: for that nobody may be elected, to lead or to control."""

from __future__ import annotations

import signal
import time

from tools.bench.clusters.probe_producer import Pulse
from tools.bench.environment import ClusterUnderTest, Lab, wait_for
from tools.bench.results import Benchmark, Figure

_PARTITIONS = 3
_PACE_S = 0.005
_STOPPED_S = 4.0
_AFTER_S = 1.0
_PATIENCE_S = 60.0

_ELECTIONS = Figure(
    "stopped-leader.elections", f"{_STOPPED_S:.0f} s SIGSTOP of a leader, then of the controller", "elections", "0"
)
_SILENCE = Figure("stopped-leader.silence", "… the longest silence of its partitions", "s")


def measure(lab: Lab) -> dict[str, float]:
    cluster = lab.cluster
    tps = cluster.create_topic(_PARTITIONS)
    topic = tps[0].topic
    epochs = _leader_epochs(cluster, topic)
    controller = cluster.controller()
    leader = next(each for each in cluster.leaders(topic).values() if each != controller)
    with Pulse(cluster.bootstrap_servers, tps, _PACE_S) as pulse:
        silence = max(_stop(cluster, topic, broker_id, pulse) for broker_id in (leader, controller))
    cluster.wait_in_sync(topic)
    elections = sum(_leader_epochs(cluster, topic)) - sum(epochs) + (cluster.controller() != controller)
    return {_ELECTIONS.key: elections, _SILENCE.key: silence}


def _stop(cluster: ClusterUnderTest, topic: str, broker_id: int, pulse: Pulse) -> float:
    """Seconds without an acknowledgement of the partitions that it leads."""
    led = [tp for tp in pulse.beats if cluster.leaders(topic)[tp.partition] == broker_id]
    process = cluster.local.broker_process(broker_id)
    assert process is not None
    started = time.monotonic()
    process.signal(signal.SIGSTOP)
    try:
        time.sleep(_STOPPED_S)
    finally:
        process.signal(signal.SIGCONT)
    going_on = time.monotonic()
    wait_for(
        "an acknowledgement on every partition of the stopped leader",
        lambda: all(pulse.first_acknowledgement(tp, going_on) for tp in led),
        _PATIENCE_S,
    )
    time.sleep(_AFTER_S)
    return max((pulse.longest_silence(tp, started, time.monotonic()) for tp in led), default=0.0)


def _leader_epochs(cluster: ClusterUnderTest, topic: str) -> list[int]:
    """Every election raises one."""
    return [each.leader_epoch for each in cluster.admin.describe_topics([topic])[0].partitions]


BENCHMARK = Benchmark(
    "stopped-leader",
    f"{_PARTITIONS} partitions, a record to each every {_PACE_S * 1e3:.0f} ms; leader epochs before and after, the "
    "shipped settings",
    (_ELECTIONS, _SILENCE),
    measure,
)
