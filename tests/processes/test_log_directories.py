"""A real broker with two log directories, one of which goes away or fills up under a producer at work."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.disks import full
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tidelog import TopicPartition
from tidelog.errors import InvalidReplicationFactorError, StorageError
from tidelog.local.broker import broker_command, broker_environment

pytestmark = pytest.mark.slow

SOON = {"replica_high_watermark_checkpoint_interval_ms": 300}


class TwoDisks:
    """Broker 1 of a cluster, restarted with a second log directory beside its first."""

    def __init__(self, cluster: RunningCluster, second: Path) -> None:
        self.cluster = cluster
        self.first = cluster.local.broker_dir(1)
        self.second = second
        self._config = cluster.local.data_dir / "config" / "two-disks.toml"
        settings = (cluster.local.data_dir / "config" / "broker-1.toml").read_text()
        log_dirs = f'log_dirs = ["{self.first}", "{second}"]'
        self._config.write_text(re.sub(r"(?m)^log_dirs = .*$", lambda _: log_dirs, settings))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = broker_command(self._config)
        self.process = subprocess.Popen(command, env=broker_environment(), cwd=self._config.parent)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def in_second(self, tps: list[TopicPartition]) -> list[TopicPartition]:
        return [tp for tp in tps if (self.second / str(tp)).is_dir()]

    def wait_lost(self, tps: list[TopicPartition]) -> None:
        """Broker 1 neither leads these nor is in sync for them."""
        for tp in tps:
            wait_bitten(f"broker 1 to leave {tp}", lambda tp=tp: 1 not in self.cluster.znode(tp).state.isr, 20)  # type: ignore[misc]
            assert self.cluster.znode(tp).state.leader in (2, 3)


@contextmanager
def two_disks(cluster: RunningCluster, second: Path) -> Iterator[TwoDisks]:
    cluster.terminate(1)
    second.mkdir()
    broker = TwoDisks(cluster, second)
    cluster.other_log_dirs[1] = second
    broker.start()
    try:
        yield broker
    finally:
        if broker.runs:
            broker.stop()


def create_on_both(cluster: RunningCluster, broker: TwoDisks) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Partitions, some of which have their log in the second directory: (there, in the first)."""

    def create() -> list[TopicPartition]:
        with suppress(InvalidReplicationFactorError):  # the controller has not heard of broker 1 yet
            return cluster.create_topic("t", partitions=6)
        return []

    tps = wait_for("broker 1 to be back", create)
    there = broker.in_second(tps)
    assert len(there) == 3
    return there, [tp for tp in tps if tp not in there]


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [SOON], indirect=True)
def test_vanished_directory_moves_only_its_own_leaderships(cluster: RunningCluster, tmp_path: Path) -> None:
    with two_disks(cluster, tmp_path / "second") as broker:
        there, here = create_on_both(cluster, broker)
        require_bite("broker 1 leads nothing there", any(cluster.leader(tp) == 1 for tp in there))
        with ordeal(cluster, there + here) as under:
            under.workload.wait_acknowledged(200)
            broker.second.rename(tmp_path / "elsewhere")
            broker.wait_lost(there)
            first, second = cluster.admin.describe_log_dirs([1])[1]
            assert (first.path, first.error_code, len(first.replicas)) == (str(broker.first), 0, len(here))
            assert (second.path, second.error_code, second.replicas) == (str(broker.second), StorageError.code, ())
            under.workload.wait_acknowledged(200)
            for tp in here:
                assert 1 in cluster.znode(tp).state.isr
            assert broker.runs
            assert broker.stop() == 0
            broker.start()  # the directory is still away: no empty logs are made in its place
            wait_for("broker 1 to be back", lambda: len(cluster.admin.describe_cluster().brokers) == 3, 30)
            for tp in here:
                cluster.wait_in_sync(tp)
            assert not broker.second.exists()
            assert not [tp for tp in there if (broker.first / str(tp)).exists()]
            assert broker.stop() == 0
            (tmp_path / "elsewhere").rename(broker.second)
            broker.start()


@pytest.mark.parametrize("cluster", [SOON], indirect=True)
def test_records_acknowledged_before_a_full_disk_are_kept(cluster: RunningCluster, small_disk: Path) -> None:
    with two_disks(cluster, small_disk / "logs") as broker:
        there, here = create_on_both(cluster, broker)
        with ordeal(cluster, there + here) as under:
            under.workload.wait_acknowledged(200)
            with full(small_disk):
                broker.wait_lost(there)
                under.workload.wait_acknowledged(200)
                assert broker.runs
                ends = {tp: (broker.second / str(tp) / f"{0:020d}.log").stat().st_size for tp in there}
                assert all(ends.values()), "what was written stays"
            assert broker.stop() == 0
            broker.start()
