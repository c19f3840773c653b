"""The files that a broker finds on its disk after a crash."""

from __future__ import annotations

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.workload import Workload
from tidelog import TopicPartition

pytestmark = pytest.mark.slow

INDEX = f"t-0/{0:020}.index"


def test_indexes_lost_in_a_crash_are_rebuilt_with_the_topics_interval(cluster: RunningCluster) -> None:
    tp = TopicPartition("t", 0)
    cluster.create_topic("t", configs={"index.interval.bytes": "100"})
    with Workload(cluster.bootstrap_servers, [tp]) as workload:
        workload.wait_acknowledged(400)
    victim = cluster.leader(tp)
    cluster.wait_same_end(tp)
    cluster.kill(victim)
    (cluster.local.broker_dir(victim) / INDEX).unlink()
    cluster.restart(victim)
    cluster.wait_in_sync(tp)
    # Its last page stays in memory until a log is closed.
    witness, survivor = (broker_id for broker_id in cluster.broker_ids if broker_id != victim)
    cluster.terminate(victim)
    cluster.terminate(witness)
    rebuilt, written = ((cluster.local.broker_dir(each) / INDEX).read_bytes() for each in (victim, witness))
    assert len(written) > 8 * 20, "the batches were too large for this test to mean anything"
    assert rebuilt == written
    # A single replica below min.insync.replicas may not know its high watermark.
    cluster.restart(witness)
    assert workload.check([cluster.address(survivor)]) >= 400
