"""SIGTERM for brokers under load: one broker, each in turn, and without a possible new leader."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_for
from tidelog.local.zookeeper import EmbeddedZooKeeper

#: Far more than a stop takes; a stop that hangs takes the 30 s of the harness.
LATEST_END_S = 25
#: A shutdown takes less than 0.2 s on an idle machine (README).
LONGEST_HANDOVER_S = 2
MARKER = ".kafka_cleanshutdown"


def test_stopping_broker_hands_its_leaderships_over_first(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    leaving = cluster.leader(tps[0])
    with ordeal(cluster, tps) as under:
        stopped_at = time.monotonic()
        cluster.terminate(leaving)
        assert time.monotonic() - stopped_at < 10
        under.workload.wait_acknowledged(300)
        assert under.workload.longest_gap_s(tps, since=stopped_at) < LONGEST_HANDOVER_S
        assert all(cluster.znode(tp).state.leader != leaving for tp in tps)
        assert cluster.said(leaving, "controlled shutdown: leadership moved, 0 partitions remain"), (
            "it left without waiting for the new leaders"
        )
        assert (cluster.local.broker_dir(leaving) / MARKER).exists()
        cluster.restart(leaving)


@pytest.mark.slow
def test_stopping_broker_ends_in_time_while_the_controller_hangs(
    cluster: RunningCluster,
) -> None:
    tps = cluster.create_topic("t", partitions=3)
    controller = cluster.controller()
    leaving = next(leader for tp in tps if (leader := cluster.leader(tp)) != controller)
    with ordeal(cluster, tps):
        with cluster.paused(controller):
            stopped_at = time.monotonic()
            cluster.terminate(leaving)
            assert time.monotonic() - stopped_at < LATEST_END_S
            require_bite(
                "it was handed over",
                not cluster.said(leaving, "controlled shutdown: leadership moved, 0 partitions remain"),
            )
            assert (cluster.local.broker_dir(leaving) / MARKER).exists()
        cluster.restart(leaving)


@pytest.mark.slow
def test_stopping_broker_ends_in_time_without_zookeeper(tmp_path: Path) -> None:
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper,
        running_cluster(tmp_path, zookeeper=zookeeper.hosts) as cluster,
    ):
        tps = cluster.create_topic("t", partitions=3)
        leaving = cluster.leader(tps[0])
        with ordeal(cluster, tps):
            zookeeper.stop()
            stopped_at = time.monotonic()
            cluster.terminate(leaving)
            assert time.monotonic() - stopped_at < LATEST_END_S
            require_bite(
                "it was handed over",
                not cluster.said(leaving, "controlled shutdown: leadership moved, 0 partitions remain"),
            )
            assert (cluster.local.broker_dir(leaving) / MARKER).exists()
            zookeeper.start()
            cluster.restart(leaving)


@pytest.mark.slow
def test_restarting_leaders_in_turn_loses_no_record(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    chosen = random.Random(13)
    with ordeal(cluster, tps) as under:
        for _ in range(5):
            chased = cluster.leader(tps[0])
            epoch = cluster.znode(tps[0]).state.leader_epoch
            chosen.choice((cluster.terminate, cluster.kill))(chased)
            under.workload.wait_acknowledged(100)
            require_bite("no election", cluster.znode(tps[0]).state.leader_epoch > epoch)
            cluster.restart(chased)
            for tp in tps:
                cluster.wait_in_sync(tp)
        for each in cluster.broker_ids:
            cluster.terminate(each)
            under.workload.wait_acknowledged(100)
            cluster.restart(each)
            wait_for("it to be in sync", lambda each=each: all(each in cluster.znode(tp).state.isr for tp in tps))  # type: ignore[misc]
