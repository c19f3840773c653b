"""A broker without free file descriptors keeps its disk and its connections, and recovers."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.descriptors import begin_to_connect, has_hardly_any_left, limited_to
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tidelog import Admin
from tidelog.errors import TidelogError
from tidelog.model import Endpoint

pytestmark = pytest.mark.slow

NONE_LEFT = "no file descriptor is left"


def answers(address: str) -> bool:
    """Return whether the broker accepts new connections."""
    try:
        with Admin(address, default_api_timeout_ms=1500) as admin:
            admin.describe_cluster()
    except TidelogError:
        return False
    return True


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("connections", [90, 400], ids=["fewer than are kept for files", "more than that"])
def test_broker_out_of_descriptors_keeps_disk_and_connections(
    cluster: RunningCluster, role: str, connections: int
) -> None:
    (tp,) = cluster.create_topic("t", configs={"segment.bytes": "20000"})
    leader = cluster.leader(tp)
    victim = leader if role == "leader" else next(b for b in cluster.broker_ids if b != leader)
    process, address = cluster.local.broker_process(victim), cluster.address(victim)
    assert process is not None

    def rolled() -> int:
        return len(list(cluster.replica_dir(victim, tp).glob("*.log")))

    with ordeal(cluster, [tp]) as under:
        under.workload.wait_acknowledged(200)
        with ExitStack() as held, limited_to(process.pid, 3):
            for _ in range(connections):
                begin_to_connect(Endpoint.parse(address), held)
            wait_bitten("a file to get none", lambda: cluster.said(victim, NONE_LEFT))
            if connections < 100:
                before = rolled()
                under.workload.wait_acknowledged(300)
                wait_for("segments that are rolled meanwhile", lambda: rolled() >= before + 2)
            else:
                wait_bitten("new connections to get no answer", lambda: not answers(address))
            require_bite("it has descriptors", has_hardly_any_left(process.pid))
            assert process.running, "it goes on"
        wait_for("those who are new to be taken again", lambda: answers(address))
        under.workload.wait_acknowledged(100)
        assert process.running
    assert not cluster.said(victim, "is offline")
    assert not cluster.said(victim, "Traceback")
