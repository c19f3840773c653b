"""ZooKeeper sessions that end while the broker is well."""

from __future__ import annotations

import random

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for

TIMES = 20


def test_leader_with_an_expired_session_registers_again_without_loss(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    victim = cluster.leader(tps[0])
    before, registered = cluster.znode(tps[0]).state.leader_epoch, cluster.broker_epoch(victim)
    with ordeal(cluster, tps) as under:
        cluster.expire_session(victim)
        wait_bitten("an election", lambda: cluster.znode(tps[0]).state.leader_epoch > before)
        assert cluster.wait_serves(victim, since=registered) > registered
        under.workload.wait_acknowledged(200)


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["the leader's", "one broker's", "any broker's"])
def test_repeated_session_expiry_leaves_all_partitions_led_and_in_sync(cluster: RunningCluster, whose: str) -> None:
    tps = cluster.create_topic("t", partitions=6)
    chosen = random.Random(9307)
    first, before = cluster.leader(tps[0]), cluster.znode(tps[0]).state.leader_epoch
    choose = {
        "the leader's": lambda: cluster.leader(tps[0]),
        "one broker's": lambda: first,
        "any broker's": lambda: chosen.choice(cluster.broker_ids),
    }
    with ordeal(cluster, tps) as under:
        acknowledged = under.workload.acknowledged
        epochs = []
        for _ in range(TIMES):
            victim = choose[whose]()
            epoch = cluster.wait_serves(victim)
            cluster.expire_session(victim)  # the broker may just be starting to follow
            epochs.append(cluster.wait_serves(victim, since=epoch))
        require_bite("the sessions were the same", len(set(epochs)) == TIMES and f"{TIMES} registrations")
        # Not one election for each expiry, because a leader that returns before a new controller looks keeps its epoch.
        print(f"{cluster.znode(tps[0]).state.leader_epoch - before} elections of {tps[0]}")
        assert under.workload.acknowledged - acknowledged > 100, "there was no load while they expired"
        wait_for("all to be led", lambda: all(cluster.znode(tp).state.leader > 0 for tp in tps))
        under.workload.wait_acknowledged(300)
