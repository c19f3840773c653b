"""The identity of a broker: a restart before the old session expires, two processes with one id, the directory of
another cluster, and a missing ZooKeeper."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cluster.zookeeper import znodes
from storage.directory import meta_properties
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tests.reserved_ports import reserved_port
from tidelog.local.zookeeper import EmbeddedZooKeeper

pytestmark = pytest.mark.slow

LONG_SESSION_S = 10


def session_of(cluster: RunningCluster, broker_id: int) -> int:
    """Whose the broker's registration is, 0 where there is none."""
    with cluster.zookeeper() as client:
        stat = client.exists(znodes.broker_path(broker_id))
    return 0 if stat is None else int(stat.ephemeralOwner)


@contextmanager
def untouched(cluster: RunningCluster, broker_id: int) -> Iterator[None]:
    """Assert that the block neither ends the broker's process nor changes its registration."""
    process, epoch = cluster.local.broker_process(broker_id), cluster.broker_epoch(broker_id)
    yield
    assert process is not None and process.running
    assert cluster.broker_epoch(broker_id) == epoch


def ended(process: subprocess.Popen[bytes], timeout_s: float = 60) -> str:
    """Return the last line of a process that must fail."""
    _, complaint = process.communicate(timeout=timeout_s)
    assert process.returncode == 1
    return complaint.decode()


def files_under(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("cluster", [{"zookeeper_session_timeout_ms": LONG_SESSION_S * 1000}], indirect=True)
def test_broker_restarted_before_its_old_session_expires_registers_again(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    victim = cluster.leader(tps[0])
    session, epoch = session_of(cluster, victim), cluster.broker_epoch(victim)
    with ordeal(cluster, tps):
        killed_at = time.monotonic()
        cluster.kill(victim)
        cluster.restart(victim)
        after = cluster.wait_serves(victim, since=epoch)
        require_bite("the old session may have ended by itself", time.monotonic() - killed_at < LONG_SESSION_S)
        assert after > epoch
        assert session_of(cluster, victim) != session


def test_second_process_with_the_same_directory_ends_at_once(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    with ordeal(cluster, [tp]) as under, untouched(cluster, 1):
        with cluster.launched(cluster.second_config(1)) as second:
            assert "in use by another process" in ended(second)
        under.workload.wait_acknowledged(100)


@pytest.mark.parametrize("cluster", [{"zookeeper_session_timeout_ms": 3000}], indirect=True)
def test_second_process_with_the_same_id_ends_and_the_first_stays(cluster: RunningCluster, tmp_path: Path) -> None:
    (tp,) = cluster.create_topic("t")
    with ordeal(cluster, [tp]) as under, untouched(cluster, 1):
        with cluster.launched(cluster.second_config(1, log_dirs=[str(tmp_path / "elsewhere")])) as second:
            assert "broker id 1 is registered by another live process" in ended(second)
        under.workload.wait_acknowledged(100)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [{"zookeeper_session_timeout_ms": 3000}], indirect=True)
def test_resumed_broker_ends_if_its_id_is_registered_by_another(cluster: RunningCluster, tmp_path: Path) -> None:
    (tp,) = cluster.create_topic("t")
    first, epoch = cluster.local.broker_process(1), cluster.broker_epoch(1)
    assert first is not None
    with ordeal(cluster, [tp]) as under, ExitStack() as running:
        with cluster.paused(1):
            wait_bitten("its session to end", lambda: not cluster.broker_epoch(1))
            second = cluster.second_config(1, log_dirs=[str(tmp_path / "elsewhere")])
            process = running.enter_context(cluster.launched(second))
            taken = cluster.wait_serves(1, since=epoch)
        assert first.wait(60_000), "both go on under one id"
        assert cluster.said(1, "broker id 1 is registered by another live process")
        cluster.wait_in_sync(tp)
        assert process.poll() is None
        assert cluster.broker_epoch(1) == taken
        running.close()
        under.workload.wait_acknowledged(100)
        cluster.restart(1)


def test_directory_of_another_cluster_is_refused_and_unchanged(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    with ordeal(cluster, [tp]):
        cluster.terminate(1)
        properties = cluster.local.broker_dir(1) / meta_properties.FILE_NAME
        ours = properties.read_bytes()
        cluster_id = next(line for line in ours.splitlines() if line.startswith(b"cluster.id="))
        properties.write_bytes(ours.replace(cluster_id, b"cluster.id=another-cluster"))
        before = files_under(cluster.local.broker_dir(1))
        with cluster.launched(cluster.config(1, "broker-1", log_file="")) as refused:
            assert "the directory belongs to another cluster" in ended(refused)
        assert files_under(cluster.local.broker_dir(1)) == before
        assert cluster.broker_epoch(1) == 0
        properties.write_bytes(ours)
        cluster.restart(1)


@pytest.fixture
def quiet_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """Return a ZooKeeper that has a port and does not run yet."""
    zookeeper = EmbeddedZooKeeper(tmp_path / "zookeeper", reserved_port())
    try:
        yield zookeeper
    finally:
        zookeeper.stop()


@pytest.mark.slow
def test_broker_waits_for_zookeeper_until_its_timeout(tmp_path: Path, quiet_zookeeper: EmbeddedZooKeeper) -> None:
    zookeeper = quiet_zookeeper
    zookeeper.start()
    with running_cluster(tmp_path, brokers=1, zookeeper=zookeeper.hosts) as cluster:
        cluster.kill(1)
        zookeeper.stop()
        impatient = cluster.config(1, "impatient", zookeeper_connect_timeout_ms=1500, log_file="")
        with cluster.launched(impatient) as gives_up:
            assert f"no ZooKeeper answers at {zookeeper.hosts} (tried for 1500 ms)" in ended(gives_up)
        with cluster.launched(cluster.config(1, "patient")) as waits:
            wait_for("it to say so", lambda: cluster.said(1, f"waiting for ZooKeeper at {zookeeper.hosts}"))
            assert waits.poll() is None
            zookeeper.start()
            cluster.wait_serves(1)
