"""The steps of OPERATIONS.md for backups and for a new disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.replica_files import assert_replicas_identical
from tidelog import Producer, TopicPartition

pytestmark = pytest.mark.slow


def produce(cluster: RunningCluster, tp: TopicPartition, values: range) -> None:
    with Producer(cluster.bootstrap_servers) as producer:
        futures = [producer.send(tp.topic, b"%d" % value, partition=tp.partition) for value in values]
        for future in futures:
            future.get(timeout=30)


@pytest.mark.parametrize("restored", [True, False], ids=["an old backup", "an empty disk"])
def test_broker_restored_from_a_backup_fetches_the_missing_records(
    cluster: RunningCluster, tmp_path: Path, restored: bool
) -> None:
    (tp,) = cluster.create_topic("t")
    produce(cluster, tp, range(100))
    victim = cluster.leader(tp)
    directory, backup = cluster.local.broker_dir(victim), tmp_path / "backup"
    cluster.terminate(victim)
    shutil.copytree(directory, backup)
    cluster.restart(victim)
    cluster.wait_in_sync(tp)
    produce(cluster, tp, range(100, 200))

    cluster.terminate(victim)
    shutil.rmtree(directory)
    if restored:
        shutil.copytree(backup, directory)
    else:
        directory.mkdir()
    produce(cluster, tp, range(200, 300))
    cluster.restart(victim)
    cluster.wait_in_sync(tp)
    assert cluster.wait_same_end(tp) == 300
    assert_replicas_identical(cluster, [tp])
