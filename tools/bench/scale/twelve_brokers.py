"""Measures twelve brokers on one machine: how even they are, preferred leaders after a failure, and a reassignment.

The controller looks for partitions without their preferred leader every `leader.imbalance.check.interval.seconds`. So
the preferred leaders are also measured with the command that elects them at once.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from cluster.controller.preferred_leaders import LeaderImbalance
from tidelog import ElectionType, NewTopic, Producer, TopicPartition
from tidelog.errors import PreferredLeaderNotAvailableError
from tools.bench.environment import MIN_IN_SYNC, REPLICAS, BenchEnvironment, Benchmark, ClusterUnderTest, wait_for
from tools.bench.records.load import FLUSH_S
from tools.bench.results import Figure, NotMeasured
from tools.bench.scale.findings import Findings

BROKERS, PARTITIONS = 12, 6_000
_TOPIC = "wide"
_RECORDS = 10
_VALUE_BYTES = 1_000
_PATIENCE_S = 600
_EVERY_S = 0.5
#: The check may come just before the broker is back, and it needs some time itself.
_CHECKED_S = LeaderImbalance().interval_s + 120

_LEADERS = Figure(
    "scale-brokers.leaders",
    f"{BROKERS} brokers, {PARTITIONS:,} partitions: leaders of the broker with most, more than that with least",
    "partitions",
    "≤ 2",
)
_HOLDS = Figure("scale-brokers.replicas", "… the same for replicas", "partitions", "≤ 2")
_CREATE = Figure("scale-brokers.create", "… create the topic: every partition has a leader and a full ISR", "s")
_ELECTED = Figure(
    "scale-brokers.elected",
    "… start of a killed broker, until all preferred leaders are back by `tidelog topic elect`",
    "s",
    "≤ 60",
)
_CHECKED = Figure(
    "scale-brokers.checked",
    f"… by the controller's own check every {LeaderImbalance().interval_s:.0f} s",
    "s",
)
_MOVED = Figure("scale-brokers.moved", "… reassign all replicas of one broker to the others", "s")


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_cluster(BROKERS) as cluster:
        return measure_cluster(cluster, PARTITIONS, Findings(env.say))


def measure_cluster(cluster: ClusterUnderTest, partitions: int, findings: Findings) -> dict[str, float]:
    brokers = [broker.broker_id for broker in cluster.local.known_state().brokers]
    new = NewTopic(_TOPIC, partitions, REPLICAS, configs={"min.insync.replicas": str(MIN_IN_SYNC)})
    started = time.monotonic()
    cluster.admin.create_topics([new], timeout_ms=_PATIENCE_S * 1000)
    cluster.wait_in_sync(_TOPIC, _PATIENCE_S)
    findings.note(_CREATE, time.monotonic() - started)
    replicas = _replicas(cluster)
    findings.note(_LEADERS, spread(cluster.leaders(_TOPIC).values(), brokers))
    findings.note(_HOLDS, spread((broker for each in replicas.values() for broker in each), brokers))
    _fill(cluster, list(replicas))
    victim = min(set(brokers) - {cluster.controller()})
    started = _kill_and_restart(cluster, victim)
    cluster.wait_in_sync(_TOPIC, _PATIENCE_S)
    _elect_preferred_leaders(cluster)
    _wait_for_preferred_leaders(cluster, _PATIENCE_S)
    findings.note(_ELECTED, time.monotonic() - started)
    started = _kill_and_restart(cluster, victim)
    _wait_for_preferred_leaders(cluster, _CHECKED_S)
    findings.note(_CHECKED, time.monotonic() - started)
    findings.note(_MOVED, _move_all(cluster, victim, brokers))
    return findings.values


def spread(counted: Iterable[int], brokers: Collection[int]) -> int:
    """Return how much more often the broker that occurs most in `counted` occurs than the broker that occurs least."""
    counts = Counter(counted)
    each = [counts[broker] for broker in brokers]
    return max(each) - min(each)


def moves_from(
    victim: int, replicas: Mapping[TopicPartition, Sequence[int]], brokers: Collection[int]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return new replicas of the partitions that `victim` holds, in which other brokers take its places.

    A place of a preferred leader goes to a broker that is preferred least, and any other to a broker that holds least.
    """
    leads = Counter(each[0] for each in replicas.values())
    holds = Counter(broker for each in replicas.values() for broker in each)
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    for tp, before in replicas.items():
        if victim in before:
            others = sorted(set(brokers) - {*before, victim})
            leader = before[0] == victim
            taker = min(others, key=lambda broker: (leads[broker] if leader else 0, holds[broker]))
            leads[taker] += leader
            holds[taker] += 1
            moves[tp] = tuple(taker if broker == victim else broker for broker in before)
    return moves


def _replicas(cluster: ClusterUnderTest) -> dict[TopicPartition, tuple[int, ...]]:
    [described] = cluster.admin.describe_topics([_TOPIC])
    return {TopicPartition(_TOPIC, each.partition): tuple(each.replicas) for each in described.partitions}


def _fill(cluster: ClusterUnderTest, tps: Sequence[TopicPartition]) -> None:
    value = os.urandom(_VALUE_BYTES)
    with Producer(cluster.bootstrap_servers, client_id="bench") as producer:
        futures = [producer.send(tp.topic, value, partition=tp.partition) for _ in range(_RECORDS) for tp in tps]
        producer.flush(FLUSH_S)
    if failed := sum(not future.succeeded() for future in futures):
        raise NotMeasured(f"{failed} of {len(futures)} records were not acknowledged")


def _kill_and_restart(cluster: ClusterUnderTest, victim: int) -> float:
    """Kill the broker, wait until others lead its partitions, start it, and return when its start began."""
    cluster.kill(victim)
    wait_for(
        f"other leaders than broker {victim}",
        lambda: not {victim, -1} & set(cluster.leaders(_TOPIC).values()),
        _PATIENCE_S,
        every_s=_EVERY_S,
    )
    started = time.monotonic()
    cluster.restart(victim)
    return started


def _elect_preferred_leaders(cluster: ClusterUnderTest) -> None:
    """Elect until no election is refused.

    The wait for a full ISR asks the leaders, which know earlier than the controller that a replica is in sync.
    """

    def are_elected() -> bool:
        errors = cluster.admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_PATIENCE_S * 1000).values()
        return not any(isinstance(error, PreferredLeaderNotAvailableError) for error in errors)

    wait_for("elections without a refusal", are_elected, _PATIENCE_S, every_s=_EVERY_S)


def _wait_for_preferred_leaders(cluster: ClusterUnderTest, timeout_s: float) -> None:
    def are_back() -> bool:
        [described] = cluster.admin.describe_topics([_TOPIC])
        return all(each.leader == each.replicas[0] for each in described.partitions)

    wait_for("all preferred leaders", are_back, timeout_s, every_s=_EVERY_S)


def _move_all(cluster: ClusterUnderTest, victim: int, brokers: Collection[int]) -> float:
    """Move every replica of the broker to the others, and return the seconds until the last one has moved."""
    moves = moves_from(victim, _replicas(cluster), brokers)
    started = time.monotonic()
    cluster.admin.alter_partition_reassignments(moves, timeout_ms=_PATIENCE_S * 1000)
    wait_for(
        f"the reassignment of {len(moves):,} partitions",
        lambda: not cluster.admin.list_partition_reassignments(),
        _PATIENCE_S,
        every_s=_EVERY_S,
    )
    took = time.monotonic() - started
    after = _replicas(cluster)
    if wrong := [tp for tp, wanted in moves.items() if after[tp] != wanted]:
        raise NotMeasured(f"{len(wrong):,} partitions do not have their new replicas, such as {wrong[0]}")
    return took


BENCHMARK = Benchmark(
    "scale-brokers",
    f"{BROKERS} brokers and a topic of {PARTITIONS:,} partitions, RF {REPLICAS}, {_RECORDS} records of 1 KB in each; "
    "moved without a throttle; the shipped settings",
    (_CREATE, _LEADERS, _HOLDS, _ELECTED, _CHECKED, _MOVED),
    measure,
)
