"""`flush.messages=1` on real disks: what is acknowledged has been synced on every replica."""

from __future__ import annotations

import pytest

from storage.checkpoints import RECOVERY_POINTS, read_offsets
from storage.files import RealFiles
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Producer, TopicPartition


def synced(cluster: RunningCluster, tp: TopicPartition) -> set[int]:
    """Up to where the replicas say that they have synced their logs."""
    files, local = RealFiles(), cluster.local
    return {read_offsets(files, local.broker_dir(each) / RECOVERY_POINTS).get(tp, 0) for each in cluster.broker_ids}


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [{"log_flush_offset_checkpoint_interval_ms": 20}], indirect=True)
def test_acknowledged_records_are_flushed_on_every_replica_if_configured(cluster: RunningCluster) -> None:
    (durable,) = cluster.create_topic("durable", configs={"flush.messages": "1"})
    (cached,) = cluster.create_topic("cached")
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(20):
            for tp in (cached, durable):
                assert producer.send(tp.topic, b"x", partition=0).get(30).offset == number
    # No more records are appended, so that only the checkpoint is still to be written.
    wait_for("all that was acknowledged to be synced", lambda: synced(cluster, durable) == {20})
    assert synced(cluster, cached) == {0}
    cluster.kill(cluster.leader(durable))
    with Producer(cluster.bootstrap_servers) as producer:
        assert producer.send("durable", b"x", partition=0).get(30).offset == 20
