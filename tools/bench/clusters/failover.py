"""Measures failover: from SIGKILL of a leader to the next acknowledgement, the longest over the partitions that it led.

Only a record that was sent after the leader's death counts, because answers to earlier records may still be in flight.
"""

from __future__ import annotations

import time

from tools.bench.clusters.probe_producer import ProbeProducer
from tools.bench.environment import BenchEnvironment, Benchmark, leader_of_some, wait_for
from tools.bench.results import Figure

_PARTITIONS = 6
_PACE_S = 0.005
_TIMEOUT_S = 60.0

_LEADER = Figure(
    "failover.leader", "failover: SIGKILL of a leader to the next acknowledgement", "s", "≤ 0.5",
    kafka="failover:last_gap_s",
)  # fmt: skip
_CONTROLLER = Figure("failover.controller", "… of a leader that is the controller as well", "s", "≤ 0.5")


def measure(env: BenchEnvironment) -> dict[str, float]:
    return {
        _LEADER.key: _gap(env, of_controller=False),
        _CONTROLLER.key: _gap(env, of_controller=True),
    }


def _gap(env: BenchEnvironment, *, of_controller: bool) -> float:
    cluster = env.cluster
    tps = cluster.create_topic(_PARTITIONS)
    leaders, controller = cluster.leaders(tps[0].topic), cluster.controller()
    victim, led = leader_of_some(tps, leaders, controller, is_controller=of_controller)
    with ProbeProducer(cluster.bootstrap_servers, tps, _PACE_S) as probe:
        killed = time.monotonic()
        cluster.kill(victim)
        dead = time.monotonic()

        def recovered() -> list[float]:
            found = [probe.first_acknowledgement(tp, dead) for tp in led]
            return [moment for moment in found if moment] if all(found) else []

        first = wait_for("an acknowledgement on every partition of the dead leader", recovered, _TIMEOUT_S)
    cluster.restart(victim)
    cluster.wait_in_sync(tps[0].topic)
    return max(first) - killed


BENCHMARK = Benchmark(
    "failover",
    f"{_PARTITIONS} partitions, a record to each every {_PACE_S * 1e3:.0f} ms; the shipped settings",
    (_LEADER, _CONTROLLER),
    measure,
)
