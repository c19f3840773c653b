"""What a broker finds on its disk after a crash."""

from __future__ import annotations

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.workload import Workload
from tidelog import TopicPartition


def test_indexes_lost_in_a_crash_are_rebuilt_as_dense_as_the_topic_asks(cluster: RunningCluster) -> None:
    tp = TopicPartition("t", 0)
    cluster.create_topic("t", configs={"index.interval.bytes": "100"})
    with Workload(cluster.bootstrap_servers, [tp]) as workload:
        workload.wait_acknowledged(200)
    victim = cluster.leader(tp)
    cluster.wait_same_end(tp)
    index = cluster.local.broker_dir(victim) / "t-0" / f"{0:020}.index"
    before = index.read_bytes()
    assert len(before) > 8 * 20, "the batches were too large for this test to mean anything"
    cluster.kill(victim)
    index.unlink()
    cluster.restart(victim)
    cluster.wait_in_sync(tp)
    assert index.read_bytes() == before
    assert workload.check(cluster.bootstrap_servers) >= 200
