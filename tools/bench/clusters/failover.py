"""The leader is SIGKILLed: from the kill to the next acknowledgement, the longest over the partitions that it led.

What counts is the first record that was *sent after* the death; an answer that was on its way already says nothing.
"""

from __future__ import annotations

import time

from tools.bench.clusters.probe_producer import Pulse
from tools.bench.environment import Lab, wait_for
from tools.bench.results import Benchmark, Figure

_PARTITIONS = 6
_PACE_S = 0.005
_PATIENCE_S = 60.0

_LEADER = Figure(
    "failover.leader", "failover: SIGKILL of a leader to the next acknowledgement", "s", "≤ 0.5",
    kafka="failover:last_gap_s",
)  # fmt: skip
_CONTROLLER = Figure("failover.controller", "… of a leader that is the controller as well", "s", "≤ 0.5")


def measure(lab: Lab) -> dict[str, float]:
    return {
        _LEADER.key: _gap(lab, of_controller=False),
        _CONTROLLER.key: _gap(lab, of_controller=True),
    }


def _gap(lab: Lab, *, of_controller: bool) -> float:
    cluster = lab.cluster
    tps = cluster.create_topic(_PARTITIONS)
    victim, led = cluster.leader_of_some(tps, controller=of_controller)
    with Pulse(cluster.bootstrap_servers, tps, _PACE_S) as pulse:
        killed = time.monotonic()
        cluster.kill(victim)
        dead = time.monotonic()

        def recovered() -> list[float]:
            found = [pulse.first_acknowledgement(tp, dead) for tp in led]
            return [moment for moment in found if moment] if all(found) else []

        first = wait_for("an acknowledgement on every partition of the dead leader", recovered, _PATIENCE_S)
    cluster.restart(victim)
    cluster.wait_in_sync(tps[0].topic)
    return max(first) - killed


BENCHMARK = Benchmark(
    "failover",
    f"{_PARTITIONS} partitions, a record to each every {_PACE_S * 1e3:.0f} ms; the shipped settings",
    (_LEADER, _CONTROLLER),
    measure,
)
