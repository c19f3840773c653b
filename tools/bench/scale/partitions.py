"""Measures what a topic of many partitions costs three brokers, from its creation to its deletion, on any cluster.

All steps use one cluster, because creating so many partitions takes long. Tidelog and Kafka are measured by the same
requests and through the same code.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidelog import Admin, ElectionType, NewTopic, TopicPartition
from tidelog.errors import TopicAlreadyExistsError
from tools.bench import machine
from tools.bench.clusters.cluster_failover import gap
from tools.bench.environment import ADMIN, MIN_IN_SYNC, REPLICAS, leader_of_some, wait_for
from tools.bench.kafka_clients.target import Target
from tools.bench.scale.idle import cpu_percent

_TOPIC = "many"
_PATIENCE_S = 600
#: The aim of each figure by the number of partitions and the name of its value.
AIMS = {
    1_000: {
        "create": "≤ 2", "idle-cpu": "≤ 2", "memory": "≤ 60", "stop": "≤ 2", "start-clean": "≤ 2",
        "leader-killed": "≤ 0.6", "controller-killed": "≤ 1.2", "start-killed": "≤ 3", "delete": "≤ 3",
    },
    10_000: {
        "create": "≤ 20", "idle-cpu": "≤ 6", "memory": "≤ 180", "stop": "≤ 6", "start-clean": "≤ 8",
        "leader-killed": "≤ 4", "controller-killed": "≤ 6", "start-killed": "≤ 15", "delete": "≤ 20",
    },
}  # fmt: skip
#: Each figure in words, and its unit, by the name of its value.
WHAT = {
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


def measure(target: Target, partitions: int, say: Callable[[str], None]) -> dict[str, float]:
    """Measure all figures of `WHAT` on a cluster without such a topic, and return their values by name.

    `say` shows a line as soon as a value is known.
    """
    with Admin(target.bootstrap_servers, client_id=ADMIN) as admin:
        return _life_of_a_topic(target, admin, partitions, say)


def _life_of_a_topic(target: Target, admin: Admin, partitions: int, say: Callable[[str], None]) -> dict[str, float]:
    found: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        found[name] = value
        say(f"      {WHAT[name][0]}: {value:.2f} {WHAT[name][1]}")

    def elect_preferred_leaders() -> None:
        admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_PATIENCE_S * 1000)
        target.wait_for_preferred_leaders(_TOPIC, _PATIENCE_S)

    note("create", _seconds(lambda: _create(target, admin, partitions)))
    note("idle-cpu", cpu_percent(target.pids.values()))
    note("memory", max(map(machine.resident_mb, target.pids.values())))
    tps = [TopicPartition(_TOPIC, number) for number in range(partitions)]
    victim, _ = leader_of_some(tps, target.leaders(_TOPIC), target.controller(), is_controller=False)
    note("stop", _seconds(lambda: target.shut_down(victim, _PATIENCE_S)))
    note("start-clean", _seconds(lambda: target.restart(victim)))
    target.wait_in_sync(_TOPIC, partitions, _PATIENCE_S)
    elect_preferred_leaders()
    of_leader = gap(target, tps, of_controller=False)
    note("leader-killed", of_leader.last_s)
    note("start-killed", of_leader.start_s)
    elect_preferred_leaders()
    note("controller-killed", gap(target, tps, of_controller=True).last_s)
    note("delete", _seconds(lambda: _replace(admin)))
    return found


def _create(target: Target, admin: Admin, partitions: int) -> None:
    new = NewTopic(_TOPIC, partitions, REPLICAS, configs={"min.insync.replicas": str(MIN_IN_SYNC)})
    admin.create_topics([new], timeout_ms=_PATIENCE_S * 1000)
    target.wait_in_sync(_TOPIC, partitions, _PATIENCE_S)


def _replace(admin: Admin) -> None:
    """Delete the topic, and create one of its name as soon as the cluster accepts it."""

    def is_created() -> bool:
        try:
            admin.create_topics([NewTopic(_TOPIC, 1, REPLICAS)], timeout_ms=_PATIENCE_S * 1000)
        except TopicAlreadyExistsError:  # Kafka's controller may still have the old topic after the answer
            return False
        return True

    admin.delete_topics([_TOPIC], timeout_ms=_PATIENCE_S * 1000)
    wait_for("a topic with the name of the deleted one", is_created, _PATIENCE_S)


def _seconds(step: Callable[[], object]) -> float:
    started = time.monotonic()
    step()
    return time.monotonic() - started
