"""Disks that are full: a leader's, a follower's, ZooKeeper's. (One of several of a broker: test_log_directories.py.)"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.disks import full
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tidelog.local.zookeeper import EmbeddedZooKeeper

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_broker_with_a_full_disk_hands_over_and_returns_with_free_space(
    cluster: RunningCluster, small_disk: Path, role: str
) -> None:
    (tp,) = cluster.create_topic("t")
    leader = cluster.leader(tp)
    victim = leader if role == "leader" else next(b for b in cluster.broker_ids if b != leader)
    logs = small_disk / "logs"
    cluster.terminate(victim)
    shutil.copytree(cluster.local.broker_dir(victim), logs)
    config = cluster.config(victim, "small", log_dirs=[str(logs)])
    with cluster.launched(config) as process:
        cluster.wait_in_sync(tp)
        while role == "leader" and cluster.leader(tp) != victim:
            other = cluster.leader(tp)
            cluster.terminate(other)
            wait_for("another leader", lambda other=other: cluster.znode(tp).state.leader not in (other, -1))  # type: ignore[misc]
            cluster.restart(other)
            cluster.wait_in_sync(tp)
        require_bite("it has another role", (cluster.leader(tp) == victim) is (role == "leader"))
        with ordeal(cluster, [tp]) as under:
            with full(small_disk):
                wait_bitten("the full disk to be noticed", lambda: victim not in cluster.znode(tp).state.isr)
                assert cluster.leader(tp) != victim
                under.workload.wait_acknowledged(300)
                # Its only disk has failed: a broker without any ends, and says why.
                wait_for("it to end", lambda: process.poll() is not None)
                assert process.returncode == 1
            with cluster.launched(config) as again:
                cluster.wait_in_sync(tp)
                under.workload.wait_acknowledged(100)
                again.terminate()
                again.wait(30)
            shutil.rmtree(cluster.local.broker_dir(victim))
            shutil.copytree(logs, cluster.local.broker_dir(victim))
            cluster.restart(victim)


def test_a_zookeeper_whose_disk_is_full_costs_no_leader_and_no_record(tmp_path: Path, small_disk: Path) -> None:
    with (
        EmbeddedZooKeeper(small_disk / "zookeeper", log_file=tmp_path / "zookeeper.log") as zookeeper,
        running_cluster(tmp_path, zookeeper=zookeeper.hosts, zookeeper_session_timeout_ms=3000) as cluster,
    ):
        tps = cluster.create_topic("t", partitions=3)
        leaders = {tp: cluster.leader(tp) for tp in tps}
        with ordeal(cluster, tps) as under:
            with full(small_disk):
                cluster.local.known_state()
                killed = zookeeper.process
                assert killed is not None

                def ended() -> bool:
                    with cluster_write(zookeeper):
                        pass
                    return not zookeeper.running

                wait_bitten("ZooKeeper to fail", ended, 60)
                under.workload.wait_acknowledged(300)
            if zookeeper.running:
                killed.signal(signal.SIGKILL)
                killed.wait(10_000)
            zookeeper.start()
            for each in cluster.broker_ids:
                cluster.wait_serves(each)
            assert {tp: cluster.leader(tp) for tp in tps}.keys() == leaders.keys()
            under.workload.wait_acknowledged(100)


@contextmanager
def cluster_write(zookeeper: EmbeddedZooKeeper) -> Iterator[None]:
    """Write 100 KB to ZooKeeper, or try to."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(zookeeper.hosts, timeout=5)
    try:
        client.start(timeout=3)
        for _ in range(20):
            client.create_async("/filler-", b"x" * 100_000, sequence=True).get(timeout=2)
    except (KazooException, KazooTimeoutError):
        pass
    finally:
        client.stop()
        client.close()
    yield
