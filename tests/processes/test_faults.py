"""Real brokers, a producer at work, a fault; afterwards every acknowledged record is read back exactly, in order,
and the replicas' files agree batch by batch."""

from __future__ import annotations

import time

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.replica_files import assert_replicas_identical
from tests.processes.harness.waiting import wait_for
from tests.processes.harness.workload import Workload
from tidelog import TopicPartition


def check(cluster: RunningCluster, workload: Workload, tps: list[TopicPartition]) -> None:
    assert workload.check(cluster.bootstrap_servers) > 200
    assert_replicas_identical(cluster, tps)


def elsewhere_led(cluster: RunningCluster, tps: list[TopicPartition], not_by: int) -> int:
    """A broker that leads one of `tps` and is not `not_by`."""
    return next(leader for tp in tps if (leader := cluster.leader(tp)) != not_by)


def test_a_killed_leader_costs_a_pause_and_no_record(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    victim = elsewhere_led(cluster, tps, not_by=cluster.controller())
    led = [tp for tp in tps if cluster.leader(tp) == victim]
    before = {tp: cluster.znode(tp).state for tp in led}
    with Workload(cluster.bootstrap_servers, tps) as workload:
        cluster.kill(victim)
        workload.wait_acknowledged(300)
        for tp in led:
            after = cluster.znode(tp).state
            assert after.leader != victim and victim not in after.isr
            assert after.leader_epoch > before[tp].leader_epoch
        cluster.restart(victim)
        for tp in tps:
            cluster.wait_in_sync(tp)
        workload.wait_acknowledged(100)
    check(cluster, workload, tps)


def test_a_killed_follower_leaves_the_isr_and_comes_back_to_it(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    leader, controller = cluster.leader(tp), cluster.controller()
    victim = next(b for b in cluster.broker_ids if b not in (leader, controller))
    with Workload(cluster.bootstrap_servers, [tp]) as workload:
        cluster.kill(victim)
        wait_for("the follower to leave the ISR", lambda: victim not in cluster.znode(tp).state.isr)
        workload.wait_acknowledged(300)
        assert cluster.leader(tp) == leader
        cluster.restart(victim)
        cluster.wait_in_sync(tp)
        workload.wait_acknowledged(100)
    check(cluster, workload, [tp])


def test_a_killed_controller_is_replaced_and_what_it_led_is_led_again(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    victim = cluster.controller()
    with Workload(cluster.bootstrap_servers, tps) as workload:
        cluster.kill(victim)
        wait_for("another controller", lambda: cluster.controller() != victim)
        workload.wait_acknowledged(300)
        assert all(cluster.leader(tp) != victim for tp in tps)
        cluster.restart(victim)
        for tp in tps:
            cluster.wait_in_sync(tp)
        workload.wait_acknowledged(100)
    check(cluster, workload, tps)


def test_a_broker_that_is_asked_to_stop_hands_its_leaderships_over_first(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    leaving = cluster.leader(tps[0])
    with Workload(cluster.bootstrap_servers, tps) as workload:
        cluster.terminate(leaving)
        workload.wait_acknowledged(300)
        assert all(cluster.znode(tp).state.leader != leaving for tp in tps)
        said = cluster.local.log_file(leaving).read_text()
        assert "handed over, 0 partitions remain" in said, "it left without waiting for the new leaders"
        assert (cluster.local.broker_dir(leaving) / ".kafka_cleanshutdown").exists()
        cluster.restart(leaving)
        for tp in tps:
            cluster.wait_in_sync(tp)
        workload.wait_acknowledged(100)
    check(cluster, workload, tps)


def test_a_leader_whose_session_expires_registers_anew_and_loses_nothing(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    victim = cluster.leader(tps[0])
    before = cluster.znode(tps[0]).state.leader_epoch
    with Workload(cluster.bootstrap_servers, tps) as workload:
        cluster.expire_session(victim)
        wait_for("an election", lambda: cluster.znode(tps[0]).state.leader_epoch > before)
        for tp in tps:
            cluster.wait_in_sync(tp)
        workload.wait_acknowledged(200)
    check(cluster, workload, tps)


def test_all_brokers_killed_at_once_come_back_with_everything(cluster: RunningCluster) -> None:
    tps = cluster.create_topic("t", partitions=3)
    with Workload(cluster.bootstrap_servers, tps) as workload:
        for broker_id in cluster.broker_ids:
            cluster.kill(broker_id)
        killed_at = time.monotonic()
        cluster.local.start()
        for tp in tps:
            cluster.wait_in_sync(tp)
        workload.wait_acknowledged(200)
        assert workload.longest_gap_s(tps, since=killed_at) > 0.1
    check(cluster, workload, tps)
