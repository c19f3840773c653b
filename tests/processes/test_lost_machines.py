"""Real brokers whose machine lost power, simulated by another boot id beside their logs."""

from __future__ import annotations

import pytest

from cluster.zookeeper import znodes
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.replica_files import assert_replicas_identical, end_on_disk
from tests.processes.harness.waiting import require_bite, wait_for
from tests.processes.harness.workload import Workload

pytestmark = pytest.mark.slow


def lose_machine(cluster: RunningCluster, broker_id: int, tail_bytes: int = 0) -> None:
    """The broker does not run. Its boot id is an earlier one, and the last segment of each log of `t` lost its tail."""
    directory = cluster.local.broker_dir(broker_id)
    (directory / "boot.id").write_text("an earlier boot\n")
    if tail_bytes:
        for log in sorted(directory.glob("t-*/*.log")):
            content = log.read_bytes()
            log.write_bytes(content[: max(0, len(content) - tail_bytes)])


def test_short_log_never_leads_and_catches_up(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    victim = cluster.leader(tps[0])
    with ordeal(cluster, tps) as under:
        under.workload.wait_acknowledged(200)
        cluster.kill(victim)
        before = [end_on_disk(cluster, victim, tp) for tp in tps]
        lose_machine(cluster, victim, tail_bytes=2000)
        lost = sum(before) - sum(end_on_disk(cluster, victim, tp) for tp in tps)
        require_bite("it lost nothing", lost and f"{lost} records gone")
        cluster.restart(victim)
        for tp in tps:
            cluster.wait_in_sync(tp)
        wait_for(
            "the cluster to deal with it",
            lambda: (cluster.local.broker_dir(victim) / "boot.id").read_text() != "an earlier boot\n",
        )


@pytest.mark.parametrize(
    ("cluster", "missed"),
    [
        pytest.param({"zookeeper_session_timeout_ms": 3_000}, True, id="missed"),
        pytest.param({"zookeeper_session_timeout_ms": 10_000}, False, id="back before missed"),
    ],
    indirect=["cluster"],
)
def test_longest_log_leads_after_a_full_outage(cluster: RunningCluster, missed: bool) -> None:
    tps = cluster.create_topic("t", partitions=3)
    with Workload(cluster.bootstrap_servers, tps) as workload:
        workload.wait_acknowledged(300)
    leaders = {tp: cluster.leader(tp) for tp in tps}
    spared = next(b for b in cluster.broker_ids if b != leaders[tps[0]])
    cluster.kill_all()
    assert all(len(cluster.znode(tp).state.isr) == 3 for tp in tps)
    if missed:
        with cluster.zookeeper() as client:
            wait_for("all sessions to end", lambda: not client.get_children(znodes.BROKER_IDS))
    shortened = [each for each in cluster.broker_ids if each != spared]
    before = sum(end_on_disk(cluster, each, tp) for each in shortened for tp in tps)
    for broker_id in cluster.broker_ids:
        lose_machine(cluster, broker_id, tail_bytes=0 if broker_id == spared else 300)
    lost = before - sum(end_on_disk(cluster, each, tp) for each in shortened for tp in tps)
    require_bite("no replica lost a record", lost and f"{lost} records gone")
    if not missed:
        # The longest comes first, and finds that all the others are registered still.
        registered = [cluster.broker_epoch(broker_id) for broker_id in cluster.broker_ids]
        require_bite("a broker was not registered", all(registered) and registered)
        cluster.restart(spared)
        cluster.wait_serves(spared, since=max(registered))
    cluster.local.start()
    for tp in tps:
        cluster.wait_in_sync(tp)
    assert workload.check(cluster.bootstrap_servers) > 300
    assert_replicas_identical(cluster, tps)
